"""Inspirations: short phrases from a source, such as a collection of everyday norms, each used once.

Sources are used evenly: the next inspiration always comes from the source with the fewest results so far (SOTOPIA-π,
arXiv 2403.08715, B.1: roughly equal shares, used inspirations recorded).
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Where
from sotopia_env.foundation.files import read_lines, read_text
from sotopia_env.foundation.json_text import decode_json


def plain(text: str) -> str:
    """Returns ``text`` with normalized letter case and spacing."""
    return " ".join(text.casefold().split())


@dataclass(frozen=True, slots=True, order=True)
class Inspiration:
    """A phrase and its source."""

    source: str
    text: str

    @property
    def key(self) -> str:
        """The phrase with normalized letter case and spacing."""
        return plain(self.text)


def read_inspirations(paths: Iterable[str | Path]) -> list[Inspiration]:
    """Returns the inspirations in files, each phrase once, in the files' order.

    Args:
        paths: ``.txt`` files with one inspiration per line (the file's name is the source), or ``.jsonl`` files of
            objects with ``source`` and ``text``, such as the record of an earlier call.

    Raises:
        InvalidValueError: a file cannot be read, or is neither ``.txt`` nor ``.jsonl``.
        DamagedRecordError: a line is not an inspiration.
    """
    inspirations: dict[str, Inspiration] = {}
    for path in map(Path, paths):
        if not path.is_file() or path.suffix not in (".txt", ".jsonl"):
            raise InvalidValueError(field="inspirations", expected="a .txt or .jsonl file", got=path)
        for item in _phrases(path) if path.suffix == ".txt" else itertools.starmap(_inspiration, read_lines(path)):
            inspirations.setdefault(item.key, item)
    return list(inspirations.values())


def _phrases(path: Path) -> Iterator[Inspiration]:
    # Not read_lines, which skips a last line without a line end: such files are often written by hand.
    return (Inspiration(path.stem, line.strip()) for line in read_text(path).split("\n") if line.strip())


def _inspiration(where: Where, line: str) -> Inspiration:
    try:
        item = decode_json(line)
        return Inspiration(str(item["source"]), str(item["text"]))
    except (ValueError, KeyError, TypeError):
        raise DamagedRecordError(expected="an object with source and text", where=where) from None


def unused(pool: Iterable[Inspiration], previous: Iterable[Inspiration]) -> list[Inspiration]:
    """Returns the inspirations of ``pool`` whose phrases are not in ``previous``."""
    keys = {item.key for item in previous}
    return [item for item in pool if item.key not in keys]


def queues(pool: Iterable[Inspiration], previous: Iterable[Inspiration], seed: int) -> dict[str, list[Inspiration]]:
    """Returns the unused inspirations by source, shuffled; the last one of a list is the next to be used."""
    by_source: dict[str, list[Inspiration]] = {}
    # Sorted, so that the shuffled order depends on the seed and not on the order of files.
    for item in sorted(pool):
        by_source.setdefault(item.source, []).append(item)
    used = list(previous)
    for source, items in by_source.items():
        # All are shuffled before the used ones are removed, so that a continued call has the order of an uninterrupted
        # one.
        random.Random(f"{seed}:{source}").shuffle(items)
        by_source[source] = unused(items, used)
    return {source: items for source, items in by_source.items() if items}


def take_evenly(waiting: Mapping[str, list[Inspiration]], counts: Counter[str], n: int) -> list[Inspiration]:
    """Removes ``n`` inspirations from ``waiting``, each from the source with the fewest results in ``counts``."""
    # Each inspiration of the batch is counted as a result in advance; refused ones are made up for in the next batch.
    batch: list[Inspiration] = []
    expected = Counter(counts)
    while len(batch) < n and (sources := [source for source, items in waiting.items() if items]):
        source = min(sources, key=lambda name: (expected[name], name))
        batch.append(waiting[source].pop())
        expected[source] += 1
    return batch
