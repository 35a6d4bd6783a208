"""An unresponsive model: one wait shared by all of its calls, one probe at a time, and a limit on the wait."""

import asyncio
import logging
from dataclasses import replace

import pytest

from sotopia_env.chat_model import make_model
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.foundation.errors import ModelCallError, ModelRefusedError, ModelUnavailableError
from tests.sotopia_env.chat_model.conftest import ASK, QUICK
from tests.sotopia_env.chat_model.server import SPEAK
from tests.sotopia_env.chat_model.test_contract import ask

PATIENT = RetryPolicy(retries=2, base=0.01, cap=0.05, patience=30)
SILENCES = ("server_error", "overloaded", "rate_limit", "reset", "rate_limit_after")


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.WARNING, logger="sotopia_env")


@pytest.mark.parametrize("fault", SILENCES)
def test_an_outage_is_one_wait_of_all_calls_with_one_probe_at_a_time(way, serve, fault, caplog):
    async def run():
        model = way.make(server, retries=PATIENT)
        calls = [asyncio.ensure_future(model.complete(ASK)) for _ in range(40)]
        while "does not answer" not in caplog.text:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # for those that were under way
        server.most_at_once, before = 0, server.total
        await asyncio.sleep(0.5)
        most, probes = server.most_at_once, server.total - before
        server.outage = ""
        replies = await asyncio.gather(*calls)
        await model.close()
        return replies, most, probes

    server = serve(outage=fault, latency=0.005, retry_after="0.1")
    replies, most, probes = asyncio.run(run())
    assert [reply.text for reply in replies] == [SPEAK] * 40
    assert most == 1
    assert 1 <= probes <= 50
    messages = [record.message for record in caplog.records if "outage" in record.name]
    assert len(messages) == 2
    assert "waiting for it up to 30 s" in messages[0]
    assert "answers again after" in messages[1]


def test_a_long_wait_that_the_server_asks_for_is_shared(way, serve):
    server = serve(script=["rate_limit_after"], retry_after="1")
    replies = ask(way.make(server, retries=PATIENT, concurrency=1), *[ASK] * 20)
    assert [reply.text for reply in replies] == [SPEAK] * 20
    assert server.total == 21
    assert server.requests[1].time - server.requests[0].time > 0.9


def test_rejections_for_the_whole_patience_without_an_answer_are_an_outage(serve):
    """The patience may be over before the retries are: a run then ends, and can be continued, and no episode fails."""

    async def run():
        patience = RetryPolicy(retries=50, base=0.01, cap=0.02, patience=0.3)
        model = make_model("local/tiny", api_base=server.api_base, retries=patience)
        errors = await asyncio.gather(*(model.complete(ASK) for _ in range(4)), return_exceptions=True)
        await model.close()
        return errors

    server = serve(outage="rate_limit", latency=0.1)
    assert {type(error) for error in asyncio.run(run())} == {ModelUnavailableError}


@pytest.mark.parametrize(("retry_after", "patience"), [("0.01", 1.5), ("36000", 6000)])
def test_when_the_patience_is_over_all_calls_end_alike_and_later_ones_are_sent(
    way, serve, retry_after, patience, caplog
):
    async def run():
        model = way.make(server, retries=replace(PATIENT, patience=patience))
        errors = await asyncio.gather(*(model.complete(ASK) for _ in range(8)), return_exceptions=True)
        server.outage = ""
        reply = await model.complete(ASK)
        await model.close()
        return errors, reply

    server = serve(outage="rate_limit_after", retry_after=retry_after)
    errors, reply = asyncio.run(run())
    assert {type(error) for error in errors} == {ModelUnavailableError}
    assert len({str(error) for error in errors}) == 1
    assert f"no answer within a patience of {patience:g} s: HTTP 429" in str(errors[0])
    assert f"asks to wait {float(retry_after):g} s" in str(errors[0])
    assert isinstance(errors[0], ModelRefusedError)  # it ends a run
    assert reply.text == SPEAK
    assert caplog.text.count("waiting for it") == (float(retry_after) < patience)  # no message without a wait


def test_a_request_that_fails_while_others_are_answered_fails_alone(direct, serve, caplog):
    async def run():
        model = direct.make(server, retries=replace(PATIENT, base=0.2, cap=0.2, retries=3))
        poison = asyncio.ensure_future(model.complete(replace(ASK, messages=({"role": "user", "content": "poison"},))))
        replies = []
        while not poison.done():
            replies.append(await model.complete(ASK))
        await model.close()
        return poison.exception(), replies

    server = serve(fails_on="poison")
    error, replies = asyncio.run(run())
    assert (type(error), error.kind) == (ModelCallError, "server")
    assert {reply.text for reply in replies} == {SPEAK}


@pytest.mark.parametrize("refusal", ["bad_request", "unprocessable", "not_found", "context", "malformed", "empty"])
def test_an_answer_of_any_kind_is_not_an_outage(way, serve, refusal, caplog):
    [error] = ask(way.make(serve(script=[refusal] * 9), retries=PATIENT))
    assert not isinstance(error, ModelUnavailableError)
    assert "does not answer" not in caplog.text


def test_another_model_is_asked_before_anyone_waits(way, serve, caplog):
    down, up = serve(outage="server_error"), serve()
    model = way.make(down, fallbacks=(way.make(up, retries=replace(PATIENT, patience=0.3)),), retries=PATIENT)
    [reply] = ask(model)
    assert (reply.fallback, caplog.text.count("does not answer")) == (True, 0)
    up.outage = "server_error"
    [error] = ask(model)
    assert type(error) is ModelUnavailableError


def test_without_patience_calls_fail_when_their_retries_are_used_up(way, serve):
    errors = ask(way.make(serve(outage="server_error"), retries=QUICK), ASK, ASK)
    assert [(type(error), error.attempts) for error in errors] == [(ModelCallError, 4)] * 2


def test_a_call_that_is_cancelled_while_it_waits_leaves_the_others_waiting(direct, serve, caplog):
    async def run():
        model = direct.make(server, retries=PATIENT)
        calls = [asyncio.ensure_future(model.complete(ASK)) for _ in range(6)]
        while "does not answer" not in caplog.text:
            await asyncio.sleep(0.01)
        for call in calls[::2]:
            call.cancel()
        await asyncio.sleep(0.1)
        server.outage = ""
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await model.close()
        return [type(outcome).__name__ for outcome in outcomes]

    server = serve(outage="server_error")
    assert asyncio.run(run()) == ["CancelledError", "ChatReply"] * 3
