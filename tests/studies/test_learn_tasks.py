"""What the study holds out is held out, and its speakers deal by moves."""

import asyncio
import json
import re
from pathlib import Path
from typing import ClassVar

import pytest
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, source_rows
from sotopia_training.fitting.behavior_cloning import IGNORED, TokenRow
from sotopia_training.models.tiny_base import make_tiny_tokenizer

from sotopia_env import tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import Decision
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Rules
from studies.learn.base_model import NUMBERS, _talk, _texts, drill_rows, in_batches, talk_rows
from studies.learn.episodes import play_all, seat_of
from studies.learn.ranking import Ranking, measured_choices, ranked_pairs, rankings, reward_rows
from studies.learn.recipe import PROMPT, SEEN, UNSEEN, Recipe
from studies.learn.results import figures
from studies.learn.seed_run import SeedRun
from studies.learn.speakers import Chatter, PlainDealer
from studies.learn.tasks import LEFT, PLAN, overlaps, plan, split_tasks
from tests.errors import raises


@pytest.fixture(scope="module")
def split():
    return split_tasks(("bargaining", "division"), 20, 40, 10, 30, "easy", 11)


def play(situations, policy, other):
    plans = plan_episodes(situations, [(policy, other)], rules=Rules(max_turns=6), seed=0)
    return asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), progress=False)).episodes


def test_test_tasks_share_no_things_or_goal_wordings_with_training(split):
    shared = overlaps(split)
    assert [met for met, _ in shared["training"].values()] == [0, 0]
    assert shared["base"]["things"][0] > 0  # it has met every word, as real base models have
    assert shared["dev"]["things"][0] > 0
    assert all(whole > 5 for _, whole in shared["training"].values())


def test_the_families_take_turns(split):
    for side in (split.base, split.train, split.dev, split.test):
        assert {task.scenario.shared_data["family"] for task in side[::2]} == {"bargaining"}
        assert {task.scenario.shared_data["family"] for task in side[1::2]} == {"division"}


def test_every_seats_plan_is_good_for_it_and_leaves_the_partner_a_part(split):
    for task in split.test:
        spec = task.scenario.outcome
        space = spec.space_by_id
        for number, seat in enumerate(task.scenario.seats):
            terms = seat.private_data[PLAN]
            assert json.loads(seat.private_info.removeprefix("Your plan: ").removesuffix(".")) == terms
            own, partner = (
                [spec.worth[of].value(space, each, f"agent_{of}") - spec.worth[of].disagreement for each in outcomes]
                for of in (number, 1 - number)
                for outcomes in [[terms, *space.outcomes()]]
            )
            assert partner[0] >= LEFT * max(partner)
            assert not any(a > own[0] and b >= LEFT * max(partner) for a, b in zip(own, partner, strict=True))
            assert plan(task, number) == terms
        assert not tasks.warnings(task)


def test_a_plan_follows_the_same_token_in_a_move_and_in_the_prompt(split):
    """A model of two layers learns to copy by the token before; behind another one it made up 77 prices of 100."""
    settings = Recipe().base.model_copy(update={"output": "nowhere"})
    episodes = _talk(split.base, settings)
    tokenizer = make_tiny_tokenizer(_texts(episodes, PROMPT), settings.vocabulary, numbers=NUMBERS)
    for task in split.test[::2]:
        for seat in task.scenario.seats:
            price = seat.private_data[PLAN]["price"]
            before = {
                tokens[tokens.index(str(price)) - 1]
                for text in (seat.private_info, f'"move": {{"propose": {{"price": {price}}}}}')
                for tokens in [[tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]]]
            }
            assert before == {' {"price": '}


def test_partners_in_tests_are_other_strategies_than_in_training():
    assert not {spec.split(":")[0] for spec in SEEN} & {spec.split(":")[0] for spec in UNSEEN}


@pytest.mark.parametrize("partner", [*SEEN, *UNSEEN])
@pytest.mark.parametrize("patience", [0, 1, 2, 3])
def test_the_expert_offers_its_plan_and_later_accepts_offers_without_loss(split, partner, patience):
    for episode in play(split.train, PlainDealer((patience,)), partner):
        seat = seat_of(episode, "plain-dealer")
        own = [item.turn for item in episode.turns if item.turn.actor == seat]
        assert not any(turn.violation for turn in own)
        moves = [turn.action.move.kind for turn in own]
        assert set(moves[:patience]) <= {MoveKind.PROPOSE}
        assert MoveKind.ACCEPT not in moves[:-1]
        outcome = episode.evaluation().outcome
        assert MoveKind.ACCEPT not in moves or (outcome.agreed and outcome.shares[episode.task.seat_of[seat]] >= 0)


def test_the_expert_is_recorded_on_training_tasks(split, tmp_path):
    """The run that cloning reads: training tasks, training partners, and every row an action of the expert."""
    run = SeedRun(Recipe(expert_tasks=12), Path("no-base"), split, 7, tmp_path)
    run.run({"expert", "expert filtered"})
    recorded = {episode.key: episode for episode in read_run(tmp_path / "expert")}
    names = {info.name for episode in recorded.values() for info in episode.policies}
    assert names == {"plain-dealer", *(spec.split(":")[0] for spec in SEEN)}
    assert {episode.task.id for episode in recorded.values()} <= {task.id for task in split.train}
    data = SourceSettings(run=str(tmp_path / "expert"), selection=str(tmp_path / "expert_filtered" / "selection.jsonl"))
    rows = list(source_rows([data], RowMaker(PROMPT)))
    assert rows
    for row in rows:
        turn = recorded[row.episode].turns[row.turn].turn
        assert turn.actor == row.seat == seat_of(recorded[row.episode], "plain-dealer")
        assert '"move": {"' in row.completion


def test_the_talk_is_one_row_of_the_seat_that_talks_aimlessly(split, tokenizer):
    settings = Recipe().base.model_copy(update={"output": "nowhere"})
    prompt = settings.prompt.model_copy(update={"max_length": 2048})  # of another model's tokenizer
    partners = set()
    for episode in _talk(split.base, settings):
        seat = seat_of(episode, "chatter")
        partners |= {info.name for info in episode.policies if info.agent != seat}
        own = sum(item.turn.actor == seat for item in episode.turns)
        rows = list(talk_rows(episode, prompt, tokenizer))
        assert len(rows) == min(own, 1)
        for row in rows:
            answers = [label != IGNORED for label in row.labels]
            begins = sum(now and not before for before, now in zip([False, *answers], answers, strict=False))
            assert begins == own
    assert partners == {spec.split(":")[0] for spec in SEEN}


def test_prices_are_small_numbers(split):
    """Great numbers are rare in the base's talk."""
    for task in (*split.base[::2], *split.train[::2], *split.test[::2]):
        told = task.scenario.model_dump_json(include={"context", "seats"})
        written = {int(number.replace(",", "")) for number in re.findall(r"(?:\$|price\W+)(\d[\d,]*)", told)}
        assert max(written) <= 220, task.id


def ranked(gain, score, left=1):
    return {"own_turns_left": left, "gain": gain, "error": 0.1, "score": score}


def test_rankings_count_the_pairs_that_differ_beyond_their_error():
    pairs = [ranked(1, 0.5), ranked(-1, 0.5, 2), ranked(-1, -0.1), ranked(0.1, -1)]
    assert rankings(pairs) == {
        "all": Ranking((1, 1), (1, 2)),
        "own turns left: 1": Ranking((1, 1), (1, 1)),
        "own turns left: 2": Ranking((0, 0), (0, 1)),
    }


@pytest.mark.parametrize("always", [-1.0, 0.0, 1.0])
def test_no_constant_preference_passes_the_gate(always):
    ranking = rankings([ranked(-4, always) for _ in range(9)] + [ranked(3, always)])["all"]
    assert ranking.balanced == 0.5
    assert not ranking.passed
    assert not rankings([ranked(-4, -1)])["all"].passed  # where it is never right to accept, nothing is told


class AcceptanceIsBad:
    """A reward model that scores acceptance lower, always."""

    async def score(self, observation, decisions):
        return [float(decision.action.move.kind is not MoveKind.ACCEPT) for decision in decisions]


def test_pairs_are_states_with_an_offer_valued_by_continuations(split):
    """Against one who concedes, to accept at once is worse than to hold."""
    policy = PlainDealer((2,))
    episodes = [
        episode
        for episode in play(split.train, policy, SEEN[0])
        if seat_of(episode, "plain-dealer") == "agent_1"  # meets an offer in its first turn
    ]
    choices = asyncio.run(measured_choices(episodes, policy.name, policy, samples=2))
    pairs = asyncio.run(ranked_pairs(choices, AcceptanceIsBad()))
    first = [pair["gain"] for pair in pairs if pair["own_turns_left"] == 3]
    assert len(first) > 10
    assert sum(first) / len(first) < -1
    right, count = rankings(pairs)["own turns left: 3"].plan
    assert right / count > 0.9
    assert {choice.tokens for choice in choices} == {0}  # no model sampled anything


def test_rows_of_the_reward_model_have_the_moves_advantage(split):
    episodes = play(split.train[:12], PlainDealer((2,)), SEEN[0])
    choices = asyncio.run(measured_choices(episodes, "plain-dealer", PlainDealer((2,)), samples=1))
    held_out = {split.train[0].id}
    lines = [json.loads(line) for line in reward_rows(choices, PROMPT, held_out)]
    assert len(lines) == 2 * len(choices) > 10
    for choice, accepted, planned in zip(choices, lines[::2], lines[1::2], strict=True):
        assert accepted["prompt"] == planned["prompt"]
        number = json.loads(accepted["completion"][0]["content"])["move"]["accept"]
        assert number is not True  # as a model has to write it, and the ranking has it scored
        assert choice.decisions[0].action.move.content is number
        assert '"move": {"propose":' in planned["completion"][0]["content"]
        assert accepted["value"] - planned["value"] == pytest.approx(choice.gain / 10)
        assert accepted["value"] + planned["value"] == pytest.approx(1)
        assert accepted["split"] == ("validation" if accepted["task"] in held_out else "train")
    assert {line["split"] for line in lines} == {"train", "validation"}
    assert any(choice.gain for choice in choices)


class Dreamer:
    """Offers a price that nobody could pay."""

    name = "dreamer"
    parameters: ClassVar[dict] = {}

    async def act(self, observation, seed):
        return Decision(Action(ActionType.SPEAK, "This?", move=Move(MoveKind.PROPOSE, {"price": 10**6})))


def test_an_episode_that_fails_ends_the_stage(split):
    class Fainting(Dreamer):
        async def act(self, observation, seed):
            raise ZeroDivisionError

    plans = plan_episodes(split.train[:2], [(Fainting(), SEEN[0])], rules=Rules(max_turns=6), seed=0)
    with pytest.raises(RuntimeError, match=r"^4 of 4 episodes failed: "):
        play_all(plans)


def test_an_offer_that_is_refused_is_not_valid(split):
    bargains = split.train[::2][:4]
    for policy, valid in ((Dreamer(), 0.0), (PlainDealer(), 1.0)):
        found = [figures(episode, policy.name) for episode in play(bargains, policy, SEEN[0])]
        assert {row["valid"] for row in found} == {row["copied"] for row in found} == {valid}


def test_without_words_nothing_is_said_beside_the_moves(split):
    silent = Recipe(words=False).words
    for policy in (PlainDealer((1, 2), silent), Chatter(silent)):
        episodes = play(split.train[:12], policy, SEEN[0])
        own = [item.turn.action for e in episodes for item in e.turns if item.turn.actor == seat_of(e, policy.name)]
        moves = [action for action in own if action.move is not None]
        assert len(moves) > 12
        assert {action.argument for action in moves} == {""}
    choices = asyncio.run(measured_choices(episodes, "chatter", policy, samples=1, words=silent))
    assert {decision.action.argument for choice in choices for decision in choice.decisions} == {""}


def test_a_drill_has_loss_after_its_first_stretch():
    drills = list(drill_rows(20, 500, seed=3))
    assert drills == list(drill_rows(20, 500, seed=3)) != list(drill_rows(20, 500, seed=4))
    for row in drills:
        stretch = row.labels.count(IGNORED)
        assert 4 <= stretch <= 16
        assert len(row.input_ids) == len(row.labels)
        assert row.labels[stretch:] == row.input_ids[stretch:]
        again = " ".join(map(str, row.input_ids[stretch:]))
        assert " ".join(map(str, row.input_ids[:stretch])) in again


def test_batches_are_of_like_length_and_in_no_order():
    rows = [TokenRow([0] * length, [0] * length) for length in (*range(10, 58), *[96] * 16)]
    ordered = in_batches(rows, 8, 20, seed=1)
    assert len(ordered) == 160
    assert {ordered.count(row) for row in rows[:48]} <= {2, 3}  # two and a half times through all of them
    batches = [[len(row.input_ids) for row in ordered[begin : begin + 8]] for begin in range(0, 160, 8)]
    assert all(max(batch) - min(batch) < 8 for batch in batches)
    longest = list(map(max, batches))
    assert longest[:8] not in (sorted(longest[:8]), sorted(longest[:8], reverse=True))
    assert longest[:8] != longest[8:16]  # drawn anew
    with raises(InvalidValueError, field="per_device_train_batch_size", got=8):
        in_batches(rows[:7], 8, 20, seed=1)
    with raises(InvalidValueError, field="max_steps", got=-1):
        in_batches(rows, 8, -1, seed=1)
    assert in_batches(rows, 8, 20, seed=2) != ordered == in_batches(rows, 8, 20, seed=1)
