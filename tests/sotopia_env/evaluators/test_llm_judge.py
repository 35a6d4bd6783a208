"""The judge: its prompt, its answers, and their scores."""

import asyncio
import json

import pytest

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.evaluators import Ensemble
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import (
    BudgetExceededError,
    ContextLengthError,
    EvaluationError,
    InvalidValueError,
    ModelCallError,
    UnknownNameError,
)
from sotopia_env.foundation.prompts import reader
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.action import Action
from sotopia_env.world.dynamics import Rules, StopReason, initial_state, transition
from sotopia_env.world.episode import Episode, Evaluator, RecordedTurn
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension, Dimension
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import SPEAK, act, secretive_task, transcript
from tests.sotopia_env.evaluators.judge_doubles import ClosingModel, data_of, honest, requirements, verdict
from tests.sotopia_env.factories import task

load = reader("sotopia_env.evaluators.judge")

SALARY = CustomDimension(name="salary", low=1, high=5, instruction="How close did it come to its salary?\nBe strict.")
HELLO = transcript("Hello.", "Good evening.")


def evaluate(judge, episode=HELLO):
    return asyncio.run(judge.evaluate(episode))


def test_a_verdict_becomes_scores_with_their_reasoning():
    scores = {("agent_0", "goal"): 7, ("agent_1", "secret"): -3, ("agent_1", "relationship"): 5}
    reply = verdict(score=lambda agent, name: scores.get((agent, name), 0))
    judge = LLMJudge(ScriptedChatModel([reply]))
    evaluation = evaluate(judge)
    assert isinstance(judge, Evaluator)
    assert evaluation.vector("agent_0").tolist() == [0, 0, 0, 0, 0, 0, 7]
    assert evaluation.vector("agent_1").tolist() == [0, 5, 0, -3, 0, 0, 0]
    score = evaluation.by_agent["agent_1"][Dimension.SECRET]
    assert (score.reasoning, score.source) == ("agent_1 on secret", judge.name)
    assert evaluation.evaluator == judge.name
    assert evaluation.parameters == judge.parameters
    assert evaluation.comment == "answered by scripted/model"


def test_the_request():
    model = ScriptedChatModel(honest)
    evaluate(LLMJudge(model, temperature=0.5, max_tokens=900, replicate=3))
    request = model.requests[0]
    assert (request.role, request.temperature, request.max_tokens, request.replicate) == ("judge", 0.5, 900, 3)
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.label.endswith(": test-task, seed 0")
    verdicts = request.schema["properties"]["verdicts"]["properties"]
    for agent in ("agent_0", "agent_1"):
        for dimension, (low, high) in RANGES.items():
            entry = verdicts[agent]["properties"][dimension.value]
            assert list(entry["properties"]) == entry["required"] == ["reasoning", "score"]
            assert entry["properties"]["score"] == {"type": "integer", "minimum": low, "maximum": high}
            assert entry["additionalProperties"] is False


def test_the_instructions_hold_every_dimension_and_nothing_of_the_episode():
    model = ScriptedChatModel(honest)
    task_ = secretive_task()
    evaluate(LLMJudge(model), transcript("I forged nothing.", of=task_))
    system = model.requests[0].messages[0]["content"]
    for dimension in DIMENSIONS:
        assert load(f"judge_{dimension.value}") in system
        low, high = RANGES[dimension]
        assert f"{dimension.value} (whole number from {low} to {high})" in system
    assert "agent_0, agent_1" in system
    for text in (task_.scenario.context, *task_.names.values(), "forged", *(c.secret for c in task_.characters)):
        assert text not in system


def test_bands_are_added_only_when_asked_for():
    plain, fine = ScriptedChatModel(honest), ScriptedChatModel(honest)
    evaluate(LLMJudge(plain)), evaluate(LLMJudge(fine, bands=True))
    for dimension in DIMENSIONS:
        first = load(f"judge_bands_{dimension.value}").splitlines()[0]
        assert first in fine.requests[0].messages[0]["content"]
        assert first not in plain.requests[0].messages[0]["content"]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_bands_cover_their_range(dimension):
    points = []
    for line in load(f"judge_bands_{dimension.value}").splitlines():
        ends = [int(number) for number in line.partition(":")[0].split(" to ")]
        points += range(ends[0], ends[-1] + 1)
    low, high = RANGES[dimension]
    assert points == list(range(low, high + 1))


def test_s6_a_recorded_episode_is_judged_from_its_record():
    """Guards S6: re-evaluation had no messages, hence no agents, hence only zeros."""
    task = secretive_task(3)
    state = initial_state(task, Rules(max_turns=3), 5)
    for text in ("One.", "Two.", "Three."):
        state = transition(state, Action(SPEAK, text))
    live, model = Episode.of_state(state), ScriptedChatModel(honest)
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    episode = Episode(key="k", task=task, rules=state.rules, seed=5, stop=state.stop, turns=turns)
    judge = LLMJudge(model)
    again = asyncio.run(evaluate_episode(Episode.model_validate_json(episode.model_dump_json()), judge))
    assert evaluate(judge, live) == again.evaluation()
    assert model.requests[0].messages == model.requests[1].messages
    assert [turn["argument"] for turn in data_of(model.requests[0])["turns"]] == ["One.", "Two.", "Three."]
    assert data_of(model.requests[0])["end"] == StopReason.TURN_LIMIT.value
    assert set(again.evaluation().by_agent) == {"agent_0", "agent_1", "agent_2"}


def test_s7_agents_that_never_acted_are_judged_and_seats_are_not_swapped():
    """Guards S7: scores went by position, and agents that had not acted were not counted."""

    def reversed_order(request):
        agents, dimensions = requirements(request)
        return verdict(agents[::-1], dimensions[::-1], lambda agent, name: -int(agent[-1]) if name == "secret" else 0)

    of = transcript(act(1, "I talk to myself."), of=task(3))
    evaluation = evaluate(LLMJudge(ScriptedChatModel(reversed_order)), of)
    for seat, agent in enumerate(of.task.agents):
        assert evaluation.by_agent[agent][Dimension.SECRET].value == -seat
        assert evaluation.by_agent[agent][Dimension.SECRET].reasoning == f"{agent} on secret"


@pytest.mark.parametrize("kind", ["rate_limit", "server", "timeout", "connection", "malformed", "empty", "auth"])
def test_s8_a_failed_call_is_an_error_and_then_unscored_never_zero(kind):
    """Guards S8: every exception became an empty list, which reads like a score of 0."""
    judge = LLMJudge(ScriptedChatModel(lambda _: ModelCallError("no luck", kind=kind, attempts=4)))
    with pytest.raises(EvaluationError, match=rf"scripted/model: .*\({kind}\): no luck"):
        evaluate(judge)
    evaluation = asyncio.run(evaluate_episode(Episode(task=HELLO.task), judge)).evaluation()
    assert evaluation.scores == ()
    assert "no luck" in evaluation.unscored
    with pytest.raises(EvaluationError, match="unscored"):
        evaluation.vector("agent_0")


def test_s8_an_answer_that_stays_wrong_leaves_the_episode_unscored_with_the_reason():
    model = ScriptedChatModel(["I would rather not.", "{}", verdict(("agent_0",))])
    evaluation = evaluate(LLMJudge(model))
    assert len(model.requests) == 3
    assert evaluation.scores == ()
    assert evaluation.unscored.startswith("no valid verdict after 3 answers; the last one: verdicts: the key 'agent_1'")
    assert evaluation.comment == "answered by scripted/model; re-asks: 2"


def test_s8_what_no_model_declares_is_not_caught():
    with pytest.raises(ZeroDivisionError):
        evaluate(LLMJudge(ScriptedChatModel(lambda _: ZeroDivisionError())))


def test_a_spent_budget_is_no_matter_of_one_episode():
    for judge in (
        LLMJudge,
        lambda m: LLMJudge(m, per="agent"),
        lambda m: Ensemble([LLMJudge(m), LLMJudge(m, bands=True)]),
    ):
        with pytest.raises(BudgetExceededError):
            evaluate(judge(ScriptedChatModel(lambda _: BudgetExceededError("enough"))))


@pytest.mark.parametrize("per", ["episode", "agent"])
@pytest.mark.parametrize("seats", [2, 3, 5])
def test_s10_every_seat_is_judged(seats, per):
    """Guards S10: only two agents' ratings survived."""
    model = ScriptedChatModel(honest)
    evaluation = evaluate(LLMJudge(model, per=per), transcript("Hello.", of=task(seats)))
    assert list(evaluation.by_agent) == [f"agent_{seat}" for seat in range(seats)]
    assert all(evaluation.vector(agent).shape == (7,) for agent in evaluation.by_agent)
    assert len(model.requests) == (1 if per == "episode" else seats)
    assert {agent for request in model.requests for agent in requirements(request)[0]} == set(evaluation.by_agent)


def test_a_refused_answer_is_asked_for_again_with_the_reason():
    model = ScriptedChatModel([verdict(score=lambda a, d: 11), f"Gladly: [{verdict()}]", verdict()])
    evaluation = evaluate(LLMJudge(model))
    first, second, third = (request.messages for request in model.requests)
    assert evaluation.unscored is None
    assert evaluation.comment == "answered by scripted/model; re-asks: 2"
    assert first[0] == second[0] == third[0]
    assert second[1]["content"].startswith(first[1]["content"])
    complaint = second[1]["content"].removeprefix(first[1]["content"])
    assert "verdicts.agent_0.believability.score: " in complaint
    assert "and 9 more" in complaint
    assert "nothing before it" in third[1]["content"].removeprefix(first[1]["content"])


@pytest.mark.parametrize("reasks", [0, 1, 4])
def test_re_asks_are_bounded(reasks):
    model = ScriptedChatModel(lambda _: "no")
    assert f"after {reasks + 1} answers" in evaluate(LLMJudge(model, reasks=reasks)).unscored
    assert len(model.requests) == reasks + 1


def test_an_answer_cut_off_is_never_taken_for_a_verdict():
    for text in (verdict()[:-1], f"{verdict()} But", f"It could be {verdict()}"):
        cut = ScriptedChatModel([ChatReply(text, finish_reason="length")])
        assert "cut off" in evaluate(LLMJudge(cut, reasks=0)).unscored
    whole = ScriptedChatModel([ChatReply(verdict(), finish_reason="length")])
    assert evaluate(LLMJudge(whole, reasks=0)).unscored is None


def test_one_agent_without_a_verdict_leaves_all_unscored():
    def moody(request):
        return "no" if requirements(request)[0] == ("agent_1",) else honest(request)

    evaluation = evaluate(LLMJudge(ScriptedChatModel(moody), per="agent", reasks=1))
    assert evaluation.scores == ()
    assert evaluation.unscored.startswith("no valid verdict on agent_1 after 2 answers")


@pytest.mark.parametrize("fits", [20, 12, 5, 2])
def test_an_episode_too_long_for_the_model_loses_its_oldest_turns_visibly(fits):
    def small(request):
        return honest(request) if len(data_of(request)["turns"]) <= fits else ContextLengthError("too long", 4096)

    model, episode = ScriptedChatModel(small), transcript(*(f"Number {n}." for n in range(1, 21)))
    evaluation = evaluate(LLMJudge(model), episode)
    data = data_of(model.requests[-1])
    omitted = 20 - len(data["turns"])
    assert data.get("omitted_turns", 0) == omitted >= 20 - fits
    assert data["turns"][-1]["argument"] == "Number 20."
    assert data["turns"][0]["turn"] == omitted + 1
    assert (f"the {omitted} oldest turns are left out" in evaluation.comment) == bool(omitted)
    assert model.requests[-1].messages[0] == model.requests[0].messages[0]


def test_an_episode_whose_last_turns_do_not_fit_is_not_judged():
    with pytest.raises(EvaluationError, match="too long"):
        evaluate(LLMJudge(ScriptedChatModel(lambda _: ContextLengthError("too long"))), transcript(*"abcdefgh"))


@pytest.mark.parametrize("choice", [["goal"], ["GOAL", "SEC"], [Dimension.KNOWLEDGE], []])
def test_any_subset_of_the_seven_beside_custom_ones(choice):
    model = ScriptedChatModel(lambda r: verdict(*requirements(r), score=lambda a, d: 1 if d == "salary" else 0))
    evaluation = evaluate(LLMJudge(model, dimensions=choice, custom=[SALARY]))
    names = [score.dimension for score in evaluation.scores if score.agent == "agent_1"]
    assert len(names) == len(choice) + 1
    assert evaluation.dimensions == (SALARY,)
    assert evaluation.by_agent["agent_1"]["salary"].value == 1.0
    assert type(evaluation.by_agent["agent_1"]["salary"].dimension) is str
    text = "salary (whole number from 1 to 5)\n  How close did it come to its salary?\n  Be strict."
    assert text in model.requests[0].messages[0]["content"]
    again = type(evaluation).model_validate_json(evaluation.model_dump_json())
    assert again == evaluation


@pytest.mark.parametrize("score", [0, 6])
def test_a_custom_score_out_of_range_is_refused(score):
    model = ScriptedChatModel([verdict(dimensions=["salary"], score=lambda a, d: score)])
    assert "from 1 to 5" in evaluate(LLMJudge(model, dimensions=(), custom=[SALARY], reasks=0)).unscored


def test_a_judge_without_dimensions_of_its_own_scores_those_of_the_scenario():
    """A run, a later evaluation and a training stage read them from the episode, whoever made the judge."""
    warmth = SALARY.model_copy(update={"name": "warmth"})
    scenario = HELLO.task.scenario.model_copy(update={"dimensions": (warmth,)})
    episode = HELLO.model_copy(update={"task": HELLO.task.model_copy(update={"scenario": scenario})})
    for own, names in (((), {"warmth"}), ([SALARY], {"salary"})):
        judge = LLMJudge(
            ScriptedChatModel(lambda request: verdict(*requirements(request), score=lambda *_: 1)),
            dimensions=[Dimension.GOAL],
            custom=own,
        )
        evaluation = evaluate(judge, episode)
        assert {score.dimension for score in evaluation.scores} == {Dimension.GOAL, *names}
        assert {dimension.name for dimension in evaluation.dimensions} == names


def test_judges_of_one_model_with_other_parameters_have_other_names():
    model = ScriptedChatModel([], name="m")
    other_model = ScriptedChatModel([], name="m", parameters={"fallbacks": ["n"]})
    judges = [
        LLMJudge(model),
        LLMJudge(other_model),
        LLMJudge(model, bands=True),
        LLMJudge(model, per="agent"),
        LLMJudge(model, temperature=1.0),
        LLMJudge(model, reasks=1),
        LLMJudge(model, max_tokens=5),
        LLMJudge(model, replicate=1),
        LLMJudge(model, dimensions=["goal"]),
        LLMJudge(model, custom=[SALARY]),
        LLMJudge(model, custom=[SALARY.model_copy(update={"high": 7})]),
    ]
    assert len({judge.name for judge in judges}) == len(judges)
    assert all(judge.name.startswith("judge(m)#") for judge in judges)
    assert LLMJudge(model).name == judges[0].name
    assert LLMJudge(model).parameters == judges[0].parameters
    assert json.loads(json.dumps(judges[-1].parameters)) == judges[-1].parameters


@pytest.mark.parametrize(
    ("options", "error", "fields"),
    [
        ({"dimensions": ["gaol"]}, UnknownNameError, {"field": "dimension", "nearest": "goal"}),
        ({"dimensions": "goal"}, InvalidValueError, {"field": "dimensions"}),
        ({"dimensions": ["goal", "GOAL"]}, InvalidValueError, {"field": "dimensions"}),
        ({"dimensions": []}, InvalidValueError, {"field": "dimensions"}),
        ({"custom": [SALARY, SALARY]}, InvalidValueError, {"field": "dimensions"}),
        ({"custom": ["salary"]}, InvalidValueError, {"field": "custom"}),
        ({"per": "agents"}, UnknownNameError, {"field": "per", "nearest": "agent"}),
        ({"bands": "false"}, InvalidValueError, {"field": "bands"}),
        ({"temperature": -1}, InvalidValueError, {"field": "temperature"}),
        ({"temperature": float("nan")}, InvalidValueError, {"field": "temperature"}),
        ({"temperature": True}, InvalidValueError, {"field": "temperature"}),
        ({"reasks": -1}, InvalidValueError, {"field": "reasks"}),
        ({"reasks": 1.5}, InvalidValueError, {"field": "reasks"}),
        ({"max_tokens": 0}, InvalidValueError, {"field": "max_tokens"}),
        ({"replicate": -1}, InvalidValueError, {"field": "replicate"}),
    ],
)
def test_misuse_is_refused_at_once(options, error, fields):
    with raises(error, **fields):
        LLMJudge(ScriptedChatModel([]), **options)


@pytest.mark.parametrize("model", ["gpt-4o", None, ScriptedChatModel])
def test_only_a_chat_model_can_judge(model):
    with raises(InvalidValueError, field="model"):
        LLMJudge(model)


def test_closing_a_judge_closes_its_model():
    model = ClosingModel([])
    asyncio.run(LLMJudge(model).close())
    assert model.closed == 1
