"""The interview after the end: who is asked what, from which view, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace

import pytest

from sotopia_env.evaluators import Composite, VerifiedOutcome
from sotopia_env.foundation.errors import EvaluationError, ModelCallError
from sotopia_env.interviews import InterviewEvaluator
from sotopia_env.naming import make_evaluator
from sotopia_env.policies import LLMPolicy
from sotopia_env.policies.scripted import UniformRandom
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.testing import ScriptedChatModel, check_evaluator, check_no_leaks
from sotopia_env.world.answers import InterviewAnswer, View
from sotopia_env.world.episode import Episode, Evaluation, replay
from sotopia_env.world.reward import Dimension
from tests.errors import raises
from tests.sotopia_env.evaluators.judge_doubles import ClosingModel, data_of
from tests.sotopia_env.interviewed import GOALS, RIGHT, WRONG, answering, fair, question_of
from tests.sotopia_env.runs.rollout_doubles import Speaker

ACT = '{"action_type": "speak", "argument": "Let us see."}'


def player(answer=answering, name="local/m", **settings):
    """A policy of a model that speaks while it plays, and answers afterwards."""

    def reply(request):
        return answer(request) if request.role == "judge" else ACT

    return LLMPolicy(ScriptedChatModel(reply, name=name), **settings)


def judge(verdict=lambda about, goal: True, name="judge/m"):
    def reply(request):
        about = request.messages[1]["content"].rpartition("about ")[2].partition(" now")[0]
        numbers = request.schema["properties"]["answers"]["required"]
        votes = {n: {"reasoning": "so", "answer": "yes" if verdict(about, int(n) - 1) else "no"} for n in numbers}
        return json.dumps({"answers": votes})

    return ScriptedChatModel(reply, name=name)


def interviewed(policies, evaluator=None, task=None, seed=0):
    """The recorded episode of these policies, with its evaluation, and its interview."""
    plan = EpisodePlan(task or fair(), tuple(policies), seed=seed)
    evaluator = evaluator or InterviewEvaluator(policies=policies)
    (episode,) = asyncio.run(run_episodes([plan], evaluator=evaluator, progress=False)).episodes
    return episode, episode.evaluation()


def by_view(evaluation, view):
    return [(a.respondent, a.about, a.index) for a in evaluation.answers if a.view is view]


def scores(evaluation):
    return {(score.agent, str(score.dimension)): score.value for score in evaluation.scores}


def test_every_seat_is_asked_on_its_goals_the_others_goals_and_the_others_private_information():
    policy = player()
    episode, evaluation = interviewed([policy] * 3)
    goals = [(f"agent_{seat}", index) for seat, own in enumerate(GOALS) for index in range(len(own))]
    assert by_view(evaluation, View.SELF) == [(agent, agent, index) for agent, index in goals]
    others = {
        (f"agent_{seat}", agent, index) for seat in range(3) for agent, index in goals if agent != f"agent_{seat}"
    }
    assert set(by_view(evaluation, View.OTHER)) == others
    assert by_view(evaluation, None) == [("agent_1", "agent_0", 0), ("agent_2", "agent_0", 0)]
    assert {(a.by, a.value, a.choice) for a in evaluation.answers if a.view is None} == {("local/m", True, RIGHT)}
    assert Episode.model_validate_json(episode.model_dump_json()) == episode
    assert evaluation.outcome is not None


def test_a_seat_answers_from_its_own_view_alone_one_question_at_a_time():
    """The answer key, the others' goals but the one in question, and the others' secrets reach no participant."""
    policy = player()
    episode, _ = interviewed([policy] * 3)
    state = replay(episode)
    requests = [request for request in policy.model.requests if request.role == "judge"]
    assert len(requests) == 4 + 8 + 2
    for request in requests:
        last = request.messages[-1]["content"]
        agent = next(agent for agent, name in episode.task.names.items() if f"As {name}, and from" in last)
        about_goals = [goal for goals in GOALS for goal in goals if goal in last]
        assert len(about_goals) == (0 if question_of(last) else 1)
        if question_of(last):
            assert "Nobody must know" not in "".join(message["content"] for message in request.messages)
            assert request.schema["properties"]["answer"]["enum"] == ["A", "B", "C", "D"]
        else:
            assert request.schema["properties"]["answer"]["enum"] == ["yes", "no"]
        check_no_leaks(state, agent, [*request.messages[:-1]])
        assert [m["role"] for m in request.messages] == [
            "system",
            *["user", "assistant"] * (len(request.messages) // 2 - 1),
            "user",
        ]
        assert ACT in [message["content"] for message in request.messages]  # its own words, byte for byte


def test_options_are_shuffled_by_seed_and_alike_again():
    def orders(seed):
        policy = player()
        interviewed([policy] * 3, seed=seed)
        texts = [request.messages[-1]["content"] for request in policy.model.requests]
        return [tuple(question_of(text).values()) for text in texts if question_of(text)]

    assert orders(1) == orders(1)
    assert len({order for seed in range(6) for order in orders(seed)}) > 4
    assert {frozenset(order) for order in orders(2)} == {frozenset({RIGHT, *WRONG})}


def test_scores_are_ten_times_the_shares():
    yes = player(lambda request: answering(request, WRONG[0]))
    no = player(lambda request: answering(request, RIGHT, "no"), name="local/n")
    judges = [judge(lambda about, goal: goal == 0, f"judge/{n}") for n in range(2)] + [
        judge(lambda *_: False, "judge/c")
    ]
    policies = [yes, no, no]
    _, evaluation = interviewed(policies, InterviewEvaluator(judges, policies=policies))
    values = scores(evaluation)
    assert [values[f"agent_{n}", "goal_self"] for n in range(3)] == [10, 0, 0]
    assert [values[f"agent_{n}", "goal_other"] for n in range(3)] == [0, 5, 5]
    assert [values[f"agent_{n}", "goal_external"] for n in range(3)] == [5, 10, 10]  # 2 of 3 on the first goal of each
    assert values["agent_0", str(Dimension.GOAL)] == 5
    assert [values[f"agent_{n}", "goal_exact"] for n in (0, 2)] == [0, 0]
    assert ("agent_1", "goal_exact") not in values
    assert [values[f"agent_{n}", "information"] for n in (1, 2)] == [10, 10]
    assert ("agent_0", "information") not in values  # no other seat has private information to infer


def test_judges_see_everything():
    model = judge()
    interviewed([Speaker("a")] * 3, InterviewEvaluator([model]))
    data = data_of(model.requests[0])
    assert data["agents"][0]["private_info"].startswith(RIGHT)
    assert all("seen_by" in turn for turn in data["turns"])


@dataclass(frozen=True)
class Mute(Speaker):
    """A policy of before there were interviews."""


UNANSWERED = {
    "no method": ([Mute("a")] * 3, "the policy 'a' answers no questions"),
    "unusable": ([player(lambda _: "Perhaps.", reasks=1)] * 3, "no usable answer after 2; the last one: "),
    "another option": (
        [player(lambda _: '{"answer": "E or so"}', reasks=0)] * 3,
        "after 1; the last one: answer: ",
    ),
    "two answers": ([player(lambda _: '{"answer": "yes"} {"answer": "no"}', reasks=0)] * 3, "JSON object"),
    "more keys": (
        [player(lambda _: '{"answer": "yes", "sure": 1}', reasks=0)] * 3,
        '"sure"',
    ),
}


@pytest.mark.parametrize(("policies", "reason"), UNANSWERED.values(), ids=UNANSWERED)
def test_unanswered_is_no_answer_on_a_goal_and_not_right_on_information(policies, reason):
    _, evaluation = interviewed(policies)
    assert {answer.value for answer in evaluation.answers} == {None}
    assert all(reason in answer.reason for answer in evaluation.answers)
    is_asked = policies[0].name != "a"
    assert {answer.asked for answer in evaluation.answers} == {is_asked}
    values = {dimension: value for (_, dimension), value in scores(evaluation).items() if dimension != "goal_exact"}
    assert values == ({"information": 0, "information_coverage": 0} if is_asked else {})
    _, without = interviewed(policies, task=fair(outcome=None, questions=[]))
    assert without.scores == ()
    assert without.unscored.startswith("no question was answered; the first one: ")
    assert reason in without.unscored
    assert len(without.answers) == len(evaluation.answers) - 2


def test_an_unusable_answer_is_asked_for_again_with_the_reason():
    def reply(request):
        return answering(request) if request.reask else "Let me think."

    policy = player(reply)
    _, evaluation = interviewed([policy] * 3)
    assert None not in {answer.value for answer in evaluation.answers}
    last = policy.model.requests[-1].messages
    assert "could not be used" in last[-1]["content"]
    assert last[-2] == {"role": "assistant", "content": "Let me think."}


def test_a_judge_without_a_valid_answer_leaves_its_votes_out():
    odd = ScriptedChatModel(lambda _: "Well.", name="judge/odd")
    _, evaluation = interviewed([Speaker("a")] * 3, InterviewEvaluator([judge(), odd], reasks=0))
    votes = {(a.by, a.value) for a in evaluation.answers if a.view is View.EXTERNAL}
    assert votes == {("judge/m", True), ("judge/odd", None)}
    assert scores(evaluation)["agent_1", "goal_external"] == 10


def test_a_failed_call_is_not_recorded_as_an_answer():
    policies = [player(lambda _: ModelCallError("late", kind="timeout"))] * 3
    _, evaluation = interviewed(policies)
    assert "late" in evaluation.unscored
    assert evaluation.answers == ()


def test_each_seat_is_asked_through_the_policy_of_its_record():
    first, second = player(), player(lambda request: answering(request, WRONG[1], "no"), name="local/n")
    _, evaluation = interviewed([first, second, UniformRandom()], InterviewEvaluator(policies=[first, second]))
    assert {(a.respondent, a.by) for a in evaluation.answers} == {
        ("agent_0", "local/m"), ("agent_1", "local/n"), ("agent_2", "random"),
    }  # fmt: skip
    reasons = {a.reason for a in evaluation.answers if a.respondent == "agent_2"}
    assert reasons == {"the policy 'random' is not available"}
    renamed = replace(first, temperature=0.5)
    _, evaluation = interviewed([first] * 3, InterviewEvaluator(policies=[renamed]))
    assert {a.value for a in evaluation.answers} == {None}


def test_a_transcript_without_policies_leaves_all_seats_unanswered():
    evaluation = check_evaluator(InterviewEvaluator([judge()]))
    reasons = {a.reason for a in evaluation.answers if a.view is not View.EXTERNAL}
    assert reasons == {"no policy is recorded for the seat"}


def test_turns_that_contradict_the_rules_are_refused():
    episode, _ = interviewed([Speaker("a")] * 3)
    first, *rest = episode.plain_turns
    forged = episode.with_turns([replace(first, actor="agent_2"), *rest])
    with pytest.raises(EvaluationError, match="interview: "):
        asyncio.run(InterviewEvaluator().evaluate(forged))


def test_answers_survive_in_a_composite():
    policies = [UniformRandom()] * 3
    _, evaluation = interviewed(policies, Composite([InterviewEvaluator(policies=policies), VerifiedOutcome()]))
    assert evaluation.evaluator == "interview+verified"
    assert evaluation.answers
    assert Dimension.GOAL in evaluation.by_agent["agent_0"]


def test_judges_differ_by_name_or_parameters():
    one = judge()
    evaluators = [
        InterviewEvaluator(),
        InterviewEvaluator([one]),
        InterviewEvaluator([one, one]),
        InterviewEvaluator([one], temperature=1),
    ]
    assert len({evaluator.name for evaluator in evaluators}) == 4
    assert evaluators[0].name == "interview"
    assert evaluators[1].name.startswith("interview(judge/m)#")


def test_by_name():
    calls = []

    def model(spec, **options):
        calls.append((spec, options))
        return judge(name=spec)

    evaluator = make_evaluator("interview:local/a,local/b:temperature=0.5,api_base=http://x", model_factory=model)
    assert isinstance(evaluator, InterviewEvaluator)
    assert calls == [("local/a", {"api_base": "http://x"}), ("local/b", {"api_base": "http://x"})]
    assert evaluator.parameters["temperature"] == 0.5
    assert make_evaluator("interview").name == "interview"
    assert make_evaluator("interview+verified").name == "interview+verified"


def test_it_closes_its_judges_once():
    model = ClosingModel([])
    asyncio.run(InterviewEvaluator([model, model]).close())
    assert model.closed == 1


BAD_ANSWERS = [
    ({"view": "self"}, "reason"),
    ({"view": "self", "value": True, "choice": "A"}, "choice"),
    ({"value": True}, "choice"),
]


@pytest.mark.parametrize(("fields", "field"), BAD_ANSWERS)
def test_a_contradictory_answer_is_not_a_valid_record(fields, field):
    with raises(ValueError, field=field):
        InterviewAnswer(respondent="agent_0", about="agent_1", index=0, **fields)


def test_answers_are_about_agents_of_the_task():
    episode, _ = interviewed([Speaker("a")] * 3)
    answer = InterviewAnswer(respondent="agent_0", about="agent_9", index=0, view=View.SELF, value=True)
    odd = Evaluation(evaluator="x", answers=(answer,), unscored="none")
    with raises(ValueError, field="turns, evaluations", got="agent_9"):
        Episode.model_validate(episode.with_evaluation(odd).model_dump())
