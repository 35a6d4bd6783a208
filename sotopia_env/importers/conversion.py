"""Foreign files as records of ours: detection, counts, refusals; files that others refer to come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sotopia_env.errors import DamagedRecordError
from sotopia_env.importers.foreign import Format, Kind, Product
from sotopia_env.importers.library import Library
from sotopia_env.importers.registry import FORMATS, format_named, format_of
from sotopia_env.importers.source import Item, Refusal, Source, by_key

Advance = Callable[[int], None]
"""Is told how many more bytes were read."""


@dataclass(slots=True)
class FileCount:
    """What became of a file.

    Attributes:
        file: its path.
        format: name of its format; empty where nothing in it was known.
        read: records.
        converted: of these, how many became records of ours.
        refused: the others, in order, with the reasons.
        products: how many records they became, by kind.
    """

    file: str
    format: str = ""
    read: int = 0
    converted: int = 0
    refused: list[Refusal] = field(default_factory=list)
    products: Counter[Kind] = field(default_factory=Counter)

    @property
    def left_out(self) -> int:
        """Records that did not become records of ours; a refusal may be of two that belong together."""
        return self.read - self.converted


@dataclass(slots=True)
class Conversion:
    """Reads files; :meth:`products` may be called once.

    Attributes:
        library: profiles read so far.
        counts: what became of each file, in the order in which they are read.
    """

    files: Sequence[Path]
    format: str | None = None
    keep_going: bool = False
    advance: Advance | None = None
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
        order = list(FORMATS)
        for source, format in sorted(sources, key=lambda entry: order.index(entry[1].name) if entry[1] else -1):
            yield from self._file(source, format)

    def _format_of_file(self, path: Path) -> Format | None:
        """The format of a file's first record; ``None`` where none can be read."""
        if self.format is not None:
            return format_named(self.format)
        for item in Source(path).items():
            if isinstance(item, Item):
                first = item if _known(item) else by_key(item)[0]
                return format_of(first.value, first.where)
        return None

    def _file(self, source: Source, format: Format | None) -> Iterator[Product]:
        count = FileCount(str(source.path), "" if format is None else format.name)
        self.counts.append(count)
        position = 0
        entries = source.items() if format is None or format.pairs is None else paired(source.items(), format.pairs)
        for entry in entries:
            items = [entry] if isinstance(entry, Refusal) or _known(entry) else by_key(entry)
            for item in items:
                count.read += _size(item, format)
                if isinstance(item, Refusal) or format is None:
                    self._refuse(count, item if isinstance(item, Refusal) else Refusal(item.where, "of no format"))
                else:
                    yield from self._record(item, format, count)
            if self.advance is not None and source.position > position:
                self.advance(source.position - position)
                position = source.position

    def _record(self, item: Item, format: Format, count: FileCount) -> Iterator[Product]:
        where = f"{item.where}, key {item.key!r}" if item.key else item.where
        try:
            products = list(format.read(item, self.library))
            for product in products:
                self._check_key(product)
        except DamagedRecordError as error:
            self._refuse(count, Refusal(where, str(error)))
            return
        count.converted += _size(item, format)
        count.products.update(product.kind for product in products)
        yield from products

    def _check_key(self, product: Product) -> None:
        name = {Kind.EPISODE: "key", Kind.TASK: "id", Kind.SCENARIO: "id"}.get(product.kind)
        if name is None:
            return
        key = f"{product.kind} {getattr(product.value, name)}"
        if key in self._keys:
            raise DamagedRecordError(
                f"pk: expected an id of its own, got {getattr(product.value, name)!r} twice; leave one of them out, or "
                "give it another id"
            )
        self._keys.add(key)

    def _refuse(self, count: FileCount, refusal: Refusal) -> None:
        if not self.keep_going:
            raise DamagedRecordError(refusal.sentence)
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


def _known(item: Item) -> bool:
    return any(format.detects(item.value) for format in FORMATS.values())
