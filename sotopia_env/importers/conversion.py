"""Conversion of foreign files to this package's records, with counts and refusals per file.

Files are read in the order of :func:`~sotopia_env.importers.registry.formats`, so that profiles are known before the
episodes that refer to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Format, Product, ProductKind
from sotopia_env.importers.gathering import whole_records
from sotopia_env.importers.library import Library
from sotopia_env.importers.reading import Source
from sotopia_env.importers.registry import detect, format_named, format_of, formats, is_record
from sotopia_env.importers.source import RawRecord, RefusedRecord, Remark, by_key

Advance = Callable[[int], None]
"""Progress callback; the argument is the number of bytes read since the last call."""


@dataclass(slots=True)
class FileCount:
    """The result of converting one file.

    Attributes:
        file: path of the file.
        format: name of the file's format, or several names separated by commas; empty if no format was detected.
        read: number of records in the file.
        converted: number of records that were converted.
        refused: the records that were not converted, in order, with the reasons.
        notes: contradictions in the converted records, and how each was resolved.
        products: number of records produced, by kind.
    """

    file: str
    format: str = ""
    read: int = 0
    converted: int = 0
    refused: list[RefusedRecord] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    products: Counter[ProductKind] = field(default_factory=Counter)

    @property
    def left_out(self) -> int:
        """Number of records that were not converted; one refusal may cover two records that belong together."""
        return self.read - self.converted


@dataclass(slots=True)
class Conversion:
    """The conversion of several files; :meth:`products` may be called once.

    Attributes:
        files: paths of the files.
        format: name of the format of all files; ``None`` detects it.
        keep_going: whether refused records are counted instead of raised.
        advance: called with the number of bytes read since its last call.
        check: called with every product; raises :class:`DamagedRecordError` for a record that cannot be used.
        library: the profiles read so far.
        counts: the result for each file, in the order in which the files are read.
    """

    files: Sequence[Path]
    format: str | None = None
    keep_going: bool = False
    advance: Advance | None = None
    check: Callable[[Product], None] | None = None
    library: Library = field(default_factory=Library)
    counts: list[FileCount] = field(default_factory=list)
    _keys: set[str] = field(default_factory=set)

    def products(self) -> Iterator[Product]:
        """Yields the records.

        Raises:
            UnknownNameError: ``format`` is not the name of a format.
            DamagedRecordError: a file cannot be read, or a record cannot be converted and ``keep_going`` is false. The
                message names file, line and field.
        """
        sources = [(Source(path), self._format_of_file(path)) for path in self.files]
        for source, format in sorted(sources, key=lambda entry: _rank(entry[1])):
            yield from self._file(source, format)

    def _format_of_file(self, path: Path) -> Format[Any] | None:
        """The format of the file's first record; with ``keep_going``, of the first record whose format is detected.

        A file that is one object of records by key may mix formats: the first one in :func:`formats` counts.
        """
        if self.format is not None:
            return format_named(self.format)
        for item in Source(path).items():
            if isinstance(item, RawRecord):
                items = _parts(item)
                formats = [format for entry in items if (format := detect(entry.value)) is not None]
                if formats:
                    return min(formats, key=_rank)
                if not self.keep_going:
                    return format_of(item.value, item.where)
        return None

    def _file(self, source: Source, format: Format[Any] | None) -> Iterator[Product]:
        count = FileCount(str(source.path), "" if format is None else format.name)
        self.counts.append(count)
        position = 0
        entries = source.items() if format is None else whole_records(source.items(), format)
        for entry in entries:
            items = [(entry, format)] if isinstance(entry, RefusedRecord) else self._by_key(_parts(entry), format)
            for item, reader in items:
                count.read += _size(item, reader)
                if isinstance(item, RefusedRecord):
                    self._refuse(count, item)
                else:
                    yield from self._record(item, reader, count)
            # A dict serves as an ordered set, so that the names have the order of reading.
            if len(names := {reader.name: None for _, reader in items if reader is not None}) > 1:
                count.format = ", ".join(names)
            # Inside an array the position moves by whole read buffers, so most records do not change it.
            if self.advance is not None and source.position > position:
                self.advance(source.position - position)
                position = source.position

    def _by_key(self, items: list[RawRecord], format: Format[Any] | None) -> list[tuple[RawRecord, Format[Any] | None]]:
        """The records in one object, each with its format: a database dump mixes formats, in any order."""
        if len(items) == 1:
            return [(items[0], format)]
        formats = [format if self.format is not None else detect(entry.value) for entry in items]
        # With one format, records that are not detected are read as that format too: its reader names the field that
        # is missing or misspelt, where ``format_of`` could only say that the format is unknown.
        if len({detected.name for detected in formats if detected is not None}) <= 1:
            return [(entry, format) for entry in items]
        # Profiles must be in the library before the combinations and episodes that refer to them.
        return sorted(zip(items, formats, strict=True), key=lambda entry: _rank(entry[1]))

    def _record(self, item: RawRecord, format: Format[Any] | None, count: FileCount) -> Iterator[Product]:

        try:
            reader = format or format_of(item.value)
            if self.format is not None:
                _check_named(reader, item.value)
            products = reader.products(item, self.library)
            for product in products:
                self._check_key(product)
                if self.check is not None:
                    self.check(product)
        except DamagedRecordError as error:
            # The error may be in a file beside this one, which a record of it names.
            where = error.where if error.where.file else item.where
            self._refuse(count, RefusedRecord(DamagedRecordError.of(error, where=where)))
            return
        count.converted += _size(item, format)
        count.products.update(product.kind for product in products)
        notes = (*item.notes, *(note for product in products for note in product.notes))
        count.notes += [Remark(str(item.where), note) for note in notes]
        yield from products

    def _check_key(self, product: Product) -> None:
        name = {ProductKind.EPISODE: "key", ProductKind.TASK: "id", ProductKind.SCENARIO: "id"}.get(product.kind)
        if name is None:
            return
        key = f"{product.kind} {getattr(product.value, name)}"
        if key in self._keys:
            raise DamagedRecordError(
                field="pk",
                expected="a unique id",
                got=getattr(product.value, name),
                hint="remove one of the two records, or change its id",
            )
        self._keys.add(key)

    def _refuse(self, count: FileCount, refusal: RefusedRecord) -> None:
        if not self.keep_going:
            raise refusal.error
        count.refused.append(refusal)


def _check_named(format: Format[Any], value: Any) -> None:
    """Raises :class:`DamagedRecordError` if the named format would leave out fields that another one reads."""
    other = None if format.has_parts else detect(value)
    if other is not None and other.coverage(value) > format.coverage(value):
        raise DamagedRecordError(
            field="format",
            expected=f"{other.name}, the format of this record",
            got=format.name,
            hint="name it, or none",
        )


def _parts(item: RawRecord) -> list[RawRecord]:
    """The records in an item: itself, or the records by key of which it is one object."""
    parts = by_key(item)
    # A record with only objects, or only lists, in its fields looks like records by key.
    return [item] if parts[0] is not item and is_record(item.value) else parts


def _size(item: RawRecord | RefusedRecord, format: Format[Any] | None) -> int:
    """The number of values of the file in an item: 1, or all that belong to one record."""
    return len(item.value) if isinstance(item, RawRecord) and format is not None and format.has_parts else 1


def _rank(format: Format[Any] | None) -> int:
    """The position of a format in :func:`formats`; -1 without a format."""
    return list(formats()).index(format.name) if format is not None else -1
