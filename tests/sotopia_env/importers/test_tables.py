"""CSV and Parquet files of people, tasks and rows."""

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.foundation.extras import MissingExtraError
from sotopia_env.importers import tables
from sotopia_env.importers.importing import import_files
from sotopia_env.world import TaskSet
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import Cast
from tests.errors import raises

TRAITS = "openness;conscientiousness;extraversion;agreeableness;neuroticism"
PEOPLE = f"""Name;Age;gender;pronouns;occupation;secret;{TRAITS};Shoe size
Ada Lund;34;woman;she/her;baker;;high;low;low;high;low;38
"Bo
Moss";;;;clerk;hides;;;;;;
"""
TASKS = """\ufeffid,context,goal_0,goal_1,private_info_1,character_0,character_1,relationship
umbrella,"Rain, one umbrella.",Keep it.,Borrow it.,You have a cold.,Ada Lund,Bo Moss,friend

lift,A lift stands still.,Get out.,Stay calm.,,,,
"""


def save(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_people_and_tasks_are_imported_from_tables(tmp_path):
    files = [save(tmp_path / "tasks.csv", TASKS), save(tmp_path / "people.csv", PEOPLE.replace("Bo\nMoss", "Bo Moss"))]
    report = import_files(files, tmp_path / "out")
    assert [(count.format, count.converted) for count in report.counts] == [("people", 2), ("situations", 2)]
    ada, bo = Cast.model_validate_json((tmp_path / "out" / "cast.json").read_text()).characters
    assert (ada.age, ada.pronouns, ada.big_five.openness, ada.private_attributes) == (
        34,
        "she/her",
        "high",
        {"shoe size": "38"},
    )
    assert (bo.age, bo.secret, bo.big_five) == (None, "hides", None)
    (task,) = TaskSet.load(tmp_path / "out" / "tasks.jsonl")
    assert [person.name for person in task.characters] == ["Ada Lund", "Bo Moss"]
    assert task.relationships[0].kind is RelationshipKind.FRIEND
    assert task.scenario.seats[1].private_info == "You have a cold."
    assert "lift" in (tmp_path / "out" / "scenarios.jsonl").read_text()


def test_the_tables_of_the_page_are_imported(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    texts = [part.partition("```")[0] for part in page.split("```csv\n")[1:]]
    files = [save(tmp_path / f"{number}.csv", text) for number, text in enumerate(texts)]
    report = import_files(files, tmp_path / "out")
    assert [count.format for count in report.counts] == ["people", "situations"]
    assert len(TaskSet.load(tmp_path / "out" / "tasks.jsonl")) == 1


def test_a_parquet_file_has_the_same_records_as_json(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}], "n": 0.5},
        {"messages": [{"role": "user", "content": "Bye."}, {"role": "assistant", "content": "So long."}], "n": None},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    save(tmp_path / "rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    results = []
    for name in ("rows.parquet", "rows.jsonl"):
        import_files([tmp_path / name], tmp_path / name.replace(".", "-"))
        results.append((tmp_path / name.replace(".", "-") / "rows.jsonl").read_bytes())
    assert results[0] == results[1]
    assert len(results[0].splitlines()) == 2


def test_three_seats_and_training_rows_are_tables_too(tmp_path):
    tasks = save(tmp_path / "tasks.csv", "Context,Goal 0,Goal 1,Goal 2,Private info 2\nA lift stands.,a,b,c,d\n")
    rows = save(tmp_path / "rows.tsv", 'prompt\tcompletion\tvalue\nWell?\tYes, "sir".\t0.5\n')
    report = import_files([tasks, rows], tmp_path / "out")
    assert [count.format for count in report.counts] == ["situations", "completion-rows"]
    scenario = json.loads((tmp_path / "out" / "scenarios.jsonl").read_text())
    assert [seat["goals"] for seat in scenario["seats"]] == [["a"], ["b"], ["c"]]
    assert scenario["seats"][2]["private_info"] == "d"
    row = json.loads((tmp_path / "out" / "rows.jsonl").read_text())
    assert (row["completion"][0]["content"], row["value"]) == ('Yes, "sir".', 0.5)


def test_a_row_that_cannot_be_read_is_left_out_on_request(tmp_path):
    path = save(tmp_path / "people.csv", "name,age\nAda,34\nBo,old\nCy,1,2\nDan,20\n")
    with raises(DamagedRecordError, file="people.csv", line=3, field="age"):
        import_files([path], tmp_path / "out")
    report = import_files([path], tmp_path / "out", keep_going=True)
    assert (report.counts[0].converted, report.counts[0].left_out) == (2, 2)


def test_a_formula_is_text_and_noted(tmp_path):
    path = save(tmp_path / "people.csv", 'name,age,secret\nAda,34,"=HYPERLINK(""x"")"\nBo,34,\'=plain\n')
    report = import_files([path], tmp_path / "out")
    people = Cast.model_validate_json((tmp_path / "out" / "cast.json").read_text()).characters
    # The apostrophe is the guard that every CSV file of ours has.
    assert [person.secret for person in people] == ['=HYPERLINK("x")', "=plain"]
    assert ["formula" in note.reason for note in report.counts[0].notes] == [True]


BAD = {
    "two columns of one name": ("name,name\nAda,34\n", {"line": 1, "field": "name"}),
    "no header": ("\nAda,34\n", {"line": 1}),
    "an open quote": ('name,age\n"Ada,34\n', {"line": 2}),
    "a huge cell": (f"name,age\n{'x' * 200_000},3\n", {"line": 2}),
    "a misspelt column": ("context,goal_0,goal_1,privat_info_0\na,b,c,d\n", {"field": "privat_info_0"}),
    "an unknown person": ("context,goal_0,goal_1,character_0,character_1\na,b,c,Ada,Bo\n", {"field": "character_0"}),
    "an unknown relationship": ("context,goal_0,goal_1,relationship\na,b,c,frend\n", {"nearest": "friend"}),
    "another table": ("colour,size\nred,3\n", {"line": 2}),
}


@pytest.mark.parametrize(("text", "fields"), BAD.values(), ids=BAD)
def test_what_is_wrong_with_a_table_is_one_sentence(tmp_path, text, fields):
    path = save(tmp_path / "table.csv", text)
    with raises(DamagedRecordError, file="table.csv", **fields):
        import_files([path], tmp_path / "out")


def test_text_of_another_encoding_is_one_sentence(tmp_path):
    (tmp_path / "people.csv").write_bytes("name,age\nJosé,34\n".encode("cp1252"))
    with raises(DamagedRecordError, file="people.csv", expected="UTF-8 text"):
        import_files([tmp_path / "people.csv"], tmp_path / "out")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:60] + data[80:], lambda data: data.replace(b"Hello", b"\xff\xfe\xfd\xfc\xfb")]
)
def test_a_damaged_parquet_file_is_one_sentence(tmp_path, damage):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"input": ["Hello"], "output": ["Hi."]}), path, compression="none")
    path.write_bytes(damage(path.read_bytes()))
    with raises(DamagedRecordError, file="a.parquet"):
        import_files([path], tmp_path / "out")


def test_a_parquet_file_that_inflates_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST_BYTES", 100_000)
    table = pyarrow.table({"input": ["a" * 1_000_000], "output": ["b"]})
    parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with raises(DamagedRecordError, file="a.parquet"):
        import_files([tmp_path / "a.parquet"], tmp_path / "out")


def test_the_extra_is_named_where_pyarrow_is_missing(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="train"):
        import_files([tmp_path / "a.parquet"], tmp_path / "out")
