"""A seat over MCP, driven by the package's own client: over stdio in a process of its own, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from sotopia_env.foundation.errors import PolicyError
from sotopia_env.storage import read_run
from sotopia_env.world.episode import replay
from tests.adapters.libraries import need, serving

need("mcp")

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from sotopia_env.adapters.mcp.seat import McpSeat, OutsidePolicy, make_server

ARGUMENTS = (
    "-m",
    "sotopia_env.cli.app",
    "mcp",
    "--tasks",
    "bargaining",
    "-n",
    "2",
    "--policy",
    "conceder",
    "--seed",
    "5",
)


@asynccontextmanager
async def client(out: Path, *arguments: str):
    """The client of a server of its own, which adds its episode to ``out``."""
    server = StdioServerParameters(command=sys.executable, args=[*ARGUMENTS, "--out", str(out), *arguments])
    async with Client(stdio_client(server)) as one:
        yield one


async def call(one: Client, tool: str, **arguments):
    """The text of a tool's answer, its fields, and whether it is an error."""
    result = await one.call_tool(tool, arguments)
    return result.content[0].text, result.structured_content, bool(result.is_error)


async def bargain(one: Client) -> list[dict]:
    """Plays to the end: waits for the partner's third offer and accepts it."""
    _, seen, error = await call(one, "observe")
    news = [seen]
    while seen["stop"] is None:
        offers = [
            form["properties"]["accept"]["enum"]
            for form in seen["open_moves"].get("anyOf", [])
            if "accept" in form["properties"]
        ]
        if offers and len(news) > 3:
            _, seen, error = await call(one, "move", move={"accept": offers[0][0]}, words="Agreed.")
        else:
            _, seen, error = await call(
                one,
                "say",
                words="Can you do better?" if len(news) < 6 else "Goodbye.",
                **({} if len(news) < 9 else {"action_type": "leave"}),
            )
        assert not error
        news.append(seen)
    return news


def test_a_whole_episode_is_played_scored_and_recorded_as_in_every_run(tmp_path):
    async def play():
        async with client(tmp_path / "run") as one:
            tools = {tool.name: tool for tool in (await one.list_tools()).tools}
            assert set(tools) == {"observe", "say", "move"}
            assert tools["say"].input_schema["required"] == ["words"]
            assert "leave" in json.dumps(tools["say"].input_schema)
            assert set(tools["observe"].output_schema["properties"]) >= {"text", "open_moves", "scores"}
            text, _, _ = await call(one, "observe")
            assert "Situation:" in text
            assert "JSON object" not in text
            news = await bargain(one)
            after, _, refused = await call(one, "say", words="And another thing.")
            again, _, error = await call(one, "observe")
            return news, after, refused, again, error

    news, after, refused, again, error = asyncio.run(play())
    (episode,) = read_run(tmp_path / "run")
    assert episode.stop.value == news[-1]["stop"] == "settled"
    assert refused
    assert "has ended" in after
    assert not error
    assert "has ended" in again
    own = {score.dimension: score.value for e in episode.evaluations for score in e.scores if score.agent == "agent_0"}
    assert news[-1]["scores"] == own
    assert own
    assert [info.name for info in episode.policies] == ["mcp", "conceder"]
    assert sum(turn.turn.actor == "agent_0" for turn in episode.turns) == len(news) - 1
    replay(episode)


def test_what_is_not_possible_is_an_error_that_says_what_is_and_takes_no_turn(tmp_path):
    wrong = [
        ("say", {"words": ""}, "argument"),
        ("say", {"words": "Psst.", "to": ["Henrik"]}, "private"),
        ("say", {"words": "Hello.", "action_type": "shout"}, "action_type"),
        ("say", {}, "words"),
        ("move", {"move": {"propose": {"price": 10_000}}}, "162"),
        ("move", {"move": {"propse": {"price": 50}}}, '"propose"'),
        ("move", {"move": {"accept": 7}}, "7"),
        ("move", {"move": "propose"}, "move"),
    ]

    async def play():
        async with client(tmp_path / "run") as one:
            answers = [await call(one, tool, **arguments) for tool, arguments, _ in wrong]
            _, seen, _ = await call(one, "say", words="Good morning.", action_type="speak")
            return answers, seen

    answers, seen = asyncio.run(play())
    for (tool, arguments, mend), (text, _, error) in zip(wrong, answers, strict=True):
        assert error, (tool, arguments, text)
        assert mend in text, (arguments, text)
    assert seen["your_turn"]
    assert "Turn #3 is yours" in seen["text"]


def test_a_client_that_leaves_or_a_server_that_dies_loses_no_turn(tmp_path):
    run = tmp_path / "run"

    async def part(words, die=False):
        async with client(run) as one:
            text, _, _ = await call(one, "observe")
            _, seen, _ = await call(one, "say", words=words)
            if die:
                for process in Path("/proc").glob("[0-9]*/cmdline"):
                    if str(run).encode() in process.read_bytes().split(b"\0"):
                        os.kill(int(process.parent.name), signal.SIGKILL)
        return text, seen

    async def rest():
        async with client(run) as one:
            text, _, _ = await call(one, "observe")
            return text, await bargain(one)

    first, _ = asyncio.run(part("One."))
    second, _ = asyncio.run(part("Two.", die=True))
    third, news = asyncio.run(rest())
    assert "One." not in first
    assert "One." in second
    assert all(words in third for words in ("One.", "Two."))
    (episode,) = read_run(run)
    assert [t.turn.action.argument for t in episode.turns if t.turn.actor == "agent_0"][:2] == ["One.", "Two."]
    assert episode.stop.value == news[-1]["stop"]


def test_every_start_is_the_next_episode_until_all_are_recorded(tmp_path):
    async def leave():
        async with client(tmp_path / "run") as one:
            return await call(one, "say", words="", action_type="leave")

    stops = [asyncio.run(leave())[1]["stop"] for _ in range(2)]
    episodes = list(read_run(tmp_path / "run"))
    assert stops == [episode.stop.value for episode in episodes]
    assert len({episode.task.id for episode in episodes}) == 2
    process = asyncio.run(finished(tmp_path / "run"))
    assert process[0] == 2
    assert "--out" in process[1]


async def finished(out):
    command = [sys.executable, *ARGUMENTS, "--out", str(out)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


def test_the_same_over_http_on_this_machine_alone(tmp_path):
    with serving(*ARGUMENTS, "--out", str(tmp_path / "run"), "--port") as address:

        async def play():
            async with Client(f"{address}/mcp") as one:
                return await bargain(one)

        news = asyncio.run(play())
    assert news[-1]["stop"] == "settled"
    assert len(list(read_run(tmp_path / "run"))) == 1


def test_a_partner_that_fails_for_good_is_an_error_with_its_reason_at_every_call():
    async def fail():
        raise PolicyError("the partner's model is down")

    async def play():
        async with Client(make_server(McpSeat(OutsidePolicy(), "agent_0", fail))) as one:
            return [await call(one, "observe"), await call(one, "say", words="Hello?")]

    for text, _, error in asyncio.run(play()):
        assert error
        assert "the partner's model is down" in text
