"""Files that only grow: whole lines, one writer where it is asked for, what a death left behind; and CSV sheets."""

from __future__ import annotations

import csv
import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sotopia_env.foundation import files
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.files import (
    AppendOnlyFile,
    csv_text,
    escape_formulas,
    repair_torn_line,
    replacement,
    unescape_formulas,
    write_text_atomically,
)
from tests.errors import raises


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", b""),
        (b"torn", b""),
        (b"a\n", b"a\n"),
        (b"a\ntorn", b"a\n"),
        (b"a\n" + b"x" * 200_000, b"a\n"),
        (b"x" * 200_000, b""),
        (b"y" * 65_535 + b"\n" + b"x" * 65_536, b"y" * 65_535 + b"\n"),
        (b"a\n\0\0\0", b"a\n"),
    ],
)
def test_repair_keeps_exactly_the_whole_lines(tmp_path: Path, data: bytes, lines: bytes) -> None:
    file = tmp_path / "f"
    file.write_bytes(data)
    assert repair_torn_line(file) == len(data) - len(lines)
    assert file.read_bytes() == lines
    with AppendOnlyFile(file) as opened:
        assert opened.repaired == 0
    file.write_bytes(data)
    with AppendOnlyFile(file) as opened:
        assert opened.repaired == len(data) - len(lines)
        opened.append(b"next\n")
    assert file.read_bytes() == lines + b"next\n"


def test_a_link_planted_for_a_temporary_file_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    for name in (".run.json.tmp", ".run.json.00.tmp"):
        (tmp_path / name).symlink_to(target)
    write_text_atomically(tmp_path / "run.json", "{}")
    assert ((tmp_path / "run.json").read_text(), (tmp_path / "run.json").is_symlink()) == ("{}", False)
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "00")  # even if the name were known
    with raises(InvalidValueError, file="run.json"):
        write_text_atomically(tmp_path / "run.json", "[]")
    assert target.read_text() == "precious"


def test_a_replacement_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("before")

    def interrupted() -> None:
        with replacement(file) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert file.read_text() == "before"


def test_a_missing_file_counts_as_complete_and_is_not_created(tmp_path: Path) -> None:
    assert repair_torn_line(tmp_path / "f") == 0
    assert not (tmp_path / "f").exists()


def test_one_process_at_a_time_writes_an_exclusive_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    with AppendOnlyFile(file, exclusive=True), pytest.raises(InvalidValueError):
        AppendOnlyFile(file, exclusive=True)
    AppendOnlyFile(file, exclusive=True).close()


def test_a_locked_file_is_not_repaired_by_another_process(tmp_path: Path) -> None:
    """The half line may be one that its writer is about to finish."""
    file = tmp_path / "f"
    with AppendOnlyFile(file, exclusive=True):
        file.write_bytes(b"a\nhal")
        with pytest.raises(InvalidValueError):
            AppendOnlyFile(file, exclusive=True)
        assert file.read_bytes() == b"a\nhal"


@pytest.mark.parametrize("fitted", [0, 3])
def test_a_full_disk_leaves_no_half_line_for_the_next_one_to_be_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: int
) -> None:
    write, calls = os.write, []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 1 and fitted:
            return write(descriptor, data[:fitted])
        raise OSError(28, "No space left on device")

    file = AppendOnlyFile(tmp_path / "f")
    file.append(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", full)
        with pytest.raises(SotopiaError, match=r"No space left on device"):
            file.append(b"two, which is long\n")
    file.append(b"three\n")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"one\nthree\n"


def test_a_line_the_system_takes_in_pieces_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with AppendOnlyFile(tmp_path / "f") as file:
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "write", lambda descriptor, data: write(descriptor, data[:3]))
            file.append(b"one, two, three\n")
        file.sync()
    assert (tmp_path / "f").read_bytes() == b"one, two, three\n"


def test_what_cannot_be_a_file_of_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError):
        AppendOnlyFile(tmp_path)
    with raises(InvalidValueError, file="f"):
        AppendOnlyFile(tmp_path / "no" / "f")
    file = AppendOnlyFile(tmp_path / "f")
    file.close()
    file.close()
    with pytest.raises(SotopiaError):
        file.append(b"x\n")


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int, **__: bool) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)
    with raises(InvalidValueError, file="f"):
        AppendOnlyFile(tmp_path / "f", exclusive=True)


def test_the_package_is_imported_and_repairs_files_where_the_calls_of_posix_are_missing(tmp_path: Path) -> None:
    """As on Windows; the locks themselves are filelock's."""
    (tmp_path / "f").write_bytes(b"one\ntwo\nthr")
    code = (
        "import os, sys; sys.modules['fcntl'] = None; del os.pread, os.pwrite\n"
        "import sotopia_env; from pathlib import Path; from sotopia_env.foundation.files import AppendOnlyFile\n"
        "with AppendOnlyFile(Path('f')) as file: file.append(b'three\\n'); print(file.repaired)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert out.stdout.strip() == "3", out.stderr
    assert (tmp_path / "f").read_bytes() == b"one\ntwo\nthree\n"


FORMULAS = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠1", "x;=1+1", "x; =1+1", "a\t+1",
    "Rain.\n=1+1", "a\r\n-1", ";;=1", '=HYPERLINK("http://x")', "x,y;=1", 'x";=1', 'x;"=1"',
)  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_sheet_begins_like_a_formula_however_it_is_split(text: str) -> None:
    assert unescape_formulas(escape_formulas(text)) == text
    sheet = csv_text(["a", text], [["b", text, 1, -1, None]])
    assert list(csv.reader(io.StringIO(sheet, newline=""))) == [
        ["a", escape_formulas(text)],
        ["b", escape_formulas(text), "1", "-1", ""],
    ]
    for delimiter in ",;\t":
        rows = csv.reader(io.StringIO(sheet, newline=""), delimiter=delimiter)
        begins = [cell.lstrip(' "')[:1] for row in rows for cell in row if cell != "-1"]
        assert not set(begins) & set("=+-@＝＋－＠"), rows


@pytest.mark.parametrize("text", ["", "plain", "'tis", "'quoted'", "3 - 2", " =1", "a\n\nb", "Well, - no; 'no", "a=b"])
def test_texts_without_a_formula_stay_as_they_are(text: str) -> None:
    assert escape_formulas(text) == unescape_formulas(text) == text
