"""The accuracy of attribution: its figures on rewards whose accuracy is known, and the study on a game of chance."""

import csv
import itertools
import json
import random
import re
import statistics

import pytest
from pydantic import ValidationError

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, UnknownNameError
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world import Dimension
from sotopia_env.world.episode import Evaluation, Score, write_episodes
from sotopia_env.world.play.continuations import Continuations
from studies.attribution_accuracy.accuracy import ALL, RewardedAction, accuracies, nearest
from studies.attribution_accuracy.probes import Probe, Truth
from studies.attribution_accuracy.study import AttributionAccuracySettings, run
from studies.attribution_accuracy.worth import Worth, ranks_by_draws, ranks_by_order
from tests.errors import raises
from tests.sotopia_training.attribution.test_counterfactual import HERE, SELLER, StoppedError, damaged, play, unverified

ADVANTAGES = {"a": (3.0, 1.0, -2.0), "b": (2.0, -2.0), "c": (-1.0, 0.5), "d": (1.0, -1.5)}
"""Of the actions in one state each, by task."""


def observed(reward, family="bargaining"):
    return [
        RewardedAction(family, task, f"{task}.t0", Truth((advantage, advantage)), reward(advantage))
        for task, advantages in ADVANTAGES.items()
        for advantage in advantages
    ]


@pytest.mark.parametrize(
    ("reward", "sign", "ranking"),
    [
        (lambda a: a, 1.0, 1.0),
        (lambda a: 5.0 + 2 * a, 1.0, 1.0),
        (lambda a: -a, 0.0, 0.0),
        (lambda a: max(0.0, a), 8 / 9, 1.0),
        (lambda a: a * a, 4 / 9, 2.5 / 6),
    ],
)
def test_figures_of_rewards_of_known_accuracy(reward, sign, ranking):
    """The fourth is a reward without a negative: its mean, 0.83, lies above that of the advantage of 0.5."""
    (row,) = accuracies({("someone", "direct"): observed(reward)})
    advantages = [advantage for group in ADVANTAGES.values() for advantage in group]
    assert (row.actions, row.pairs) == (9, 6)
    assert row.correlation.mean == pytest.approx(statistics.correlation(advantages, list(map(reward, advantages))))
    assert row.sign.mean == pytest.approx(sign)
    assert row.ranking.mean == pytest.approx(ranking)


def test_equal_rewards_count_as_chance():
    (row,) = accuracies({("someone", "uniform"): observed(lambda _: 7.0)})
    assert (row.correlation, row.sign.mean, row.ranking.mean) == (None, 0.5, 0.5)


def test_undecided_measurements_are_not_counted():
    noisy = [RewardedAction("bargaining", "a", "a.t0", Truth((5.0, -4.0, 4.0, -5.0)), reward) for reward in (1.0, 2.0)]
    (row,) = accuracies({("someone", "direct"): noisy})
    assert (row.pairs, row.sign, row.ranking) == (0, None, None)


def test_families_weigh_the_same_in_their_mean():
    right, wrong = observed(lambda a: a), observed(lambda a: -a, family="division")
    table = {("x", "direct"): [*right, *right, *wrong], ("y", "direct"): [*right, *observed(lambda a: a, "division")]}
    rows = accuracies(table)
    assert [(row.family, row.attributor) for row in nearest(rows, ["direct"])] == [(ALL, "y"), (ALL, "x")]
    assert nearest(rows, ["direct"])[1].ranking.mean == pytest.approx(0.5)


# --- the study ----------------------------------------------------------------------------------------------------


def settings(tmp_path, **fields):
    values = {
        "runs": [str(tmp_path / "episodes.jsonl")],
        "alternatives": [f"{HERE}:coin:p=1", f"{HERE}:coin:p=0"],
        "evaluator": "verified",
        "attributors": ["silence", "counterfactual"],
        "methods": ["uniform", "direct", "turn_reward"],
        "counterfactual": {"samples": 16, "policies": {"coin": f"{HERE}:coin"}},
        "output": str(tmp_path / "out"),
    }
    return AttributionAccuracySettings.model_validate({**values, **fields})


@pytest.fixture
def coins(tmp_path):
    write_episodes(tmp_path / "episodes.jsonl", play(6, seed=3))
    return tmp_path


def test_the_study_of_a_game_of_chance(coins):
    """Whoever answers the offer gets 4 by assent and 0 by leaving: every method that sees the score ranks them."""
    run(settings(coins))
    figures = json.loads((coins / "out" / "done.json").read_text())
    probed = [json.loads(line) for line in (coins / "out" / "probes.jsonl").read_text().splitlines()]
    answers = [p for item in probed for p in item["probes"] if p["turn"] == 1]
    assert len(answers) == 6 * 2  # the recorded answer is one of the two
    assert len({p["episode"]["key"] for item in probed for p in item["probes"]}) == figures["probes"]
    rows = {(row["attributor"], row["method"]): row for row in figures["accuracy"]}
    assert set(rows) == {
        ("none", "uniform"),
        *((w, m) for w in ("silence", "counterfactual") for m in ("direct", "turn_reward")),
    }
    assert rows["none", "uniform"]["pairs"] == 6
    assert {row["ranking"]["mean"] for row in rows.values()} == {1.0}
    assert rows["counterfactual", "turn_reward"]["correlation"]["mean"] > 0.9
    assert "Nearest of the four methods" in (coins / "out" / "report.md").read_text()
    with (coins / "out" / "accuracy.csv").open(newline="") as file:
        assert [row["family"] for row in csv.DictReader(file)] == ["other"] * 5
    assert (coins / "out" / "accuracy.png").stat().st_size > 5000


def test_turns_are_ranked_within_their_episode_beside_actions_of_one_state(coins):
    """One seat offers, the other answers once: within an episode, nothing but the offers of a seat can be compared."""
    run(settings(coins, attributors=["silence", "standing"], ranked_episodes=4))
    figures = json.loads((coins / "out" / "done.json").read_text())
    rows = {(row["attributor"], row["method"]): row for row in figures["turns"]["accuracy"]}
    draws = [("counterfactual", name) for name in ("1 draw", "2 draws", "4 draws", "8 draws")]
    assert {*draws, ("order", "later is better"), ("none", "uniform"), ("standing", "turn_reward")} <= set(rows)
    assert len({row["actions"] for row in rows.values()}) == 1  # all are judged on the same turns
    assert figures["turns"]["episodes"] == 4
    actions = {(row["attributor"], row["method"]): row["ranking"]["mean"] for row in figures["accuracy"]}
    assert [actions[item] for item in draws] == [1.0] * 4  # the answer ends the game: nothing is drawn any more
    assert (coins / "out" / "turns.csv").exists()
    assert (coins / "out" / "turns.md").exists()


def noisy_turns(noise, episodes=60, turns=5):
    """Turns worth as much as their index, and the same measured with other draws, each draw with some noise."""
    generator, (episode,) = random.Random(1), play(1)
    worths, drawn = {}, {}
    for number, turn in itertools.product(range(episodes), range(turns)):
        for measured in (worths, drawn):
            truth = Truth(tuple(turn + generator.gauss(0, noise) for _ in range(16)))
            measured[str(number), SELLER, turn] = Worth(Probe(turn=turn, episode=episode), str(number), truth)
    return worths, drawn


def test_more_draws_rank_turns_better_and_uniform_credit_is_chance():
    worths, drawn = noisy_turns(noise=4.0)
    observed = {**ranks_by_draws(worths, drawn), ("order", "later is better"): ranks_by_order(worths)}
    observed["none", "uniform"] = [worth.rewarded(5.0) for worth in worths.values()]
    ranking = {row.method: row.ranking.mean for row in accuracies(observed)}
    draws = [ranking[name] for name in ("1 draw", "2 draws", "4 draws", "8 draws")]
    assert draws == sorted(draws)
    assert 0.55 < draws[0] < 0.8 < draws[3]
    assert ranking["uniform"] == 0.5
    assert ranking["later is better"] > 0.9  # worth grows with the turn here


def test_a_killed_study_continues_with_the_same_result(coins, monkeypatch):
    whole = settings(coins, output=str(coins / "whole"))
    run(whole)
    real, calls = Continuations.play, []

    async def mortal(self, state, draw):
        calls.append(state.key)
        if len(calls) in (7, 60):
            raise StoppedError
        return await real(self, state, draw)

    monkeypatch.setattr(Continuations, "play", mortal)
    for _ in range(2):
        with pytest.raises(StoppedError):
            run(settings(coins))
    run(settings(coins))
    for name in ("probes.jsonl", "accuracy.csv"):
        texts = [(coins / folder / name).read_text() for folder in ("whole", "out")]
        assert [drop_times(text) for text in texts[:1]] == [drop_times(text) for text in texts[1:]]


def drop_times(text):
    """The text without the seconds that episodes took."""
    if not text.startswith("{"):
        return text
    lines = [json.loads(line) for line in text.splitlines()]
    return [[{**probe, "episode": {**probe["episode"], "duration": 0}} for probe in line["probes"]] for line in lines]


@pytest.mark.parametrize(
    ("make", "changes", "error", "fields"),
    [
        (play, {"alternatives": ["lineer"]}, UnknownNameError, {"field": "policy", "nearest": "linear"}),
        (play, {"attributors": ["actz"]}, UnknownNameError, {"field": "attributor", "nearest": "acts"}),
        (
            play,
            {"methods": ["turn_reward"], "attributors": ["acts"]},
            InvalidValueError,
            {"field": "attributors", "got": '["acts"]'},
        ),
        (play, {"evaluator": "verified-moves"}, UnknownNameError, {"field": "evaluator", "nearest": "verified"}),
        (play, {"runs": ["nowhere"]}, InvalidValueError, {"file": "nowhere"}),
        (play, {"counterfactual": {}}, InvalidValueError, {"field": "counterfactual.policy", "got": "coin"}),
        (lambda: [unverified()], {}, InvalidValueError, {"field": "counterfactual"}),
        (lambda: [damaged()], {}, DamagedRecordError, {}),
        (list, {}, InvalidValueError, {"field": "runs"}),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, make, changes, error, fields):
    write_episodes(tmp_path / "episodes.jsonl", make())
    with raises(error, **fields) as caught:
        run(settings(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_language_model_is_judged_like_the_others(coins):
    """One that calls every turn decisive gives every turn the whole score."""

    def answer(request):
        numbers = json.loads(
            re.search(r'\{"weights": .*\}', request.messages[0]["content"])[0].replace("<0 to 3>", "3")
        )
        return json.dumps(numbers)

    model = ScriptedChatModel(answer)
    run(settings(coins, attributors=["llm:scripted/model"], methods=["uniform", "direct"]), lambda name: model)
    figures = json.loads((coins / "out" / "done.json").read_text())["accuracy"]
    assert [row["attributor"] for row in figures] == ["none", "llm:scripted/model"]
    assert figures[0]["ranking"] == figures[1]["ranking"]


class Undecided:
    """An evaluator that never scores GOAL."""

    name, parameters = "undecided", {}

    async def evaluate(self, episode):
        scores = [Score(agent=agent, dimension=Dimension.KNOWLEDGE, value=1) for agent in episode.task.agents]
        return Evaluation(evaluator=self.name, scores=tuple(scores))


def test_nothing_to_compare_is_reported(coins, monkeypatch):
    monkeypatch.setattr("sotopia_training.attribution.counterfactual.make_evaluator", lambda *_, **__: Undecided())
    with raises(InvalidValueError, field="runs") as caught:
        run(settings(coins, attributors=["silence"]))
    assert "undecided" in caught.value.problem


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"dimension": "KNO"}, {"field": "dimension", "got": "KNO"}),
        ({"counterfactual": {"samples": 1}}, {"field": "counterfactual.samples", "got": 1}),
    ],
)
def test_studies_without_a_truth_or_a_standard_error_are_refused(coins, changes, fields):
    with raises(ValidationError, **fields):
        settings(coins, **changes)


def test_the_seats_of_probes_are_the_actors(coins):
    run(settings(coins, attributors=["silence"]))
    probes = [
        p for line in (coins / "out" / "probes.jsonl").read_text().splitlines() for p in json.loads(line)["probes"]
    ]
    actors = {p["episode"]["turns"][p["turn"]]["turn"]["actor"] for p in probes if p["turn"] == 1}
    assert actors == {SELLER}
