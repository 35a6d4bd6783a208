"""Tables of people's results: the forms, the codebook that is made of the same columns, and the columns of seats."""

from __future__ import annotations

import asyncio
import csv
import io

from sotopia_env import naming
from sotopia_env.people.tables.beliefs import BELIEF, option_beliefs
from sotopia_env.people.tables.columns import CODEBOOK, LONG, Column, codebook, codebook_csv, long_csv, wide_csv
from sotopia_env.people.tables.seats import PlayedSeat, longest, seat_columns
from sotopia_env.people.tables.turns import TURN, played_turns
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode

PEOPLE = (
    Column("person", "code", "text", lambda record: record["person"], is_key=True),
    Column("age", "age", "number", lambda record: record.get("age"), "years", "a form"),
    Column("turn_2.seconds", "time", "number", lambda _: 3.5, "seconds", turn=2, variable="turn.seconds"),
    Column("agent_1.trust", "=trust", "number", lambda _: 6, "1 to 7", agent="agent_1", variable="trust"),
)
RECORDS = ({"person": "a", "age": 30}, {"person": "b"})


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_wide_and_long_hold_the_same_values() -> None:
    wide, long = read(wide_csv(PEOPLE, RECORDS)), read(long_csv(PEOPLE, RECORDS))
    assert [row["age"] for row in wide] == ["30", ""]
    assert list(long[0]) == ["person", *LONG]
    assert [(row["person"], row["agent"], row["turn"], row["question"], row["answer"]) for row in long] == [
        ("a", "", "", "age", "30"),
        ("a", "", "2", "turn.seconds", "3.5"),
        ("a", "agent_1", "", "trust", "6"),
        ("b", "", "2", "turn.seconds", "3.5"),
        ("b", "agent_1", "", "trust", "6"),
    ]


def test_the_codebook_has_a_line_for_every_column_and_every_variable() -> None:
    lines = read(codebook_csv([*codebook("wide", PEOPLE), *codebook("long", PEOPLE, long=True)]))
    assert tuple(lines[0]) == CODEBOOK
    wide = [line["column"] for line in lines if line["table"] == "wide"]
    assert wide == next(csv.reader(io.StringIO(wide_csv(PEOPLE, RECORDS))))
    long = {line["column"] for line in lines if line["table"] == "long"}
    rows = read(long_csv(PEOPLE, RECORDS))
    assert long == {*rows[0], *(f"question = {row['question']}" for row in rows)}
    assert next(line["unit_or_range"] for line in lines if line["column"] == "age") == "years"


def test_a_column_of_a_part_is_empty_without_it() -> None:
    inner: Column[str] = Column("length", "number of letters", "number", len)
    outer: Column[dict[str, str]] = inner.of(lambda record: record.get("word"))
    assert [outer.cell(record) for record in ({"word": "four"}, {})] == [4, None]


def played() -> Episode:
    tasks = naming.task_set("bargaining", 1, 0, "medium")
    matchups = all_matchups([naming.make_policy("conceder"), naming.make_policy("boulware")], False)
    plans = plan_episodes(tasks, matchups)[:1]
    return asyncio.run(run_episodes(plans, evaluator=naming.make_evaluator("verified"), progress=False)).episodes[0]


def test_the_columns_of_a_seat_are_those_of_the_verified_outcome() -> None:
    episode = played()
    outcome = episode.evaluations[0].outcome
    assert outcome is not None
    assert outcome.agreed
    columns = seat_columns([episode.task], longest([episode]))
    seats = [PlayedSeat.of(episode, agent) for agent in episode.task.agents]
    rows = read(wide_csv(columns, seats))
    assert [float(row["outcome.worth"]) for row in rows] == list(outcome.payoffs)
    assert [float(row["outcome.share"]) for row in rows] == list(outcome.shares)
    assert [row["outcome.partner_worth"] for row in rows] == [f"{p:g}" for p in reversed(outcome.payoffs)]
    assert {row["outcome.stop"] for row in rows} == {"settled"}
    assert {float(row["terms.price"]) for row in rows} == {outcome.terms["price"]}
    # Each turn's time is in the line of the seat that acted, and in no other.
    assert {f"turn_{number}.seconds" for number in range(1, len(episode.turns) + 1)} <= {*rows[0]}
    turns = read(wide_csv(TURN, played_turns([("e", episode)])))
    assert [row["words"] for row in turns] == [item.turn.action.argument for item in episode.turns]
    assert turns[-1]["move"] == "accept"


def test_an_episode_that_is_running_has_no_outcome() -> None:
    episode = played().before(1)
    row = read(wide_csv(seat_columns([episode.task]), [PlayedSeat.of(episode, "agent_0")]))[0]
    assert (row["outcome.stop"], row["outcome.agreed"], row["outcome.turns"]) == ("", "", "1")


def test_beliefs_are_listed_option_by_option() -> None:
    belief = Belief(respondent="agent_0", turns=2, variable="risk", options=("low", "high"), shares=(0.25, 0.75))
    silent = Belief(respondent="agent_1", turns=2, variable="risk", options=("low", "high"), reason="no answer")
    episode = played()
    episode = episode.model_copy(update={"beliefs": (belief, silent)})
    evaluation = episode.evaluations[0].model_copy(update={"beliefs": (belief,)})
    rows = read(wide_csv(BELIEF, option_beliefs([("e", episode.with_evaluation(evaluation))])))
    assert [(row["agent"], row["option"], row["share"], row["reason"]) for row in rows] == [
        ("agent_0", "low", "0.25", ""),
        ("agent_0", "high", "0.75", ""),
        ("agent_1", "", "", "no answer"),
    ]
