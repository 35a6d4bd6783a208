"""Sheets for annotators: blind, harmless, strict when read back, and screened by countable rules."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, SotopiaError, UnknownNameError
from sotopia_env.people import read_annotations
from sotopia_env.people.answers import AnnotationSet
from sotopia_env.people.quality import LENIENT, QualityRules, RemovalReason, screen
from sotopia_env.people.sheet import (
    READ_ONLY,
    REASONING,
    AnnotationKey,
    draw,
    guide_path,
    key_path,
    transcript_text,
    write_template,
)
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import RecordedTurn
from sotopia_env.world.reward import DIMENSIONS, CustomDimension
from tests.errors import raises
from tests.sotopia_env.factories import character, scenario
from tests.sotopia_env.factories import task as plain_task
from tests.sotopia_env.people.annotation_doubles import (
    CHARM,
    MODEL,
    POLICY,
    RATIONALE,
    REASONS,
    SEVEN,
    annotated,
    cells,
    episode,
    fill_in,
    full,
    write_cells,
)
from tests.sotopia_env.runs.rollout_doubles import make_task

MANY = [episode(f"e{number}", scores={"agent_0": SEVEN, "agent_1": SEVEN}) for number in range(30)]


# --- the sheet -------------------------------------------------------------------------------------------------------


def test_the_sheet_is_blind(tmp_path: Path) -> None:
    write_template(MANY, tmp_path / "people.csv")
    for file in (tmp_path / "people.csv", guide_path(tmp_path / "people.csv")):
        text = file.read_text(encoding="utf-8")
        for hidden in (POLICY, MODEL, RATIONALE, "judge", "agent_0", "agent_1", MANY[7].key + '"'):
            assert hidden not in text, hidden


def test_the_sheet_has_a_row_per_annotator_and_seat(tmp_path: Path) -> None:
    episodes = [*MANY[:3], episode("three", task=make_task("three", seats=3))]
    key = write_template(episodes, tmp_path / "people.csv", per_episode=3)
    header, *rows = cells(tmp_path / "people.csv")
    scored = [column for d in DIMENSIONS for column in (d.value, d.value + REASONING)]
    assert header == ["annotation_id", "annotator", *READ_ONLY, *scored]
    assert len(rows) == len(key.requests) == 3 * (3 * 2 + 3)
    assert [row[0] for row in rows] == [request.annotation_id for request in key.requests]
    assert all(set(row[7:]) == {""} and row[1] == "" for row in rows)
    expected_rows = {(e.key, agent, slot) for e in episodes for agent in e.task.agents for slot in range(3)}
    assert {(r.episode, r.agent, r.slot) for r in key.requests} == expected_rows
    assert [r.slot for r in key.requests] == sorted(r.slot for r in key.requests)


def test_the_key_and_nothing_else_says_whose_row_it_is(tmp_path: Path) -> None:
    write_template(MANY, tmp_path / "people.csv")
    key = AnnotationKey.load(key_path(tmp_path / "people.csv"))
    header, *rows = cells(tmp_path / "people.csv")
    tasks = {e.key: e.task for e in MANY}
    for row, request in zip(rows, key.requests, strict=True):
        task = tasks[request.episode]
        columns = dict(zip(header, row, strict=True))
        assert columns["participant"] == task.names[request.agent]
        assert columns["participant_goal"] == task.scenario.seats[task.agents.index(request.agent)].goals[0]
    first = [request.agent for request in key.requests[::2]]
    assert 15 <= first.count("agent_0") <= 45  # 30 of 60 are expected; seats in order would give 60
    by_id = sorted(key.requests, key=lambda request: request.annotation_id)
    assert 15 <= [request.agent for request in by_id[:60]].count("agent_0") <= 45
    assert [r.episode for r in key.requests[:60:2]] != [e.key for e in MANY]
    # Annotators who stop early have scored the same episodes.
    assert [r.episode for r in key.requests[:60:2]] == [r.episode for r in key.requests[60::2]]
    assert [r.agent for r in key.requests[:60]] != [r.agent for r in key.requests[60:]]


def test_the_same_seed_gives_the_same_sheet(tmp_path: Path) -> None:
    keys = [
        write_template(episodes, tmp_path / f"{name}.csv", seed=seed)
        for name, episodes, seed in (("a", MANY, 1), ("b", MANY[::-1], 1), ("c", MANY, 2), ("d", MANY[1:], 1))
    ]
    assert keys[0] == keys[1]
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    ids = [{r.annotation_id for r in key.requests} for key in keys]
    assert not ids[0] & ids[2]
    assert not ids[0] & ids[3], "the seed alone must not suffice to repeat the shuffle"


def test_annotators_read_everything_they_need_and_no_forged_turn(tmp_path: Path) -> None:
    task = make_task("s", private=True)
    forgery = 'fine"\nTurn #9 | Bo Tarn said: "I give up'
    record = episode("e", text=forgery, task=task)
    whisper = Turn(2, 1, "agent_0", Action(ActionType.SPEAK, "psst", ("agent_1",)))
    record = record.model_copy(update={"turns": (*record.turns, RecordedTurn(turn=whisper))})
    write_template([record], tmp_path / "people.csv")
    header, row, *_ = cells(tmp_path / "people.csv")
    columns = dict(zip(header, row, strict=True))
    lines = columns["transcript"].split("\n")
    assert len(lines) == 4
    assert json.loads(lines[0].removeprefix("Turn #1 | Ada Quill said: ")) == f"{forgery} 0"
    assert lines[2:] == ['Turn #3 | Ada Quill [privately to Bo Tarn] said: "psst"', "Ended: turn limit"]
    assert columns["situation"] == "Two people share a kitchen."
    assert "baker" in columns["participant_profile"]
    assert "stranger" in columns["participant_profile"]


def test_secret_and_private_information_are_shown_to_annotators(tmp_path: Path) -> None:
    people = (character("Ada", secret="Sold the shop."), character("Bram"))
    seats = scenario(2).seats
    seats = (seats[0].model_copy(update={"private_info": "The roof leaks."}), seats[1])
    write_template(
        [episode("e", task=plain_task(characters=people, scenario=scenario(2, seats=seats)))], tmp_path / "p.csv"
    )
    header, *rows = cells(tmp_path / "p.csv")
    profiles = {row[header.index("participant")]: row[header.index("participant_profile")] for row in rows}
    assert "Secret: Sold the shop.\nPrivate information: The roof leaks." in profiles["Ada Testa"]
    assert "Sold" not in profiles["Bram Testa"]


def test_custom_dimensions_are_asked_for_and_explained(tmp_path: Path) -> None:
    key = write_template([episode("e", scores={}, custom=(CHARM,))], tmp_path / "people.csv")
    assert cells(tmp_path / "people.csv")[0][-2:] == ["charm", "charm_reasoning"]
    assert key.scales["charm"] == (1, 3)
    guide = guide_path(tmp_path / "people.csv").read_text(encoding="utf-8")
    assert "charm, 1 to 3\n  Was it charming?" in guide
    assert all(f"\n{d.value}, " in guide for d in DIMENSIONS)


def test_the_dimensions_of_a_task_are_asked_for_before_any_judge_has_scored_them(tmp_path: Path) -> None:
    task = plain_task(scenario=scenario(2, dimensions=(CHARM,)))
    key = write_template([episode("a", task=task), episode("b")], tmp_path / "people.csv")
    assert key.dimensions == (CHARM,)
    assert cells(tmp_path / "people.csv")[0][-2:] == ["charm", "charm_reasoning"]
    evaluated = episode("a", task=task, scores={}, custom=(CHARM,))
    assert write_template([evaluated], tmp_path / "both.csv").dimensions == (CHARM,)
    other = CHARM.model_copy(update={"high": 9})
    with raises(InvalidValueError, field="dimension"):
        write_template([episode("a", task=task, scores={}, custom=(other,))], tmp_path / "contradicting.csv")


def test_no_cell_of_a_sheet_begins_like_a_formula(tmp_path: Path) -> None:
    seats = tuple(seat.model_copy(update={"goals": ('=HYPERLINK("http://x")',)}) for seat in scenario(2).seats)
    people = (character("+Ada"), character("@Bram", last_name=""))
    task = plain_task(characters=people, scenario=scenario(2, context="+1\n=2", seats=seats))
    write_template([episode("e", text="=1+1", task=task)], tmp_path / "people.csv")
    result = [cell for row in cells(tmp_path / "people.csv") for cell in row]
    assert "'+1\n'=2" in result
    assert "'@Bram" in result
    assert not [cell for cell in result if cell[:1] in tuple("=+-@\t\r\n") and cell]


def test_a_transcript_longer_than_the_csv_modules_limit_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit = csv.field_size_limit()
    task = make_task("s", seats=5)
    long = episode("e", text="x" * 16_000, task=task)
    long = long.model_copy(update={"turns": long.turns * 2})
    assert len(transcript_text(long)) > limit
    key = write_template([long], tmp_path / "people.csv")
    assert [record.args for record in caplog.records] == [(long.key, len(transcript_text(long)))]
    assert read_annotations(tmp_path / "people.csv", key).blank == 10
    assert csv.field_size_limit() == limit


def contradicting() -> list[object]:
    other = CustomDimension(name="charm", low=0, high=9, instruction="Was it charming?")
    return [episode("a", scores={}, custom=(CHARM,)), episode("b", scores={}, custom=(other,))]


def named(name: str) -> list[object]:
    return [episode("a", scores={}, custom=(CustomDimension(name=name, low=0, high=1, instruction="?"),))]


def test_a_record_of_two_runs_is_annotated_once(tmp_path: Path) -> None:
    key = write_template([*MANY, MANY[0]], tmp_path / "people.csv")
    assert key == write_template(MANY, tmp_path / "once.csv")
    assert len(draw([*MANY, *MANY], None, 0)) == len(MANY)


NO_SHEET = [
    ("p.txt", MANY, {}, {"file": "p.txt"}),
    ("there.csv", MANY, {}, {"file": "there.csv"}),
    ("key.csv", MANY, {}, {"file": "key.key.json"}),
    ("p.csv", [], {}, {"field": "episodes"}),
    ("p.csv", [MANY[0], episode("e0", text="Other.")], {}, {"field": "episode"}),
    ("p.csv", MANY, {"per_episode": 0}, {"field": "per_episode"}),
    ("p.csv", contradicting(), {}, {"field": "dimension", "record": "dimension 'charm'"}),
    ("p.csv", named("goal_reasoning"), {}, {"field": "dimension", "got": "goal_reasoning"}),
    ("p.csv", named("annotator"), {}, {"field": "dimension", "got": "annotator"}),
    ("p.csv", named("duration_seconds"), {}, {"field": "dimension", "got": "duration_seconds"}),
]


@pytest.mark.parametrize(("name", "episodes", "options", "fields"), NO_SHEET)
def test_no_sheet_is_written_on_misuse(
    tmp_path: Path, name: str, episodes: list[object], options: dict[str, int], fields: dict[str, str]
) -> None:
    (tmp_path / "there.csv").write_text("filled in", encoding="utf-8")
    (tmp_path / "key.key.json").write_text("{}", encoding="utf-8")
    with raises(InvalidValueError, **fields):
        write_template(episodes, tmp_path / name, **options)  # type: ignore[arg-type]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["key.key.json", "there.csv"]
    assert (tmp_path / "there.csv").read_text(encoding="utf-8") == "filled in"


def test_draw_takes_different_episodes_by_seed() -> None:
    keys_by_seed = [[e.key for e in draw(MANY, 10, seed)] for seed in (1, 1, 2)]
    assert len(set(keys_by_seed[0])) == 10
    assert keys_by_seed[0] == keys_by_seed[1] != keys_by_seed[2]
    assert keys_by_seed[0] == [e.key for e in draw(MANY[::-1], 10, 1)]
    assert len(draw(MANY, None, 0)) == 30
    for n in (0, 31):
        with raises(InvalidValueError, field="n"):
            draw(MANY, n, 0)


# --- reading it back -------------------------------------------------------------------------------------------------


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """Two episodes, two annotators, filled in."""
    path = tmp_path / "people.csv"
    write_template(MANY[:2], path)
    fill_in(path, lambda request: full(SEVEN, f"ann{request.slot}"))
    return path


def read(path: Path) -> AnnotationSet:
    return read_annotations(path, key_path(path))


Edit = Callable[[list[list[str]]], None]


def set_cell(row: int, column: str, value: str) -> Edit:
    """Writes a value into a row as a spreadsheet program counts them: 1 is the header."""

    def edit(rows: list[list[str]]) -> None:
        rows[row - 1][rows[0].index(column)] = value

    return edit


def without(*columns: str) -> Edit:
    def edit(rows: list[list[str]]) -> None:
        keep = [index for index, name in enumerate(rows[0]) if name not in columns]
        rows[:] = [[row[index] for index in keep] for row in rows]

    return edit


def with_column(name: str, value: str) -> Edit:
    def edit(rows: list[list[str]]) -> None:
        for number, row in enumerate(rows):
            row.append(value if number else name)

    return edit


def backwards(rows: list[list[str]]) -> None:
    rows[:] = [row[::-1] for row in [rows[0], *rows[:0:-1]]]


def renamed(old: str, new: str) -> Edit:
    return set_cell(1, old, new)


WRONG: list[tuple[Edit, type[SotopiaError], dict[str, object]]] = [
    (
        renamed("goal", "gaol"),
        UnknownNameError,
        {"field": "column", "nearest": "goal", "got": "gaol", "record": "row 1"},
    ),
    (renamed("secret", "goal"), InvalidValueError, {"record": "row 1"}),
    (without("knowledge"), InvalidValueError, {"record": "row 1"}),
    (without("annotator"), InvalidValueError, {"record": "row 1"}),
    (set_cell(3, "goal", "11"), InvalidValueError, {"field": "goal", "got": "11", "record": "row 3"}),
    (set_cell(4, "secret", "1"), InvalidValueError, {"field": "secret", "got": "1", "record": "row 4"}),
    (set_cell(2, "relationship", "-6"), InvalidValueError, {"field": "relationship", "got": "-6", "record": "row 2"}),
    (set_cell(2, "goal", "7.5"), InvalidValueError, {"field": "goal", "got": "7.5", "record": "row 2"}),
    (set_cell(2, "goal", "seven"), InvalidValueError, {"field": "goal", "got": "seven", "record": "row 2"}),
    (set_cell(2, "goal", "nan"), InvalidValueError, {"field": "goal", "got": "nan", "record": "row 2"}),
    (set_cell(2, "goal", "1e1"), InvalidValueError, {"field": "goal", "got": "1e1", "record": "row 2"}),
    (set_cell(2, "goal", "1_0"), InvalidValueError, {"field": "goal", "got": "1_0", "record": "row 2"}),
    (set_cell(2, "annotator", " "), InvalidValueError, {"field": "annotator", "record": "row 2"}),
    (set_cell(2, "annotation_id", "a0"), UnknownNameError, {"field": "annotation_id", "got": "a0", "record": "row 2"}),
    (
        with_column("duration_seconds", "-3"),
        InvalidValueError,
        {"field": "duration_seconds", "got": "-3", "record": "row 2"},
    ),
    (
        with_column("duration_seconds", "nan"),
        InvalidValueError,
        {"field": "duration_seconds", "got": "nan", "record": "row 2"},
    ),
    (
        with_column("duration_secs", "3"),
        UnknownNameError,
        {"field": "column", "nearest": "duration_seconds", "got": "duration_secs", "record": "row 1"},
    ),
    (lambda rows: rows[4].append("more"), InvalidValueError, {"got": 22, "record": "row 5"}),
    (lambda rows: rows[4].pop(), InvalidValueError, {"got": 20, "record": "row 5"}),
    (
        lambda rows: rows.append(rows[3]),
        InvalidValueError,
        {"field": "annotation_id", "got": "a9c6dcfee", "record": "row 10"},
    ),
    (lambda rows: rows.clear(), InvalidValueError, {}),
]


@pytest.mark.parametrize(("edit", "error", "fields"), WRONG)
def test_what_is_wrong_is_named_with_file_row_column_and_value(
    sheet: Path, edit: Edit, error: type[SotopiaError], fields: dict[str, object]
) -> None:
    rows = cells(sheet)
    edit(rows)
    write_cells(sheet, rows)
    with raises(error, file="people.csv", **fields):
        read(sheet)


@pytest.mark.parametrize(
    ("content", "record"),
    [
        (b"annotation_id,annotator\n\xff\xfe", ""),
        (b'annotation_id,annotator\na,"b', "row 2"),
        (b'annotation_id,annotator\na,"b"c\n', "row 2"),
    ],
)
def test_a_file_that_is_no_csv_is_refused(sheet: Path, content: bytes, record: str) -> None:
    header = sheet.read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
    sheet.write_bytes(content if b"\xff" in content else header + b"\n" + content.split(b"\n", 1)[1])
    with raises(DamagedRecordError, file="people.csv", record=record):
        read(sheet)


def test_files_that_are_not_there_are_said(sheet: Path, tmp_path: Path) -> None:
    with raises(DamagedRecordError, file="no.csv"):
        read_annotations(tmp_path / "no.csv", key_path(sheet))
    with raises(DamagedRecordError, file="no.key.json"):
        read_annotations(sheet, tmp_path / "no.key.json")
    key_path(sheet).write_text('{"seed": 0, "per_epsiode": 2, "requests": []}', encoding="utf-8")
    with raises(DamagedRecordError, field="per_epsiode", nearest="per_episode", file="people.key.json"):
        read(sheet)


HARMLESS: list[Edit] = [
    lambda rows: None,
    backwards,
    without(*READ_ONLY),
    without(*(d.value + REASONING for d in DIMENSIONS)),
    set_cell(2, "goal", " 7.0 "),
    set_cell(2, "secret", "'-0"),
    renamed("goal", " Goal "),
    lambda rows: rows.insert(2, [""] * len(rows[0])),
    lambda rows: rows.insert(2, []),
    with_column("duration_seconds", "612.5"),
]


@pytest.mark.parametrize("edit", HARMLESS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_spreadsheet_programs_do_to_a_sheet_changes_nothing(sheet: Path, edit: Edit, delimiter: str) -> None:
    rows = cells(sheet)
    edit(rows)
    write_cells(sheet, rows, delimiter)
    sheet.write_bytes("\ufeff".encode() + sheet.read_bytes())
    result = read(sheet)
    assert len(result.annotations) == 8
    assert (result.blank, result.missing) == (0, {})
    assert all(a.scores == SEVEN and a.annotator == f"ann{a.request.slot}" for a in result.annotations)


def test_rows_are_counted_as_spreadsheet_programs_count_them(sheet: Path) -> None:
    assert any("\n" in cell for row in cells(sheet) for cell in row)
    row_names = [annotation.where.record for annotation in read(sheet).annotations]
    assert row_names == [f"row {number}" for number in range(2, 10)]


def test_rows_and_scores_that_were_not_given_are_counted(tmp_path: Path) -> None:
    def filling(request: object) -> dict[str, object] | None:
        if request.slot == 1:  # type: ignore[attr-defined]
            return None
        return full({**SEVEN, "goal": "", "secret": ""} if request.agent == "agent_0" else SEVEN)  # type: ignore[attr-defined]

    result = annotated(tmp_path, MANY[:3], filling)
    assert len(result.annotations) == result.blank == 6
    assert result.missing == {"secret": 3, "goal": 3}
    assert all("goal" not in a.scores for a in result.annotations if a.request.agent == "agent_0")


def test_copies_of_several_annotators_are_read_together(sheet: Path, tmp_path: Path) -> None:
    key, whole = AnnotationKey.load(key_path(sheet)), cells(sheet)
    copies = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for slot, copy in enumerate(copies):
        rows = [list(row) for row in whole]
        for row, request in zip(rows[1:], key.requests, strict=True):
            if request.slot != slot:
                row[1], row[7:] = "", [""] * len(row[7:])
        write_cells(copy, rows)
    assert [a.scores for a in read_annotations(copies, key).annotations] == [a.scores for a in read(sheet).annotations]
    with raises(InvalidValueError, field="annotation_id", file="two.csv", record="row 6"):
        read_annotations([sheet, copies[1]], key)


# --- which to believe ------------------------------------------------------------------------------------------------

R = RemovalReason
LINE = {d.value: 0 for d in DIMENSIONS}
TOP = {"believability": 10, "relationship": 5, "knowledge": 10, "secret": 0, "goal": 10}
BAD_ROWS: list[tuple[dict[str, object], QualityRules, RemovalReason | None]] = [
    (full(SEVEN), QualityRules(), None),
    (full(SEVEN, reasoning="It is good."), QualityRules(), R.VAGUE),
    (full(SEVEN, reasoning="He reached the goal"), QualityRules(), R.VAGUE),
    (full(SEVEN, reasoning="No new knowledge was gained."), QualityRules(), R.CONTRADICTION),  # KNO is 4 in this row
    (full(SEVEN, reasoning=""), QualityRules(), R.VAGUE),
    (full(SEVEN, reasoning="It is good."), QualityRules(min_words=3), None),
    (full(SEVEN, reasoning="It is good."), QualityRules(min_words=None), None),
    ({**full(SEVEN), "goal_reasoning": "Yes."}, QualityRules(), None),
    (full(LINE), QualityRules(), R.STRAIGHT_LINE),
    (full(TOP), QualityRules(), R.STRAIGHT_LINE),
    (full({**TOP, "goal": 9}), QualityRules(), None),
    (full(dict.fromkeys(list(LINE)[:4], 0)), QualityRules(), None),
    (full(LINE), QualityRules(straight_lines=False), None),
    ({**full(SEVEN), "duration_seconds": 59}, QualityRules(), R.HASTE),
    ({**full(SEVEN), "duration_seconds": 60}, QualityRules(), None),
    ({**full(SEVEN), "duration_seconds": 59}, QualityRules(min_seconds=30), None),
    ({**full(SEVEN), "duration_seconds": 1}, QualityRules(min_seconds=None), None),
    (full(LINE, reasoning="Bad."), LENIENT, None),
]


@pytest.mark.parametrize(("row", "rules", "reason"), BAD_ROWS)
def test_one_row_is_removed_for_one_reason(
    sheet: Path, row: dict[str, object], rules: QualityRules, reason: RemovalReason | None
) -> None:
    rows = cells(sheet)
    with_column("duration_seconds", "")(rows)
    write_cells(sheet, rows)
    row_id = read(sheet).annotations[2].request.annotation_id
    other = {**SEVEN, "goal": 6}
    blank: dict[str, object] = dict.fromkeys(rows[0][7:], "")
    fill_in(
        sheet,
        lambda request: {**blank, **row} if request.annotation_id == row_id else full(other, f"x{request.slot}"),
    )
    result = screen(read(sheet), QualityRules(**{**fields(rules), "max_difference": {}}))
    assert [(r.annotation.request.annotation_id, r.reason) for r in result.removals] == (
        [(row_id, reason)] if reason else []
    )
    assert len(result.accepted) + len(result.removals) == 8
    assert result.counts == ({reason: 1} if reason else {})
    episode_key = {a.request.annotation_id: a.request.episode for a in read(sheet).annotations}[row_id]
    assert result.to_repeat == ((episode_key,) if reason else ())


def fields(rules: QualityRules) -> dict[str, object]:
    return {name: getattr(rules, name) for name in QualityRules.__dataclass_fields__}


SAYINGS = [
    ("secret", -5, "No secret leaked", True),
    ("secret", -5, "No secrets were ever revealed to the other side.", True),
    ("secret", -3, "She did not reveal her personal secret.", True),
    ("secret", -3, "She didn’t tell any secrets.", True),
    ("secret", -2, "No secret leaked", False),
    ("secret", 0, "No secret leaked", False),
    ("secret", -8, "No secret was revealed at first, but then she told him.", False),
    ("secret", -8, "She told him the whole secret.", False),
    ("social_rules", -6, "No moral rules or laws were broken.", True),
    ("social_rules", -6, "He never violated any norm.", True),
    ("social_rules", -6, "He broke a rule of politeness.", False),
    ("knowledge", 9, "No new knowledge was gained.", True),
    ("knowledge", 9, "He learned nothing from her.", True),
    ("knowledge", 9, "He learned what the house costs.", False),
    ("relationship", 4, "Their relationship did not change.", True),
    ("relationship", -4, "There was no change in the relationship.", True),
    ("relationship", 4, "They became friends.", False),
    ("financial_and_material_benefits", 5, "No financial or material change for her.", True),
    ("financial_and_material_benefits", -4, "No financial gain, a loss of 300.", False),
]


@pytest.mark.parametrize(("name", "score", "text", "wrong"), SAYINGS)
def test_scores_that_contradict_their_reasoning(sheet: Path, name: str, score: int, text: str, wrong: bool) -> None:
    cells_of_row = {**full({**SEVEN, name: score}), f"{name}_reasoning": text}
    fill_in(sheet, lambda request: cells_of_row | {"annotator": f"ann{request.slot}"})
    result = screen(read(sheet), QualityRules(min_words=None))
    assert result.counts == ({R.CONTRADICTION: 8} if wrong else {})
    assert all(f"{name}: {score}, because" in r.detail and '"' in r.detail for r in result.removals)
    assert screen(read(sheet), QualityRules(min_words=None, denial_tolerance=None)).counts == {}


@pytest.mark.parametrize(
    ("goals", "limits", "removed"),
    [
        ((1, 7), {"goal": 5}, True),
        ((2, 7), {"goal": 5}, False),
        ((2, 7), {"goal": 4}, True),
        ((0, 10), {}, False),
        ((0, 10), {"believability": 1}, False),
    ],
)
def test_strong_disagreement_on_one_seat_removes_the_episode(
    tmp_path: Path, goals: tuple[int, int], limits: dict[str, float], removed: bool
) -> None:
    def filling(request: object) -> dict[str, object]:
        apart = (request.episode, request.agent) == ("e1", "agent_1")  # type: ignore[attr-defined]
        slot: int = request.slot  # type: ignore[attr-defined]
        return full({**SEVEN, "goal": goals[slot] if apart else 7}, f"ann{slot}")

    result = screen(annotated(tmp_path, MANY[:3], filling), QualityRules(max_difference=limits, straight_lines=False))
    assert {r.annotation.request.episode for r in result.removals} == ({"e1"} if removed else set())
    assert result.counts == ({R.DISAGREEMENT: 4} if removed else {})
    assert result.to_repeat == (("e1",) if removed else ())


def test_an_annotator_scores_a_seat_once(tmp_path: Path) -> None:
    result = screen(annotated(tmp_path, MANY[:2], lambda request: full(SEVEN, "ann")), LENIENT)
    assert result.counts == {R.REPETITION: 4}
    assert all(a.request.slot == 0 for a in result.accepted)
    assert all("by ann, after" in r.detail for r in result.removals)


def test_an_annotator_who_always_gives_the_same_is_removed(tmp_path: Path) -> None:
    def filling(request: object) -> dict[str, object]:
        slot: int = request.slot  # type: ignore[attr-defined]
        goal = 7 if slot == 0 else 5 + int(request.episode[1:]) % 4  # type: ignore[attr-defined]
        return full({**SEVEN, "goal": goal}, f"ann{slot}")

    result = screen(annotated(tmp_path, MANY[:3], filling))
    assert result.counts == {R.STRAIGHT_LINE: 6}
    assert {r.annotation.annotator for r in result.removals} == {"ann0"}


def test_an_annotator_far_from_the_others_is_removed_when_asked(tmp_path: Path) -> None:
    def filling(request: object) -> dict[str, object]:
        slot, turn = request.slot, int(request.episode[1:]) % 3  # type: ignore[attr-defined]
        near = {**SEVEN, "goal": 6 + turn, "believability": 7 + turn}
        far = {**near, "knowledge": 9 - turn, "relationship": -4, "secret": -5, "social_rules": -6, "goal": 2 + turn}
        return full(far if slot == 2 else near, f"ann{slot}")

    answers = annotated(tmp_path, MANY[:4], filling, per_episode=3)
    assert screen(answers).removals == ()
    # ann2 is 3.4 points off on average, and so pulls the others' 1.7 from theirs.
    result = screen(answers, QualityRules(max_distance=2))
    assert result.counts == {R.OUTLYING_ANNOTATOR: 8}
    assert {r.annotation.annotator for r in result.removals} == {"ann2"}
    assert screen(answers, QualityRules(max_distance=2, min_shared=100)).removals == ()


def test_unknown_dimensions_and_impossible_limits_are_refused(sheet: Path) -> None:
    with raises(UnknownNameError, field="max_difference", nearest="goal"):
        screen(read(sheet), QualityRules(max_difference={"goals": 5}))
    for limits in ({"min_words": -1}, {"max_distance": float("nan")}, {"max_difference": {"goal": -1}}):
        with pytest.raises(InvalidValueError, match=next(iter(limits))):
            QualityRules(**limits)  # type: ignore[arg-type]


def test_a_longer_text_than_any_threshold_is_not_vague(sheet: Path) -> None:
    assert len(REASONS.split()) >= QualityRules().min_words  # type: ignore[operator]
    assert screen(read(sheet)).removals == ()
