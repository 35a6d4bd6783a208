"""Foreign files as records of ours: detection, counts, refusals; files that others refer to come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sotopia_env.errors import DamagedRecordError
from sotopia_env.importers.foreign import Format, Kind, Product, converted
from sotopia_env.importers.library import Library
from sotopia_env.importers.registry import FORMATS, detect, format_named, format_of
from sotopia_env.importers.source import Item, Refusal, Remark, Source, by_key

Advance = Callable[[int], None]
"""Is told how many more bytes were read."""
_ORDER = list(FORMATS)


@dataclass(slots=True)
class FileCount:
    """What became of a file.

    Attributes:
        file: its path.
        format: name of its format, or names with commas; empty where nothing in it was known.
        read: records.
        converted: of these, how many became records of ours.
        refused: the others, in order, with the reasons.
        notes: what contradicts itself in the converted ones, and what was made of it.
        products: how many records they became, by kind.
    """

    file: str
    format: str = ""
    read: int = 0
    converted: int = 0
    refused: list[Refusal] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    products: Counter[Kind] = field(default_factory=Counter)

    @property
    def left_out(self) -> int:
        """Records that did not become records of ours; a refusal may be of two that belong together."""
        return self.read - self.converted


@dataclass(slots=True)
class Conversion:
    """Reads files; :meth:`products` may be called once.

    Attributes:
        check: is called with every record, and raises where nobody could use it.
        library: profiles read so far.
        counts: what became of each file, in the order in which they are read.
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
            UnknownNameError: there is no such format.
            DamagedRecordError: a file cannot be read or, unless ``keep_going``, a record; names file, line and field.
        """
        sources = [(Source(path), self._format_of_file(path)) for path in self.files]
        for source, format in sorted(sources, key=lambda entry: _rank(entry[1])):
            yield from self._file(source, format)

    def _format_of_file(self, path: Path) -> Format | None:
        """The format of a file's first record, of the first known one to keep going; ``None`` where there is none.

        Of a file that is one object of records by key, that of those to which the others refer.
        """
        if self.format is not None:
            return format_named(self.format)
        for item in Source(path).items():
            if isinstance(item, Item):
                items = [item] if _known(item) else by_key(item)
                formats = [format for entry in items if (format := detect(entry.value)) is not None]
                if formats:
                    return min(formats, key=_rank)
                if not self.keep_going:
                    return format_of(item.value, item.where)
        return None

    def _file(self, source: Source, format: Format | None) -> Iterator[Product]:
        count = FileCount(str(source.path), "" if format is None else format.name)
        self.counts.append(count)
        position = 0
        entries = source.items() if format is None or format.pairs is None else paired(source.items(), format.pairs)
        for entry in entries:
            items = [(entry, format)] if isinstance(entry, Refusal) or _known(entry) else self._by_key(entry, format)
            for item, reader in items:
                count.read += _size(item, reader)
                if isinstance(item, Refusal):
                    self._refuse(count, item)
                else:
                    yield from self._record(item, reader, count)
            if len(names := {reader.name: None for _, reader in items if reader is not None}) > 1:
                count.format = ", ".join(names)
            if self.advance is not None and source.position > position:
                self.advance(source.position - position)
                position = source.position

    def _by_key(self, item: Item, format: Format | None) -> list[tuple[Item, Format | None]]:
        """The records in one object, each with its format: a dump of a database holds several, in any order."""
        items = by_key(item)
        formats = [format if self.format is not None else detect(entry.value) for entry in items]
        if len({found.name for found in formats if found is not None}) <= 1:
            return [(entry, format) for entry in items]
        return sorted(zip(items, formats, strict=True), key=lambda entry: _rank(entry[1]))

    def _record(self, item: Item, format: Format | None, count: FileCount) -> Iterator[Product]:

        try:
            reader = format or format_of(item.value)
            products = converted(lambda: list(reader.read(item, self.library)))
            for product in products:
                self._check_key(product)
                if self.check is not None:
                    self.check(product)
        except DamagedRecordError as error:
            self._refuse(count, Refusal(DamagedRecordError.of(error, where=item.where)))
            return
        count.converted += _size(item, format)
        count.products.update(product.kind for product in products)
        count.notes += [Remark(str(item.where), note) for product in products for note in product.notes]
        yield from products

    def _check_key(self, product: Product) -> None:
        name = {Kind.EPISODE: "key", Kind.TASK: "id", Kind.SCENARIO: "id"}.get(product.kind)
        if name is None:
            return
        key = f"{product.kind} {getattr(product.value, name)}"
        if key in self._keys:
            raise DamagedRecordError(
                field="pk",
                expected="an id of its own",
                got=getattr(product.value, name),
                hint="leave one of the two out, or give it another id",
            )
        self._keys.add(key)

    def _refuse(self, count: FileCount, refusal: Refusal) -> None:
        if not self.keep_going:
            raise refusal.error
        count.refused.append(refusal)


def paired(entries: Iterator[Item | Refusal], pairs: Callable[[Any, Any], bool]) -> Iterator[Item | Refusal]:
    """Yields items whose value is a list of one value, or of two that follow each other and are one record."""
    waiting: Item | None = None
    for entry in entries:
        if waiting is not None and isinstance(entry, Item) and pairs(waiting.value, entry.value):
            yield replace(waiting, value=[waiting.value, entry.value])
            waiting = None
            continue
        if waiting is not None:
            yield replace(waiting, value=[waiting.value])
        waiting = entry if isinstance(entry, Item) else None
        if isinstance(entry, Refusal):
            yield entry
    if waiting is not None:
        yield replace(waiting, value=[waiting.value])


def _size(item: Item | Refusal, format: Format | None) -> int:
    """How many records of the file an item is."""
    return len(item.value) if isinstance(item, Item) and format is not None and format.pairs is not None else 1


def _rank(format: Format | None) -> int:
    """The place of a format among those that refer to each other; what is of none comes first."""
    return _ORDER.index(format.name) if format is not None else -1


def _known(item: Item) -> bool:
    return any(format.detects(item.value) for format in FORMATS.values())
