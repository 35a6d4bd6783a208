"""Foreign files as a stream of records, each with its place; never a whole file of lines or of an array in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sotopia_env.errors import DamagedRecordError, InvalidValueError, Verbatim, Where
from sotopia_env.files import not_utf8
from sotopia_env.json_text import decode_json, iter_array, parse_json

_HEAD = 4_096
_YAML_SUFFIXES = (".yaml", ".yml")
_LARGEST_DOCUMENT = 1 << 28


_REST = "what follows is not read"


@dataclass(frozen=True, slots=True)
class Item:
    """A record of a foreign file.

    Attributes:
        file: its path.
        number: of the record, from 1.
        line: on which it begins, from 1; 0 where the file's reader does not say.
        value: JSON, or the text of a line in a file that is no JSON.
        key: under which it stands, where the file is one object of records by key; else empty.
    """

    file: Path
    number: int
    line: int
    value: Any
    key: str = ""

    @property
    def where(self) -> Where:
        """File and line; the number if several records are on one line; the key if there is one."""
        number = f"record {self.number}" if self.number > self.line else ""
        key = f"key {self.key!r}" if self.key else ""
        return Where(self.file, self.line or None, ", ".join(filter(None, (number, key))))


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark on a record: its place, and a sentence."""

    where: str
    reason: str

    @property
    def sentence(self) -> str:
        """Place and reason."""
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that was not read, and why."""

    error: DamagedRecordError

    @property
    def where(self) -> str:
        """The place of the record."""
        return str(self.error.where)

    @property
    def reason(self) -> str:
        """What is wrong, without the place."""
        error = DamagedRecordError.of(self.error)
        error.where = Where()
        return str(error)

    @property
    def sentence(self) -> str:
        """Reason and place."""
        return str(self.error)


class Source:
    """A foreign file: JSON Lines, a JSON array, one JSON object (of records by key, or a record), YAML, or text lines.

    Attributes:
        path: the file.
        size: in bytes.
        position: bytes read so far.
    """

    def __init__(self, path: Path) -> None:
        """Opens nothing yet; raises :class:`DamagedRecordError` unless there is a file."""
        self.path = path
        self.position = 0
        try:
            self.size = path.stat().st_size
            if not path.is_file():
                raise DamagedRecordError(expected="a file", hint="name the files in it", where=path)
        except OSError as error:
            raise DamagedRecordError(f"cannot be opened ({error.strerror})", where=path) from None

    def items(self) -> Iterator[Item | Refusal]:
        """Yields the records, and a refusal where one cannot be read; after one inside an array the file ends.

        Raises:
            DamagedRecordError: the file cannot be opened.
        """
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise DamagedRecordError(f"cannot be opened ({error.strerror})", where=self.path) from None
        with stream:
            head = stream.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
            stream.seek(0)
            counted = _Counted(stream, self)
            reader = self._lines if head[:1] != b"[" else self._array
            if head[:1] == b"{" and not self._has_lines(head, stream):
                reader = self._document
            if self.path.suffix in _YAML_SUFFIXES:
                reader = self._yaml
            yield from map(_unicode, reader(counted))

    @staticmethod
    def _has_lines(head: bytes, stream: io.BufferedReader) -> bool:
        """Whether the first line is a JSON value of its own; a pretty-printed object is one document."""
        line = head.partition(b"\n")[0] if b"\n" in head else stream.readline(_LARGEST_DOCUMENT).strip()
        stream.seek(0)
        try:
            decode_json(line.strip())
        except ValueError:
            return line.strip() not in (b"{",) and not line.strip().endswith((b"{", b"[", b","))
        return True

    def _lines(self, stream: _Counted) -> Iterator[Item | Refusal]:
        number = 0
        for line, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            number += 1
            try:
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
                value = decode_json(text) if text[:1] in "{[" else text
            except UnicodeDecodeError as error:
                yield Refusal(not_utf8(DamagedRecordError, raw[error.start], Where(self.path, line)))
            except ValueError as error:
                yield Refusal(DamagedRecordError(f"not valid JSON ({error})", where=Where(self.path, line)))
            else:
                yield Item(self.path, number, line, value)

    def _array(self, stream: _Counted) -> Iterator[Item | Refusal]:
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig")
        numbered = self._guarded(lambda: enumerate(iter_array(text), start=1))
        for entry in numbered:
            if isinstance(entry, Refusal):
                yield entry
            else:
                number, (line, value) = entry
                yield Item(self.path, number, line, value)

    def _guarded(self, values: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The values, and a refusal where the rest of the file cannot be read."""
        try:
            yield from values()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            yield Refusal(DamagedRecordError.of(not_utf8(DamagedRecordError, byte, self.path), hint=_REST))
        except InvalidValueError as error:
            where = Where(self.path, error.where.line)
            yield Refusal(DamagedRecordError.of(error, where=where, hint=_REST))

    def _document(self, stream: _Counted) -> Iterator[Item | Refusal]:
        """The one record, or the records by key, of a file that is one JSON object."""
        text: TextIO = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig")

        def values() -> Iterator[Any]:
            yield parse_json(text.read(), self.path)

        for value in self._guarded(values):
            if isinstance(value, Refusal):
                yield value
            else:
                yield Item(self.path, 1, 1, value)

    def _yaml(self, stream: _Counted) -> Iterator[Item | Refusal]:
        """The records of a list, or of the one list in an object such as ``tasks: […]``."""
        from sotopia_env.yaml_text import parse_yaml  # only who has such a file waits for the reader

        try:
            value = parse_yaml(stream.read().decode("utf-8-sig"), str(self.path))
        except InvalidValueError as error:
            yield Refusal(DamagedRecordError.of(error))
            return
        except UnicodeDecodeError as error:
            yield Refusal(not_utf8(DamagedRecordError, error.object[error.start], self.path))
            return
        if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), list):
            value = next(iter(value.values()))
        for number, record in enumerate(value if isinstance(value, list) else [value], start=1):
            yield Item(self.path, number, 0, record)


def by_key(item: Item) -> list[Item]:
    """Returns the records, or lists, in an item that is one object of them by key; the item itself where it is none."""
    value = item.value
    kinds = set(map(type, value.values())) if isinstance(value, dict) else set()
    if kinds not in ({dict}, {list}):
        return [item]
    # A document does not say on which line a record begins; its key says where it is.
    return [Item(item.file, n, item.line, entry, key) for n, (key, entry) in enumerate(value.items(), start=1)]


def _unicode(entry: Item | Refusal) -> Item | Refusal:
    """The entry; a refusal of a record with half a surrogate pair, which no file can hold."""
    try:
        json.dumps(entry.value if isinstance(entry, Item) else "", ensure_ascii=False).encode()
    except UnicodeEncodeError:
        got = Verbatim("half a surrogate pair")
        where = entry.where if isinstance(entry, Item) else ""
        return Refusal(DamagedRecordError(expected="Unicode text", got=got, hint="leave it out", where=where))
    return entry


class _Counted(io.RawIOBase):
    """A binary stream that tells its source how far it was read."""

    def __init__(self, stream: io.BufferedReader, source: Source) -> None:
        self._stream, self._source = stream, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._source.position += count
        return count

    def __iter__(self) -> Any:
        for line in self._stream:
            self._source.position += len(line)
            yield line
