"""Goals in an interview: what judges are shown and answer, and how the views decide."""

import asyncio
import json

import pytest

from sotopia_env.evaluators.evaluator import measures
from sotopia_env.evaluators.judge.verdict import Refusal
from sotopia_env.foundation.errors import (
    ContextLengthError,
    EvaluationError,
    InvalidValueError,
    ModelCallError,
    UnknownNameError,
)
from sotopia_env.interviews import InterviewEvaluator
from sotopia_env.interviews.goals import read_yes_no
from sotopia_env.policies import LLMPolicy
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.answers import View
from sotopia_env.world.episode import Evaluation, Evaluator
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Seat
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import act, secretive_task, transcript
from tests.sotopia_env.evaluators.judge_doubles import ClosingModel, data_of
from tests.sotopia_env.factories import scenario, task

GOALS = (("Sell the violin.", "Stay friends."), ("Buy a present.",))
TWO = task(scenario=scenario(seats=tuple(Seat(goals=goals) for goals in GOALS)))
HELLO = transcript("Hello.", "Good evening.", of=TWO)


def answering(reached, name="local/m", **options):
    """A judge that answers yes where ``reached(request, number)``."""

    def answer(request):
        numbers = request.schema["properties"]["answers"]["required"]
        answers = {n: {"reasoning": f"so {n}", "answer": "yes" if reached(request, int(n)) else "no"} for n in numbers}
        return json.dumps({"answers": answers})

    return ScriptedChatModel(answer, name=name, **options)


def participant(reached, name="local/p"):
    """A policy that answers yes where ``reached(the question)``."""

    def answer(request):
        return json.dumps({"answer": "yes" if reached(request.messages[-1]["content"]) else "no"})

    return LLMPolicy(ScriptedChatModel(answer, name=name))


def judging(*judges, **settings):
    """An interview of judges alone."""
    return InterviewEvaluator(judges, views=["external"], **settings)


def evaluate(interview, episode=HELLO):
    return asyncio.run(interview.evaluate(episode))


def goals(evaluation):
    return {score.agent: score.value for score in evaluation.scores if score.dimension is Dimension.GOAL}


YES, NO = (lambda name="yes": answering(lambda *_: True, name)), (lambda name="no": answering(lambda *_: False, name))


@pytest.mark.parametrize("text", ["yes", "Yes", "YES.", " yes, she did", "“Yes”", "*yes*", "yes — in full", "Yes\nOh"])
def test_a_clear_yes(text):
    assert read_yes_no(text) is True


@pytest.mark.parametrize("text", ["no", "No.", "NO!", "no, he did not", "No; nothing was settled"])
def test_a_clear_no(text):
    assert read_yes_no(text) is False


@pytest.mark.parametrize(
    "text",
    ["Yes, but no", "yes and no", "No. Yes.", "yes/no", "maybe", "not really", "nope", "yesterday", "nothing", "y", "n",
     "true", "", " ", "1", "The answer is yes", "yes-no", "Yes, no doubt", True, False, None, 1, ["yes"], {"yes": 1}],
)  # fmt: skip
def test_anything_else_is_not_an_answer(text):
    assert isinstance(read_yes_no(text), Refusal)


def test_goal_is_ten_times_the_share_of_goals_reached():
    interview = judging(answering(lambda request, number: number == 2))
    evaluation = evaluate(interview)
    assert isinstance(interview, Evaluator)
    assert goals(evaluation) == {"agent_0": 5.0, "agent_1": 0.0}
    first = evaluation.scores[0]
    assert first.reasoning == "goal 1 not reached (yes: external 0 of 1); goal 2 reached (yes: external 1 of 1)"
    assert (evaluation.evaluator, first.source) == (interview.name, interview.name)
    assert evaluation.parameters == interview.parameters
    assert {answer.reason for answer in evaluation.answers} == {"so 1", "so 2"}
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


@pytest.mark.parametrize(
    ("judges", "expected"),
    [
        ([YES], 10.0),
        ([NO], 0.0),
        ([YES, NO], 0.0),
        ([YES, YES, NO], 10.0),
        ([NO, YES, NO], 0.0),
        ([YES, YES, NO, NO], 0.0),
    ],
)
def test_the_majority_of_the_judges_decides_and_a_tie_decides_nothing(judges, expected):
    assert set(goals(evaluate(judging(*[judge() for judge in judges]))).values()) == {expected}


def test_every_view_is_asked_separately_of_every_seat_it_concerns():
    people, judges = participant(lambda _: True), [YES("a"), NO("b"), YES("c")]
    answers = evaluate(InterviewEvaluator(judges, interviewee=people), transcript("Hi.", of=task(3))).answers
    inquiries = {(a.about, a.view, a.respondent) for a in answers}
    agents = ("agent_0", "agent_1", "agent_2")
    assert inquiries == {
        *((agent, View.SELF, agent) for agent in agents),
        *((agent, View.OTHER, other) for agent in agents for other in agents if other != agent),
        *((agent, View.EXTERNAL, f"judge_{n}") for agent in agents for n in range(3)),
    }
    requests = [*people.model.requests, *(request for judge in judges for request in judge.requests)]
    assert len(answers) == len(inquiries) == len(requests)
    assert {(a.respondent, a.by, a.value) for a in answers if a.view is View.EXTERNAL} == {
        ("judge_0", "a", True),
        ("judge_1", "b", False),
        ("judge_2", "c", True),
    }
    assert {a.by for a in answers if a.view is not View.EXTERNAL} == {"local/p"}
    assert {request.role for request in requests} == {"judge"}


@pytest.mark.parametrize(
    ("views", "respondents"),
    [
        (["self"], {("agent_0", View.SELF), ("agent_1", View.SELF)}),
        (["external"], {("judge_0", View.EXTERNAL)}),
        (["other", "external"], {("agent_0", View.OTHER), ("agent_1", View.OTHER), ("judge_0", View.EXTERNAL)}),
    ],
)
def test_only_the_views_that_are_named_are_asked(views, respondents):
    evaluation = evaluate(InterviewEvaluator([YES()], interviewee=participant(lambda _: True), views=views))
    assert {(answer.respondent, answer.view) for answer in evaluation.answers} == respondents


def test_judges_are_shown_everything_and_need_no_record_that_replays():
    model = YES()
    task = secretive_task(2)
    evaluate(judging(model), transcript(act(0, "x", to=(1,)), act(0, "y"), of=task))
    data = data_of(model.requests[0])
    assert [agent["secret"] for agent in data["agents"]] == [c.secret for c in task.characters]
    assert data["turns"][0]["seen_by"] == ["agent_1"]


def test_goals_are_known_by_agent_and_number_never_by_their_text():
    """Guards AgentSense's collision of goals that read the same."""
    same = Seat(goals=("Be liked.", "Be liked.", "Be liked."))
    of = transcript("Hello.", of=task(scenario=scenario(seats=(same, same))))
    model = answering(lambda r, number: number == 2 or ("agent_1" in r.messages[1]["content"][-200:] and number == 1))
    evaluation = evaluate(judging(model), of)
    assert goals(evaluation) == {"agent_0": pytest.approx(10 / 3), "agent_1": pytest.approx(20 / 3)}
    keys = [(answer.about, answer.index) for answer in evaluation.answers]
    assert keys == [(agent, goal) for agent in ("agent_0", "agent_1") for goal in range(3)]


def test_judges_of_the_same_name_do_not_collide():
    """Guards AgentSense's collision of two judges with the same model name."""
    evaluation = evaluate(judging(YES("m"), YES("m"), NO("m")))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 10.0}
    assert "external 2 of 3" in evaluation.scores[0].reasoning


@pytest.mark.parametrize(
    ("deciding", "expected"),
    [("self", 10.0), ("other", 0.0), ("external", 10.0), (None, 10.0), (View.OTHER, 0.0), ("all", 10.0)],
)
def test_the_deciding_view_is_declared(deciding, expected):
    people = participant(lambda question: "one of your goals" in question)
    interview = InterviewEvaluator([YES()], interviewee=people, deciding=deciding)
    evaluation = evaluate(interview)
    assert goals(evaluation) == {"agent_0": expected, "agent_1": expected}
    assert "(yes: self 1 of 1, other 0 of 1, external 1 of 1)" in evaluation.scores[0].reasoning
    assert measures(interview, TWO) == {Dimension.GOAL: "judged"}


def test_without_judges_no_view_decides_unless_one_is_named():
    people = participant(lambda _: True)
    interview = InterviewEvaluator(interviewee=people)
    assert goals(evaluate(interview)) == {}
    assert measures(interview, TWO) == {}
    assert goals(evaluate(InterviewEvaluator(interviewee=people, deciding="all"))) == {"agent_0": 10.0, "agent_1": 10.0}


def test_every_seat_may_be_answered_for_by_a_policy_of_its_own():
    policies = {"agent_0": participant(lambda _: True, "a"), "agent_1": participant(lambda _: False, "b")}
    evaluation = evaluate(InterviewEvaluator(interviewee=policies, deciding="self"))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 0.0}
    three = evaluate(InterviewEvaluator(interviewee=policies, deciding="self"), transcript("Hi.", of=task(3)))
    assert {(a.respondent, a.asked) for a in three.answers} == {
        ("agent_0", True),
        ("agent_1", True),
        ("agent_2", False),
    }


WRONG = {
    "unclear": ('{"answers": {"1": {"reasoning": "r", "answer": "Yes, but no"}}}', 'got "Yes, but no"'),
    "boolean": ('{"answers": {"1": {"reasoning": "r", "answer": true}}}', "got true"),
    "by text": ('{"answers": {"Buy a present.": {"reasoning": "r", "answer": "yes"}}}', "the key '1' is missing"),
    "one too many": ('{"answers": {"1": {"reasoning": "r", "answer": "yes"}, "2": {}}}', "unknown key"),
    "no reasoning": ('{"answers": {"1": {"answer": "yes"}}}', "'reasoning' is missing"),
    "empty reasoning": ('{"answers": {"1": {"reasoning": "", "answer": "yes"}}}', "answers.1.reasoning: "),
    "list": ('{"answers": ["yes"]}', 'got ["yes"]'),
    "prose": ("Yes.", "nothing before it"),
    "twice": ('{"answers": {"1": 1, "1": 2}}', "duplicate key"),
}


@pytest.mark.parametrize(("text", "hint"), WRONG.values(), ids=WRONG)
def test_an_unclear_answer_is_asked_for_again_and_then_missing(text, hint):
    """Guards AgentSense's free-text reading of answers, and S8."""
    of = transcript("Hello.", of=task())
    right = '{"answers": {"1": {"reasoning": "r", "answer": "yes"}}}'
    model = ScriptedChatModel([text, right, right])
    assert goals(evaluate(judging(model), of)) == {"agent_0": 10.0, "agent_1": 10.0}
    assert hint.replace('"', '\\"') in model.requests[1].messages[1]["content"]
    stubborn = evaluate(judging(ScriptedChatModel(lambda _: text), reasks=1), of)
    assert stubborn.scores == ()
    assert hint in stubborn.unscored
    assert {(answer.value, hint in answer.reason) for answer in stubborn.answers} == {(None, True)}


def test_s8_a_failed_call_is_an_error():
    with pytest.raises(EvaluationError, match=r"\(timeout\)"):
        evaluate(judging(ScriptedChatModel(lambda _: ModelCallError("late", kind="timeout"))))


def test_a_long_episode_loses_its_oldest_turns():
    def small(request):
        turns = data_of(request)["turns"]
        return ContextLengthError("too long") if len(turns) > 5 else YES()._answer(request)

    model = ScriptedChatModel(small)
    evaluation = evaluate(judging(model), transcript(*map(str, range(20)), of=task()))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 10.0}
    assert data_of(model.requests[-1])["omitted_turns"] >= 15


def test_other_parameters_give_another_name():
    yes, people = YES(), participant(lambda _: True)
    interviews = [
        InterviewEvaluator(),
        InterviewEvaluator([yes]),
        judging(yes),
        judging(yes, yes),
        InterviewEvaluator([yes], interviewee=people),
        InterviewEvaluator([yes], interviewee=people, deciding="all"),
        InterviewEvaluator([yes], interviewee={"agent_0": people, "agent_1": people}),
        InterviewEvaluator(interviewee=people),
        judging(yes, temperature=0.3),
        judging(yes, reasks=1),
        judging(yes, max_tokens=9),
    ]
    assert len({interview.name for interview in interviews}) == len(interviews)
    assert interviews[1].name.startswith("interview(yes)#")
    assert interviews[4].parameters["views"] == ["self", "other", "external"]


@pytest.mark.parametrize(
    ("judges", "arguments", "error", "fields"),
    [
        (["gpt"], {}, InvalidValueError, {"field": "model"}),
        ([], {"interviewee": {"agent_0": "gpt"}}, InvalidValueError, {"field": "interviewee"}),
        ([YES()], {"views": ["slef"]}, UnknownNameError, {"field": "views", "nearest": "self"}),
        ([], {"views": ["external"]}, InvalidValueError, {"field": "views"}),
        ([], {"deciding": "external"}, InvalidValueError, {"field": "deciding"}),
        ([YES()], {"views": ["self"], "deciding": "external"}, InvalidValueError, {"field": "deciding"}),
        ([YES()], {"deciding": "al"}, UnknownNameError, {"field": "deciding", "nearest": "all"}),
        ([YES()], {"views": []}, InvalidValueError, {"field": "views"}),
        ([YES()], {"reasks": -1}, InvalidValueError, {"field": "reasks"}),
    ],
)
def test_misuse_is_refused_at_once(judges, arguments, error, fields):
    with raises(error, **fields):
        InterviewEvaluator(judges, **arguments)


def test_closing_closes_every_judge_once():
    one, other = ClosingModel([]), ClosingModel([])
    asyncio.run(InterviewEvaluator([one, one, other]).close())
    assert (one.closed, other.closed) == (1, 1)
