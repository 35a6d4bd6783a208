"""The models of a run: made once, sharing limits and one ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.chat_model import ChatRequest
from sotopia_env.chat_model.cache import cache_info
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.spending.ledger import Totals, read_ledger
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.world.episode import Evaluation
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import transcript
from tests.sotopia_env.runs.model_runs import answer, table_server

REQUEST = ChatRequest(messages=({"role": "user", "content": "Good morning."},))


def test_a_model_is_made_once_and_agents_and_judges_share_its_connections(tmp_path: Path) -> None:
    models = ModelPool(ModelOptions(api_base="http://localhost:1/v1"))
    assert models("local/a") is models("local/a") is models.judge("local/a")
    assert models("local/a") is not models("local/b")
    assert models("local/a", api_base="http://localhost:2/v1") is not models("local/a")
    assert models.names == ("local/a", "local/b")
    cached = ModelPool(ModelOptions(api_base="http://localhost:1/v1", cache_dir=tmp_path))
    agent, judge = cached("local/a"), cached.judge("local/a")
    assert judge is not agent
    assert judge.routes == agent.routes  # type: ignore[attr-defined]  # the same limits hold for both
    asyncio.run(cached.close())


def test_one_ledger_counts_every_model_and_only_judges_answers_are_kept(tmp_path: Path) -> None:
    async def work(api_base: str) -> None:
        models = ModelPool(ModelOptions(api_base=api_base, cache_dir=tmp_path / "cache"))
        agent, judge = models("local/tiny"), models.judge("local/tiny")
        await models.check()
        models.open(tmp_path)
        for _ in range(2):
            await agent.complete(REQUEST)
            await judge.complete(REQUEST)
        await models.close()

    with table_server() as server:
        asyncio.run(work(server.api_base))
        assert server.total == 3
    entries = list(read_ledger(tmp_path))
    assert [entry.cached for entry in entries] == [False, False, False, True]
    assert cache_info(tmp_path / "cache").answers == 1


def test_nothing_is_written_before_the_models_are_known_to_be_there(tmp_path: Path) -> None:
    async def work(api_base: str, name: str) -> None:
        models = ModelPool(ModelOptions(api_base=api_base))
        models(f"local/{name}")
        try:
            await models.check()
        finally:
            await models.close()

    with table_server() as server, raises(UnknownNameError, field="model", nearest="tiny"):
        asyncio.run(work(server.api_base, "tinny"))
    with raises(InvalidValueError, field="model", expected="a server at http://127.0.0.1:9/v1"):
        asyncio.run(work("http://127.0.0.1:9/v1", "tiny"))
    assert not list(tmp_path.iterdir())


def test_what_several_processes_may_use_adds_up_to_what_is_left() -> None:
    options = ModelOptions(rpm=100, tpm=1_000, max_cost=3.0, max_tokens=1_000)
    spent = Totals(prompt_tokens=100, completion_tokens=50, cost=0.75, doubtful_tokens=50, doubtful_cost=0.25)
    share = options.share(4, spent)
    assert (share.rpm, share.tpm, share.max_cost, share.max_tokens) == (25, 250, 0.5, 200)
    free = ModelOptions().share(4, Totals())
    assert (free.rpm, free.tpm, free.max_cost, free.max_tokens) == (None, None, None, None)


def test_one_address_never_serves_ones_own_model_and_a_providers(monkeypatch):
    """A key of a provider must not reach one's own server, nor a prompt meant for it the provider."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-provider")
    models = ModelPool(ModelOptions(api_base="http://localhost:1/v1"))
    models("local/tiny")
    with raises(InvalidValueError, field="api_base"):
        models.judge("openai/gpt-4o-mini")
    apart = ModelPool(ModelOptions(api_base={"local/tiny": "http://localhost:1/v1"}))
    apart("local/tiny")
    apart.judge("openai/gpt-4o-mini")


def test_a_models_own_address_gets_the_key_that_is_named_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its fallbacks of the same provider are asked there, unless they have an address of their own."""
    for variable in ("SHARED", "OWN"):
        monkeypatch.setenv(variable, f"key-{variable}")
    monkeypatch.delenv("OPENAI_COMPATIBLE_API_KEY", raising=False)
    home, away, third = (f"http://localhost:{port}/v1" for port in (1, 2, 3))

    def targets(key: Any, spec: str = "local/j") -> list[tuple[str, str]]:
        bases = {"": home, "local/third": third}
        models = ModelPool(ModelOptions(api_base=bases, api_key_env=key, fallbacks=("local/spare", "local/third")))
        routes = models.judge(spec, api_base=away).routes  # type: ignore[attr-defined]
        return [(route.transport.identity.split(" at ")[1], route.transport._key) for route in routes]

    for bare in ("SHARED", {"": "SHARED"}):
        assert targets(bare) == [(away, ""), (away, ""), (third, "key-SHARED")]
    own = {"": "SHARED", "local/j": "OWN"}
    assert targets(own) == [(away, "key-OWN"), (away, "key-OWN"), (third, "key-SHARED")]


def test_only_accepted_verdicts_are_kept_and_every_re_ask_reaches_the_server(tmp_path: Path) -> None:
    """A verdict that was refused is asked for anew, by the next re-ask and the next run; one that was not is free."""
    usable = False

    def reply(body: dict[str, Any]) -> str:
        return answer(body) if usable else "I would rather not."

    def judge(run: str) -> tuple[Evaluation, Totals]:
        async def work() -> Evaluation:
            models = ModelPool(ModelOptions(api_base=server.api_base, cache_dir=tmp_path / "cache"))
            evaluator = LLMJudge(models.judge("local/tiny"), reasks=2)
            models.open(tmp_path / run)
            try:
                return await evaluator.evaluate(transcript("Hello.", "Good evening."))
            finally:
                await models.close()

        verdict, totals = asyncio.run(work()), Totals()
        for entry in read_ledger(tmp_path / run):
            totals.add(entry)
        return verdict, totals

    with table_server(reply=reply) as server:
        refused, spent = judge("first")
        assert (bool(refused.unscored), server.total, spent.attempts) == (True, 3, 3)
        assert cache_info(tmp_path / "cache").answers == 0
        usable = True
        scored, spent = judge("second")
        assert (bool(scored.scores), server.total, spent.attempts) == (True, 4, 1)
        again, spent = judge("third")
        assert (again.scores, server.total) == (scored.scores, 4)
        assert (spent.answered, spent.cached, spent.attempts) == (1, 1, 0)
