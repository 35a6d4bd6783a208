"""``sotopia import`` and ``sotopia export`` as a user meets them, and what imports are good for."""

import errno
import hashlib
import json
import tracemalloc

import pytest

from sotopia_env.importers.importing import import_files
from sotopia_env.storage import read_run
from sotopia_env.storage.manifest import read_manifest
from tests.sotopia_env.cli.test_cli import sotopia
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import write
from tests.sotopia_env.people.test_human_agreement import fill_in, full


@pytest.fixture
def lines(tmp_path):
    """Published lines of eight episodes, one of them without scores."""
    entries = [records.line(episode_id=f"E-{n}", environment_id=f"env-{n}") for n in range(7)]
    bare = records.line(episode_id="E-7", rewards=[0.0, 0.0], raw_rewards=[0.0, 0.0])
    return write(tmp_path / "episodes.jsonl", [*entries, bare])


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_an_import_is_a_run_and_is_written_again(tmp_path, lines):
    out = tmp_path / "run"
    text = sotopia("import", lines, "-o", out).output
    assert f"{lines}: sotopia-episodes; 8 read, 8 converted, 0 refused" in text
    assert read_manifest(out).counts.unscored == 1
    table = sotopia("compare", out, "--evaluator", "imported:gpt-4").output
    assert "1 episodes unscored" in table
    sotopia("export", out, "-o", tmp_path / "back.jsonl")
    back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    names = ("episode_id", "environment_id", "agent_ids", "experiment_model_name_pairs", "social_interactions")
    expected = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [[entry[name] for name in names] for entry in back] == [[e[name] for name in names] for e in expected]
    assert [entry["rewards"] for entry in back[:-1]] == [entry["rewards"] for entry in expected[:-1]]
    sotopia("import", tmp_path / "back.jsonl", "-o", tmp_path / "again")
    turns = [[episode.turns for episode in read_run(folder)] for folder in (out, tmp_path / "again")]
    assert turns[0] == turns[1]


def test_records_with_the_origin_of_an_earlier_version_are_read(tmp_path, lines):
    run = tmp_path / "run"
    sotopia("import", lines, "-o", run)
    before = list(read_run(run))

    def with_origins(value):
        if isinstance(value, list):
            return [with_origins(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        is_record = {"first_name", "scenario", "kind", "context", "task"} & value.keys()
        own = {"origin": '{"fields": {}}'} if is_record else {}
        return {name: with_origins(entry) for name, entry in value.items()} | own

    old = [json.dumps(with_origins(json.loads(line))) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert all(line.count('"origin"') >= 5 for line in old)
    damaged(run, "episodes.jsonl", "".join(f"{line}\n" for line in old))
    assert list(read_run(run)) == before


def test_the_same_files_give_the_same_bytes(tmp_path, lines):
    sotopia("import", lines, "-o", tmp_path / "one")
    first = digests(tmp_path / "one")
    sotopia("import", lines, "-o", tmp_path / "one")
    sotopia("import", lines, "-o", tmp_path / "other")
    assert digests(tmp_path / "one") == first == digests(tmp_path / "other")


def test_people_can_be_asked_about_imported_episodes(tmp_path, lines):
    run, sheet = tmp_path / "run", tmp_path / "people.csv"
    sotopia("import", lines, "-o", run)
    sotopia("annotation-template", run, "-n", 4, "--out", sheet)
    scores = {name: value for name, value in records.SCORES.items() if name != "overall_score"}
    fill_in(sheet, lambda request: full({**scores, "goal": 3 + request.slot}, f"ann{request.slot}", "Fine."))
    text = sotopia("judge-agreement", run, "--human", sheet, "--no-filters").output
    assert "imported:gpt-4" in text


def test_refused_records_are_listed_and_the_others_imported(tmp_path):
    entries = [records.log(), records.log(pk="2", rewards=[1]), {"pk": 3}]
    path = write(tmp_path / "logs.jsonl", entries)
    text = sotopia("import", path, "-o", tmp_path / "out", code=2).output
    assert f"{path}, line 2" in text
    assert not (tmp_path / "out").exists()
    bad = write(tmp_path / "bad.jsonl", entries[1:])
    text = sotopia("import", bad, "-o", tmp_path / "out", "--keep-going", code=2).output
    assert f"{bad}, line 1" in text
    text = sotopia("import", path, "-o", tmp_path / "out", "--keep-going", code=1).output
    assert "3 read, 1 converted, 2 refused" in text
    assert f"{path}, line 3" in text
    report = json.loads((tmp_path / "out" / "import.json").read_text())
    assert [entry["where"].rpartition(" ")[2] for entry in report["files"][0]["refused"]] == ["2", "3"]


def test_an_import_replaces_only_what_an_import_wrote(tmp_path, lines):
    out = tmp_path / "run"
    sotopia("import", lines, "-o", out)
    sotopia("evaluate", out, "--evaluator", "sotopia_env.testing:FixedEvaluator")
    before = digests(out)
    assert "was changed after the import" in sotopia("import", lines, "-o", out, code=2).output
    assert digests(out) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "episodes.jsonl").write_text("mine\n")
    assert "import" in sotopia("import", lines, "-o", other, code=2).output
    assert (other / "episodes.jsonl").read_text() == "mine\n"


def damaged(run, name, text):
    (run / name).write_text(text)
    return run


DAMAGED = [
    (lambda run: damaged(run, "import.json", "[1]"), "out.jsonl", "import.json"),
    (
        lambda run: damaged(run, "import.json", '{"files": 3, "sha256": {}}'),
        "out.jsonl",
        "files: ",
    ),
    (lambda run: run, "folder.jsonl", "folder.jsonl"),
    (lambda run: run, "episodes.jsonl/x.jsonl", "x.jsonl"),
    (lambda run: run, "run/episodes.jsonl", "run/episodes.jsonl"),
]


@pytest.mark.parametrize(("damage", "file", "sentence"), DAMAGED, ids=range(len(DAMAGED)))
def test_an_export_that_fails_is_one_sentence_and_changes_nothing(tmp_path, lines, damage, file, sentence):
    run = tmp_path / "run"
    sotopia("import", lines, "-o", run)
    (tmp_path / "folder.jsonl").mkdir()
    before = digests(damage(run))
    assert sentence in sotopia("export", run, "-o", tmp_path / file, code=2).output
    assert digests(run) == before
    assert not (tmp_path / "out.jsonl").exists()


def test_a_damaged_cast_is_one_sentence(tmp_path):
    cast = damaged(tmp_path, "cast.json", '{"characters": [{"first_name": 3}]}') / "cast.json"
    text = sotopia("export", cast, "--format", "sotopia-agents", "-o", tmp_path / "out.json", code=2).output
    assert "characters.0.first_name: " in text


def test_a_disk_that_is_full_leaves_nothing(tmp_path, lines, monkeypatch):
    def full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sotopia_env.importers.importing._FolderWriter.finish", full_disk)
    text = sotopia("import", lines, "-o", tmp_path / "new" / "run", code=2).output
    assert "run" in text
    assert not (tmp_path / "new").exists()


MISUSE = [
    (["import", "no.jsonl", "-o", "out"], "no.jsonl"),
    (["import", ".", "-o", "out"], "(.)"),
    (["import", "empty.jsonl", "-o", "out"], "empty.jsonl"),
    (["import", "logs.jsonl", "-o", "out", "--format", "sotopia-log"], "sotopia-logs"),
    (["import", "logs.jsonl"], "--out"),
    (["export", "logs.jsonl", "-o", "x.jsonl"], "logs.jsonl"),
    (["export", "logs.jsonl", "-o", "x.csv", "--format", "sotopia-logs"], "x.csv"),
    (["export", "none", "-o", "x.jsonl", "--format", "sotopia-logs"], "none"),
    (["export", "none", "-o", "x.jsonl", "--format", "sotopia-combos"], "none"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISUSE, ids=range(len(MISUSE)))
def test_misuse_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs.jsonl", [records.log()])
    (tmp_path / "empty.jsonl").write_text("\n")
    assert sentence in " ".join(sotopia(*arguments, code=2).output.replace("│", " ").split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "logs.jsonl"]


def test_without_files_the_formats_are_listed():
    text = sotopia("import").output
    assert "sotopia-episodes" in text
    assert "agentsense" in text


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(count):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(records.line(episode_id=str(n)))}\n" for n in range(count))
        tracemalloc.start()
        import_files([path], tmp_path / f"out{count}", progress=False)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(5)
    small, large = peak(20), peak(200)
    assert large < 1.3 * small
