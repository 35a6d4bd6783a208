"""Rewards of turns: the four methods, the sign of scores, and the attributors that ask no model."""

import asyncio
import itertools
import json

import pytest
from sotopia_training.attribution.by_outcome import OFFLINE, make_attributor, prospect_changes
from sotopia_training.attribution.methods import (
    Importance,
    SeatScore,
    Unattributed,
    attributable_turns,
    attributed,
    dimension_name,
    read_attributions,
    read_rewards,
    seat_score,
)
from sotopia_training.attribution.stage import AttributionSettings, run

from sotopia_env import tasks
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, TurnOrder
from sotopia_env.world.episode import write_episodes
from sotopia_env.world.reward import RANGES, CustomDimension, Dimension
from tests.errors import raises
from tests.sotopia_training.played import ACCEPT, LEAVE, NONE, haggling, played

BUYER, SELLER = "agent_0", "agent_1"
SMALL = {1: 0.0, 3: 0.25, 5: 1.0}


def importance(episode, seat, name, dimension="goal", blame=False):
    result = make_attributor(name).attribute(episode, seat, seat_score(episode, seat, dimension), blame)
    assert isinstance(result, Importance)
    return result.by_turn


# --- methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "estimate", "expected"),
    [
        ("uniform", None, {1: 1.0, 3: 1.0, 5: 1.0}),
        ("uniform", Importance(SMALL), {1: 1.0, 3: 1.0, 5: 1.0}),
        ("singular", Importance(SMALL), {1: 0.0, 3: 0.0, 5: 1.0}),
        ("singular", Importance(SMALL, key=3), {1: 0.0, 3: 1.0, 5: 0.0}),
        ("singular", Importance({1: 0.5, 3: 0.5, 5: 0.0}), {1: 1.0, 3: 0.0, 5: 0.0}),
        ("singular", Importance({1: 0.0, 3: 0.0, 5: 0.0}), {1: 0.0, 3: 0.0, 5: 0.0}),
        ("singular", Importance({1: 0.0, 3: 0.0, 5: 0.0}, key=5), {1: 0.0, 3: 0.0, 5: 1.0}),
        ("scaled", Importance(SMALL), {1: 0.0, 3: 0.2, 5: 0.8}),
        ("direct", Importance(SMALL), SMALL),
    ],
)
def test_methods(method, estimate, expected):
    assert attributed(method, estimate, (1, 3, 5)) == pytest.approx(expected)


def test_scaled_rewards_sum_to_the_score_even_if_nothing_mattered():
    """Guards R3: sotopia-rl divides by a sum that may be zero."""
    for weights in (SMALL, {1: 0.0, 3: 0.0, 5: 0.0}, {1: 1e-12, 3: 0.0, 5: 1.0}):
        assert sum(attributed("scaled", Importance(weights), (1, 3, 5)).values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("estimate", "fields"),
    [
        (None, {"field": "importance", "got": None}),
        (Importance({1: 0.5}), {"field": "importance", "got": "[1]"}),
        (Importance({1: 0.0, 3: 0.0, 5: 0.0, 6: 0.0}), {"field": "importance", "got": "[1, 3, 5, 6]"}),
        (Importance({1: 0.0, 3: 1.5, 5: 0.0}), {"field": "importance.3", "got": 1.5}),
        (Importance(SMALL, key=2), {"field": "importance.key", "got": 2}),
    ],
)
def test_answers_about_other_turns_are_refused(estimate, fields):
    """Guards R5: sotopia-rl leaves what is missing at 0."""
    with raises(InvalidValueError, **fields):
        attributed("direct", estimate, (1, 3, 5))


def test_an_unknown_method_is_refused():
    with raises(UnknownNameError, field="method", got="straight"):
        attributed("straight", Importance(SMALL), (1, 3, 5))


@pytest.mark.parametrize(
    ("name", "value", "signed", "shifted"),
    [
        ("goal", 8.0, 8.0, 8.0),
        ("goal", 0.0, 0.0, 0.0),
        ("knowledge", 3.5, 3.5, 3.5),
        ("relationship", 5.0, 5.0, 10.0),
        ("relationship", 0.0, 0.0, 5.0),
        ("relationship", -3.0, -3.0, 2.0),
        ("financial_and_material_benefits", -5.0, -5.0, 0.0),
        ("secret", 0.0, 0.0, 10.0),
        ("secret", -10.0, -10.0, 0.0),
        ("social_rules", -4.0, -4.0, 6.0),
    ],
)
def test_the_sign_of_a_score(name, value, signed, shifted):
    score = SeatScore(name, value, *RANGES[Dimension(name)])
    assert (score.base("signed"), score.base("shifted")) == (signed, shifted)


def test_a_custom_range_is_shifted_only_if_it_begins_below_zero():
    assert SeatScore("pace", 2, 1, 5).base("shifted") == 2
    assert SeatScore("pace", -2, -3, 3).base("shifted") == 1


def test_names_of_dimensions():
    assert [dimension_name(name) for name in ("KNO", "goal", "Rel", "salary")] == [
        "knowledge",
        "goal",
        "relationship",
        "salary",
    ]


# --- turns and scores ---------------------------------------------------------------------------------------------


def test_silence_and_impossible_actions_are_not_attributable_and_leaving_is():
    acts = [NONE, "Hello.", Action(ActionType.NON_VERBAL, "nods"), Action(ActionType.SPEAK, "psst", (BUYER,)), LEAVE]
    episode = played(haggling(), *acts)
    assert episode.turns[3].turn.violation is not None
    assert attributable_turns(episode, BUYER) == (2, 4)
    assert attributable_turns(episode, SELLER) == (1,)
    with pytest.raises(UnknownNameError, match="agent_1"):
        attributable_turns(episode, "agent_2")


def test_a_failed_evaluation_is_missing_with_its_reason():
    """Guards R6: a failed evaluation crashes sotopia-rl; and a failure is not a score of 0."""
    failed = played(haggling(), "Hello.", LEAVE, judge=FixedEvaluator(unscored="the judge timed out"))
    assert seat_score(failed, BUYER, "goal") == Unattributed("unscored: EvaluationError: the judge timed out")
    bare = played(haggling(), "Hello.", LEAVE, judge=None)
    assert seat_score(bare, BUYER, "goal") == Unattributed("not evaluated")
    scored = played(haggling(), "Hello.", LEAVE, judge="verified")
    assert seat_score(scored, BUYER, "relationship") == Unattributed("no score on relationship")
    assert seat_score(scored, BUYER, "goal", "other") == Unattributed("not evaluated by other")
    assert seat_score(scored, BUYER, "goal", "verified") == SeatScore("goal", 0.0, 0, 10)


def test_scores_on_custom_dimensions_come_with_their_range():
    episode = played(haggling(), "Hello.", LEAVE)
    evaluation = episode.evaluation()
    salary = CustomDimension(name="salary", low=1, high=5, instruction="How close?")
    score = evaluation.scores[0].model_copy(update={"dimension": "salary", "value": 4.0})
    more = evaluation.model_copy(update={"dimensions": (salary,), "scores": (*evaluation.scores, score)})
    assert seat_score(episode.with_evaluation(more), score.agent, "salary") == SeatScore(
        "salary", 4.0, 1, 5, "How close?"
    )


# --- attributors without a model ----------------------------------------------------------------------------------

OPENING = (56, 74, 62)


@pytest.mark.parametrize(
    ("acts", "changes"),
    [
        # At turn 1: 0.2 in hand, 1 achievable; at turn 3: 0.4 and 0.8; then a deal worth 0.4.
        ((*OPENING, ACCEPT), {1: 0.3 - 0.3, 3: 0.4 - 0.3}),
        # Holding out for 1 draws the same answer and loses nothing.
        ((56, 80, 62, ACCEPT), {1: 0.35 - 0.3, 3: 0.4 - 0.35}),
        # Words that draw an offer gain what is in hand then: from (0 + 1) / 4 to (0.4 + 1) / 4.
        (("Good day.", "It is a lovely lamp.", 62, ACCEPT), {1: 0.1, 3: 0.05}),
        # To accept at once what is worth 0.2 gives away more than the risk.
        ((56, ACCEPT), {1: 0.2 - 0.3}),
        # To leave without an agreement loses everything.
        ((56, LEAVE), {1: -0.3}),
        # What happens over a silent turn is credited to no other seat.
        (("Good day.", NONE, 62, ACCEPT), {1: 0.1, 3: 0.05}),
        # After the agreement nothing changes.
        ((*OPENING, ACCEPT, "Fine.", "See you."), {1: 0.0, 3: 0.1, 5: 0.0}),
        # Words do not bind: a deal that was only spoken of does not count.
        (("Shall we say 62?", "Deal, 62!", "Agreed, 62.", "Done."), {1: 0.0, 3: -0.25}),
    ],
)
def test_prospect(acts, changes):
    episode = played(haggling(), *acts, end_when_settled=False)
    assert prospect_changes(episode, SELLER) == pytest.approx(changes)
    turns = set(attributable_turns(episode, SELLER))
    top = max(0.0, *(change for turn, change in changes.items() if turn in turns))
    expected = {turn: max(0.0, changes[turn]) / top if top > 1e-9 else 0.0 for turn in turns}
    assert importance(episode, SELLER, "prospect") == pytest.approx(expected)


def test_acts():
    """The numbers of the module's formula, by hand."""
    episode = played(haggling(), 56, 68, 62, ACCEPT)
    # The first offer goes from 1 to 0.6; 0.2 had been offered; 0.8 lay between: a quarter of the room unreturned.
    assert importance(episode, SELLER, "acts") == pytest.approx({1: 0.5 * 0.4 * 0.75, 3: 0.5 + 0.5 * 0.4})
    # The buyer's first offer gives 0.2 for nothing; the second, which was accepted, less than had come back.
    assert importance(episode, BUYER, "acts") == pytest.approx({0: 0.5 * 0.6 * 0.8, 2: 0.5 + 0.5 * 0.6})


def test_small_talk_and_offers_without_effect_are_not_acts():
    talk = played(haggling(), "Good day.", "It is a lovely lamp.", 62, ACCEPT, "Bye.", "Bye.", end_when_settled=False)
    assert importance(talk, SELLER, "acts") == pytest.approx({1: 0.0, 3: 0.5 + 0.5 * 0.4, 5: 0.0})
    nothing = played(haggling(), *OPENING, LEAVE)
    assert set(importance(nothing, SELLER, "acts").values()) == {0.0}


def test_a_premature_concession_gets_less_than_one_that_was_returned():
    rash = played(haggling(), 56, 74, "No.", 68, ACCEPT)
    fair = played(haggling(), 56, 74, 62, 68, ACCEPT)
    assert importance(rash, SELLER, "acts")[3] < importance(fair, SELLER, "acts")[3]


def test_standing_rewards_are_in_units_of_the_score_and_sum_to_it():
    episode = played(haggling(), *OPENING, ACCEPT)
    for dimension in ("goal", "financial_and_material_benefits"):
        score = seat_score(episode, BUYER, dimension)
        rewards = make_attributor("standing").attribute(episode, BUYER, score).rewards
        assert score.value > 0
        assert sum(rewards.values()) == pytest.approx(score.value)


@pytest.mark.parametrize("name", ["prospect", "standing", "silence:verified"])
def test_a_loss_is_attributed_to_its_cause(name):
    episode = played(haggling(), 40, "Hm, let me think.", "Come on.", ACCEPT)
    score = seat_score(episode, SELLER, "financial_and_material_benefits")
    assert score.value < 0
    blame = importance(episode, SELLER, name, "financial_and_material_benefits", blame=True)
    assert blame == pytest.approx({1: 0.0, 3: 1.0})
    assert importance(episode, SELLER, name, "financial_and_material_benefits")[3] == 0.0


def test_silence_is_the_change_of_the_score_without_the_exchange():
    episode = played(haggling(), 56, "Hm.", "Well?", ACCEPT)
    # Without the seller's first words the offer would have stood all the same; without its assent, nothing comes of it.
    assert importance(episode, SELLER, "silence") == pytest.approx({1: 0.0, 3: 1.0})
    # Without the second offer, what was accepted was never on the table.
    assert importance(played(haggling(), *OPENING, ACCEPT), BUYER, "silence")[2] == 1.0


@pytest.mark.parametrize("family", list(tasks.FAMILIES))
@pytest.mark.parametrize("order", list(TurnOrder))
def test_every_attributor_on_every_family(family, order):
    """Exactly the attributable turns, from 0 to 1, the same twice; and the changes add up."""
    task_set = tasks.generate(family, 1, seed=5)
    policies = [
        make_policy(name) for name in ("linear:horizon=4", "conceder:horizon=4", "splitter", "random", "linear")
    ]
    seats = len(task_set[0].agents)
    plans = plan_episodes(task_set, [tuple(policies[:seats])], rules=Rules(turn_order=order, max_turns=6 * seats))
    for episode in asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), progress=False)).episodes:
        outcome = episode.evaluation().outcome
        for index, seat in enumerate(episode.task.agents):
            for name in OFFLINE:
                values = importance(episode, seat, name)
                assert set(values) == set(attributable_turns(episode, seat))
                assert all(0 <= value <= 1 for value in values.values())
                assert values == importance(episode, seat, name)
            changes = prospect_changes(episode, seat)
            if not outcome.agreed and outcome.shares[index] == 0 and changes:
                assert -0.5 <= sum(changes.values()) <= 0  # nothing at the end, less the first prospect


def test_attributors_by_name():
    assert make_attributor("silence:verified").name == "silence:verified"
    for name in ("prospekt", "silence:judge:x/y", "acts:verified"):
        with pytest.raises(UnknownNameError, match="prospect"):
            make_attributor(name)
    with pytest.raises(UnknownNameError, match="verified"):
        make_attributor("silence:verifid")


def test_outcomes_are_attributed_only_where_they_can_be_verified():
    starter = played(tasks.starter_tasks()[0], "Hello.", LEAVE, judge=FixedEvaluator())
    score = seat_score(starter, BUYER, "goal")
    assert not make_attributor("acts").applies(starter, score)
    assert make_attributor("silence").applies(starter, score)
    episode = played(haggling(), "Hello.", LEAVE)
    assert not make_attributor("prospect").applies(episode, SeatScore("knowledge", 1, 0, 10))
    assert not make_attributor("silence").applies(episode, SeatScore("salary", 1, 0, 5))


# --- the stage ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deals(tmp_path_factory):
    """A file of three episodes: a deal, none, and one whose evaluation failed."""
    path = tmp_path_factory.mktemp("deals") / "episodes.jsonl"
    episodes = [
        played(haggling(), *OPENING, ACCEPT),
        played(haggling(), *OPENING, LEAVE),
        played(haggling(), *OPENING, LEAVE, judge=FixedEvaluator(unscored="no answer", name="verified+fixed")),
    ]
    write_episodes(path, [e.model_copy(update={"key": f"episode {n}"}) for n, e in enumerate(episodes)])
    return path


def settings(path, output, **fields):
    values = {"attributors": ("acts", "prospect"), "dimensions": ("GOAL", "REL"), "methods": ("direct", "scaled")}
    return AttributionSettings(runs=(str(path),), output=str(output), **{**values, **fields})


FIN = "financial_and_material_benefits"


def test_the_stage(deals, tmp_path):
    ways = {"attributors": ("acts", "silence"), "methods": ("uniform", "direct", "scaled")}
    config = settings(deals, tmp_path / "out", dimensions=("GOAL", "FIN"), **ways)
    run(config)
    records = list(read_attributions(tmp_path / "out"))
    assert all(r.reward == pytest.approx(r.score * r.attribution) for r in records)
    by_score = {}
    for r in records:
        if r.method == "scaled":
            by_score.setdefault((r.episode, r.seat, r.dimension, r.attributor, r.score), []).append(r.reward)
    assert all(sum(rewards) == pytest.approx(key[-1]) for key, rewards in by_score.items())
    rewards = read_rewards(tmp_path / "out", "direct", {"GOAL": "acts", "FIN": "silence"})
    assert set(rewards.by_turn) == {
        (f"episode {n}", f"agent_{t % 2}", t) for n, t in itertools.product((0, 1), range(4))
    }
    goal = 10 * 0.4
    assert rewards.by_turn["episode 0", SELLER, 3]["goal"] == pytest.approx(goal * (0.5 + 0.5 * 0.4))
    assert set(rewards.by_turn["episode 0", SELLER, 3]) == {"goal", FIN}
    assert rewards.dimensions == ("goal", FIN)
    uniform = read_rewards(tmp_path / "out", "uniform")
    assert uniform.by_turn["episode 0", SELLER, 1]["goal"] == pytest.approx(goal)


def test_missing_scores_are_counted_and_never_zero(deals, tmp_path):
    """Guards R3 and R6: nothing is dropped in silence, and a failed evaluation is not a reward of 0."""
    run(settings(deals, tmp_path / "out"))
    assert {r.episode for r in read_attributions(tmp_path / "out")} == {"episode 0", "episode 1"}
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| goal | the score itself | 2 | unscored: EvaluationError: no answer |" in report
    assert "| goal | acts | 4 | 8 | 0 |" in report
    figures = json.loads((tmp_path / "out" / "done.json").read_text())
    assert {"dimension": "goal", "attributor": "acts", "attributed": 4, "turns": 8, "missing": 0} in figures["seats"]


def test_a_complete_stage_is_left_as_it_is(deals, tmp_path):
    run(settings(deals, tmp_path / "out"))
    before = (tmp_path / "out" / "attributions.jsonl").stat().st_mtime_ns
    run(settings(deals, tmp_path / "out"))
    assert (tmp_path / "out" / "attributions.jsonl").stat().st_mtime_ns == before
    with raises(InvalidValueError, field="settings.sign"):
        run(settings(deals, tmp_path / "out", sign="shifted"))


@pytest.mark.parametrize(
    ("changes", "error", "fields"),
    [
        ({"attributors": ("actz",)}, UnknownNameError, {"field": "attributor", "nearest": "acts"}),
        ({"attributors": ("acts", "acts")}, InvalidValueError, {"field": "attributors", "got": '["acts", "acts"]'}),
        ({"attributors": ()}, InvalidValueError, {"field": "attributors"}),
        ({"dimensions": ("goul",)}, UnknownNameError, {"field": "dimensions", "nearest": "goal"}),
        ({"runs": ("nowhere",)}, InvalidValueError, {"file": "nowhere"}),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(deals, tmp_path, changes, error, fields):
    with raises(error, **fields):
        run(settings(deals, tmp_path / "out").model_copy(update=changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "value"), [("seats", ("policy:unknown",)), ("evaluator", "judge")])
def test_runs_without_the_policy_or_the_verdict_that_is_named_are_refused(deals, tmp_path, name, value):
    with raises(InvalidValueError, field="runs") as caught:
        run(settings(deals, tmp_path / "out").model_copy(update={name: value}))
    assert (value if isinstance(value, str) else value[0]) in caught.value.problem
    assert not (tmp_path / "out").exists()


def test_different_episodes_with_one_key_are_refused_and_copies_count_once(deals, tmp_path):
    other = tmp_path / "other.jsonl"
    write_episodes(other, [played(haggling(), "Hello.", LEAVE).model_copy(update={"key": "episode 0"})])
    with raises(InvalidValueError, file="other.jsonl"):
        run(settings(deals, tmp_path / "out").model_copy(update={"runs": (str(deals), str(other))}))
    run(settings(deals, tmp_path / "out").model_copy(update={"runs": (str(deals), str(deals))}))
    assert sum(1 for _ in read_attributions(tmp_path / "out")) == 2 * 8 * 2


def test_rewards_of_several_attributors_need_a_choice(deals, tmp_path):
    run(settings(deals, tmp_path / "out", dimensions=("goal",)))
    with raises(InvalidValueError, file="out") as caught:
        read_rewards(tmp_path / "out")
    assert all(name in caught.value.problem for name in ("goal", "acts", "prospect"))
    for wrong in (
        {"method": "singular", "attributor": "acts"},
        {"attributor": "silence"},
        {"attributor": "acts", "dimensions": ["KNO"]},
    ):
        with pytest.raises(UnknownNameError):
            read_rewards(tmp_path / "out", **wrong)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text('{"episode": "a"}\n')
    with raises(DamagedRecordError, line=1):
        read_rewards(damaged)


def test_turn_rewards_alone_and_in_files_with_their_earlier_name(deals, tmp_path):
    only = {"attributors": ("standing",), "methods": ("turn_reward",), "dimensions": ("goal",)}
    config = settings(deals, tmp_path / "out", **only)
    run(config)
    file = tmp_path / "out" / "attributions.jsonl"
    file.write_text(file.read_text().replace('"turn_reward"', '"gain"'))
    by_turn = read_rewards(tmp_path / "out", "turn_reward").by_turn
    assert sum(row["goal"] for (key, seat, _), row in by_turn.items() if (key, seat) == ("episode 0", BUYER)) == 6
    run(AttributionSettings.model_validate({**config.model_dump(), "methods": ["gain"]}))  # complete: nothing is done


def test_a_seat_chosen_by_policy_and_shifted_scores(deals, tmp_path):
    run(settings(deals, tmp_path / "out", seats=(f"policy:policy {SELLER}",), dimensions=("FIN",), sign="shifted"))
    records = list(read_attributions(tmp_path / "out"))
    assert {r.seat for r in records} == {SELLER}
    assert all(r.reward == pytest.approx((r.score + 5) * r.attribution) for r in records)
