"""The format ``tools``: moves as function calls, over a real socket, by both ways to a server."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import jsonschema
import pytest

from sotopia_env import naming, tasks
from sotopia_env.chat_model import ChatRequest
from sotopia_env.foundation.errors import InvalidValueError, ModelCallError, ModelRefusedError, PolicyError
from sotopia_env.policies import LLMPolicy
from sotopia_env.policies.agent_prompt import AgentPrompt, conversation_tokens
from sotopia_env.policies.function_calls import action_text, call_of, functions_of, with_calls
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType, parse, to_json
from sotopia_env.world.answers import InterviewQuestion
from sotopia_env.world.dynamics import StopReason
from sotopia_env.world.observation import FunctionCall
from sotopia_env.world.play.table import Table
from tests.errors import raises
from tests.sotopia_env.chat_model.server import Manner
from tests.sotopia_env.factories import scenario, task
from tests.sotopia_env.outcome_tasks import ballot, contract, riddle
from tests.sotopia_env.policies.doubles import decide, observed

TERMS = {"price": 84, "start": "June 1", "firewood": {"agent_0": 1, "agent_1": 2}}
OFFER = Action(argument="How about 84?", move={"propose": TERMS})


def call(name: str, **arguments: Any) -> tuple[str, Any]:
    return name, arguments


def bargainer(body: dict[str, Any]) -> list[tuple[str, Any]]:
    """Accepts what is open, and otherwise makes an offer."""
    is_open = '{"accept": 1}' in body["messages"][-1]["content"]
    return [call("accept", offer=1, words="Agreed.") if is_open else call("propose", terms=TERMS, words="84?")]


def function_names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


# ---------------------------------------------------------------------------------------------------------------------
# Over a socket
def test_an_episode_is_played_by_calls_alone(way, serve):
    server = serve(calls=bargainer)
    policy = LLMPolicy(way.make(server), format="tools")
    table = Table(contract(), Rules(max_turns=6), seed=1)
    asyncio.run(table.play({"agent_0": policy, "agent_1": policy}))
    episode = table.episode()
    assert episode.stop is StopReason.SETTLED
    assert [item.turn.action.move.to_json() for item in episode.turns] == [{"propose": TERMS}, {"accept": 1}]
    assert [item.turn.action.argument for item in episode.turns] == ["84?", "Agreed."]
    for item in episode.turns:  # the record of a text
        assert parse(item.generation.text) == item.turn.action
        assert item.generation.parse_failure is None
    for request in server.requests:
        assert function_names(request.body) == [
            *("say", "gesture", "act", "propose", "accept", "reject", "withdraw", "wait", "leave")
        ]
        assert request.body["tool_choice"] == "required"
        assert "response_format" not in request.body


def test_own_turns_are_calls_and_the_turns_after_them_their_results(direct, serve):
    server = serve(calls=lambda body: [call("say", words="Hello.")])
    policy = LLMPolicy(direct.make(server), format="tools")
    table = Table(contract(), Rules(max_turns=6), seed=1)
    asyncio.run(table.play({"agent_0": policy, "agent_1": naming.make_policy("silent")}))
    conversations = [request.body["messages"] for request in server.requests]
    assert len(conversations) == 3
    for earlier, later in pairwise(conversations):
        assert later[: len(earlier)] == earlier  # a server's prefix cache hits
    assert [message["role"] for message in conversations[-1]] == ["system", "user", *["assistant", "tool"] * 2]
    for answer, result in zip(conversations[-1][2::2], conversations[-1][3::2], strict=True):
        [own] = answer["tool_calls"]
        assert own["id"] == result["tool_call_id"]
        assert own["function"]["name"] == "say"
        assert json.loads(own["function"]["arguments"]) == {"words": "Hello."}
    assert "Bram Testa did nothing" in conversations[-1][-1]["content"]


@pytest.mark.parametrize(
    "calls",
    [
        [call("buy", words="Hm.")],
        [call("say", words="One."), call("say", words="Two.")],
        [("say", '{"words": "no end')],
        [("say", "[1, 2]")],
        [call("accept", words="Which?")],
        [call("vote", option="museum", words="")],
        [],
    ],
    ids=["unknown", "two", "no JSON", "no object", "without its offer", "of another protocol", "text"],
)
def test_anything_but_one_open_call_is_asked_for_again(direct, serve, calls):
    answers = iter([calls, [call("accept", offer=1, words="Fine.")]])
    server = serve(reply="I would say yes.", calls=lambda body: next(answers))
    decision = decide(LLMPolicy(direct.make(server), format="tools"), observed(contract(), OFFER))
    assert decision.action == Action(argument="Fine.", move={"accept": 1})
    assert decision.generation.reasks == 1
    complaint = server.requests[1].body["messages"][-1]
    assert complaint["role"] in ("user", "tool")
    assert "calling" in complaint["content"]


def test_a_server_that_lets_the_model_choose_is_asked_that_way(direct, serve):
    server = serve(manner=Manner(("tool_choice",)), calls=bargainer)
    policy = LLMPolicy(direct.make(server), format="tools")
    for _ in range(2):
        assert decide(policy, observed(contract(), OFFER)).action.move.to_json() == {"accept": 1}
    assert [request.body["tool_choice"] for request in server.requests] == ["required", "auto", "auto"]


def test_a_server_without_functions_says_so(direct, serve):
    server = serve(manner=Manner(("tools",)), calls=bargainer)
    policy = LLMPolicy(direct.make(server), format="tools")
    with pytest.raises((PolicyError, ModelCallError, ModelRefusedError), match="enable-auto-tool-choice"):
        decide(policy, observed(contract(), OFFER))


def test_a_cached_answer_is_the_same_call(direct, serve, tmp_path):
    server = serve(calls=bargainer)
    for _ in range(2):
        policy = LLMPolicy(direct.make(server, cache_dir=tmp_path), format="tools")
        decision = decide(policy, observed(contract(), OFFER))
        assert decision.action.move.to_json() == {"accept": 1}
        asyncio.run(policy.model.close())
    assert server.total == 1


def test_functions_count_as_prompt(direct, serve):
    observation = observed(contract(), OFFER)
    policy = LLMPolicy(direct.make(serve(calls=bargainer)), format="tools", context_limit=600)
    with_functions = conversation_tokens(AgentPrompt("tools").messages(observation), functions_of(observation))
    assert with_functions > conversation_tokens(AgentPrompt("tools").messages(observation)) + 100
    assert decide(policy, observation).action.move is not None


def test_an_interview_asks_for_text(direct, serve):
    server = serve(reply='{"answer": "no"}', calls=bargainer)
    policy = LLMPolicy(direct.make(server), format="tools")
    question = InterviewQuestion("agent_0", "Did you agree?")
    reply = asyncio.run(policy.answer(observed(contract()), question, seed=1))
    assert reply.choice == 1
    assert "tools" not in server.requests[0].body


# ---------------------------------------------------------------------------------------------------------------------
# Functions and calls
@pytest.mark.parametrize(
    ("task", "moves"),
    [
        (contract(), ["propose", "accept", "reject", "withdraw"]),
        (ballot(2), ["vote"]),
        (riddle(), ["claim"]),
        (task(), []),
    ],
    ids=["agreement", "ballot", "claims", "words alone"],
)
def test_a_task_has_the_functions_of_its_protocol(task, moves):
    functions = functions_of(observed(task))
    assert [function["name"] for function in functions] == ["say", "gesture", "act", *moves, "wait", "leave"]
    for function in functions:
        jsonschema.Draft202012Validator.check_schema(function["parameters"])
        assert function["description"]


def test_action_types_that_are_not_allowed_have_no_functions():
    kinds = (ActionType.NONE, ActionType.SPEAK)
    observation = Table(contract(), Rules(action_types=kinds), seed=1).observe("agent_0")
    assert {function["name"] for function in functions_of(observation)} == {
        *("say", "propose", "accept", "reject", "withdraw", "wait")
    }


def test_words_may_go_to_some_and_moves_may_not():
    observation = observed(task(3, scenario=scenario(3, private_messages=True)))
    by_name = {function["name"]: function["parameters"]["properties"] for function in functions_of(observation)}
    assert by_name["say"]["to"]["items"]["enum"] == ["Bram Testa", "Chidi Testa"]
    text = action_text([FunctionCall("say", '{"words": "Psst.", "to": ["Chidi Testa"]}')])
    assert parse(text, observation.briefing.recipients) == Action(argument="Psst.", to=("agent_2",))


@pytest.mark.parametrize("family", tasks.FAMILIES)
def test_every_action_is_a_call_that_its_function_allows_and_that_means_it(family):
    """Scripted policies play; each of their actions is written as a call and read back."""
    task = tasks.generate(family, 1, seed=5)[0]
    table = Table(task, Rules(max_turns=12), seed=5)
    policies = [naming.make_policy("random-offers"), naming.make_policy("random")]
    asyncio.run(table.play({agent: policies[index % 2] for index, agent in enumerate(task.agents)}))
    observation = Table(task, Rules(max_turns=12), seed=5).observe(task.agents[0])
    schemas = {function["name"]: function["parameters"] for function in functions_of(observation)}
    for item in table.episode().turns:
        action = item.turn.attempted or item.turn.action
        if action.action_type in (ActionType.NON_VERBAL, ActionType.ACTION) and action.move is not None:
            continue  # moves are made along with speech
        own = call_of(to_json(action, task.names))
        assert own is not None
        jsonschema.validate(json.loads(own.arguments), schemas[own.name])
        names = {name: agent for agent, name in task.names.items()}
        assert parse(action_text([own]), names) == action


def test_text_that_is_not_an_action_stays_text():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "Hm?"},
        {"role": "user", "content": "v"},
    ]
    assert with_calls(messages) == messages


def test_a_model_that_writes_the_action_as_text_is_read_all_the_same():
    model = ScriptedChatModel(['{"action_type": "speak", "argument": "Hello."}'])
    decision = decide(LLMPolicy(model, format="tools"), observed(contract()))
    assert decision.action == Action(argument="Hello.")
    request: ChatRequest = model.requests[0]
    assert request.tools
    assert request.schema is None


def test_examples_are_calls():
    examples = [("They wait.", to_json(OFFER)), ("They wait on.", '{"action_type": "leave", "argument": ""}')]
    model = ScriptedChatModel(['{"action_type": "speak", "argument": "Hello."}'])
    decide(LLMPolicy(model, format="tools", examples=examples), observed(contract()))
    messages = model.requests[0].messages
    assert [message["role"] for message in messages] == ["system", "user", *["assistant", "tool"] * 2]
    names = [message["tool_calls"][0]["function"]["name"] for message in messages if "tool_calls" in message]
    assert names == ["propose", "leave"]


def test_training_knows_no_calls():
    from sotopia_training.stage.settings import PromptSettings

    from sotopia_env.foundation.settings import settings_of

    with raises(InvalidValueError, field="format"):
        settings_of({"format": "tools"}, PromptSettings, "prompt")
