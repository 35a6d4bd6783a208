"""The reward in force: what a verified task pays, what is refused before it is played, and what ``infos`` say of it."""

from dataclasses import dataclass, field

import gymnasium
import numpy as np
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.envs.pettingzoo_env import SotopiaEnv
from sotopia_env.evaluators import Composite, Diligence, VerifiedOutcome
from sotopia_env.evaluators.evaluator import measures
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError
from sotopia_env.interviews import InterviewEvaluator
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.episode import Evaluation, Score
from sotopia_env.world.reward import DIMENSIONS, Dimension
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import OVERALL, FixedEvaluator, table_task
from tests.sotopia_env.world.scenarios import say, verified_task

AGREEMENT = verified_task("agreement")
RUIN = (say("All yours.", propose={"price": 20, "start": "June 1"}), say("Deal.", accept=1))
FAIR = (say("Ten?", propose={"price": 10, "start": "June 15"}), say("Deal.", accept=1))
WORDS = (say("0"), say("1"), say("2"), say("3"))


@dataclass(frozen=True)
class Only:
    """Scores ``dimensions`` alone, and does not say so before."""

    dimensions: tuple[Dimension, ...] = (Dimension.GOAL,)
    name: str = "only"
    parameters: dict = field(default_factory=dict)

    async def evaluate(self, episode):
        agents = episode.task.agents
        scores = tuple(Score(agent=a, dimension=d, value=4.0) for a in agents for d in self.dimensions)
        return Evaluation(evaluator=self.name, scores=scores)


class DeclaringOnly(Only):
    def measures(self, task):
        return dict.fromkeys(self.dimensions, "judged")


def env_after(actions, constructor=sotopia_v0.raw_env, task=AGREEMENT, **options):
    env = constructor(task=task, max_turns=len(actions), turn_order="round-robin", **options)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env


def rewards_of(actions, **options):
    return [float(reward) for reward in env_after(actions, **options).rewards.values()]


def test_by_default_words_a_ruinous_deal_and_no_deal_earn_nothing():
    assert rewards_of(WORDS) == [0.0, 0.0]
    ruined, lucky = rewards_of(RUIN)
    assert (ruined, lucky) == (0.0, 1.0)
    env = env_after(FAIR)
    shares = [info["outcome"]["share"] for info in env.infos.values()]
    assert all(0 < share < 1 for share in shares)
    assert list(env.rewards.values()) == pytest.approx(shares)


def test_the_share_has_a_sign():
    assert rewards_of(WORDS, scalarisation="share") == [0.0, 0.0]
    env = env_after(RUIN, scalarisation="share")
    assert env.rewards["agent_0"] < 0
    assert env.rewards == {agent: info["outcome"]["share"] for agent, info in env.infos.items()}
    assert rewards_of(RUIN, scalarisation="share", evaluator=FixedEvaluator()) == list(env.rewards.values())


@pytest.mark.parametrize("share", [False, True])
def test_every_scalar_form_pays_the_same(share):
    options = {"task": AGREEMENT, "turn_order": "round-robin", "max_turns": 4}
    if share:
        options["scalarisation"] = "share"
    expected = rewards_of(RUIN, **({"scalarisation": "share"} if share else {}))
    parallel = sotopia_v0.parallel_env(**options)
    parallel.reset(seed=0)
    for agent, action in zip(("agent_0", "agent_1"), RUIN, strict=True):
        _, rewards, *_ = parallel.step({agent: action})
    assert list(rewards.values()) == expected

    single = gymnasium.make("sotopia_env/Sotopia-v0", partner="random", **options, disable_env_checker=True).unwrapped
    many = gymnasium.make_vec("sotopia_env/Sotopia-v0", num_envs=2, partner="random", **options)
    _, info = single.reset(seed=0)
    _, infos = many.reset(seed=0)
    assert info["reward"]["scalarisation"] == infos["reward"]["scalarisation"][1]
    assert info["reward"]["scalarisation"] == ("share" if share else '{"goal": 1.0}')
    assert infos["reward"]["evaluator"].tolist() == ["verified"] * 2
    many.close()


def test_only_what_is_asked_for_must_be_scored():
    assert rewards_of(RUIN, evaluator="verified", scalarisation="goal") == [0.0, 10.0]
    assert rewards_of(RUIN, evaluator="verified", scalarisation={"GOAL": 1.0, "secret": 0.0}) == [0.0, 1.0]
    assert rewards_of(WORDS, evaluator=Only(), scalarisation="goal", task=table_task()) == [4.0, 4.0]
    assert rewards_of(WORDS, evaluator=DeclaringOnly(), task=table_task()) == [0.4, 0.4]


def test_the_mean_of_seven_is_paid_by_name_or_with_a_judge():
    both = Composite([VerifiedOutcome(), FixedEvaluator()])
    assert rewards_of(WORDS, evaluator=both) == [0.0, 0.0]
    by_name = [rewards_of(WORDS, evaluator=both, scalarisation=name) for name in ("mean", "overall")]
    assert by_name[0] == by_name[1]
    assert by_name[0][0] > 1
    assert rewards_of(WORDS, evaluator=FixedEvaluator()) == pytest.approx([OVERALL["agent_0"], OVERALL["agent_1"]])


@pytest.mark.parametrize(
    ("options", "reward"),
    [
        ({}, ("verified", '{"goal": 1.0}', "verified")),
        (
            {"scalarisation": "mean", "evaluator": Composite([VerifiedOutcome(), FixedEvaluator()])},
            ("verified+fixed", "overall", "judged"),
        ),
        ({"scalarisation": "share"}, ("verified", "share", "verified")),
        ({"evaluator": FixedEvaluator()}, ("fixed", "overall", "judged")),
        ({"vector": True}, ("verified", "vector", "verified")),
    ],
)
def test_infos_name_the_reward_from_reset_on(options, reward):
    env = SotopiaEnv(**{"task": AGREEMENT, "max_turns": 2, **options})
    env.reset(seed=0)
    declaration = dict(zip(("evaluator", "scalarisation", "basis"), reward, strict=True))
    for action in (*WORDS[:2], None):
        for info in env.infos.values():
            assert info["reward"] == declaration
            info["reward"].clear()  # what a caller does to it stays with the caller
        env.step(action)


@pytest.mark.parametrize(
    ("evaluator", "measured"),
    [
        (None, {"FINANCIAL_AND_MATERIAL_BENEFITS", "GOAL"}),
        (FixedEvaluator(), {d.name for d in DIMENSIONS}),
        (Only(), {"GOAL"}),
    ],
)
@pytest.mark.parametrize("vector", [False, True])
def test_a_dimension_that_was_not_measured_is_flagged(evaluator, measured, vector):
    options = {} if evaluator is None else {"evaluator": evaluator}
    if not vector:
        options["scalarisation"] = "goal"
    env = env_after(FAIR, SotopiaEnv, vector=vector, **options)
    for agent, info in env.infos.items():
        assert info["measured"].dtype == np.bool_
        assert {d.name for d, flag in zip(DIMENSIONS, info["measured"], strict=True) if flag} == measured
        vector_paid = env.rewards[agent] if vector else info["reward_vector"]
        assert vector_paid.shape == (7,)
        assert not vector_paid[~info["measured"]].any()
        assert np.array_equal(vector_paid, info["reward_vector"])


JUDGE = LLMJudge(ScriptedChatModel([]), dimensions=["BEL", "REL"])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"evaluator": "verified", "scalarisation": "mean"}, ("believability", "'verified'", "goal", "'agreement-2'")),
        ({"evaluator": "verified", "scalarisation": "BEL"}, ("believability", "verified+judge:MODEL")),
        ({"evaluator": "verified", "task": table_task()}, ("needs goal", "none of the seven")),
        ({"task": table_task()}, ("needs goal", "judge:MODEL", "task='bargaining'")),
        ({"task": [AGREEMENT, table_task()], "vector": True}, ("none of the seven", "judge:MODEL")),
        ({"evaluator": JUDGE}, ("needs goal", "believability, relationship")),
        ({"evaluator": Diligence(), "vector": True}, ("vector", "none of the seven")),
        ({"evaluator": DeclaringOnly(), "scalarisation": {"SEC": 1.0}}, ("needs secret", "'only' scores goal")),
        ({"scalarisation": "share", "task": [AGREEMENT, table_task()]}, ("'share'", "has none", "judge:MODEL")),
    ],
)
@pytest.mark.parametrize("on_unscored", ["raise", "zero"])
def test_a_reward_without_an_evaluator_is_refused_before_anything_is_played(options, parts, on_unscored):
    with pytest.raises(InvalidValueError) as caught:
        SotopiaEnv(**{"task": AGREEMENT, "on_unscored": on_unscored, **options})
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize("change", [{"task": table_task()}, {"evaluator": JUDGE}])
def test_reset_refuses_it_too_and_leaves_the_running_episode(change):
    env = SotopiaEnv(task=AGREEMENT, evaluator="verified", max_turns=2)
    env.reset(seed=0)
    env.step(RUIN[0])
    before, infos = env.episode(), env.infos
    with raises(InvalidValueError, field="evaluator"):
        env.reset(seed=1, options=change)
    assert (env.episode(), env.infos) == (before, infos)
    env.step(RUIN[1])
    assert env.rewards == {"agent_0": 0.0, "agent_1": 1.0}


@pytest.mark.parametrize("vector", [False, True])
def test_a_score_that_is_found_missing_at_the_end_loses_no_other(vector):
    dimensions = () if vector else (Dimension.BELIEVABILITY,)
    env = SotopiaEnv(task=table_task(), evaluator=Only(dimensions), vector=vector, max_turns=1)
    env.reset(seed=0)
    with pytest.raises(EvaluationError, match="no score for agent_0 on"):
        env.step(say())
    assert [score.dimension for score in env.episode().evaluations[0].scores] == list(dimensions) * 2


def test_combined_evaluators_say_what_their_scores_rest_on():
    verified, fixed = VerifiedOutcome(), FixedEvaluator()
    goal, bel = Dimension.GOAL, Dimension.BELIEVABILITY
    first = measures(Composite([verified, JUDGE]), AGREEMENT)
    assert (first[goal], first[bel], Dimension.SECRET in first) == ("verified", "judged", False)
    assert measures(Composite([verified, fixed]), table_task()) == dict.fromkeys(DIMENSIONS, "judged")
    for combined in (Composite([verified, fixed], "mean"), Composite([verified, fixed], strict=False)):
        assert measures(combined, AGREEMENT)[goal] == "judged"
    assert measures(InterviewEvaluator([ScriptedChatModel([])], views=["external"]), AGREEMENT) == {goal: "judged"}
    assert dict.fromkeys(DIMENSIONS, "judged") == measures(Only(), AGREEMENT)
