import asyncio
import json
import random
import uuid
from dataclasses import replace

import pytest

from sotopia_env.chat_model.cache import cache_info
from sotopia_env.chat_model.limits import most_tokens
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry, read_ledger
from sotopia_env.chat_model.transports.connections import request_id
from sotopia_env.foundation.errors import BudgetExceededError, DamagedRecordError, InUseError, InvalidValueError
from tests.errors import raises
from tests.sotopia_env.chat_model.conftest import ASK, QUICK, ledger_lines
from tests.sotopia_env.chat_model.test_contract import ask, one_after_another

AGENT = LedgerEntry(role="agent", spec="a", model="a-1", prompt_tokens=10, completion_tokens=5, cost=0.5, label="e/3")
JUDGE = LedgerEntry(role="judge", spec="j", prompt_tokens=100, completion_tokens=50, cost=None, attempts=3)
FAILED = LedgerEntry(role="agent", spec="a", outcome="failed", attempts=4)
CACHED = LedgerEntry(role="judge", spec="j", cached=True, attempts=0)
FALLBACK = LedgerEntry(role="agent", spec="a", fallback=True, attempts=2, cost=0.25)


def test_sums_per_role_are_taken_up_again(tmp_path):
    with Ledger(tmp_path) as ledger:
        for entry in (AGENT, JUDGE, FAILED, CACHED, FALLBACK):
            ledger.record(entry)
        agents, judges, both = ledger.totals("agent"), ledger.totals("judge"), ledger.totals()
    assert (agents.answered, agents.failed, agents.fallbacks, agents.attempts, agents.failed_attempts) == (
        2,
        1,
        1,
        7,
        5,
    )
    assert (agents.tokens, agents.cost, agents.unpriced) == (15, 0.75, 0)
    assert (judges.answered, judges.cached, judges.attempts, judges.failed_attempts) == (2, 1, 3, 2)
    assert (both.tokens, both.cost, both.unpriced) == (165, 0.75, 1)
    with Ledger(tmp_path) as again:
        assert (again.totals("agent"), again.totals("judge")) == (agents, judges)
        again.record(AGENT)
        assert again.totals().answered == both.answered + 1
    assert list(read_ledger(tmp_path)) == [AGENT, JUDGE, FAILED, CACHED, FALLBACK, AGENT]


def test_an_unknown_price_is_called_unknown():
    ledger = Ledger()
    ledger.record(JUDGE)
    assert ledger.totals().cost_text == "unknown"
    ledger.record(AGENT)
    assert ledger.totals().cost_text == "$0.5000 + 1 calls of unknown cost"
    assert ledger.totals("agent").cost_text == "$0.5000"


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"max_cost": 1.0}, 2),
        ({"max_cost": 1.01}, 3),
        ({"max_tokens": 30}, 2),
        ({"max_tokens": 31}, 3),
        ({"max_cost": 9.0, "max_tokens": 1}, 1),
    ],
)
def test_a_limit_holds_from_the_call_that_reaches_it(limits, count):
    ledger = Ledger(**limits)
    for _ in range(count):
        ledger.check()
        ledger.record(AGENT)
    with pytest.raises(BudgetExceededError, match=next(reversed(limits))):
        ledger.check()


def test_nothing_is_sent_once_the_budget_is_spent_and_a_resumed_run_knows(direct, serve, tmp_path):
    server = serve()
    with Ledger(tmp_path, max_tokens=60) as ledger:  # 12 a call, of which 35 are expected at most
        model = direct.make(server, ledger=ledger)
        outcomes = asyncio.run(one_after_another(model, 5))
    assert [type(one).__name__ for one in outcomes] == ["ChatReply"] * 3 + ["BudgetExceededError"] * 2
    assert server.total == 3
    with Ledger(tmp_path, max_tokens=60) as ledger:
        [error] = ask(direct.make(server, ledger=ledger))
    assert isinstance(error, BudgetExceededError)
    with Ledger(tmp_path, max_tokens=84) as ledger:
        [reply] = ask(direct.make(server, ledger=ledger))
    assert (reply.completion_tokens, server.total) == (8, 4)
    assert len(ledger_lines(tmp_path)) == 4


@pytest.mark.parametrize("concurrency", [1, 2, 32])
@pytest.mark.parametrize(
    ("limits", "usage"),
    [
        ({"max_tokens": 3000}, lambda totals: totals.tokens),
        ({"max_cost": 0.003}, lambda totals: totals.cost * 1e6),
    ],
)
def test_calls_in_flight_never_pass_the_limit_together(direct, serve, limits, usage, concurrency):
    generator = random.Random(3)
    server = serve(latency=0.02, reply=lambda body: " ".join(["word"] * generator.randint(1, body["max_tokens"])))
    ledger = Ledger(**limits)
    model = direct.make(server, ledger=ledger, concurrency=concurrency, price=Price(1.0, 1.0))
    request = replace(ASK, max_tokens=40)
    replies = ask(model, *[request] * 400)
    answers = [one for one in replies if not isinstance(one, BudgetExceededError)]
    assert 0 < len(answers) == server.total < 400
    assert min(concurrency, 8) <= server.most_at_once <= concurrency
    most = most_tokens(request) + 40
    assert 3000 - most < usage(ledger.totals()) <= 3000  # and as much of it is used as can be


def test_a_call_that_may_not_fit_waits_for_the_one_in_flight_and_is_sent_if_that_used_less(direct, serve):
    server = serve(latency=0.02, reply="word")
    request = replace(ASK, max_tokens=100)
    ledger = Ledger(max_tokens=127 + 5)  # room for one of 27 + 100, and what it then uses
    replies = ask(direct.make(server, ledger=ledger), request, request, request)
    assert [type(one).__name__ for one in replies] == ["ChatReply", "ChatReply", "BudgetExceededError"]
    assert (server.total, server.most_at_once, ledger.totals().tokens) == (2, 1, 10)
    assert "132" in str(replies[-1])


def test_without_a_limit_on_answers_the_longest_so_far_is_expected(direct, serve):
    server = serve(latency=0.02, reply=" ".join(["word"] * 50))
    ledger = Ledger(max_tokens=2000)
    ask(direct.make(server, ledger=ledger, concurrency=32), *[ASK] * 100)
    assert 2000 - 77 < ledger.totals().tokens <= 2000
    assert server.most_at_once > 1


def test_a_server_that_counts_more_prompt_tokens_than_expected_is_believed(direct, serve):
    server = serve(latency=0.002, reply="word")
    ledger = Ledger(max_tokens=4000)
    request = replace(ASK, messages=({"role": "user", "content": "a " * 100},), max_tokens=5)  # a token every 2 bytes
    model = direct.make(server, ledger=ledger, concurrency=8)
    model.routes[0].transport.attempt = _with_triple_usage(model.routes[0].transport.attempt)
    ask(model, request)
    ask(model, *[request] * 30)
    assert 4000 - 400 < ledger.totals().tokens <= 4000


def _with_triple_usage(attempt):
    async def wrapper(*options):
        reply = await attempt(*options)
        return replace(reply, prompt_tokens=3 * reply.prompt_tokens)

    return wrapper


@pytest.mark.parametrize("usage", ["nothing", "zero"])
@pytest.mark.parametrize("limits", [{"max_tokens": 3000}, {"max_cost": 0.003}])
def test_what_a_server_does_not_count_is_unknown_and_spent_at_its_most(way, serve, usage, limits, tmp_path):
    server = serve(usage=usage, latency=0.01)
    request = replace(ASK, max_tokens=40)
    most = most_tokens(request) + 40
    with Ledger(tmp_path, **limits) as ledger:
        replies = ask(way.make(server, ledger=ledger, price=Price(1.0, 1.0)), *[request] * 100)
        totals = ledger.totals()
    answers = [one for one in replies if not isinstance(one, BudgetExceededError)]
    assert len(answers) == server.total == 3000 // most
    assert {(one.prompt_tokens, one.completion_tokens, one.cost) for one in answers} == {(None, None, None)}
    assert (totals.uncounted, totals.unpriced) == (len(answers), len(answers))
    assert totals.tokens_text == f"unknown tokens, at most {totals.doubtful_tokens}"
    assert totals.cost_text == f"unknown, at most ${totals.doubtful_cost:.4f}"
    assert (totals.doubtful_tokens, totals.doubtful_cost) == (most * len(answers), pytest.approx(ledger.budget._cost))
    assert ledger_lines(tmp_path)[0]["prompt_tokens"] is None
    with Ledger(tmp_path, **limits) as again:
        assert again.totals() == totals
        outcomes = ask(way.make(server, ledger=again, price=Price(1.0, 1.0)), request)
    assert [type(one) for one in outcomes] == [BudgetExceededError]


def test_a_call_of_counted_and_uncounted_answers_is_spent_whole_by_a_resumed_run_too(direct, serve, tmp_path):
    def attempts(first):
        server.usage = "counted" if server.total == 1 else "nothing"
        return ""

    server = serve(reply=attempts)  # a counted empty answer of 4 tokens, then two uncounted ones
    request = replace(ASK, max_tokens=40)
    with Ledger(tmp_path, max_tokens=1000) as ledger:
        ask(direct.make(server, ledger=ledger), request)
        spent = ledger.budget._tokens
    with Ledger(tmp_path, max_tokens=1000) as again:
        assert again.budget._tokens == spent == 4 + 2 * (most_tokens(request) + 40)


def test_tokens_that_cost_nothing_need_no_count(direct, serve):
    [reply] = ask(direct.make(serve(usage="nothing"), price=Price(0, 0), ledger=Ledger(max_cost=1.0)))
    assert (reply.prompt_tokens, reply.cost) == (None, 0.0)


def test_a_conversation_that_is_too_long_is_not_a_failed_call(way, serve, tmp_path):
    with Ledger(tmp_path) as ledger:
        ask(way.make(serve(script=["context"]), ledger=ledger))
        totals = ledger.totals()
    assert (totals.too_long, totals.failed, totals.attempts) == (1, 0, 1)
    assert ledger_lines(tmp_path)[0]["outcome"] == "too_long"


def test_a_cancelled_wait_and_a_failed_call_give_back_what_they_held(direct, serve):
    async def run():
        model = direct.make(server, ledger=ledger, retries=replace(QUICK, retries=0))
        request = replace(ASK, max_tokens=100)
        first = asyncio.ensure_future(model.complete(request))
        await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(model.complete(request)) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        outcomes = await asyncio.gather(first, *waiting, return_exceptions=True)
        await model.close()
        return [type(one).__name__ for one in outcomes]

    server = serve(latency=1.0, script=["server_error"])
    ledger = Ledger(max_tokens=150)
    assert asyncio.run(run()) == ["ModelCallError", "CancelledError", "ChatReply", "ChatReply"]
    assert server.most_at_once == 1


def test_a_budget_holds_across_event_loops(direct, serve):
    server = serve()
    ledger = Ledger(max_tokens=60)
    model = direct.make(server, ledger=ledger)
    for _ in range(3):
        asyncio.run(model.complete(ASK))
    with pytest.raises(BudgetExceededError):
        asyncio.run(model.complete(ASK))
    asyncio.run(model.close())


def test_a_retry_is_not_sent_either(direct, serve):
    server = serve(script=["empty"] * 5)  # an answer without text has its prompt tokens billed
    ledger = Ledger(max_tokens=33)  # 4 are used by each, of which 27 are expected
    [error] = ask(direct.make(server, ledger=ledger), replace(ASK, label="x"))
    assert (type(error), server.total) == (BudgetExceededError, 2)
    assert (ledger.totals().prompt_tokens, ledger.totals().failed_attempts, ledger.totals().failed) == (8, 2, 1)


NOTES = """\
{"sent":"x-1","role":"agent","spec":"a"}
{"sent":"x-2","role":"agent","spec":"a"}
{"sent":"x-3","role":"judge","spec":"j","most_tokens":70,"most_cost":0.5}
{"role":"agent","spec":"a","outcome":"answered","model":"a-1","prompt_tokens":10,"cost":0.25,"attempts":1,"call":"x-2"}
{"sent":"x-1","role":"agent","spec":"a","attempts":2,"prompt_tokens":4}
"""


def test_calls_under_way_when_the_process_died_are_of_unknown_outcome(tmp_path):
    (tmp_path / "ledger.jsonl").write_text(NOTES)
    answers, *interrupted = read_ledger(tmp_path)
    assert (answers.outcome, answers.call) == ("answered", "x-2")
    assert [(one.outcome, one.call, one.attempts) for one in interrupted] == [
        ("interrupted", "x-1", 2),
        ("interrupted", "x-3", 1),
    ]
    with Ledger(tmp_path) as ledger:
        agents, both = ledger.totals("agent"), ledger.totals()
    assert (agents.answered, agents.failed, agents.interrupted) == (1, 0, 1)
    assert (agents.attempts, agents.failed_attempts) == (3, 1)  # one answered, one failed, one of unknown outcome
    assert (both.interrupted, both.attempts, both.tokens, both.doubtful_tokens) == (2, 4, 14, 70)
    with Ledger(tmp_path, max_tokens=84) as ledger, pytest.raises(BudgetExceededError, match="84"):
        ledger.check()
    with Ledger(tmp_path, max_cost=0.75) as ledger, pytest.raises(BudgetExceededError, match=r"\$0\.75"):
        ledger.check()
    Ledger(tmp_path, max_tokens=85).check()


def test_a_ledger_of_earlier_versions_reads_as_it_did(tmp_path):
    line = '{"role":"agent","spec":"a","model":"a-1","outcome":"answered","prompt_tokens":10,"completion_tokens":5,'
    line += '"cost":0.5,"attempts":1,"fallback":false,"cached":false,"label":"e/3"}\n'
    (tmp_path / "ledger.jsonl").write_text(line * 2)
    assert list(read_ledger(tmp_path)) == [AGENT, AGENT]


def test_every_request_is_recorded_before_it_is_sent_under_its_id(direct, serve, tmp_path):
    notes = []

    def reply(_):
        lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
        notes.append([json.loads(line) for line in lines][-1])
        return "" if len(notes) == 1 else "word"

    server = serve(reply=reply)
    with Ledger(tmp_path) as ledger:
        ask(direct.make(server, ledger=ledger))
    (line,) = ledger_lines(tmp_path)
    assert server.marks == [request_id(f"{line['call']}.1"), request_id(f"{line['call']}.2")]
    assert all(str(uuid.UUID(mark)) == mark for mark in server.marks)
    first, second = notes
    assert first == {"sent": line["call"], "role": "agent", "spec": "local/tiny"}
    assert second == {**first, "attempts": 2, "prompt_tokens": 4, "cost": None}  # what the first was billed is kept


def test_a_declared_price_is_charged(direct, serve, tmp_path):
    server = serve()
    with Ledger(tmp_path, max_cost=1.0) as ledger:
        [reply] = ask(direct.make(server, ledger=ledger, price=Price(1000.0, 2000.0)), replace(ASK, role="judge"))
    assert reply.cost == pytest.approx((4 * 1000 + 8 * 2000) / 1e6)
    [line] = ledger_lines(tmp_path)
    assert (line["cost"], line["role"]) == (reply.cost, "judge")


def test_a_limit_on_cost_needs_a_price(direct, serve):
    server = serve()
    with raises(InvalidValueError, field="max_cost", got="'local/tiny'"):
        direct.make(server, ledger=Ledger(max_cost=5.0))
    spare = direct.make(server)
    with raises(InvalidValueError, field="max_cost"):
        direct.make(server, price=Price(0, 0), ledger=Ledger(max_cost=5.0), fallbacks=(spare,))


def test_without_a_price_the_cost_is_unknown(direct, serve):
    ledger = Ledger()
    [reply] = ask(direct.make(serve(), ledger=ledger))
    assert (reply.cost, ledger.totals().cost_text) == (None, "unknown")


def test_one_process_at_a_time_writes(tmp_path):
    with Ledger(tmp_path), raises(InUseError, file="ledger.jsonl"):
        Ledger(tmp_path)
    Ledger(tmp_path).close()


@pytest.mark.parametrize(
    ("line", "field"),
    [("nonsense", ""), ('{"role": "referee", "spec": "m"}', "role"), ('{"role": "agent"}', "spec")],
)
def test_a_damaged_line_is_named(tmp_path, line, field):
    (tmp_path / "ledger.jsonl").write_text(AGENT.model_dump_json() + "\n" + line + "\n")
    with raises(DamagedRecordError, field=field, file="ledger.jsonl", line=2):
        Ledger(tmp_path)
    with pytest.raises(DamagedRecordError):  # the failed attempt left no lock behind
        Ledger(tmp_path)


@pytest.mark.parametrize("options", [{"max_cost": 0}, {"max_cost": float("nan")}, {"max_tokens": -1}])
def test_invalid_limits_are_refused(options):
    with raises(InvalidValueError, field=next(iter(options))):
        Ledger(**options)


def test_a_missing_ledger_is_refused(tmp_path):
    with raises(InvalidValueError, file="ledger.jsonl"):
        list(read_ledger(tmp_path))
    with raises(InvalidValueError, file=tmp_path.name):
        cache_info(tmp_path)
    (tmp_path / "file").write_text("")
    with raises(InvalidValueError, file="ledger.jsonl"):
        Ledger(tmp_path / "file")


@pytest.mark.parametrize(("prompt", "completion"), [(-1, 0), (0, float("inf")), (float("nan"), 1)])
def test_invalid_prices_are_refused(prompt, completion):
    with raises(InvalidValueError, field="price"):
        Price(prompt, completion)


@pytest.mark.parametrize(
    ("fault", "doubtful"),
    [
        ("hang", True),
        ("reset", True),
        ("truncated", True),
        ("malformed", True),
        ("not_a_completion", True),
        ("server_error", False),
        ("bad_request", False),
    ],
)
def test_a_request_that_may_have_been_billed_counts_as_spent(way, serve, fault, doubtful, tmp_path):
    request = replace(ASK, max_tokens=10)
    most = most_tokens(request) + 10
    server = serve(script=[fault] * 2)
    with Ledger(tmp_path, max_tokens=1000, max_cost=1.0) as ledger:
        options = {"price": Price(1.0, 1.0), "retries": replace(QUICK, retries=1)}
        model = way.make(server, ledger=ledger, timeout=3.0 if fault == "hang" else 30, **options)
        [error] = ask(model, request)
        totals = ledger.totals()
    attempts = error.attempts
    assert (totals.failed, totals.tokens, totals.doubtful_tokens) == (1, 0, attempts * most * doubtful)
    assert totals.doubtful_cost == pytest.approx(attempts * most * doubtful / 1e6)
    with Ledger(tmp_path, max_tokens=max(1, totals.doubtful_tokens)) as again:
        assert again.totals() == totals
        if doubtful:
            with pytest.raises(BudgetExceededError):
                again.check()


def test_an_undelivered_request_is_free(way, serve):
    server, ledger = serve(), Ledger(max_tokens=1000)
    server.__exit__()
    [error] = ask(way.make(server, ledger=ledger, retries=replace(QUICK, retries=1)))
    assert (error.kind, ledger.totals().doubtful_tokens) == ("connection", 0)


def test_a_cancelled_request_counts_and_so_do_doubtful_ones_before_the_death_of_the_process(direct, serve, tmp_path):
    async def run():
        model = direct.make(server, ledger=ledger)
        task = asyncio.ensure_future(model.complete(request))
        while server.total < 2:
            await asyncio.sleep(0.01)
        entries.extend(read_ledger(tmp_path))  # what is left if the process dies now
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await model.close()

    entries: list[LedgerEntry] = []
    server = serve(script=["malformed", "hang"])
    request = replace(ASK, max_tokens=10)
    most = most_tokens(request) + 10
    with Ledger(tmp_path, max_tokens=1000) as ledger:
        asyncio.run(run())
        assert ledger.totals().doubtful_tokens == 2 * most
    assert [(one.outcome, one.most_tokens) for one in entries] == [("interrupted", 2 * most)]


def test_an_answer_without_a_cost_is_priced_by_its_tokens(way, serve):
    server, ledger = serve(), Ledger()
    model = way.make(server, ledger=ledger)
    [route] = model.routes
    route.price = Price(1000.0, 2000.0)  # known for the model, not declared
    attempt = route.transport.attempt

    async def unpriced(*options):
        return replace(await attempt(*options), cost=None)

    route.transport.attempt = unpriced
    [reply] = ask(model)
    assert reply.cost == pytest.approx((4 * 1000 + 8 * 2000) / 1e6)
    assert ledger.totals().unpriced == 0
