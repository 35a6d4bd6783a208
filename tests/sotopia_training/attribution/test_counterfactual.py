"""Values of states against a game whose values are known in closed form; the attributor; what is refused."""

import asyncio
import json
import random
from dataclasses import dataclass, replace

import pytest
from sotopia_training.attribution.counterfactual import Measurement, StateValues, states_of
from sotopia_training.attribution.methods import Unattributed, read_attributions, read_rewards
from sotopia_training.attribution.settings import CounterfactualSettings
from sotopia_training.attribution.stage import AttributionSettings, run
from sotopia_training.stage.script import run_script

from sotopia_env import tasks
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import (
    DamagedRecordError,
    InvalidActionError,
    InvalidValueError,
    PolicyError,
    UnknownNameError,
)
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.policies import Decision
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import write_episodes
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.play.table import Table
from tests.errors import raises
from tests.sotopia_training.played import ACCEPT, LEAVE, haggling, offer, played

BUYER, SELLER = "agent_0", "agent_1"
PRICE, SHARE = 62, 0.4
"""What the buyer offers, and what the seller's share of it is: GOAL 4 of 10."""
HERE = "tests.sotopia_training.attribution.test_counterfactual"


@dataclass(frozen=True)
class Coin:
    """A buyer that offers 62 once, and a seller that accepts with a chance of ``p`` and leaves otherwise."""

    p: float = 0.5
    name: str = "coin"
    broken: bool = False

    @property
    def parameters(self):
        return {"p": self.p}

    async def act(self, observation, seed):
        if self.broken:
            raise PolicyError("the model is gone")
        if observation.agent == BUYER:
            return Decision(offer(PRICE))
        accepts = random.Random(seed).random() < self.p
        return Decision(ACCEPT if accepts else Action(LEAVE))


def coin(p=0.5, broken=False):
    return Coin(p, broken=broken)


def play(number=1, p=0.5, seed=0, evaluator=None):
    plans = plan_episodes(
        [haggling()], [(Coin(p), Coin(p))], repeats=number, seed=seed, both_seats=False, rules=Rules(max_turns=4)
    )
    return list(asyncio.run(run_episodes(plans, evaluator=evaluator, progress=False)).episodes)


def continuations(**fields):
    policies = fields.pop("policies", {"coin": f"{HERE}:coin"})
    return Measurement(CounterfactualSettings(policies=policies, **fields), ModelPool())


def measurements(path, states, **fields):
    states = list(states)
    with StateValues(path, continuations(**fields)) as values:
        values.measure(states, len(states))
        return [values.scores(state, SELLER, "goal") for state in states]


def forced(state, action):
    """The state after an action that was not taken."""
    return Table.resume(state).fork(len(state.turns), action).episode()


def mean(scores):
    return sum(scores) / len(scores)


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.25, 0.5])
def test_values_agree_with_the_closed_form(tmp_path, p):
    """Before the answer the seller may expect p · 4; after assent exactly 4, after leaving exactly 0."""
    (episode,) = play(p=p)
    before = episode.before(1)
    states = [episode.before(0), before, forced(before, ACCEPT), forced(before, Action(LEAVE))]
    opening, answer, assent, leaving = measurements(
        tmp_path / "values.jsonl", states, samples=400, policies={"coin": f"{HERE}:coin:p={p}"}
    )
    error = 4 * (p * (1 - p) / 400) ** 0.5
    assert mean(answer) == pytest.approx(4 * p, abs=4 * error)
    assert opening == answer  # the same luck in every state: what the buyer does changes nothing
    assert (assent, leaving) == ((10 * SHARE,), (0.0,))


def test_a_value_depends_on_the_seed_and_not_on_concurrency(tmp_path):
    states = list(states_of(play()[0]))
    first = measurements(tmp_path / "a.jsonl", states, samples=16)
    assert first == measurements(tmp_path / "b.jsonl", states, samples=16, concurrency=1)
    assert first != measurements(tmp_path / "c.jsonl", states, samples=16, seed=1)
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()


NAMES = ("random-offers", "conceder:horizon=3", "random-walk", "splitter", "linear")


@pytest.mark.parametrize("family", ["bargaining", "group_decision", "mutual_friend"])
@pytest.mark.parametrize("order", ["round-robin", "simultaneous", "random", "reactive"])
def test_states_of_every_family_and_order(tmp_path, family, order):
    """The end is worth its score, and what was done is worth the same when it is forced."""
    task_set = tasks.generate(family, 1, seed=5)
    seats = len(task_set[0].agents)
    policies = tuple(make_policy(name) for name in NAMES[:seats])
    rules = Rules(turn_order=order, max_turns=4 * seats)
    plans = plan_episodes(task_set, [policies], rules=rules, both_seats=False)
    (episode,) = asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), progress=False)).episodes
    states = list(states_of(episode))
    actions = [item.turn.attempted or item.turn.action for item in episode.turns]
    branches = [forced(state, action) for state, action in zip(states, actions, strict=False)]
    with StateValues(tmp_path / "values.jsonl", continuations(samples=2, policies={})) as values:
        values.measure([*states, *branches], len(states))
        for seat in episode.task.agents:
            score = episode.evaluation().by_agent[seat]["goal"].value
            assert values.scores(states[-1], seat, "goal") == (score,)
            for after, branch in zip(states[1:-1], branches, strict=False):
                assert values.scores(after, seat, "goal") == values.scores(branch, seat, "goal")
                assert len(values.scores(after, seat, "goal")) == 2


def test_states_of_deterministic_policies_have_equal_values(tmp_path):
    plans = plan_episodes(
        tasks.generate("bargaining", 1, seed=3), [("linear:horizon=4", "conceder:horizon=4")], rules=Rules(max_turns=8)
    )
    episode = asyncio.run(run_episodes(plans, progress=False)).episodes[0]
    scores = measurements(tmp_path / "values.jsonl", states_of(episode), samples=2, policies={})
    assert len({mean(item) for item in scores}) == 1


class StoppedError(Exception):
    """In place of a kill."""


def test_a_killed_measurement_continues_where_it_was(tmp_path, monkeypatch):
    states = [state for episode in play(6) for state in states_of(episode)]
    whole = measurements(tmp_path / "whole.jsonl", states, samples=4)
    path, calls = tmp_path / "values.jsonl", []
    real = Continuations.play

    async def counted(self, state, draw):
        calls.append(len(state.turns))
        if len(calls) == 20:
            raise StoppedError
        return await real(self, state, draw)

    monkeypatch.setattr(Continuations, "play", counted)
    with pytest.raises(StoppedError):
        measurements(path, states, samples=4, concurrency=1)
    lines = path.read_text().splitlines(keepends=True)
    assert 0 < len(lines) < len(states)
    path.write_text("".join(lines) + lines[0][:30])  # the death of the process in the midst of a line
    calls[:] = [-1] * 20
    assert measurements(path, states, samples=4) == whole
    total = len(path.read_text().splitlines())
    assert len({json.loads(line)["of"] for line in path.read_text().splitlines()}) == total
    calls[:] = [-1] * 20
    measurements(path, states, samples=4)
    assert len(calls) == 20  # nothing is measured again


def test_states_of_a_failed_policy_are_missing_and_measured_again(tmp_path):
    (episode,) = play()
    states = [episode.before(1)]
    path = tmp_path / "values.jsonl"
    (missing,) = measurements(path, states, samples=2, policies={"coin": f"{HERE}:coin:broken=true"})
    assert missing == Unattributed("not measured: the model is gone")
    assert measurements(path, states, samples=2) == measurements(tmp_path / "new.jsonl", states, samples=2)


# --- the attributor -----------------------------------------------------------------------------------------------


@pytest.fixture
def coins(tmp_path):
    """A file of eight evaluated games, some with assent and some without."""
    path = tmp_path / "episodes.jsonl"
    write_episodes(path, play(8, seed=3, evaluator=make_evaluator("verified")))
    return path


def settings(runs, output, **fields):
    measurement = {"samples": 100, "policies": {"coin": f"{HERE}:coin"}, **fields.pop("counterfactual", {})}
    values = {"attributors": ("counterfactual",), "dimensions": ("GOAL",), "methods": ("direct", "turn_reward")}
    return AttributionSettings.model_validate(
        {"runs": (str(runs),), "output": str(output), "counterfactual": measurement, **values, **fields}
    )


def test_rewards_have_their_sign(coins, tmp_path):
    run(settings(coins, tmp_path / "out"))
    rewards = read_rewards(tmp_path / "out", "turn_reward")
    answers = {key[0]: row["goal"] for key, row in rewards.by_turn.items() if key[1:] == (SELLER, 1)}
    scores = {item.episode: item.score for item in read_attributions(tmp_path / "out") if item.seat == SELLER}
    assert set(scores.values()) == {0.0, 4.0}
    for episode, score in scores.items():
        assert answers[episode] == pytest.approx(score - 2.0, abs=4 * 0.2)
    direct = read_rewards(tmp_path / "out", "direct").by_turn
    assert all(direct[key]["goal"] >= 0 for key in direct)
    figures = json.loads((tmp_path / "out" / "done.json").read_text())
    assert figures["counterfactual"]["states"] == 8 * 3
    assert figures["counterfactual"]["tokens"] == 0


def test_the_silence_attributor_has_turn_rewards_and_acts_has_none(coins, tmp_path):
    run(settings(coins, tmp_path / "out", attributors=("silence", "acts")))
    methods = {(item.attributor, item.method) for item in read_attributions(tmp_path / "out")}
    assert methods == {("silence", "direct"), ("silence", "turn_reward"), ("acts", "direct")}


def unverified():
    return played(tasks.starter_tasks()[0], "Hello.", LEAVE, judge=FixedEvaluator())


def damaged():
    episode = play()[0]
    turn = episode.turns[0].turn
    changed = replace(turn, effect="offers nothing")
    return episode.model_copy(
        update={"turns": (episode.turns[0].model_copy(update={"turn": changed}), *episode.turns[1:])}
    )


@pytest.mark.parametrize(
    ("make", "counterfactual", "error", "fields"),
    [
        (unverified, {}, InvalidValueError, {"field": "counterfactual"}),
        (damaged, {}, DamagedRecordError, {}),
        (lambda: play()[0], {"policies": {}}, InvalidValueError, {"field": "counterfactual.policy", "got": "coin"}),
        (
            lambda: play()[0],
            {"policies": {"coin": "linear"}},
            InvalidValueError,
            {"expected": """["coin",{"p":0.5}] from 'linear'"""},
        ),
        (
            lambda: play()[0],
            {"policies": {"coin": f"{HERE}:coin:p=0.9"}},
            InvalidValueError,
            {"got": '["coin",{"p":0.9}]'},
        ),
        (
            lambda: play()[0],
            {"evaluator": "verified-moves"},
            UnknownNameError,
            {"field": "evaluator", "nearest": "verified"},
        ),
        (
            lambda: played(haggling(), "Hello.", LEAVE),
            {},
            InvalidValueError,
            {"field": "counterfactual.policy", "got": "policy agent_0"},
        ),
        (
            lambda: play()[0].model_copy(update={"policies": play()[0].policies[:1]}),
            {},
            InvalidValueError,
            {"field": "policies", "got": "none for agent_1"},
        ),
    ],
)
def test_unmeasurable_episodes_are_refused_before_writing(tmp_path, make, counterfactual, error, fields):
    episode = asyncio.run(evaluate_episode(make(), FixedEvaluator()))
    write_episodes(tmp_path / "episodes.jsonl", [episode])
    with raises(error, **fields) as caught:
        run(settings(tmp_path / "episodes.jsonl", tmp_path / "out", counterfactual=counterfactual))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_no_continuations_and_a_method_without_attributor_are_refused(coins, tmp_path, capsys):
    config = tmp_path / "attribute.yaml"
    config.write_text(f"runs: ['{coins}']\noutput: '{tmp_path}/out'\ncounterfactual: {{samples: 0}}\n")
    assert run_script("Attributes.", AttributionSettings, run, ["--config", str(config)]) == 2
    assert "counterfactual.samples" in capsys.readouterr().err
    with raises(InvalidValueError, field="attributors", got='["acts"]'):
        run(settings(coins, tmp_path / "out", attributors=("acts",)))


def test_a_forced_action_of_an_ended_episode_is_refused():
    (episode,) = play()
    with pytest.raises(InvalidActionError):
        forced(episode.before(len(episode.turns)), Action(ActionType.SPEAK, "One more thing."))
