"""Readers of foreign files as streams of records with their locations.

Files of lines, JSON arrays and tables are read record by record; only YAML files and files that are one JSON object are
held in memory as a whole.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Verbatim, Where
from sotopia_env.foundation.files import not_utf8
from sotopia_env.foundation.json_text import decode_json, iter_array, parse_json
from sotopia_env.importers.kinds import PARQUET, PNG, kind_of_file
from sotopia_env.importers.pictures import card_records
from sotopia_env.importers.source import RawRecord, RefusedRecord
from sotopia_env.importers.tables import DELIMITERS, csv_records, parquet_records

_HEAD = 4_096  # bytes that are read to tell kinds of file, lines, an array and an object apart
_YAML_SUFFIXES = (".yaml", ".yml")
LARGEST_DOCUMENT = 1 << 28
"""Maximum size of a file that is one object, and of a line, in bytes."""
_REST = "the rest of the file is not read"


_Entries = Iterator[RawRecord | RefusedRecord]


class Source:
    """A foreign file: JSON Lines, a JSON array, one JSON object (of records by key, or a record), YAML, or text lines.

    CSV and Parquet files are tables of records, and a PNG picture is a file of one record, a character card.

    Attributes:
        path: path of the file.
        size: size of the file in bytes.
        position: number of bytes read so far.
    """

    def __init__(self, path: Path) -> None:
        """Does not open the file; raises :class:`DamagedRecordError` if ``path`` is not a file."""
        self.path = path
        self.position = 0
        try:
            self.size = path.stat().st_size
            if not path.is_file():
                raise DamagedRecordError(expected="a file", hint="name the files in it", where=path)
        except OSError as error:
            raise DamagedRecordError(f"cannot be opened ({error.strerror})", where=path) from None

    def items(self) -> Iterator[RawRecord | RefusedRecord]:
        """Yields the records, and a refusal for each that cannot be read.

        A refusal inside an array is the last entry: the reader cannot find the start of the next record.

        Raises:
            DamagedRecordError: the file cannot be opened.
        """
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise DamagedRecordError(f"cannot be opened ({error.strerror})", where=self.path) from None
        with stream:
            start = stream.read(_HEAD)
            stream.seek(0)
            try:
                yield from map(_unicode, self._reader(start, stream)(_Counted(stream, self)))
            except DamagedRecordError as error:  # the file itself cannot be read, which costs no other file
                yield RefusedRecord(error)

    def _reader(self, start: bytes, stream: io.BufferedReader) -> Callable[[_Counted], _Entries]:
        """The reader for a file that begins with ``start``; raises an error for a kind that holds no records."""
        if start.startswith(PNG):
            return lambda _: card_records(self.path, stream)
        if start.startswith(PARQUET):
            return lambda _: parquet_records(self.path)
        if (kind := kind_of_file(start, self.path.suffix)) is not None:
            raise DamagedRecordError(f"this is {kind.name}", hint=kind.mend, where=self.path)
        if self.path.suffix.lower() in DELIMITERS:
            return lambda counted: self._guarded(lambda: csv_records(self.path, io.BufferedReader(counted)))
        if self.path.suffix in _YAML_SUFFIXES:
            return self._yaml
        # Windows editors write a byte order mark in front of UTF-8.
        head = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if head[:1] == b"[":
            return self._array
        return self._lines if head[:1] != b"{" or self._has_lines(head, stream) else self._document

    @staticmethod
    def _has_lines(head: bytes, stream: io.BufferedReader) -> bool:
        """Whether the first line is a complete JSON value; a pretty-printed object is one document."""
        line = head.partition(b"\n")[0] if b"\n" in head else stream.readline(LARGEST_DOCUMENT).strip()
        stream.seek(0)
        try:
            decode_json(line.strip())
        except ValueError:
            # A broken first line of JSON Lines must be refused alone, without the rest of the file. It is taken for the
            # start of a document only if it ends as one that continues on the next line would.
            return line.strip() not in (b"{",) and not line.strip().endswith((b"{", b"[", b","))
        return True

    def _lines(self, stream: _Counted) -> Iterator[RawRecord | RefusedRecord]:
        number = 0
        # Lines are decoded one by one, so that a byte that is not UTF-8 costs its own record only.
        for line, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            number += 1
            try:
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
                value = decode_json(text) if text[:1] in "{[" else text
            except UnicodeDecodeError as error:
                yield RefusedRecord(not_utf8(DamagedRecordError, raw[error.start], Where(self.path, line)))
            except ValueError as error:
                yield RefusedRecord(DamagedRecordError(f"not valid JSON ({error})", where=Where(self.path, line)))
            else:
                yield RawRecord(self.path, number, line, value)

    def _array(self, stream: _Counted) -> Iterator[RawRecord | RefusedRecord]:
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig")
        numbered = self._guarded(lambda: enumerate(iter_array(text), start=1))
        for entry in numbered:
            if isinstance(entry, RefusedRecord):
                yield entry
            else:
                number, (line, value) = entry
                yield RawRecord(self.path, number, line, value)

    def _guarded(self, values: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The values, followed by a refusal if the rest of the file cannot be read."""
        try:
            yield from values()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            yield RefusedRecord(DamagedRecordError.of(not_utf8(DamagedRecordError, byte, self.path), hint=_REST))
        except InvalidValueError as error:
            where = Where(self.path, error.where.line)
            yield RefusedRecord(DamagedRecordError.of(error, where=where, hint=_REST))

    def _check_size(self, name: str) -> None:
        """Raises :class:`DamagedRecordError` if the file, which is read as a whole, is too large for that."""
        if self.size > LARGEST_DOCUMENT:
            got, hint = Verbatim(f"{name} of {self.size} bytes"), "write its records as JSON Lines"
            raise DamagedRecordError(expected=f"at most {LARGEST_DOCUMENT}", got=got, hint=hint, where=self.path)

    def _document(self, stream: _Counted) -> Iterator[RawRecord | RefusedRecord]:
        """One item with the whole object: a record, or records by key, which :func:`by_key` separates."""
        text: TextIO = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig")
        self._check_size("one JSON object")

        def values() -> Iterator[Any]:
            yield parse_json(text.read(), self.path)

        for value in self._guarded(values):
            if isinstance(value, RefusedRecord):
                yield value
            else:
                yield RawRecord(self.path, 1, 1, value)

    def _yaml(self, stream: _Counted) -> Iterator[RawRecord | RefusedRecord]:
        """The records of a list, or of the one list in an object such as ``tasks: […]``."""
        from sotopia_env.foundation.yaml_text import parse_yaml  # imported here because it takes long to load

        self._check_size("one YAML document")
        try:
            value = parse_yaml(stream.read().decode("utf-8-sig"), str(self.path))
        except InvalidValueError as error:
            yield RefusedRecord(DamagedRecordError.of(error))
            return
        except UnicodeDecodeError as error:
            yield RefusedRecord(not_utf8(DamagedRecordError, error.object[error.start], self.path))
            return
        if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), list):
            value = next(iter(value.values()))
        for number, record in enumerate(value if isinstance(value, list) else [value], start=1):
            yield RawRecord(self.path, number, 0, record)


def _unicode(entry: RawRecord | RefusedRecord) -> RawRecord | RefusedRecord:
    """The entry, or a refusal if it contains half a surrogate pair, which cannot be encoded as UTF-8."""
    # JSON allows the escape ``"\ud800"``; without this check the record would fail later, when it is written.
    try:
        json.dumps(entry.value if isinstance(entry, RawRecord) else "", ensure_ascii=False).encode()
    except UnicodeEncodeError:
        got = Verbatim("half a surrogate pair")
        where = entry.where if isinstance(entry, RawRecord) else ""
        return RefusedRecord(DamagedRecordError(expected="Unicode text", got=got, hint="remove it", where=where))
    return entry


class _Counted(io.RawIOBase):
    """A binary stream that adds the bytes read from it to its source's position."""

    def __init__(self, stream: io.BufferedReader, source: Source) -> None:
        self._stream, self._source = stream, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._source.position += count
        return count

    def __iter__(self) -> Any:
        while line := self._stream.readline(LARGEST_DOCUMENT):
            if len(line) == LARGEST_DOCUMENT and not line.endswith(b"\n"):
                got, hint = Verbatim("a longer one"), "write every record in a line of its own"
                expected = f"lines of at most {LARGEST_DOCUMENT} bytes"
                raise DamagedRecordError(expected=expected, got=got, hint=hint, where=self._source.path)
            self._source.position += len(line)
            yield line
