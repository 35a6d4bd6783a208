"""Schemas of actions against the documented rules of OpenAI and Azure for strict schemas, in all families and orders.

The rules: https://platform.openai.com/docs/guides/structured-outputs ("Supported schemas") and
https://learn.microsoft.com/azure/ai-services/openai/how-to/structured-outputs ("Supported schemas and limitations").
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from sotopia_env.chat_model import ChatRequest, make_model
from sotopia_env.chat_model.probing import probe_server
from sotopia_env.chat_model.transports.form import RequestForm, response_format, unwrapped
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.dynamics import Rules, TurnOrder
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from tests.sotopia_env.chat_model.conftest import QUICK
from tests.sotopia_env.chat_model.server import LoopbackServer, conforming
from tests.sotopia_env.policies.test_answer_schema import TASKS, observations

BASIC = {"anyOf", "type", "enum", "properties", "required", "additionalProperties", "items"}
OPENAI = BASIC | {"minLength", "maxLength", "minimum", "maximum", "multipleOf", "minItems", "maxItems"}
AZURE = BASIC  # "unsupported type-specific keywords": all of the others above


def violations(schema: dict[str, Any], keywords: set[str], depth: int = 1) -> list[str]:
    """What the rules say against a schema: the root, its keywords, its objects, their depth."""
    problems = [] if depth > 1 or schema.get("type") == "object" else ["the root is not an object"]
    problems += [f"{key!r} is not permitted" for key in schema.keys() - keywords]
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False or schema["required"] != list(schema["properties"]):
            problems.append("an object is not closed")
        depth += 1
    if depth > 11:
        problems.append("too deep")
    parts = [*schema.get("anyOf", ()), *schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
    return problems + [problem for part in parts for problem in violations(part, keywords, depth)]


def sent(schema: dict[str, Any], form: RequestForm) -> dict[str, Any]:
    strict: dict[str, Any] = response_format(schema, form)["json_schema"]
    assert strict["strict"] is True
    return strict["schema"]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE])
def test_the_schemas_of_actions_obey_the_rules_of_openai_and_azure(task: Task, order: TurnOrder) -> None:
    for observation in observations(task, 1, Rules(max_turns=6, turn_order=order, end_when_settled=False)):
        schema = action_schema(observation)
        assert violations(schema, OPENAI)  # the checker refuses what they refuse
        assert not violations(sent(schema, RequestForm()), OPENAI)
        assert not violations(sent(schema, RequestForm(bounds="absent")), AZURE)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"action":{"a": 1}}', '{"a": 1}'),
        (' {\n "action" : {"a": "}"} }\n', '{"a": "}"}'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"action": {"a": 1', '{"action": {"a": 1'),
        ('{"action": {"a": 1}, "more": 2}', '{"action": {"a": 1}, "more": 2}'),
        ("no object", "no object"),
    ],
)
def test_only_the_object_around_an_answer_is_removed(text: str, action: str) -> None:
    request = ChatRequest((), schema={"anyOf": []})
    assert unwrapped(text, request, RequestForm()) == action
    assert unwrapped(text, request, RequestForm(schema="json_only")) == text
    assert unwrapped(text, ChatRequest((), schema={"type": "object"}), RequestForm()) == text


class StrictServer(LoopbackServer):
    """Refuses schemas as the providers do, and answers in the form of the schema."""

    keywords: set[str] = OPENAI

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        form = body.get("response_format", {})
        problems = violations(form["json_schema"]["schema"], self.keywords) if "json_schema" in form else []
        if problems:
            self.happened["refused"] += 1
            message = f"Invalid schema for response_format 'answer': In context=(), {problems[0]}."
            return web.json_response({"error": {"message": message, "code": None}}, status=400)
        return await super()._complete(request)


def follow(body: dict[str, Any]) -> str:
    form = body.get("response_format", {})
    return json.dumps(conforming(form["json_schema"]["schema"])) if "json_schema" in form else "no schema"


@pytest.mark.parametrize(("keywords", "refused"), [(OPENAI, 0), (AZURE, 1)])
def test_a_model_behind_strict_rules_plays_with_its_schema_enforced(keywords: set[str], refused: int) -> None:
    with StrictServer(reply=follow) as server:
        server.keywords = keywords
        model = make_model("local/tiny", api_base=server.api_base, retries=QUICK)
        policy, table = LLMPolicy(model, reasks=0), Table(TASKS["bargaining"], Rules(max_turns=4), 0)

        async def play() -> list[Any]:
            decisions = []
            while table.acting and len(decisions) < 3:
                agent = table.acting[0]
                decisions.append(await policy.act(table.observe(agent), 1))
                table.answer(agent, decisions[-1].action)
            await model.close()
            return decisions

        decisions = asyncio.run(play())
        assert server.happened["refused"] == refused
    assert [decision.generation.parse_failure for decision in decisions] == [None] * 3
    assert all('"action":' not in decision.generation.text for decision in decisions)


def test_the_probe_asks_with_alternatives_and_reports_an_empty_answer() -> None:
    with StrictServer(reply=follow) as server:
        server.keywords = AZURE
        rows = {row.name: row for row in asyncio.run(probe_server(server.api_base, "tiny"))}
        assert (rows["schema"].result, "without limits" in rows["schema"].detail) == ("yes", True)
    with LoopbackServer(reply="", reasoning="Hm.", finish_reason="length") as server:
        [row] = asyncio.run(probe_server(server.api_base, "tiny"))
        assert row.result == "no"
        assert "max_tokens" in row.detail


async def _turns(policy: LLMPolicy) -> list[Any]:
    table = Table(TASKS["bargaining"], Rules(), 0)
    decisions = [await policy.act(table.observe(table.acting[0]), 1)]
    await policy.model.close()
    return decisions


def test_a_filter_at_every_try_is_recorded_as_such_and_the_episode_goes_on(way: Any, serve: Any) -> None:
    server = serve(reply="", finish_reason="content_filter")
    [decision] = asyncio.run(_turns(LLMPolicy(way.make(server), reasks=1)))
    assert (decision.action, decision.generation.reasks) == (NO_ACTION, 1)
    assert "content filter" in decision.generation.parse_failure
    assert server.total == 2, "the model is asked again, and the request is not repeated besides"
