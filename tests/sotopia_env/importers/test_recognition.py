"""A file is read as the format that it has and as no other, and what cannot be read is named in one sentence."""

import gzip
import json
import pickle
import zipfile

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.importing import import_files
from sotopia_env.importers.kinds import KINDS
from sotopia_env.importers.registry import BUILT_IN, formats
from tests.errors import raises
from tests.sotopia_env.importers.samples import OTHERS, SAMPLES, detected, misreadings, outcome


@pytest.fixture
def write(tmp_path):
    """Writes a value into a file of its own."""

    def write_value(value):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{'txt' if isinstance(value, str) else 'json'}"
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    return write_value


def test_every_format_has_a_sample_and_is_recognised_by_it(write):
    assert SAMPLES.keys() == {name for name, format in formats().items() if format in BUILT_IN}
    for name, values in SAMPLES.items():
        assert [detected(write(value)) for value in values] == [name] * len(values)


def test_no_format_reads_the_samples_of_another(write):
    assert misreadings(write, SAMPLES, SAMPLES) == []


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_what_has_no_format_is_one_sentence_under_every_name(write, value):
    path = write(value)
    # An object of lists of texts is a split if its author says so: only ids of the reference code are recognised.
    names = [None, *(name for name in SAMPLES if (name, value) != ("sotopia-splits", OTHERS[0]))]
    assert [name for name in names if not outcome(path, name)[0]] == []


def test_the_sentence_names_the_nearest_formats_and_what_is_missing(write):
    sentence, _ = outcome(write({"episode_id": "E", "scenario": "A lift.", "agent": "Ann"}))
    assert "sotopia-rl-annotated also needs goal and attributed_utterances" in sentence


def test_a_named_format_does_not_leave_out_what_another_one_reads(write):
    row = {"instruction": "Say it.", "input": "Now.", "output": "It."}
    with raises(DamagedRecordError, field="format", got="sotopia-rl-rows"):
        import_files([write([row])], write("").parent / "out", format="sotopia-rl-rows")


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", "[]")


FILES = {
    "gzip": lambda path: path.write_bytes(gzip.compress(b"[]")),
    "zip": zipped,
    "pickle": lambda path: path.write_bytes(pickle.dumps([1])),
    "PDF": lambda path: path.write_bytes(b"%PDF-1.7\n"),
    "JPEG": lambda path: path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(20)),
    "UTF-16": lambda path: path.write_bytes("[]".encode("utf-16")),
    "web page": lambda path: path.write_text("\n<!DOCTYPE html><html></html>"),
    "Git LFS": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
}


@pytest.mark.parametrize(("kind", "file"), FILES.items(), ids=FILES)
def test_a_kind_of_file_that_cannot_be_read_is_named(tmp_path, kind, file):
    path = tmp_path / "data.json"
    file(path)
    with raises(DamagedRecordError, file="data.json") as caught:
        import_files([path], tmp_path / "out")
    assert kind in caught.value.problem
    assert caught.value.hint


def test_no_mark_hides_behind_an_earlier_one():
    for number, kind in enumerate(KINDS):
        head = bytes(kind.start) + kind.mark
        assert not any(earlier.matches(head) for earlier in KINDS[:number])
