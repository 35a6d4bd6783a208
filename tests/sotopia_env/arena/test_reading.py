"""Results of other commands and of people: what is rated, what is left out, and why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from sotopia_studio.store import episodes
from typer.testing import CliRunner

from sotopia_env import Rules, Table
from sotopia_env.arena import Suite, freeze, read_card
from sotopia_env.arena.page import card_report
from sotopia_env.arena.reading import card_of_runs
from sotopia_env.cli.app import app
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import make_policy, task_set
from sotopia_env.outcomes import Move
from sotopia_env.storage import read_run
from sotopia_env.world import Action
from sotopia_env.world.episode import Episode, PolicyInfo, to_line
from tests.errors import raises
from tests.sotopia_studio.conftest import act, create_tables
from tests.sotopia_studio.test_live import LiveSpec, begin, until, working

TASKS = ("--tasks", "bargaining", "-n", "4")
# Nothing in the first turn, then the acceptance of the open offer, without words; then the next episode.
DEALS = "1\n2\n\n2\n\n1\n2\n\n2\n\n1\n5\nq\n"


def sotopia(*words: object, code: int = 0, typed: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], input=typed)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def suite() -> Suite:
    return freeze(Suite(name="small", tasks="bargaining", n=4, pool=("linear", "conceder")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, suite: Suite) -> Path:
    """A run of the suite by ``sotopia arena run``, and the suite's file."""
    folder = tmp_path_factory.mktemp("reading")
    suite.save(folder / "small.json")
    sotopia("arena", "run", folder / "small.json", "--policy", "micro", "--out", folder / "run")
    return folder


def names(identities: object) -> list[str]:
    return [json.loads(identity)[0] for identity in identities]  # type: ignore[attr-defined]


def people(card: object) -> dict[str, dict[str, object]]:
    """The table of play with people by partner."""
    report = card_report(card)  # type: ignore[arg-type]
    sheet = next(sheet for sheet in report.sheets if sheet.name == "human")
    return {str(row["partner"]): row for row in sheet.records()}


def test_people_at_a_terminal_are_in_the_table_of_their_own(folder: Path, suite: Suite, tmp_path: Path) -> None:
    run = tmp_path / "people"
    for code, policy, seat in (("p1", "linear", 0), ("p2", "linear", 1), ("p3", "tit-for-tat", 0)):
        partner = ("--policy", policy, "--seat", seat, "--participant", code)
        sotopia("play", *TASKS, *partner, "--out", run, typed=DEALS)
    card = card_of_runs([folder / "run", run])
    assert names(card.rated) == ["micro"]
    assert not card.left_out
    played = list(read_run(run))
    payoffs = {row.key: row for row in card.rows if row.policy == '["human",{}]'}
    assert set(payoffs) == {episode.key for episode in played}
    # The command's evaluator is another one; the suite's scores what it scores.
    assert all(row.payoff is not None and "outcome_optimality" in row.values for row in payoffs.values())
    table = people(card)
    assert set(table) == {"linear", "tit-for-tat"}
    assert table["linear"]["people_n"] == sum(
        e.policies[0].name == "linear" or e.policies[1].name == "linear" for e in played
    )
    alone = card_of_runs([run], suite)
    assert alone.rated == ()
    assert people(alone) == table
    sotopia("arena", "rate", run, "--suite", folder / "small.json", "--out", tmp_path / "card")
    assert people(read_card(tmp_path / "card")) == table


def test_a_person_in_the_studio_is_in_the_table(suite: Suite, tmp_path: Path) -> None:
    async def play() -> list[str]:
        url = f"sqlite:///{tmp_path}/studio.db"
        async with working(url) as database:
            task = task_set("bargaining", 4, 0, "medium")[0]
            # The limit of the rules is that of the task, under another name.
            seats = {"agent_0": "human", "agent_1": "conceder"}
            episode = await begin(database, LiveSpec(task=task, rules=Rules(max_turns=20), policies=seats))
            for _ in range(20):
                state = await until(database, episode, "agent_0")
                if state.ended:
                    break
                menu = state.table.observe("agent_0").moves
                move = Move("accept", menu.accept[0]) if menu and menu.accept else None  # type: ignore[arg-type]
                turn = len(state.table.turns)
                await act(database, episode, "agent_0", Action("speak", "Yes.", move=move), turn=turn, key=f"{turn}")
            async with database.read() as connection:
                return await episodes.lines_of(connection, [episode])

    asyncio.run(create_tables(f"sqlite:///{tmp_path}/studio.db"))
    export = tmp_path / "export.jsonl"
    export.write_text("".join(f"{line}\n" for line in asyncio.run(play())), encoding="utf-8")
    assert set(people(card_of_runs([export], suite))) == {"conceder"}


def with_a_person(rules: Rules, key: str = "session/1") -> Episode:
    """An episode as oTree's export has it: not evaluated, and people's policies added to the record."""
    table = Table(task_set("bargaining", 4, 0, "medium")[0], rules, 1, key=key)
    policy = make_policy("conceder")
    while table.stop is None:
        if "agent_0" in table.acting:
            table.answer("agent_0", Action("speak", "Hm."))
        asyncio.run(table.play({"agent_1": policy}))
    episode = table.episode()
    person = PolicyInfo(agent="agent_0", name="human", parameters={"participant": "a1"})
    others = [info for info in episode.policies if info.agent != "agent_0"]
    return episode.model_copy(update={"policies": (person, *others)})


def test_episodes_of_an_experiment_elsewhere_are_evaluated(suite: Suite, tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text(to_line(with_a_person(Rules(max_turns=20))), encoding="utf-8")
    table = people(card_of_runs([file], suite))
    assert table["conceder"]["agreed_mean"] == 0.0


def test_what_is_not_of_the_suite_is_left_out_with_the_reason(folder: Path, suite: Suite, tmp_path: Path) -> None:
    episode = with_a_person(Rules())
    (other,) = task_set("bargaining", 1, 9, "medium")
    lines = [
        episode,
        with_a_person(Rules(max_turns=8), "shorter"),
        episode.model_copy(update={"key": "unended", "stop": None}),
        episode.model_copy(update={"key": "unnamed", "policies": ()}),
        episode.model_copy(update={"key": "elsewhere", "task": other}),
    ]
    file = tmp_path / "people.jsonl"
    file.write_text("".join(map(to_line, lines)), encoding="utf-8")
    card = card_of_runs([file], suite)
    assert {row.key for row in card.rows} == {episode.key}
    assert [item.episodes for item in card.left_out] == [1, 1, 1, 1]
    assert len({item.reason for item in card.left_out}) == 4
    assert {item.source for item in card.left_out} == {file.name}
    # The card says so wherever it goes, once.
    merged = card_of_runs([file, folder / "run", file], suite)
    assert merged.left_out == card.left_out
    assert all(item.reason in card_report(merged).text() for item in card.left_out)


def test_a_person_among_several_seats(tmp_path: Path) -> None:
    committee = freeze(Suite(name="committee", tasks="group_decision", n=1, pool=("linear",)))
    (task,) = task_set("group_decision", 1, 0, "medium")
    lines = []
    for key, others in (("alike", ["linear"] * 3), ("unlike", ["linear", "conceder", "micro"])):
        table = Table(task, Rules(), 1, key=key)
        seated = dict(zip(task.agents[1:], map(make_policy, others), strict=True))
        while table.stop is None:
            if "agent_0" in table.acting:
                table.answer("agent_0", Action("speak", "Hm."))
            asyncio.run(table.play(seated))
        episode = table.episode()
        person = PolicyInfo(agent="agent_0", name="human")
        named = (person, *[info for info in episode.policies if info.agent != "agent_0"])
        lines.append(to_line(episode.model_copy(update={"policies": named})))
    (tmp_path / "people.jsonl").write_text("".join(lines), encoding="utf-8")
    card = card_of_runs([tmp_path / "people.jsonl"], committee)
    assert set(people(card)) == {"linear"}
    assert {row.policy for row in card.rows} == {'["human",{}]'}
    assert [item.episodes for item in card.left_out] == [1]


def test_a_path_without_an_episode_of_the_suite_is_refused(folder: Path, suite: Suite, tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text(to_line(with_a_person(Rules(max_turns=8))), encoding="utf-8")
    with raises(InvalidValueError, field="episodes"):
        card_of_runs([folder / "run", file])
    with raises(InvalidValueError, field="suite"):
        card_of_runs([file])
    with raises(InvalidValueError, field="suite.name"):
        card_of_runs([folder / "run"], suite.model_copy(update={"name": "other", "version": 2, "seed": 5}))
    sotopia("arena", "rate", folder / "run", "--suite", "quick", code=2)
    sotopia("arena", "rate", tmp_path / "absent", "--suite", "quick", code=2)


def test_a_run_of_another_command_is_rated_like_one_of_the_arena(folder: Path, suite: Suite, tmp_path: Path) -> None:
    play = [
        *TASKS,
        "--set",
        "orders=alternate",
        "--matchup",
        "frequency vs linear",
        "--matchup",
        "frequency vs conceder",
    ]
    sotopia("rollout", *play, "--evaluator", "none", "--out", tmp_path / "run")
    card = card_of_runs([folder / "run", tmp_path / "run"])
    assert names(card.rated) == ["frequency", "micro"]
    sotopia("arena", "run", folder / "small.json", "--policy", "frequency", "--out", tmp_path / "arena")
    direct = card_of_runs([folder / "run", tmp_path / "arena"])
    rated = [{(row.key, row.seat, row.payoff) for row in it.of_play("pool")} for it in (card, direct)]
    assert rated[0] == rated[1]


def test_two_people_without_codes_are_not_one(suite: Suite, tmp_path: Path) -> None:
    first, second = with_a_person(Rules()), with_a_person(Rules()).before(4)
    for name, episode in (("a", first), ("b", second.model_copy(update={"stop": first.stop}))):
        (tmp_path / f"{name}.jsonl").write_text(to_line(episode), encoding="utf-8")
    with raises(InvalidValueError, field=f"episode {first.key!r}.turns"):
        card_of_runs([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], suite)


def test_an_evaluator_that_needs_a_model_is_not_called(suite: Suite, tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text(to_line(with_a_person(Rules())), encoding="utf-8")
    for evaluator in ("judge:local/absent", "os:getcwd"):
        with raises(InvalidValueError, field="episodes"):
            card_of_runs([file], suite.model_copy(update={"evaluator": evaluator}))
