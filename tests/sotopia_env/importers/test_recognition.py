"""A file is read as the format that it has and as no other, and what cannot be read is named in one sentence."""

import functools
import gzip
import itertools
import json
import pickle
import random
import zipfile
from typing import Any

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers import reading
from sotopia_env.importers.importing import import_files
from sotopia_env.importers.kinds import KINDS
from sotopia_env.importers.registry import BUILT_IN, formats
from tests.errors import raises
from tests.sotopia_env.importers.samples import OTHERS, SAMPLES, detected, misreadings, outcome


@pytest.fixture
def write(tmp_path):
    """Writes a value into a file of its own."""

    numbers = itertools.count()

    def write_value(value):
        path = tmp_path / f"{next(numbers)}.{'txt' if isinstance(value, str) else 'json'}"
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


JUNK: list[Any] = [
    None,
    True,
    -1,
    1e308,
    "",
    "nan",
    "[(1, 2)]",
    "agent_0",
    "a\0b",
    [],
    {},
    [[]],
    {"a": {"b": [1]}},
    10**30,
]


def value_paths(value, path=()):
    """The paths of all values inside a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from value_paths(entry, (*path, key))


def damaged(value, generator):
    """A copy of a sample in which one value is missing or another one."""
    copy = json.loads(json.dumps(value))
    *path, last = generator.choice(list(value_paths(copy)))
    parent = functools.reduce(lambda entry, key: entry[key], path, copy)
    if generator.random() < 0.3:
        del parent[last]
    else:
        parent[last] = json.loads(json.dumps(generator.choice(JUNK)))
    return copy


def test_a_damaged_record_is_read_or_refused_in_one_sentence(write):
    generator = random.Random(43)
    samples = [(name, value) for name, values in SAMPLES.items() for value in values if not isinstance(value, str)]
    for name, value in generator.choices(samples, k=400):
        path = write(damaged(value, generator))
        for format in (None, name, generator.choice(list(SAMPLES))):
            outcome(path, format)  # fails with any exception that is not a sentence


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
    "Redis": lambda path: path.write_bytes(b"REDIS0011\xfa\tredis-ver"),
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


BLOCK = "x" * 200
LARGE = {
    "a.json": json.dumps({"first_name": BLOCK, "age": 3}, indent=1),
    "a.yaml": f"- first_name: {BLOCK}\n",
    "a.jsonl": f"{BLOCK}{BLOCK}\n",
}


@pytest.mark.parametrize(("name", "text"), LARGE.items(), ids=LARGE)
def test_what_is_read_as_a_whole_has_a_bound(tmp_path, monkeypatch, name, text):
    monkeypatch.setattr(reading, "LARGEST_DOCUMENT", 100)
    (tmp_path / name).write_text(text)
    with raises(DamagedRecordError, file=name) as caught:
        import_files([tmp_path / name], tmp_path / "out")
    assert "at most" in caught.value.expected


def test_a_toml_file_is_named_by_its_suffix(tmp_path):
    path = tmp_path / "nodes.toml"
    path.write_text('redis_url = "redis://localhost"\n')
    with raises(DamagedRecordError, problem="this is a TOML file"):
        import_files([path], tmp_path / "out")


def test_no_mark_hides_behind_an_earlier_one():
    for number, kind in enumerate(KINDS):
        head = bytes(kind.start) + kind.mark
        assert not any(earlier.matches(head) for earlier in KINDS[:number])
