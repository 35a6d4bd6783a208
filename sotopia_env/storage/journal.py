"""A journal of records on disk: one line each, appended as they are made, with an index by key.

All long work that may be killed is based on it: each answer that was paid for is appended as soon as it arrives, and
the same command looks up the existing answers before it asks a model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Generic, Self, TypeVar

from sotopia_env.foundation.errors import DamagedRecordError, Where
from sotopia_env.foundation.files import AppendOnlyFile, not_utf8, replacement
from sotopia_env.foundation.records import Record, read_record

_RecordT = TypeVar("_RecordT", bound=Record)


class Journal(Generic[_RecordT]):
    """An append-only file of records, open in one process at a time, with an index by key.

    Only keys and positions are in memory; a record is read when it is looked up. Several records may have the same
    key: :meth:`get` returns the latest, and :meth:`records` returns all of them.

    Attributes:
        path: the file.
        repaired: the number of bytes removed from an incomplete last line, which a killed process may leave.
    """

    def __init__(self, path: Path, kind: type[_RecordT], key: Callable[[_RecordT], Hashable]) -> None:
        """Opens the file, creates it if it does not exist, and repairs it.

        Args:
            path: the file; its folder must exist.
            kind: the class of the records.
            key: returns the key of a record.

        Raises:
            InvalidValueError: the file cannot be written, or another process has opened it.
            DamagedRecordError: a line is not a record of this class.
        """
        self.path = path
        self._kind, self._key = kind, key
        self._positions: dict[Hashable, list[int]] = {}
        self._end = 0
        self._file = AppendOnlyFile(path, exclusive=True)
        self.repaired = self._file.repaired
        try:
            self._index()
        except BaseException:
            self._file.close()
            raise

    def _index(self) -> None:
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    self._add(self._parse(line, Where(self.path, number)), len(line))
                else:
                    self._end += len(line)

    def _parse(self, line: bytes, where: Where) -> _RecordT:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(DamagedRecordError, line[error.start], where) from None
        return read_record(self._kind, text, where)

    def _add(self, record: _RecordT, size: int) -> None:
        self._positions.setdefault(self._key(record), []).append(self._end)
        self._end += size

    def append(self, record: _RecordT) -> None:
        """Adds a record; after the return, it survives a kill of the process.

        Raises:
            SotopiaError: the record cannot be written, for instance because the disk is full; the file is unchanged.
        """
        line = f"{record.model_dump_json()}\n".encode()
        self._file.append(line)
        self._add(record, len(line))

    def get(self, key: Hashable) -> _RecordT | None:
        """Returns the latest record with this key, or ``None``."""
        return self._read(self._positions[key][-1]) if key in self._positions else None

    def records(self, key: Hashable) -> list[_RecordT]:
        """Returns all records with this key, the latest last."""
        return [self._read(position) for position in self._positions.get(key, ())]

    def _read(self, position: int) -> _RecordT:
        with self.path.open("rb") as stream:
            stream.seek(position)
            return self._parse(stream.readline(), Where(self.path, record=f"byte {position}"))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._positions

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._positions)

    def __iter__(self) -> Iterator[Hashable]:
        """The keys, in the order of their first records."""
        # A copy, since callers may append or discard records while they iterate.
        return iter(list(self._positions))

    def values(self) -> Iterator[_RecordT]:
        """Yields the latest record of every key, in the order of their first records."""
        for positions in list(self._positions.values()):
            yield self._read(positions[-1])

    def discard(self, key: Hashable) -> None:
        """Removes the records with this key from the index; their lines stay in the file until :meth:`compact`."""
        self._positions.pop(key, None)

    def compact(self) -> None:
        """Replaces the file atomically by one without the discarded lines."""
        # The remaining lines keep their order, so that the latest record of each key stays the last one.
        positions: dict[Hashable, list[int]] = {key: [] for key in self._positions}
        order = sorted((position, key) for key, offsets in self._positions.items() for position in offsets)
        with self.path.open("rb") as source, replacement(self.path) as target:
            for position, key in order:
                source.seek(position)
                positions[key].append(target.tell())
                target.write(source.readline())
            end = target.tell()
        self._file.close()
        self._file = AppendOnlyFile(self.path, exclusive=True)
        self._positions, self._end = positions, end

    def sync(self) -> None:
        """Forces the file to disk (``fsync``)."""
        self._file.sync()

    def close(self, remove: bool = False) -> None:
        """Closes the file, and deletes it if ``remove`` is set."""
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
