"""Import of foreign files into a folder, all or nothing; the same files give the same bytes.

Depending on the records found, the folder holds ``cast.json`` (characters and relationships), ``scenarios.jsonl``,
``tasks.jsonl``, ``lists.jsonl``, ``rows.jsonl``, and ``episodes.jsonl`` with a ``run.json``, which make it a run
directory. ``import.json`` reports the result for every file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ValidationError

from sotopia_env.foundation.errors import DamagedRecordError, InvalidTaskError, InvalidValueError
from sotopia_env.foundation.files import replacement
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.validation import invalid
from sotopia_env.importers.conversion import Conversion, FileCount
from sotopia_env.importers.foreign import Product, ProductKind
from sotopia_env.importers.source import Remark
from sotopia_env.runs.plan import set_hash
from sotopia_env.storage.manifest import EPISODES, RUN, Named, RunConfig, RunCounts, RunManifest
from sotopia_env.tasks import check
from sotopia_env.world import Rules
from sotopia_env.world.episode import Episode, to_line
from sotopia_env.world.taskset import Cast

IMPORT = "import.json"
CAST = "cast.json"
_LINES = (ProductKind.SCENARIO, ProductKind.TASK, ProductKind.LIST, ProductKind.EPISODE, ProductKind.ROW)
_FILES = (CAST, *(f"{kind.value}.jsonl" for kind in _LINES), RUN)


class _FileEntry(BaseModel):
    format: str
    converted: int


class _Report(BaseModel):
    """The fields of ``import.json`` that are read back."""

    files: list[_FileEntry]
    sha256: dict[str, str]


@dataclass(slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        folder: the folder that was written.
        counts: the result for each file that was read.
        written: the number of records in each file of the folder.
    """

    folder: Path
    counts: Sequence[FileCount]
    written: Mapping[str, int]

    @property
    def refused(self) -> int:
        """The number of records that were left out."""
        return sum(count.left_out for count in self.counts)

    def notes(self) -> dict[tuple[str, str], list[Remark]]:
        """Returns, by file and field, the contradictions found in the records and how each was resolved."""
        groups: dict[tuple[str, str], list[Remark]] = {}
        for count in self.counts:
            for note in count.notes:
                groups.setdefault((count.file, note.reason.partition(":")[0]), []).append(note)
        return groups

    def reasons(self) -> list[tuple[str, int]]:
        """Returns the reasons why records were left out, each with a count, the most frequent first."""
        return Counter(refusal.reason for count in self.counts for refusal in count.refused).most_common()


def import_files(
    files: Sequence[str | Path],
    folder: str | Path,
    *,
    format: str | None = None,
    keep_going: bool = False,
    progress: bool | None = None,
) -> ImportReport:
    """Imports files into a folder.

    Args:
        files: the files to import, in any order; references between them are resolved.
        folder: a new folder, or one that an import wrote and that is unchanged since; such a folder is replaced.
        format: the format of all files; ``None`` detects it for each file.
        keep_going: whether a record that cannot be read is left out and counted; otherwise it ends the import.
        progress: whether to show a progress bar on stderr; ``None`` shows it if stderr is a terminal.

    Raises:
        DamagedRecordError: a file cannot be read, a record cannot be read (unless ``keep_going``), or no record can
            be read; nothing is written then.
        InvalidValueError: the folder holds files that no import wrote, or that were changed since.
        UnknownNameError: ``format`` is unknown.
    """
    folder = Path(folder)
    _check_folder(folder)
    with _bar(files, progress) as advance, written_to(folder), _new_folder(folder), ExitStack() as resources:
        conversion = Conversion([Path(file) for file in files], format, keep_going, advance, _check_playable)
        writer = _FolderWriter(folder, resources)
        for product in conversion.products():
            writer.add(product)
        writer.finish(conversion)
    # A folder that is imported again must not keep files of kinds that the sources no longer contain.
    for name in _FILES:
        if name not in writer.digests:
            (folder / name).unlink(missing_ok=True)
    return ImportReport(folder, conversion.counts, writer.numbers)


def _check_playable(product: Product) -> None:
    """Raises :class:`DamagedRecordError` for a task that would be refused when the imported tasks are loaded."""
    if product.kind is not ProductKind.TASK:
        return
    try:
        check(product.value)
    except InvalidTaskError as error:
        raise DamagedRecordError.of(error) from None


@dataclass
class _FolderWriter:
    """Writer of the files of a folder; they replace existing files only after all have been written."""

    folder: Path
    resources: ExitStack
    numbers: Counter[str] = field(default_factory=Counter)
    digests: dict[str, Any] = field(default_factory=dict)
    _streams: dict[str, BinaryIO] = field(default_factory=dict)
    _run: _ManifestBuilder = field(default_factory=lambda: _ManifestBuilder())

    def add(self, product: Product) -> None:
        """Writes a record; characters and relationships are written together at the end."""
        if product.kind in _LINES:
            self._write(f"{product.kind.value}.jsonl", _line(product))
        if product.kind is ProductKind.EPISODE:
            self._run.add(product.value)

    def finish(self, conversion: Conversion) -> None:
        """Writes the files that depend on all records: the cast, ``run.json`` and ``import.json``."""
        library = conversion.library
        if library.characters:
            relationships = sorted((ties[0] for ties in library.relationships.values()), key=lambda tie: tie.seats)
            cast = Cast(characters=tuple(library.characters.values()), relationships=tuple(relationships))
            self._write(CAST, f"{cast.model_dump_json(indent=1)}\n", len(cast.characters))
        if not self.digests:
            reasons = [refusal.sentence for count in conversion.counts for refusal in count.refused]
            raise DamagedRecordError(
                expected="at least one record that can be imported",
                hint=f"{len(reasons)} refused, the first one: {reasons[0]}" if reasons else "",
                where=", ".join(str(count.file) for count in conversion.counts),
            )
        if self._run.keys:
            self._write(RUN, f"{self._run.manifest().model_dump_json(indent=2)}\n")
        self._write(IMPORT, json.dumps(self._report(conversion.counts), indent=1, ensure_ascii=False) + "\n")

    def _report(self, counts: Sequence[FileCount]) -> dict[str, Any]:
        files = [
            {
                "file": count.file,
                "format": count.format,
                "read": count.read,
                "converted": count.converted,
                "refused": [{"where": refusal.where, "reason": refusal.reason} for refusal in count.refused],
                "notes": [{"where": note.where, "note": note.reason} for note in count.notes],
            }
            for count in counts
        ]
        return {"files": files, "sha256": {name: digest.hexdigest() for name, digest in self.digests.items()}}

    def _write(self, name: str, text: str, count: int = 1) -> None:
        if name not in self._streams:
            self._streams[name] = self.resources.enter_context(replacement(self.folder / name))
            self.digests[name] = hashlib.sha256()
        data = text.encode()
        self._streams[name].write(data)
        self.digests[name].update(data)
        self.numbers[name] += count


@dataclass
class _ManifestBuilder:
    """Collects the contents of ``run.json`` for imported episodes."""

    keys: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    policies: set[str] = field(default_factory=set)
    matchups: set[str] = field(default_factory=set)
    evaluators: set[str] = field(default_factory=set)
    rules: dict[Rules, None] = field(default_factory=dict)
    unscored: int = 0

    def add(self, episode: Episode) -> None:
        names = [policy.name for policy in episode.policies]
        self.keys.add(episode.key)
        self.tasks.add(episode.task.content_hash)
        self.policies.update(names)
        self.matchups.add(" vs ".join(names))
        self.evaluators.update(evaluation.evaluator for evaluation in episode.evaluations)
        self.rules.setdefault(episode.rules)
        self.unscored += any(evaluation.unscored is not None for evaluation in episode.evaluations)

    def manifest(self) -> RunManifest:
        only = next(iter(self.evaluators)) if len(self.evaluators) == 1 else None
        config = RunConfig(
            seed=(0,),
            policies=tuple(Named(name=name) for name in sorted(self.policies)),
            matchups=tuple(sorted(self.matchups)),
            evaluator=None if only is None else Named(name=only),
            rules=tuple(self.rules),
            repeats=1,
            tasks=len(self.tasks),
            tasks_hash=set_hash(self.tasks),
            episodes=len(self.keys),
            plan_hash=set_hash(self.keys),
        )
        counts = RunCounts(episodes=len(self.keys), failed=0, unscored=self.unscored)
        return RunManifest(config=config, started="", finished="", counts=counts)


def _line(product: Product) -> str:
    if isinstance(product.value, Episode):
        return to_line(product.value)
    if isinstance(product.value, dict):
        return f"{json.dumps(product.value, ensure_ascii=False)}\n"
    return f"{product.value.model_dump_json()}\n"


def _check_folder(folder: Path) -> None:
    """Raises :class:`InvalidValueError` if the import would replace something that no import wrote."""
    digests = read_report(folder)["sha256"]
    for name in (*_FILES, "failures.jsonl", "unfinished.jsonl"):
        file = folder / name
        if file.exists() and _file_digest(file) != digests.get(name):
            problem = "the file was changed after the import" if name in digests else "the file is not from an import"
            raise InvalidValueError(problem, hint="choose another folder, or remove it", where=file)


def read_report(folder: Path) -> dict[str, Any]:
    """Returns the contents of ``import.json``; an empty report if the folder was not written by an import.

    Raises:
        DamagedRecordError: the file is not the report of an import.
    """
    file = folder / IMPORT
    report = read_json(file, DamagedRecordError) if file.is_file() else {"files": [], "sha256": {}}
    try:
        return _Report.model_validate(report).model_dump()
    except ValidationError as error:
        raise DamagedRecordError.of(invalid(error), where=file) from None


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Turns a failure to write below ``path`` into :class:`InvalidValueError`."""
    try:
        yield
    except OSError as error:
        raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Creates the folder, and removes it again if the block fails and it did not exist before."""
    # From the folder up: only directories that this call creates may be removed.
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"the folder cannot be written ({error.strerror})", where=folder) from None
    try:
        yield
    except BaseException:
        for path in missing[:1]:
            shutil.rmtree(path)
        for path in missing[1:]:
            path.rmdir()
        raise


@contextmanager
def _bar(files: Sequence[str | Path], visible: bool | None) -> Iterator[Any]:
    """Shows a progress bar of bytes read; yields the function that advances it, or ``None`` without a bar."""
    if not (sys.stderr.isatty() if visible is None else visible):
        yield None
        return
    from tqdm import tqdm

    sizes = [Path(file).stat().st_size for file in files if Path(file).is_file()]
    with tqdm(total=sum(sizes), unit="B", unit_scale=True, file=sys.stderr, dynamic_ncols=True) as bar:
        yield bar.update


__all__ = ["EPISODES", "IMPORT", "ImportReport", "import_files"]
