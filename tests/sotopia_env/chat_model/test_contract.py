"""The common contract of both paths to a model, over real sockets, through the real libraries."""

import asyncio
import logging
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from sotopia_env.chat_model import ChatModel, ChatReply
from sotopia_env.chat_model.remote import check
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.foundation.errors import ContextLengthError, ModelCallError, ModelRefusedError
from tests.sotopia_env.chat_model.conftest import ASK, KEY, QUICK, ledger_lines
from tests.sotopia_env.chat_model.server import FOREIGN, SPEAK

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}


def ask(model, *requests):
    """Sends the requests at once, closes the model, returns replies and errors in order."""

    async def run():
        try:
            return await asyncio.gather(*(model.complete(one) for one in requests or [ASK]), return_exceptions=True)
        finally:
            await model.close()

    return asyncio.run(run())


async def one_after_another(model, count):
    try:
        return [(await asyncio.gather(model.complete(ASK), return_exceptions=True))[0] for _ in range(count)]
    finally:
        await model.close()


def test_an_answer_carries_what_is_known_about_it(way, serve):
    server = serve(reasoning="They are polite, so am I.")
    [reply] = ask(way.make(server), replace(ASK, seed=7, max_tokens=50, temperature=0.25))
    assert reply.text == SPEAK
    assert reply.reasoning == "They are polite, so am I."
    assert reply.finish_reason == "stop"
    assert (reply.prompt_tokens, reply.completion_tokens) == (4, 8)
    assert reply.model.endswith("-2026")
    assert (reply.attempts, reply.fallback, reply.cached) == (1, False, False)
    assert 0 < reply.latency < 30
    assert reply.logprobs is None
    request = server.requests[0]
    assert (request.body["seed"], request.body["max_tokens"], request.body["temperature"]) == (7, 50, 0.25)
    assert request.body["messages"] == list(ASK.messages)
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert not {"response_format", "logprobs", "label", "replicate", "role"} & set(request.body)


def test_what_is_left_to_the_server_is_not_sent(way, serve):
    server = serve()
    ask(way.make(server), replace(ASK, temperature=None))
    assert set(server.requests[0].body) == {"model", "messages"}


def test_it_is_a_chat_model(way, serve):
    model = way.make(serve())
    assert isinstance(model, ChatModel)
    assert model.name == way.spec
    assert model.parameters["model"] == way.spec
    asyncio.run(model.close())


def test_log_probabilities_when_asked(way, serve):
    [reply] = ask(way.make(serve()), replace(ASK, logprobs=True))
    assert reply.logprobs == tuple(-0.5 - i for i in range(8))


def test_a_thinking_block_is_not_part_of_the_text(way, serve):
    [reply] = ask(way.make(serve(reply=f"<think>\nWhat now? {{}}\n</think>\n\n{SPEAK}")))
    assert (reply.text, reply.reasoning) == (SPEAK, "What now? {}")


TRANSIENT = {
    "rate_limit": ("rate_limit", 429),
    "server_error": ("server", 500),
    "overloaded": ("server", 503),
    "timeout": ("timeout", 408),
    "conflict": ("server", 409),
    "reset": ("connection", None),
    "truncated": ("connection", None),
    "malformed": ("malformed", None),
    "not_a_completion": ("malformed", None),
    "empty": ("empty", None),
}


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_passing_fault_costs_an_attempt(way, serve, fault, tmp_path):
    server = serve(script=[fault])
    with Ledger(tmp_path) as ledger:
        [reply] = ask(way.make(server, ledger=ledger))
        assert (reply.text, reply.attempts, server.total) == (SPEAK, 2, 2)
        assert (ledger.totals().answered, ledger.totals().failed_attempts) == (1, 1)


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_lasting_fault_ends_the_call_after_the_allowed_attempts(way, serve, fault, tmp_path):
    server = serve(script=[fault] * 9)
    with Ledger(tmp_path) as ledger:
        [error] = ask(way.make(server, ledger=ledger, retries=replace(QUICK, retries=2)))
    assert type(error) is ModelCallError
    kind, status = TRANSIENT[fault]
    assert (error.kind, error.attempts, server.total) == (kind, 3, 3)
    if status is not None:
        assert error.status == status
    assert way.spec in str(error)
    [line] = ledger_lines(tmp_path)
    assert (line["outcome"], line["attempts"]) == ("failed", 3)


REFUSED = {
    "bad_request": ("bad_request", 400),
    "unauthorized": ("auth", 401),
    "forbidden": ("auth", 403),
    "not_found": ("bad_request", 404),
    "unprocessable": ("bad_request", 422),
    "quota": ("rate_limit", 429),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_refusal_is_not_asked_again(way, serve, refusal):
    server = serve(script=[refusal] * 9)
    [error] = ask(way.make(server))
    assert (error.kind, error.status) == REFUSED[refusal]
    assert (error.attempts, server.total) == (1, 1)


def test_a_conversation_that_is_too_long_has_its_own_error(way, serve):
    server = serve(script=["context"] * 9)
    [error] = ask(way.make(server))
    assert type(error) is ContextLengthError
    assert (error.limit, server.total) == (128, 1)


def test_no_answer_in_time(way, serve):
    server = serve(script=["hang"])
    [reply] = ask(way.make(server, timeout=3.0))
    assert (reply.text, reply.attempts) == (SPEAK, 2)


def test_an_unreachable_server(way, serve):
    server = serve()
    server.__exit__()
    [error] = ask(way.make(server, retries=replace(QUICK, retries=1)))
    assert (error.kind, error.attempts, error.status) == ("connection", 2, None)
    assert server.api_base.split("/")[2] in str(error)
    assert "ssl:" not in str(error)


def test_answers_without_text_are_retried_fewer_times(way, serve):
    server = serve(script=["empty"] * 9)
    [error] = ask(way.make(server, retries=replace(QUICK, retries=8, empty_retries=1)))
    assert (error.kind, server.total) == ("empty", 2)


def test_an_answer_in_another_language_is_an_answer(way, serve):
    [reply] = ask(way.make(serve(script=["wrong_language"])))
    assert (reply.text, reply.attempts) == (FOREIGN, 1)


def in_two_seconds() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)


@pytest.mark.parametrize("header", [lambda: "1", in_two_seconds], ids=["seconds", "date"])
def test_retry_after_is_honoured(way, serve, header):
    server = serve(script=["rate_limit_after"], retry_after=header())
    [reply] = ask(way.make(server, retries=replace(QUICK, patience=60)))
    assert reply.attempts == 2
    assert server.requests[1].time - server.requests[0].time > 0.9


def test_concurrency_is_bounded(way, serve):
    server = serve(latency=0.03)
    replies = ask(way.make(server, concurrency=3), *[ASK] * 12)
    assert [reply.text for reply in replies] == [SPEAK] * 12
    assert server.most_at_once == 3


def test_one_in_three_calls_failing_loses_nothing(way, serve, tmp_path):
    kinds = ("rate_limit", "server_error", "reset", "truncated", "malformed", "empty")
    server = serve(faults=dict.fromkeys(kinds, 0.05), seed=3)
    with Ledger(tmp_path) as ledger:
        policy = replace(QUICK, retries=12, empty_retries=12)
        replies = ask(way.make(server, ledger=ledger, retries=policy), *[ASK] * 60)
        totals = ledger.totals()
    assert [reply.text for reply in replies] == [SPEAK] * 60
    assert sum(reply.attempts for reply in replies) == server.total == totals.attempts
    assert totals.failed_attempts == server.total - 60 > 0
    assert totals.completion_tokens == 60 * 8  # empty answers have none


@pytest.mark.parametrize(("mode", "formats"), [("auto", [1, 1]), ("off", [0, 0])])
def test_a_schema_reaches_a_server_that_takes_it(way, serve, mode, formats):
    server = serve()
    model = way.make(server, structured=mode, concurrency=1)
    ask(model, replace(ASK, schema=SCHEMA), replace(ASK, schema=SCHEMA))
    assert ["response_format" in request.body for request in server.requests] == formats
    if mode == "auto":
        form = server.requests[0].body["response_format"]
        assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", SCHEMA)


@pytest.mark.parametrize("status", [400, 404])
def test_a_server_that_refuses_schemas_is_asked_once(way, serve, status):
    server = serve(rejects_response_format=status)
    model = way.make(server, concurrency=1)
    replies = ask(model, *[replace(ASK, schema=SCHEMA)] * 3)
    assert [reply.attempts for reply in replies] == [4, 1, 1]
    types = [request.body.get("response_format", {}).get("type", "") for request in server.requests]
    assert types == ["json_schema", "json_object", "json_object", "", "", ""]


def test_schemas_can_be_insisted_on(way, serve):
    server = serve(rejects_response_format=True)
    [error] = ask(way.make(server, structured="on"), replace(ASK, schema=SCHEMA))
    assert (error.kind, server.total) == ("bad_request", 1)


def test_the_key_appears_in_no_error_or_record(way, serve, tmp_path, caplog, capfd):
    """Not in what is shown, recorded or logged, even when the server repeats it in every message."""
    caplog.set_level(logging.DEBUG, logger="sotopia_env")
    server = serve(script=["rate_limit", "server_error", "unauthorized", "context"], echo_key=True)
    with Ledger(tmp_path) as ledger:
        model = way.make(server, ledger=ledger)
        errors = asyncio.run(one_after_another(model, 3))
    assert [type(error).__name__ for error in errors] == ["ModelRefusedError", "ContextLengthError", "ChatReply"]
    assert any(KEY in header for request in server.requests for header in request.headers.values())
    texts = [
        repr(model),
        str(model.parameters),
        caplog.text,
        (tmp_path / "ledger.jsonl").read_text(),
        *capfd.readouterr(),
    ]
    texts += [str(error) + repr(error) for error in errors]
    assert all(KEY not in text for text in texts)
    assert f"${way.variable}" in str(errors[0])


def test_a_model_serves_one_event_loop_after_another(way, serve):
    """An environment that evaluates synchronously runs a loop per episode."""
    model = way.make(serve())
    assert [asyncio.run(model.complete(ASK)).text for _ in range(3)] == [SPEAK] * 3
    asyncio.run(model.close())


def test_closing_one_model_leaves_the_other_working(way, serve):
    async def run():
        first, second = way.make(server), way.make(server)
        await first.complete(ASK)
        await second.complete(ASK)
        await first.close()
        await second.complete(ASK)
        await second.close()
        third = way.make(server)
        await third.complete(ASK)
        await third.close()

    server = serve()
    asyncio.run(run())
    assert server.total == 4


def test_a_cancelled_call_is_counted_and_frees_its_place(way, serve, tmp_path):
    async def run():
        model = way.make(server, ledger=ledger, concurrency=1)
        task = asyncio.ensure_future(model.complete(ASK))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        reply = await model.complete(ASK)
        await model.close()
        return reply

    server = serve(script=["hang"])
    with Ledger(tmp_path) as ledger:
        assert asyncio.run(run()).text == SPEAK
    assert [line["outcome"] for line in ledger_lines(tmp_path)] == ["failed", "answered"]


@pytest.mark.parametrize("fault", ["not_found", "unauthorized", "quota"])
def test_a_model_that_refuses_for_good_gets_no_waiting_requests(way, serve, fault):
    """Calls that begin later are sent again: a library's user may have put things right in between."""
    server = serve(script=[fault])
    model = way.make(server, concurrency=1)

    async def work():
        first = await asyncio.gather(*(model.complete(ASK) for _ in range(20)), return_exceptions=True)
        later = await model.complete(ASK)
        await model.close()
        return first, later

    first, later = asyncio.run(work())
    assert {type(error) for error in first} == {ModelRefusedError}
    assert (later.text, server.total) == (SPEAK, 2)
    back = pickle.loads(pickle.dumps(first[0]))
    assert (type(back), str(back), back.status) == (ModelRefusedError, str(first[0]), first[0].status)


def test_a_model_that_has_answered_is_available_even_if_one_request_is_refused(way, serve):
    server = serve(script=[None, "no_route", None, "not_found"])
    errors = asyncio.run(one_after_another(way.make(server), 4))
    assert [type(error) for error in errors] == [ChatReply, ModelCallError, ChatReply, ModelRefusedError]


@pytest.mark.parametrize("fault", ["bad_request", "forbidden", "unprocessable", "server_error", "rate_limit"])
def test_a_failure_of_one_request_ends_one_call_only(way, serve, fault):
    server = serve(script=[fault])
    errors = ask(way.make(server, concurrency=1, retries=RetryPolicy(0, patience=0)), ASK, ASK)
    assert [type(error) for error in errors] == [ModelCallError, ChatReply]


def test_failures_before_an_answer_are_reported_with_it(way, serve):
    down, up = serve(script=["server_error"] * 9), serve(script=["rate_limit", "empty"])
    model = way.make(down, fallbacks=(way.make(up),), retries=replace(QUICK, retries=2))
    [reply] = ask(model)
    assert [kind for kind, _ in reply.failures] == ["server", "rate_limit", "empty"]
    assert all(message for _, message in reply.failures)
    [clean] = ask(way.make(serve()))
    assert clean.failures == ()


def test_a_fallback_answers_only_when_listed_and_is_recorded(way, serve, tmp_path):
    down, up = serve(script=["server_error"] * 9), serve()
    with Ledger(tmp_path) as ledger:
        spare = way.make(up)
        model = way.make(down, ledger=ledger, fallbacks=(spare,), retries=replace(QUICK, retries=1))
        [reply] = ask(model)
    assert (reply.text, reply.fallback, reply.attempts) == (SPEAK, True, 3)
    assert (down.total, up.total) == (2, 1)
    assert model.parameters["fallbacks"] == [way.spec]
    [line] = ledger_lines(tmp_path)
    assert (line["fallback"], line["spec"], line["attempts"]) == (True, way.spec, 3)
    assert line["model"].endswith("-2026")


def test_a_conversation_too_long_is_not_passed_on(way, serve):
    down, up = serve(script=["context"]), serve()
    [error] = ask(way.make(down, fallbacks=(way.make(up),)))
    assert (type(error), up.total) == (ContextLengthError, 0)


def test_an_available_model_passes_its_check(way, serve):
    server = serve()
    model = way.make(server)
    asyncio.run(check(model))
    assert server.total == 0


def test_errors_travel_between_processes():
    call = ModelCallError("no", kind="timeout", attempts=4, status=408)
    back = pickle.loads(pickle.dumps(call))
    assert (str(back), back.kind, back.attempts, back.status) == ("no", "timeout", 4, 408)
    assert pickle.loads(pickle.dumps(ContextLengthError("long", 128))).limit == 128


def test_a_policy_of_zero_retries(way, serve):
    server = serve(script=["reset"])
    [error] = ask(way.make(server, retries=RetryPolicy(0, patience=0)))
    assert (error.attempts, server.total) == (1, 1)
