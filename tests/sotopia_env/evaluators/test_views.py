"""Goals from three views: the inquiries, the data of each respondent, and the majority."""

import asyncio
import json

import pytest

from sotopia_env.errors import ContextLengthError, EvaluationError, InvalidValueError, ModelCallError, UnknownNameError
from sotopia_env.evaluators import View, Views, answers_of
from sotopia_env.evaluators.judge.goal_answer import read_yes_no
from sotopia_env.evaluators.judge.verdict import Refusal
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.episode import Evaluation, Evaluator
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Seat
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import LEAVE, act, secretive_task, transcript
from tests.sotopia_env.evaluators.judge_doubles import ClosingModel, data_of
from tests.sotopia_env.factories import character, scenario, task

GOALS = (("Sell the violin.", "Stay friends."), ("Buy a present.",))
TWO = task(scenario=scenario(seats=tuple(Seat(goals=goals) for goals in GOALS)))
HELLO = transcript("Hello.", "Good evening.", of=TWO)


def answering(reached, name="local/m", **options):
    """A model that answers yes where ``reached(request, number)``."""

    def answer(request):
        numbers = request.schema["properties"]["answers"]["required"]
        answers = {n: {"reasoning": f"so {n}", "answer": "yes" if reached(request, int(n)) else "no"} for n in numbers}
        return json.dumps({"answers": answers})

    return ScriptedChatModel(answer, name=name, **options)


def evaluate(views, of=HELLO):
    return asyncio.run(views.evaluate_async(of))


def goals(evaluation):
    return {score.agent: score.value for score in evaluation.scores}


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
def test_anything_else_is_no_answer(text):
    assert isinstance(read_yes_no(text), Refusal)


def test_goal_is_ten_times_the_share_of_goals_reached():
    views = Views([answering(lambda request, number: number == 2)])
    evaluation = evaluate(views)
    assert isinstance(views, Evaluator)
    assert goals(evaluation) == {"agent_0": 5.0, "agent_1": 0.0}
    assert {score.dimension for score in evaluation.scores} == {Dimension.GOAL}
    first = evaluation.scores[0]
    assert first.reasoning == "goal 1 not reached (yes: external 0 of 1); goal 2 reached (yes: external 1 of 1)"
    assert (evaluation.evaluator, first.source) == (views.name, views.name)
    assert evaluation.parameters == views.parameters
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
def test_the_majority_of_the_judges_decides_and_a_tie_is_none(judges, expected):
    assert set(goals(evaluate(Views([judge() for judge in judges]))).values()) == {expected}


def test_every_view_is_asked_separately_of_everybody_it_concerns():
    people, judges = YES(), [YES("a"), NO("b"), YES("c")]
    of = transcript("Hi.", of=task(3))
    answers = answers_of(evaluate(Views(judges, interviewee=people), of))
    inquiries = {(a.agent, a.view, a.respondent) for a in answers}
    everyone = ("agent_0", "agent_1", "agent_2")
    assert inquiries == {
        *((agent, View.SELF, agent) for agent in everyone),
        *((agent, View.OTHER, other) for agent in everyone for other in everyone if other != agent),
        *((agent, View.EXTERNAL, f"judge_{n}") for agent in everyone for n in range(3)),
    }
    assert len(answers) == len(inquiries) == len(people.requests) + sum(len(judge.requests) for judge in judges)
    assert {(a.respondent, a.model, a.reached) for a in answers if a.view is View.EXTERNAL} == {
        ("judge_0", "a", True),
        ("judge_1", "b", False),
        ("judge_2", "c", True),
    }
    assert all(request.role == "judge" for request in people.requests)


def test_participants_are_shown_only_what_they_knew_and_witnessed():
    model = YES()
    of = secretive_task(3)
    episode = transcript(
        act(0, "To all."), act(1, "To you only.", to=(2,)), act(2, "Goodbye.", LEAVE), act(0, "Now we are two."), of=of
    )
    evaluate(Views(interviewee=model, deciding="self"), episode)
    arguments = {"agent_0": ["To all.", "Goodbye.", "Now we are two."],
            "agent_1": ["To all.", "To you only.", "Goodbye.", "Now we are two."],
            "agent_2": ["To all.", "To you only.", "Goodbye."]}  # fmt: skip
    respondents = []
    for request in model.requests:
        system, text, data = request.messages[0]["content"], request.messages[1]["content"], data_of(request)
        own = next(agent["id"] for agent in data["agents"] if "secret" in agent)
        respondents.append(own)
        assert f"the participant whose id is {own}" in system
        assert [turn["argument"] for turn in data["turns"]] == arguments[own]
        assert all("seen_by" not in turn for turn in data["turns"])
        about = next(agent for agent in of.agents if f"about {agent} now" in text)
        for seat, agent in enumerate(of.agents):
            if agent != own:
                for hidden in (of.characters[seat].secret, of.scenario.seats[seat].private_info):
                    assert hidden not in text
            if agent not in (own, about):
                assert of.scenario.seats[seat].goals[0] not in text
    assert sorted(respondents) == sorted(3 * list(of.agents))


@pytest.mark.parametrize(("kind", "visible"), [("stranger", False), ("acquaintance", True), ("friend", True)])
def test_of_the_others_they_know_what_the_relationship_reveals(kind, visible):
    model = YES()
    people = (character("Ada"), character("Bram", occupation="lighthouse keeper"))
    evaluate(
        Views(interviewee=model, views=["self"], deciding="self"),
        transcript("Hi.", of=task(kind=kind, characters=people)),
    )
    profile = data_of(model.requests[0])["agents"][1]["profile"]
    assert ("lighthouse keeper" in profile) is visible


def test_judges_are_shown_everything():
    model = YES()
    of = secretive_task(2)
    evaluate(Views([model]), transcript(act(0, "x", to=(1,)), of=of))
    data = data_of(model.requests[0])
    assert [agent["secret"] for agent in data["agents"]] == [c.secret for c in of.characters]
    assert data["turns"][0]["seen_by"] == ["agent_1"]


def test_goals_are_known_by_agent_and_number_never_by_their_text():
    """Guards AgentSense's collision of goals that read the same."""
    same = Seat(goals=("Be liked.", "Be liked.", "Be liked."))
    of = transcript("Hello.", of=task(scenario=scenario(seats=(same, same))))
    model = answering(lambda r, number: number == 2 or ("agent_1" in r.messages[1]["content"][-200:] and number == 1))
    evaluation = evaluate(Views([model]), of)
    assert goals(evaluation) == {"agent_0": pytest.approx(10 / 3), "agent_1": pytest.approx(20 / 3)}
    keys = [(answer.agent, answer.goal) for answer in answers_of(evaluation)]
    assert keys == [(agent, goal) for agent in ("agent_0", "agent_1") for goal in range(3)]


def test_judges_of_the_same_name_do_not_collide():
    """Guards AgentSense's collision of two judges with the same model name."""
    evaluation = evaluate(Views([YES("m"), YES("m"), NO("m")]))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 10.0}
    assert "external 2 of 3" in evaluation.scores[0].reasoning


@pytest.mark.parametrize(
    ("deciding", "expected"), [("self", 10.0), ("other", 0.0), ("external", 10.0), (View.OTHER, 0.0), ("all", 10.0)]
)
def test_the_deciding_view_is_declared(deciding, expected):
    people = answering(lambda request, _: "whether you reached" in request.messages[0]["content"])
    evaluation = evaluate(Views([YES()], interviewee=people, deciding=deciding))
    assert goals(evaluation) == {"agent_0": expected, "agent_1": expected}
    assert "(yes: self 1 of 1, other 0 of 1, external 1 of 1)" in evaluation.scores[0].reasoning


def test_every_seat_may_be_answered_for_by_a_model_of_its_own():
    models = {"agent_0": YES("a"), "agent_1": NO("b")}
    evaluation = evaluate(Views(interviewee=models, deciding="self"))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 0.0}
    with pytest.raises(EvaluationError, match="expected a model for agent_2, got agent_0, agent_1"):
        evaluate(Views(interviewee=models, deciding="self"), transcript("Hi.", of=task(3)))


WRONG = {
    "unclear": ('{"answers": {"1": {"reasoning": "r", "answer": "Yes, but no"}}}', 'one clear "yes" or "no"'),
    "boolean": ('{"answers": {"1": {"reasoning": "r", "answer": true}}}', "got"),
    "by text": ('{"answers": {"Buy a present.": {"reasoning": "r", "answer": "yes"}}}', "the key '1' is missing"),
    "one too many": ('{"answers": {"1": {"reasoning": "r", "answer": "yes"}, "2": {}}}', "unknown key"),
    "no reasoning": ('{"answers": {"1": {"answer": "yes"}}}', "'reasoning' is missing"),
    "empty reasoning": ('{"answers": {"1": {"reasoning": "", "answer": "yes"}}}', "reasoning: expected a text"),
    "list": ('{"answers": ["yes"]}', "expected an object"),
    "prose": ("Yes.", "nothing before it"),
    "twice": ('{"answers": {"1": 1, "1": 2}}', "given twice"),
}


@pytest.mark.parametrize(("text", "hint"), WRONG.values(), ids=WRONG)
def test_an_unclear_answer_is_asked_for_again_and_then_the_episode_is_unscored(text, hint):
    """Guards AgentSense's free-text reading of answers, and S8."""
    of = transcript("Hello.", of=task())
    right = '{"answers": {"1": {"reasoning": "r", "answer": "yes"}}}'
    model = ScriptedChatModel([text, right, right])
    assert goals(evaluate(Views([model]), of)) == {"agent_0": 10.0, "agent_1": 10.0}
    assert hint.replace('"', '\\"') in model.requests[1].messages[1]["content"]
    stubborn = evaluate(Views([ScriptedChatModel(lambda _: text)], reasks=1), of)
    assert stubborn.scores == ()
    assert stubborn.unscored.startswith("external view: no valid answer by judge_0 about agent_0 after 2 answers")
    assert hint in stubborn.unscored
    with pytest.raises(EvaluationError, match="unscored"):
        answers_of(stubborn)


def test_s8_a_failed_call_is_an_error():
    with pytest.raises(EvaluationError, match=r"the call failed \(timeout\)"):
        evaluate(Views([ScriptedChatModel(lambda _: ModelCallError("late", kind="timeout"))]))


def test_a_long_episode_loses_its_oldest_turns():
    def small(request):
        turns = data_of(request)["turns"]
        return ContextLengthError("too long") if len(turns) > 5 else YES()._answer(request)

    model = ScriptedChatModel(small)
    evaluation = evaluate(Views([model]), transcript(*map(str, range(20)), of=task()))
    assert goals(evaluation) == {"agent_0": 10.0, "agent_1": 10.0}
    assert data_of(model.requests[-1])["omitted_turns"] >= 15


def test_names_tell_other_parameters_apart():
    yes = YES()
    views = [
        Views([yes]),
        Views([yes, yes]),
        Views([yes], interviewee=yes),
        Views([yes], interviewee=yes, deciding="all"),
        Views([yes], interviewee={"agent_0": yes, "agent_1": yes}),
        Views([yes], temperature=0.3),
        Views([yes], reasks=1),
        Views([yes], max_tokens=9),
    ]
    assert len({views.name for views in views}) == len(views)
    assert views[2].name.startswith("views(self+other+external)#")
    assert views[2].parameters["views"] == ["self", "other", "external"]


@pytest.mark.parametrize(
    ("arguments", "error", "fields"),
    [
        ({}, InvalidValueError, {"field": "views"}),
        ({"external": ["gpt"]}, InvalidValueError, {"field": "model"}),
        ({"interviewee": {"agent_0": "gpt"}}, InvalidValueError, {"field": "model"}),
        ({"external": [YES()], "views": ["slef"]}, UnknownNameError, {"field": "views", "nearest": "self"}),
        ({"external": [YES()], "views": ["self"]}, InvalidValueError, {"field": "interviewee"}),
        ({"interviewee": YES(), "views": ["external"]}, InvalidValueError, {"field": "external"}),
        ({"interviewee": YES()}, InvalidValueError, {"field": "deciding"}),
        ({"external": [YES()], "deciding": "al"}, UnknownNameError, {"field": "deciding", "nearest": "all"}),
        ({"external": [YES()], "views": []}, InvalidValueError, {"field": "views"}),
        ({"external": [YES()], "reasks": -1}, InvalidValueError, {"field": "reasks"}),
    ],
)
def test_misuse_is_refused_at_once(arguments, error, fields):
    with raises(error, **fields):
        Views(**arguments)


def test_answers_of_another_evaluator_are_refused():
    with pytest.raises(EvaluationError, match="rules: expected an evaluation of goals by views"):
        answers_of(Evaluation(evaluator="rules", comment="fine"))


def test_closing_closes_every_model_once():
    one, other = ClosingModel([]), ClosingModel([])
    asyncio.run(Views([one, one], interviewee={"agent_0": one, "agent_1": other}).close())
    asyncio.run(Views([one], interviewee=other).close())
    assert (one.closed, other.closed) == (2, 2)
