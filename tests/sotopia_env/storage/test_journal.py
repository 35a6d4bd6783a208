"""The journal: what was appended is found again, whatever happened to the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.foundation.records import Record
from sotopia_env.storage import Journal
from tests.errors import raises

ROOT = Path(__file__).parents[3]


class Answer(Record):
    key: str
    text: str


def opened(path: Path) -> Journal[Answer]:
    return Journal(path, Answer, lambda answer: answer.key)


def append_for_ever(path: Path) -> None:
    """What the test kills: appends records of many lengths, and says which are there."""
    with opened(path) as journal:
        number = len(journal)
        while True:
            journal.append(Answer(key=f"k{number}", text="ä" * (number % 50)))
            print(number, flush=True)
            number += 1


def test_the_latest_record_of_a_key_counts_and_the_others_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "j") as journal:
        assert (journal.get("a"), journal.records("a"), len(journal), list(journal)) == (None, [], 0, [])
        for key, text in (("a", "one"), ("b", "zwei\n\u2028"), ("a", "three")):
            journal.append(Answer(key=key, text=text))
    with opened(tmp_path / "j") as journal:
        assert [answer.text for answer in journal.values()] == ["three", "zwei\n\u2028"]
        assert [answer.text for answer in journal.records("a")] == ["one", "three"]
        assert "b" in journal
        assert "c" not in journal


def test_compacting_drops_what_was_discarded_and_the_journal_continues(tmp_path: Path) -> None:
    with opened(tmp_path / "j") as journal:
        for number in range(6):
            journal.append(Answer(key=f"k{number % 3}", text=f"{number}"))
        journal.discard("k1")
        assert journal.get("k1") is None
        journal.compact()
        journal.append(Answer(key="k1", text="new"))
        assert {key: [answer.text for answer in journal.records(key)] for key in journal} == {
            "k0": ["0", "3"],
            "k2": ["2", "5"],
            "k1": ["new"],
        }
        with pytest.raises(InvalidValueError):
            opened(tmp_path / "j")  # the lock is that of the new file
    with opened(tmp_path / "j") as journal:
        assert list(journal) == ["k0", "k2", "k1"]


@pytest.mark.parametrize("torn", [b'{"key": "c', b"\n", b"\xff", b""])
def test_an_incomplete_last_line_is_removed(tmp_path: Path, torn: bytes) -> None:
    with opened(tmp_path / "j") as journal:
        journal.append(Answer(key="a", text="whole"))
    with (tmp_path / "j").open("ab") as stream:
        stream.write(torn)
    with opened(tmp_path / "j") as journal:
        assert journal.repaired == (0 if torn.endswith(b"\n") else len(torn))
        journal.append(Answer(key="b", text="after"))
        assert [answer.text for answer in journal.values()] == ["whole", "after"]


@pytest.mark.parametrize("damage", [b"{}\n", b"[]\n", b"\xff\n"])
def test_a_damaged_line_is_named_and_the_file_is_not_held(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "j").write_bytes(b'{"key": "a", "text": ""}\n' + damage)
    for _ in range(2):
        with raises(DamagedRecordError, file="j", line=2):
            opened(tmp_path / "j")


def test_a_journal_is_open_in_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path / "j"), pytest.raises(InvalidValueError):
        opened(tmp_path / "j")
    opened(tmp_path / "j").close(remove=True)
    assert not (tmp_path / "j").exists()


def test_nothing_that_was_appended_is_lost_to_a_kill(tmp_path: Path) -> None:
    code = f"import sys, pathlib, {__name__} as test; test.append_for_ever(pathlib.Path(sys.argv[1]))"
    count = 0
    for kill in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "j")], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.01 * kill)
        process.kill()
        numbers = [count, *map(int, process.stdout.read().split())]
        assert process.wait() == -signal.SIGKILL
        with opened(tmp_path / "j") as journal:
            assert list(journal) == [f"k{number}" for number in range(len(journal))]
            assert numbers[-1] < len(journal) <= numbers[-1] + 2  # one may be there that was not said any more
            assert all(answer.text == "ä" * (number % 50) for number, answer in enumerate(journal.values()))
            count = len(journal)
