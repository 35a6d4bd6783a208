"""Export of this package's records to a foreign format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Where
from sotopia_env.foundation.files import read_lines, read_text, replacement
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.foundation.records import read_record
from sotopia_env.importers.foreign import ProductKind
from sotopia_env.importers.importing import CAST, read_report, written_to
from sotopia_env.importers.registry import format_named, formats
from sotopia_env.storage import read_run
from sotopia_env.world import Scenario, Task
from sotopia_env.world.taskset import Cast

SUFFIXES = (".jsonl", ".json")


def export_records(source: str | Path, file: str | Path, *, format: str | None = None) -> int:
    """Writes records in a foreign format and returns their number.

    Args:
        source: a folder of imports, a run directory, or a file of episodes, tasks, scenarios, rows or a cast.
        file: ``.jsonl`` for JSON Lines, ``.json`` for an array.
        format: the name of the foreign format; ``None`` uses that of the import, if ``source`` is one.

    Raises:
        InvalidValueError: ``source`` has no records of the format's kind, the format cannot be determined or written,
            or the file's name has another suffix.
        UnknownNameError: ``format`` is unknown.
        DamagedRecordError: a record cannot be read.
    """
    source, file = Path(source), Path(file)
    foreign = format_named(format or _only_format(source))
    write = foreign.write
    if write is None:
        writable = [name for name, other in formats().items() if other.write is not None]
        raise InvalidValueError(
            f"{foreign.name} can be read but not written", field="format", expected=f"one of {', '.join(writable)}"
        )
    if file.suffix not in SUFFIXES:
        raise InvalidValueError(
            expected=f"a name that ends with {' or '.join(SUFFIXES)} for {foreign.name}", where=file
        )
    count = 0
    # The sources are read while the export is written: it must not replace one of them.
    if file.exists() and source.resolve() in (file.resolve(), file.resolve().parent):
        raise InvalidValueError(
            expected="a file outside the records that are exported", hint="choose another", where=file
        )
    with written_to(file), _new_file(file) as stream:
        is_array = file.suffix == ".json"
        for entry in _records(source, foreign.kind):
            record = write(entry)
            text = json.dumps(record, ensure_ascii=False)
            start = ("[\n" if not count else ",\n") if is_array else ""
            stream.write(f"{start}{text}{'' if is_array else chr(10)}".encode())
            count += 1
        if not count:
            raise InvalidValueError(expected=f"{foreign.kind.value} to export as {foreign.name}", where=source)
        if is_array:
            stream.write(b"\n]\n")
    return count


@contextmanager
def _new_file(file: Path) -> Iterator[BinaryIO]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacement(file) as stream:
        yield stream


def _only_format(source: Path) -> str:
    names = sorted({entry["format"] for entry in read_report(source)["files"] if entry["converted"]})
    if len(names) != 1:
        got = f"holds imports of {', '.join(names)}" if names else "is not a folder of imports"
        raise InvalidValueError(field="format", expected="a name", hint=f"{source} {got}")
    return str(names[0])


def _records(source: Path, kind: ProductKind) -> Iterator[Any]:
    if kind is ProductKind.EPISODE:
        yield from read_run(source)
        return
    if kind in (ProductKind.CHARACTER, ProductKind.RELATIONSHIP):
        yield from _people(source, kind)
        return
    file = source / f"{kind.value}.jsonl" if source.is_dir() else source
    if kind is ProductKind.SCENARIO:
        yield from _scenarios(file if file.exists() else source)
        return
    for where, line in _lines(file):
        match kind:
            case ProductKind.TASK:
                yield read_record(Task, line, where)
            case _:
                yield parse_json(line, where)


def _lines(file: Path) -> Iterable[tuple[Where, str]]:
    if not file.is_file():
        raise InvalidValueError(expected="a file of records", where=file)
    return read_lines(file)


def _tasks(source: Path) -> Iterator[Task]:
    file = source / "tasks.jsonl" if source.is_dir() else source
    return (read_record(Task, line, where) for where, line in _lines(file))


def _scenarios(source: Path) -> Iterator[Scenario]:
    """Yields the scenarios in ``source``; for tasks, the first scenario of each id."""
    if not _holds_tasks(source):
        yield from (read_record(Scenario, line, where) for where, line in _lines(source))
        return
    scenarios: dict[str, Scenario] = {}
    for task in _tasks(source):
        scenarios.setdefault(task.scenario.id, task.scenario)
    yield from scenarios.values()


def _holds_tasks(source: Path) -> bool:
    """Whether ``source`` is a folder, whose tasks are then exported, or a file that begins with a task."""
    if source.is_dir():
        return True
    first = next((parse_json(line, where) for where, line in _lines(source)), None)
    return isinstance(first, dict) and "scenario" in first


def _people(source: Path, kind: ProductKind) -> Iterator[Any]:
    """Yields characters, or relationships with the characters of their cast; for tasks, those of all tasks."""
    file = source / CAST if source.is_dir() else source
    if not file.is_file() or file.suffix == ".jsonl":
        if kind is ProductKind.CHARACTER:
            people = (person for task in _tasks(source) for person in task.characters)
            yield from {person.model_dump_json(): person for person in people}.values()
            return
        for task in _tasks(source):
            for record in task.relationships:
                yield record, task.characters
        return
    cast = read_record(Cast, read_text(file, DamagedRecordError), file)
    if kind is ProductKind.CHARACTER:
        yield from cast.characters
    else:
        yield from ((record, cast.characters) for record in cast.relationships)
