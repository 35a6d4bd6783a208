import asyncio
from dataclasses import replace

import pytest

from sotopia_env.chat_model import BudgetExceededError, Ledger, LedgerEntry, Price, cache_info, read_ledger
from sotopia_env.errors import DamagedRecordError, InvalidValueError
from tests.sotopia_env.chat_model.conftest import ASK, ledger_lines
from tests.sotopia_env.chat_model.test_contract import ask, one_after_another

AGENT = LedgerEntry(role="agent", asked="a", model="a-1", prompt_tokens=10, completion_tokens=5, cost=0.5, label="e/3")
JUDGE = LedgerEntry(role="judge", asked="j", prompt_tokens=100, completion_tokens=50, cost=None, attempts=3)
FAILED = LedgerEntry(role="agent", asked="a", outcome="failed", attempts=4)
CACHED = LedgerEntry(role="judge", asked="j", cached=True, attempts=0)
FALLBACK = LedgerEntry(role="agent", asked="a", fallback=True, attempts=2, cost=0.25)


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
    assert ledger.totals().cost_text == "$0.5000 + 1 calls of unknown price"
    assert ledger.totals("agent").cost_text == "$0.5000"


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"max_cost": 1.0}, 2),
        ({"max_cost": 1.01}, 3),
        ({"max_tokens": 30}, 2),
        ({"max_tokens": 31}, 3),
        ({"max_cost": 9.0, "max_tokens": 1}, 1),
    ],
)
def test_a_limit_holds_from_the_call_that_reaches_it(limits, allowed):
    ledger = Ledger(**limits)
    for _ in range(allowed):
        ledger.check()
        ledger.record(AGENT)
    with pytest.raises(BudgetExceededError, match=next(reversed(limits))):
        ledger.check()


def test_nothing_is_sent_once_the_budget_is_spent_and_a_resumed_run_knows(direct, serve, tmp_path):
    server = serve()
    with Ledger(tmp_path, max_tokens=36) as ledger:  # 12 a call
        model = direct.make(server, ledger=ledger)
        outcomes = asyncio.run(one_after_another(model, 5))
    assert [type(one).__name__ for one in outcomes] == ["ChatReply"] * 3 + ["BudgetExceededError"] * 2
    assert server.total == 3
    with Ledger(tmp_path, max_tokens=36) as ledger:
        [error] = ask(direct.make(server, ledger=ledger))
    assert isinstance(error, BudgetExceededError)
    with Ledger(tmp_path, max_tokens=48) as ledger:
        [reply] = ask(direct.make(server, ledger=ledger))
    assert (reply.completion_tokens, server.total) == (8, 4)
    assert len(ledger_lines(tmp_path)) == 4


def test_calls_that_wait_for_a_place_see_the_limit_too(direct, serve):
    server = serve(latency=0.01)
    ledger = Ledger(max_tokens=24)
    replies = ask(direct.make(server, ledger=ledger, concurrency=2), *[ASK] * 20)
    assert sum(isinstance(one, BudgetExceededError) for one in replies) == 20 - server.total
    assert server.total <= 4


def test_a_retry_is_not_sent_either(direct, serve):
    server = serve(script=["empty"] * 5)  # an answer without text has its prompt tokens billed
    ledger = Ledger(max_tokens=4)
    [error] = ask(direct.make(server, ledger=ledger), replace(ASK, label="x"))
    assert (error.kind, server.total) == ("empty", 3)  # the sum is written when the call ends
    [error] = ask(direct.make(server, ledger=ledger))
    assert (type(error), server.total) == (BudgetExceededError, 3)
    assert (ledger.totals().prompt_tokens, ledger.totals().failed_attempts) == (12, 3)


def test_a_declared_price_is_charged(direct, serve, tmp_path):
    server = serve()
    with Ledger(tmp_path, max_cost=1.0) as ledger:
        [reply] = ask(direct.make(server, ledger=ledger, price=Price(1000.0, 2000.0)), replace(ASK, role="judge"))
    assert reply.cost == pytest.approx((4 * 1000 + 8 * 2000) / 1e6)
    [line] = ledger_lines(tmp_path)
    assert (line["cost"], line["role"]) == (reply.cost, "judge")


def test_a_limit_on_cost_needs_a_price(direct, serve):
    server = serve()
    with pytest.raises(InvalidValueError, match=r"max_cost.*'local/tiny'.*declare its price"):
        direct.make(server, ledger=Ledger(max_cost=5.0))
    spare = direct.make(server)
    with pytest.raises(InvalidValueError, match="max_cost"):
        direct.make(server, price=Price(0, 0), ledger=Ledger(max_cost=5.0), fallbacks=(spare,))


def test_without_a_price_the_cost_is_unknown(direct, serve):
    ledger = Ledger()
    [reply] = ask(direct.make(serve(), ledger=ledger))
    assert (reply.cost, ledger.totals().cost_text) == (None, "unknown")


def test_one_process_at_a_time_writes(tmp_path):
    with Ledger(tmp_path), pytest.raises(InvalidValueError, match="another process"):
        Ledger(tmp_path)
    Ledger(tmp_path).close()


@pytest.mark.parametrize(
    ("line", "said"),
    [("nonsense", "line 2"), ('{"role": "referee", "asked": "m"}', "role"), ('{"role": "agent"}', "asked")],
)
def test_a_damaged_line_is_named(tmp_path, line, said):
    (tmp_path / "ledger.jsonl").write_text(AGENT.model_dump_json() + "\n" + line + "\n")
    with pytest.raises(DamagedRecordError, match=r"ledger\.jsonl, line 2") as caught:
        Ledger(tmp_path)
    assert said in str(caught.value)
    with pytest.raises(DamagedRecordError):  # the failed attempt left no lock behind
        Ledger(tmp_path)


@pytest.mark.parametrize("given", [{"max_cost": 0}, {"max_cost": float("nan")}, {"max_tokens": -1}])
def test_limits_that_cannot_be_meant(given):
    with pytest.raises(InvalidValueError, match=next(iter(given))):
        Ledger(**given)


def test_a_ledger_that_is_not_there(tmp_path):
    with pytest.raises(InvalidValueError, match="expected a ledger, found none"):
        list(read_ledger(tmp_path))
    with pytest.raises(InvalidValueError, match="expected a response cache, found none"):
        cache_info(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValueError, match="expected a file that can be written"):
        Ledger(tmp_path / "file")


@pytest.mark.parametrize(("prompt", "completion"), [(-1, 0), (0, float("inf")), (float("nan"), 1)])
def test_prices_that_cannot_be_meant(prompt, completion):
    with pytest.raises(InvalidValueError, match="price"):
        Price(prompt, completion)
