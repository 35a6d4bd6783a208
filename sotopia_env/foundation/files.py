"""Files that survive a kill, since they are replaced atomically or only appended to; and a safe writer of CSV."""

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

from sotopia_env.foundation.errors import (
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
    """Writes a file through a temporary file in the same folder, so that readers never see a partial file.

    Raises:
        InvalidValueError: the file cannot be written; the message gives the reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as stream:
            stream.write(data)
    except OSError as error:
        raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file beside ``path`` that replaces it when the block ends, and is deleted if the block fails."""
    # The name is unpredictable and must not exist ("x"): otherwise a planted symbolic link could redirect the write.
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
    """Does the same as :func:`write_atomically` for a text, in UTF-8."""
    write_atomically(path, text.encode("utf-8"))


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes texts, given by file name, into ``folder`` with :func:`write_text_atomically`; returns their paths."""
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [folder / name for name in texts]


# Positions where a spreadsheet program starts to read a cell: the start of the cell and, if the program splits the file
# at another separator than the comma (and so ignores quotes inside a line), also after separators and line ends in it.
_FORMULA = re.compile(r'(^(?=[\t\r\n])|(?:^|[;\t\r\n][ "]*)(?=[=+\-@＝＋－＠]))')
_GUARDED = re.compile(r"""(^(?='[\t\r\n])|(?:^|[;\t\r\n][ "]*)(?='[=+\-@＝＋－＠]))'""")


def escape_formulas(text: str) -> str:
    """Returns ``text`` with an apostrophe wherever a spreadsheet program would start to read a formula."""
    return _FORMULA.sub(r"\1'", text)


def unescape_formulas(text: str) -> str:
    """Returns the text before :func:`escape_formulas`."""
    return _GUARDED.sub(r"\1", text)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns CSV with every text cell guarded; ``None`` is an empty cell. All CSV files are written with it."""
    stream = io.StringIO()
    # Lines end with CRLF (the default): with LF, the writer would not quote a carriage return inside a cell.
    writer = csv.writer(stream)
    for row in (header, *rows):
        writer.writerow([escape_formulas(cell) if isinstance(cell, str) else cell for cell in row])
    return stream.getvalue()


_BLOCK = 65_536
BINARY = getattr(os, "O_BINARY", 0)
"""Flag for ``os.open``, without which Windows would convert line ends."""


class AppendOnlyFile:
    """A file of lines, open for appending.

    Attributes:
        path: the file.
        repaired: the number of bytes removed from an incomplete last line.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        """Opens the file, creates it if it does not exist, and repairs it.

        Args:
            path: the file; its folder must exist.
            exclusive: whether to lock the file against other processes that open it with this option.

        Raises:
            InvalidValueError: the file cannot be written, or another process has locked it.
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
        """Appends complete lines; after the return, they survive a kill of the process.

        Raises:
            SotopiaError: the lines cannot be written, for instance because the disk is full; none of them is in the
                file then.
        """
        # ``os.write`` without a buffer: once it returns, the operating system has the data. It may write only a part.
        count = 0
        try:
            while count < len(data):
                count += os.write(self._open, data[count:] if count else data)
        except OSError as error:
            # A partial line is removed, since the next line would otherwise be appended to it.
            if count:
                os.ftruncate(self._open, os.fstat(self._open).st_size - count)
            raise SotopiaError(
                f"{self.path}: cannot be written ({error.strerror}); earlier lines are complete, "
                "and the same command continues after them"
            ) from error

    def sync(self) -> None:
        """Forces the file to disk (``fsync``)."""
        os.fsync(self._open)

    @property
    def _open(self) -> int:
        if self._descriptor is None:
            raise SotopiaError(f"{self.path}: the file is closed")
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
    """Removes an incomplete last line of ``path`` and returns its number of bytes; 0 for a complete file.

    Raises:
        InvalidValueError: ``path`` is not a file, or cannot be written.
    """
    if not path.exists():
        return 0
    with AppendOnlyFile(path) as file:
        return file.repaired


def lock(descriptor: int, path: Path, problem: str) -> None:
    """Locks an open file for this process until it is closed.

    Args:
        descriptor: the open file.
        path: the file or directory that is locked, for the message.
        problem: the message if another process has locked it.

    Raises:
        InUseError: another process has locked the file.
        InvalidValueError: the file system does not support locks.
    """
    # Imported here, since most processes lock no file.
    from filelock import lock_descriptor

    try:
        if not lock_descriptor(descriptor, blocking=False):
            raise InUseError(problem, where=path)
    except OSError as error:  # some network file systems
        raise InvalidValueError(f"the file system has no file locks ({error.strerror})", where=path) from None


def _open(path: Path) -> int:
    if path.exists() and not path.is_file():
        raise InvalidValueError(expected="a file of records", got=Verbatim("something else"), where=path)
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
    except OSError as error:
        raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


def _repair(descriptor: int) -> int:
    """Removes an incomplete last line and returns its number of bytes."""
    # Read in blocks from the end: the file may be large, but an incomplete line is usually short.
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        # Not os.pread, which is missing on Windows. The position does not matter later: O_APPEND writes at the end.
        os.lseek(descriptor, start, os.SEEK_SET)
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
        FieldError: the file cannot be opened, or is not UTF-8 (the error names the line); of type ``error``.
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
    """Yields ``(where, line)`` for every complete line of a file of records that is not blank.

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
                logger.warning("%s: skipped an incomplete line", where)
            elif raw.strip():
                try:
                    yield where, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise not_utf8(DamagedRecordError, raw[error.start], where) from None
