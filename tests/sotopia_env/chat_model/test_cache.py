import pickle
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sotopia_env.chat_model.cache import cache_info, clear_cache
from sotopia_env.chat_model.spending.ledger import Ledger
from tests.sotopia_env.chat_model.conftest import ASK, KEY, QUICK, ledger_lines
from tests.sotopia_env.chat_model.server import SPEAK
from tests.sotopia_env.chat_model.test_contract import ask

OTHER = ({"role": "user", "content": "Good evening."},)
# What of a question changes its answer, and what does not.
DIFFERENT = [
    {"messages": OTHER},
    {"temperature": 0.0},
    {"temperature": None},
    {"max_tokens": 5},
    {"seed": 1},
    {"schema": {"type": "object"}},
    {"logprobs": True},
    {"replicate": 1},
    {"reask": 1},
]
SAME = [{}, {"role": "judge"}, {"label": "another"}, {"accepts": lambda reply: True}]


@pytest.mark.parametrize("change", DIFFERENT)
def test_a_change_of_anything_that_determines_the_answer_asks_again(direct, serve, tmp_path, change):
    server = serve()
    ask(direct.make(server, cache_dir=tmp_path), ASK)
    [reply] = ask(direct.make(server, cache_dir=tmp_path), replace(ASK, **change))
    assert (server.total, reply.cached) == (2, False)


@pytest.mark.parametrize("change", SAME)
def test_a_change_of_anything_else_uses_the_cache(direct, serve, tmp_path, change):
    server = serve(reply="é\u2028<think>")
    [first] = ask(direct.make(server, cache_dir=tmp_path), ASK)
    [again] = ask(direct.make(server, cache_dir=tmp_path), replace(ASK, **change))
    assert server.total == 1
    assert again == replace(first, cached=True, cost=0.0, latency=0.0, attempts=0)


def test_replicates_are_different_samples_and_each_is_kept(direct, serve, tmp_path):
    answers = iter("abcdef")
    server = serve(reply=lambda body: next(answers))
    questions = [replace(ASK, replicate=index) for index in range(3)]
    first = ask(direct.make(server, cache_dir=tmp_path, concurrency=1), *questions)
    again = ask(direct.make(server, cache_dir=tmp_path), *questions)
    assert sorted(reply.text for reply in first) == ["a", "b", "c"]
    assert [reply.text for reply in again] == [reply.text for reply in first]


def test_different_models_parameters_and_servers_have_different_answers(direct, serve, tmp_path):
    server, other = serve(), serve()
    ask(direct.make(server, cache_dir=tmp_path))
    ask(direct.make(server, cache_dir=tmp_path, max_tokens=99))
    ask(direct.make(server, cache_dir=tmp_path, structured="off"))
    ask(replace(direct, spec="local/gpt-4o-mini").make(server, cache_dir=tmp_path))
    ask(direct.make(other, cache_dir=tmp_path))
    assert (server.total, other.total) == (4, 1)


def test_the_cache_is_off_by_default(direct, serve, tmp_path):
    server = serve()
    ask(direct.make(server), ASK, ASK)
    assert server.total == 2
    assert list(tmp_path.iterdir()) == []


def test_a_cached_answer_costs_nothing(way, serve, tmp_path):
    server = serve()
    with Ledger(tmp_path) as ledger:
        for _ in range(2):
            [reply] = ask(way.make(server, cache_dir=tmp_path / "cache", ledger=ledger))
        assert ledger.totals().cached == 1
    assert (reply.cached, reply.cost, server.total) == (True, 0.0, 1)
    paid, hit = ledger_lines(tmp_path)
    assert paid["completion_tokens"] == 8
    assert (hit["cached"], hit["attempts"], hit["completion_tokens"], hit["cost"]) == (True, 0, 0, 0.0)
    assert hit["model"] == paid["model"]
    assert all(KEY.encode() not in file.read_bytes() for file in (tmp_path / "cache").iterdir())


class Planted:
    """An object whose unpickling would write a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("planted", [pickle.dumps, lambda item: "[" * 9_999, lambda item: '{"text": NaN}', lambda _: 3])
def test_a_planted_entry_runs_nothing_and_is_not_an_answer(direct, serve, tmp_path, planted):
    server, marker = serve(), tmp_path / "marker"
    ask(direct.make(server, cache_dir=tmp_path / "cache"), ASK)
    for file in (tmp_path / "cache").glob("*.*"):
        if file.read_bytes().startswith(b"SQLite"):
            with sqlite3.connect(file) as connection:
                connection.execute("UPDATE answers SET reply = ?", (planted(Planted(marker)),))
    [reply] = ask(direct.make(server, cache_dir=tmp_path / "cache"), ASK)
    assert (reply.text, reply.cached, server.total, marker.exists()) == (SPEAK, False, 2, False)


def test_failures_and_fallbacks_are_not_kept(direct, serve, tmp_path):
    down, up = serve(script=["server_error"] * 2), serve()
    policy = replace(QUICK, retries=0)
    ask(direct.make(down, cache_dir=tmp_path, retries=policy))
    spare = direct.make(up)
    [fallen] = ask(direct.make(down, cache_dir=tmp_path, retries=policy, fallbacks=(spare,)))
    [reply] = ask(direct.make(down, cache_dir=tmp_path, retries=policy, fallbacks=(direct.make(up),)))
    assert (fallen.fallback, reply.fallback, reply.cached, down.total) == (True, False, False, 3)


def test_only_accepted_answers_are_cached(direct, serve, tmp_path):
    answers = iter(["no", "no", "yes", "never asked for"])
    server = serve(reply=lambda body: next(answers))
    question = replace(ASK, role="judge", accepts=lambda reply: reply.text == "yes")
    with Ledger(tmp_path) as ledger:
        replies = [ask(direct.make(server, cache_dir=tmp_path / "cache", ledger=ledger), question)[0] for _ in range(4)]
    assert [(reply.text, reply.cached, reply.attempts) for reply in replies] == [
        ("no", False, 1),
        ("no", False, 1),
        ("yes", False, 1),
        ("yes", True, 0),
    ]
    assert server.total == 3
    assert cache_info(tmp_path / "cache").answers == 1


def test_a_cached_answer_that_is_no_longer_accepted_is_requested_again(direct, serve, tmp_path):
    server = serve()
    ask(direct.make(server, cache_dir=tmp_path), ASK)
    [stricter] = ask(direct.make(server, cache_dir=tmp_path), replace(ASK, accepts=lambda reply: False))
    [as_before] = ask(direct.make(server, cache_dir=tmp_path), ASK)
    assert (stricter.cached, as_before.cached, server.total) == (False, True, 2)


def test_it_can_be_shown_and_cleared(direct, serve, tmp_path):
    server = serve()
    ask(direct.make(server, cache_dir=tmp_path), *[replace(ASK, replicate=index) for index in range(4)])
    info = cache_info(tmp_path)
    assert (info.directory, info.answers) == (tmp_path, 4)
    assert info.size > 0
    assert clear_cache(tmp_path) == 4
    assert cache_info(tmp_path).answers == 0


@pytest.mark.parametrize("error", [sqlite3.OperationalError("database is locked"), OSError(28, "full")])
@pytest.mark.parametrize("broken", ["SELECT", "INSERT"])
def test_a_cache_that_fails_loses_no_answer(direct, serve, tmp_path, caplog, broken, error):
    def execute(statement, values):
        if statement.startswith(broken):
            raise error
        return answers.execute(statement, values)

    server = serve()
    model = direct.make(server, cache_dir=tmp_path, concurrency=1)
    answers = model._cache._answers
    model._cache._answers = SimpleNamespace(execute=execute, close=answers.close)
    replies = ask(model, ASK, replace(ASK, replicate=1))
    assert [reply.text for reply in replies] == [SPEAK] * 2
    assert [record.levelname for record in caplog.records if "could not be" in record.message] == ["WARNING"]


def test_an_answer_that_is_not_unicode_is_returned_and_not_stored(direct, serve, tmp_path, caplog):
    server = serve(reply="half a pair: \ud83d")
    [reply] = ask(direct.make(server, cache_dir=tmp_path))
    assert reply.text == "half a pair: \ud83d"
    assert "could not be stored" in caplog.text
    assert cache_info(tmp_path).answers == 0
