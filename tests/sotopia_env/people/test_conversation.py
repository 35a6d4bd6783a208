"""Pages show researchers the classes of statements after the end, and participants never."""

from __future__ import annotations

import asyncio

import pytest

from sotopia_env import Table, tasks
from sotopia_env.naming.policies import make_policy
from sotopia_env.people.seat.conversation import show


@pytest.fixture(scope="module")
def table() -> Table:
    task = tasks.generate("mini_mafia", 1, 0)[0]
    table = Table(task, seed=0)
    asyncio.run(table.play(make_policy("deceiver")))
    return table


def test_a_researcher_reads_the_classes_after_the_end(table: Table) -> None:
    cards = show("e", table, status="done").turns
    assert sum("lie" in card.classes for card in cards) == 6
    assert all(card.classes == "" for card in show("e", table.fork(4), status="waiting").turns)


def test_a_seat_never_does(table: Table) -> None:
    for agent in table.task.agents:
        assert {card.classes for card in show("e", table, seat=agent, status="done").turns} == {""}


def test_what_was_proved_is_on_the_table_of_those_who_saw_it() -> None:
    task = tasks.generate("mini_mafia", 1, 0, "easy")[0]
    table = Table(task, seed=0)
    asyncio.run(table.step(make_policy("honest")))
    page = show("e", table, seat="agent_1", status="waiting")
    assert page.table is not None
    assert any(line.startswith("Proved to you: role of ") for line in page.table.lines)
