"""Several judges: their scores as one, their spread, what a failing one does, and how far they agree."""

import asyncio

import pytest

from sotopia_env.evaluators import Ensemble
from sotopia_env.evaluators.ensemble import ENSEMBLE_AGGREGATES, majority
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.people.between_judges import judge_agreement
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.reward import CustomDimension
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import BEL, GOAL, SEC, Fixed, transcript
from tests.sotopia_env.evaluators.judge_doubles import ClosingModel, honest
from tests.sotopia_env.factories import task

HELLO = transcript("Hello.")
A = Fixed("a", {BEL: 2.0, GOAL: 0.0})
B = Fixed("b", {BEL: 6.0, GOAL: 8.0})
C = Fixed("c", {BEL: 10.0, GOAL: 8.0})
BROKEN, MUTE = Fixed("broken", failure="the line is dead"), Fixed("mute", unscored="no idea")


def evaluate(ensemble, episode=HELLO):
    return asyncio.run(ensemble.evaluate(episode))


@pytest.mark.parametrize(
    ("aggregate", "bel", "goal"), [("mean", 6.0, 16 / 3), ("median", 6.0, 8.0), ("majority", 6.0, 8.0)]
)
def test_aggregates_and_spread(aggregate, bel, goal):
    evaluation = evaluate(Ensemble([A, B, C], aggregate))
    for agent in ("agent_0", "agent_1"):
        scores = evaluation.by_agent[agent]
        assert (scores[BEL].value, scores[BEL].spread) == (bel, 8.0)
        assert (scores[GOAL].value, scores[GOAL].spread) == (pytest.approx(goal), 8.0)
        assert scores[GOAL].reasoning == "a: 0 (told to) b: 8 (told to) c: 8 (told to)"
        assert scores[GOAL].source == evaluation.evaluator == f"ensemble-{aggregate}(a, b, c)"
    assert evaluation.comment == "largest spread 8 (agent_0, believability)"
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


def test_a_score_of_one_judge_has_no_spread_and_agreeing_ones_have_none_to_speak_of():
    assert Score(agent="agent_0", dimension=GOAL, value=1.0).spread is None
    same = evaluate(Ensemble([A, Fixed("d", A.values)]))
    assert {score.spread for score in same.scores} == {0.0}


@pytest.mark.parametrize(
    ("votes", "winner"),
    [
        ([3, 3, 8], 3),
        ([0, 0, 10, 10, 10], 10),
        ([1, 5, 9], 5),
        ([1, 1, 9, 9, 6], 9),
        ([2, 2, 8, 8], 2),
        ([4, 5], 4),
        ([-3, -3, -3], -3),
        ([0, 7], 0),
    ],
)
def test_majority_is_the_most_frequent_then_the_nearest_to_the_median_then_the_lower(votes, winner):
    assert majority(votes) == majority(votes[::-1]) == winner


def test_all_judges_wait_at_the_same_time():
    barrier = asyncio.Barrier(3)

    async def together(request):
        await asyncio.wait_for(barrier.wait(), 240)
        return honest(request)

    judges = [LLMJudge(ScriptedChatModel(together, name=name), dimensions=["goal"]) for name in "abc"]
    assert evaluate(Ensemble(judges)).unscored is None


def test_judges_that_are_given_up_have_ended_when_the_failure_is_raised():
    endings = []

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # as one that books what it has spent
            endings.append(1)

    async def failing():
        await asyncio.sleep(0)
        raise EvaluationError("gone")

    async def work():
        with pytest.raises(EvaluationError, match="gone"):
            await all_at_once([slow(), failing(), slow()])
        return len(endings)

    assert asyncio.run(work()) == 2


@pytest.mark.parametrize("failing", [BROKEN, MUTE])
def test_s8_by_default_all_must_answer(failing):
    """Guards S8: a lost evaluation looked like a good one."""
    evaluation = evaluate(Ensemble([A, failing, C]))
    assert evaluation.scores == ()
    assert evaluation.unscored.startswith(f"2 of 3 judges answered, 3 needed; {failing.name} failed: ")
    assert (failing.failure or failing.unscored) in evaluation.unscored


def test_a_declared_quorum_lets_some_fail_and_says_so():
    evaluation = evaluate(Ensemble([A, BROKEN, C], quorum=2))
    assert evaluation.by_agent["agent_0"][BEL].value == 6.0
    assert "broken failed: the line is dead" in evaluation.comment
    assert "1 of 3 judges answered, 2 needed" in evaluate(Ensemble([A, BROKEN, MUTE], quorum=2)).unscored


def test_an_error_that_no_evaluator_declares_is_not_caught():
    class Buggy(Fixed):
        async def evaluate(self, episode):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(Ensemble([Buggy("buggy"), A]))


def test_judges_that_score_different_things_are_no_ensemble():
    with pytest.raises(EvaluationError, match="agent_0 goal, agent_1 goal"):
        evaluate(Ensemble([A, Fixed("d", {BEL: 1.0})]))
    with pytest.raises(EvaluationError):
        evaluate(Ensemble([Fixed("d"), Fixed("e")]))


def test_custom_dimensions_are_aggregated_too():
    salary = CustomDimension(name="salary", low=1, high=5, instruction="How close?")

    def judge(name, high):
        custom = salary.model_copy(update={"high": high})
        reply = f'{{"verdicts": {{"agent_0": {{"salary": {{"reasoning": "r", "score": {high}}}}}, "agent_1": {{"salary": {{"reasoning": "r", "score": 1}}}}}}}}'  # noqa: E501
        return LLMJudge(ScriptedChatModel([reply], name=name), dimensions=(), custom=[custom])

    evaluation = evaluate(Ensemble([judge("a", 5), judge("b", 5)]))
    assert evaluation.dimensions == (salary,)
    assert evaluation.by_agent["agent_0"]["salary"].value == 5.0
    with pytest.raises(EvaluationError, match="salary"):
        evaluate(Ensemble([judge("a", 5), judge("b", 7)]))


def test_names_and_parameters_tell_ensembles_apart():
    assert isinstance(Ensemble([A, B]), Evaluator)
    ensembles = [Ensemble([A, B, C], aggregate) for aggregate in ENSEMBLE_AGGREGATES]
    ensembles += [Ensemble([A, B, C], quorum=2), Ensemble([A, B])]
    assert len({ensemble.name for ensemble in ensembles}) == len(ensembles)
    assert Ensemble([A, B, C], quorum=3).name == ensembles[0].name
    assert ensembles[3].parameters == {"aggregate": "mean", "quorum": 2, "judges": {"a": {}, "b": {}, "c": {}}}


@pytest.mark.parametrize(
    ("judges", "options", "error", "fields"),
    [
        ([], {}, InvalidValueError, {"field": "judges"}),
        ([A], {}, InvalidValueError, {"field": "judges"}),
        ([A, Fixed("a")], {}, InvalidValueError, {"field": "judges"}),
        ([A, B], {"aggregate": "maen"}, UnknownNameError, {"field": "aggregate", "nearest": "mean"}),
        ([A, B], {"quorum": 3}, InvalidValueError, {"field": "quorum"}),
        ([A, B], {"quorum": 0}, InvalidValueError, {"field": "quorum"}),
        ([A, B], {"quorum": True}, InvalidValueError, {"field": "quorum"}),
    ],
)
def test_misuse_is_refused_at_once(judges, options, error, fields):
    with raises(error, **fields):
        Ensemble(judges, **options)


def test_closing_an_ensemble_closes_its_judges():
    model = ClosingModel([])
    asyncio.run(Ensemble([LLMJudge(model), A]).close())
    assert model.closed == 1


def episode_of(*tables):
    """An episode with evaluations by name; each gives goal scores by seat, or is unscored."""
    episode = Episode(task=task())
    for name, values in tables:
        scores = tuple(
            Score(agent=f"agent_{seat}", dimension=dimension, value=value if dimension is GOAL else -value)
            for seat, value in enumerate(values or ())
            for dimension in (GOAL, SEC)
        )
        evaluation = Evaluation(evaluator=name, scores=scores, unscored=None if values else "lost")
        episode = episode.with_evaluation(evaluation)
    return episode


EPISODES = [
    episode_of(("a", (1, 2)), ("b", (2, 4)), ("c", (5, 5))),
    episode_of(("a", (3, 10)), ("b", (6, 5)), ("c", (5, 5))),
    episode_of(("a", (4, 4)), ("b", None)),
    episode_of(("a", (4, 4))),
]


def test_the_agreement_table_by_hand():
    rows = {(row.first, row.second, row.dimension): row for row in judge_agreement(EPISODES)}
    assert len(rows) == 6
    row = rows["a", "b", GOAL]  # a: 1 2 3 10, b: 2 4 6 5; means 4 and 4.25
    assert (row.n, row.missing) == (4, 4)
    covariance = (-3 * -2.25) + (-2 * -0.25) + (-1 * 1.75) + (6 * 0.75)
    assert row.pearson.value == pytest.approx(
        covariance / ((9 + 4 + 1 + 36) * (5.0625 + 0.0625 + 3.0625 + 0.5625)) ** 0.5
    )
    assert row.spearman.value == pytest.approx(1 - 6 * (0 + 0 + 1 + 1) / (4 * 15))
    assert row.mean_difference.value == (1 + 2 + 3 + 5) / 4
    assert rows["a", "b", SEC].pearson.value == pytest.approx(row.pearson.value)


def test_a_judge_that_always_says_the_same_has_no_correlation():
    row = next(row for row in judge_agreement(EPISODES, ["a", "c"]) if row.dimension is GOAL)
    assert (row.pearson.value, row.spearman.value, row.mean_difference.value) == (None, None, (4 + 3 + 2 + 5) / 4)
    assert row.pearson.reason == "the scores of c are all the same"
    single = judge_agreement([episode_of(("a", (1,)), ("b", (3,)))])[0]
    assert (single.n, single.missing, single.pearson.value) == (1, 1, None)


def test_an_unscored_evaluation_is_missing_and_not_zero():
    """Guards S8 once more."""
    assert judge_agreement([EPISODES[2]]) == ()
    assert {row.missing for row in judge_agreement(EPISODES, ["b", "a"])} == {4}


@pytest.mark.parametrize(
    ("names", "error", "fields"),
    [
        (["a", "bb"], UnknownNameError, {"field": "evaluation", "nearest": "b"}),
        (["a"], InvalidValueError, {"field": "evaluations"}),
        (["a", "a"], InvalidValueError, {"field": "evaluations"}),
    ],
)
def test_the_table_refuses(names, error, fields):
    with raises(error, **fields):
        judge_agreement(EPISODES, names)
