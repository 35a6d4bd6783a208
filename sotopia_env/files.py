"""Files that survive a kill: written whole or not at all, or append-only; and the one writer of CSV sheets."""

from __future__ import annotations

import csv
import io
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from sotopia_env.errors import (
    DamagedRecordError,
    FieldError,
    InUseError,
    InvalidValueError,
    SotopiaError,
    Verbatim,
    Where,
)

logger = logging.getLogger(__name__)
_ErrorT = TypeVar("_ErrorT", bound=FieldError)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes through a temporary file in the same folder, so that no reader gets half a file.

    Raises:
        InvalidValueError: nothing can be written there; says why.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as stream:
            stream.write(data)
    except OSError as error:
        raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file beside ``path``, which takes its place when the block ends and goes when the block fails."""
    # A name that nobody can foresee, and no file that is there: a link planted under it would lead anywhere.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with temporary.open("xb") as stream:
        try:
            yield stream
            stream.flush()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_text_atomically(path: Path, text: str) -> None:
    """As :func:`write_atomically`, for a text, in UTF-8."""
    write_atomically(path, text.encode("utf-8"))


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes texts by file name into ``folder``, each as :func:`write_text_atomically`, and returns their paths."""
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [folder / name for name in texts]


# Where a spreadsheet program begins to read a cell: at its start and, if it splits the file at another separator than
# the comma and so honours no quotes but those that begin a line, after separators and line ends inside it.
_FORMULA = re.compile(r'(^(?=[\t\r\n])|(?:^|[;\t\r\n][ "]*)(?=[=+\-@＝＋－＠]))')
_GUARDED = re.compile(r"""(^(?='[\t\r\n])|(?:^|[;\t\r\n][ "]*)(?='[=+\-@＝＋－＠]))'""")


def guard(text: str) -> str:
    """Returns ``text`` with an apostrophe wherever a spreadsheet program would begin to read a formula."""
    return _FORMULA.sub(r"\1'", text)


def unguard(text: str) -> str:
    """Returns the text before :func:`guard`."""
    return _GUARDED.sub(r"\1", text)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns CSV with every text cell guarded; ``None`` is an empty cell. Every sheet is written with it."""
    stream = io.StringIO()
    writer = csv.writer(stream)  # CRLF, or a carriage return inside a cell would not be quoted
    for row in (header, *rows):
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in row])
    return stream.getvalue()


_BLOCK = 65_536
BINARY = getattr(os, "O_BINARY", 0)
"""Flag for ``os.open``: without it Windows would write line ends of its own."""


class AppendOnlyFile:
    """A file of lines, open for appending.

    Attributes:
        path: the file.
        repaired: bytes of an incomplete last line that were removed.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        """Opens the file, creates it if it does not exist, and repairs it.

        Args:
            path: the file; its folder must exist.
            exclusive: whether to lock it against other processes that ask for the same.

        Raises:
            InvalidValueError: it cannot be written, or another process has locked it.
        """
        self.path = path
        self._descriptor: int | None = _open(path)
        try:
            if exclusive:
                lock(self._descriptor, path, "another process is writing this file; wait for it to end")
            self.repaired = _repair(self._descriptor)
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes) -> None:
        """Adds whole lines; they survive the process when this returns.

        Raises:
            SotopiaError: the disk is full, or the like; then the file has nothing of ``data``.
        """
        count = 0
        try:
            while count < len(data):
                count += os.write(self._open, data[count:] if count else data)
        except OSError as error:
            if count:  # or the next line would be appended to half of this one
                os.ftruncate(self._open, os.fstat(self._open).st_size - count)
            raise SotopiaError(
                f"{self.path}: cannot be written ({error.strerror}); what was written before is whole, "
                "and the same command goes on from there"
            ) from error

    def sync(self) -> None:
        """Forces everything to the disk."""
        os.fsync(self._open)

    @property
    def _open(self) -> int:
        if self._descriptor is None:
            raise SotopiaError(f"{self.path}: expected an open file, it is closed")
        return self._descriptor

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def repair_torn_line(path: Path) -> int:
    """Cuts off what follows the last line end of ``path`` and returns how many bytes that were; 0 for a whole file.

    Raises:
        InvalidValueError: it is no file, or cannot be written.
    """
    if not path.exists():
        return 0
    with AppendOnlyFile(path) as file:
        return file.repaired


def lock(descriptor: int, path: Path, problem: str) -> None:
    """Locks an open file for this process until it is closed.

    Args:
        descriptor: the open file.
        path: what is locked, in messages.
        problem: the message if another process has locked it.

    Raises:
        InUseError: another process has locked it.
        InvalidValueError: its file system has no locks.
    """
    from filelock import lock_descriptor  # a process that locks nothing need not import it

    try:
        if not lock_descriptor(descriptor, blocking=False):
            raise InUseError(problem, where=path)
    except OSError as error:  # some network file systems
        raise InvalidValueError(f"its file system has no file locks ({error.strerror})", where=path) from None


def _open(path: Path) -> int:
    if path.exists() and not path.is_file():
        raise InvalidValueError(expected="a file of records", got=Verbatim("something else"), where=path)
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
    except OSError as error:
        raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


def _repair(descriptor: int) -> int:
    """Cuts off what follows the last line end and returns how many bytes that were."""
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(descriptor, start, os.SEEK_SET)  # os.pread is missing on Windows; appending seeks by itself
        line_end = os.read(descriptor, end - start).rfind(b"\n")
        end = start + line_end + 1
        if line_end >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)
    return size - end


def read_text(path: str | Path, error: type[FieldError] = InvalidValueError) -> str:
    """Returns the text of a file.

    Raises:
        FieldError: of type ``error``; the file cannot be opened, or is not UTF-8; names the line.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a path with a null character
        raise error(f"cannot be read ({getattr(problem, 'strerror', None) or problem})", where=path) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise not_utf8(error, data[problem.start], Where(path, line)) from None


def not_utf8(kind: type[_ErrorT], byte: int, where: Where | Path) -> _ErrorT:
    """Returns the error for a byte that is not part of UTF-8 text."""
    return kind(expected="UTF-8 text", got=Verbatim(f"byte {byte:#04x}"), where=where)


def read_lines(path: Path) -> Iterator[tuple[Where, str]]:
    """Yields ``(where, line)`` for every whole line of a file of records that is not blank.

    Raises:
        DamagedRecordError: the file cannot be opened, or a line is not UTF-8 text.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DamagedRecordError(f"cannot be opened ({error.strerror})", where=path) from None
    with stream:
        for number, raw in enumerate(stream, start=1):
            where = Where(path, number)
            if not raw.endswith(b"\n"):
                logger.warning("%s: left out, the line was cut short", where)
            elif raw.strip():
                try:
                    yield where, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise not_utf8(DamagedRecordError, raw[error.start], where) from None
