"""Reader of the sheets that annotators filled in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, UnknownNameError, Verbatim, Where
from sotopia_env.foundation.files import csv_text, not_utf8, unescape_formulas
from sotopia_env.people.sheet import ANNOTATOR, ID, REASONING, SECONDS, AnnotationKey, AnnotationRequest

_WHOLE = re.compile(r"[+-]?[0-9]{1,9}(?:\.0+)?")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotator's scores of one seat.

    Attributes:
        request: the row of the sheet.
        annotator: name of the annotator.
        scores: scores by dimension; missing scores are absent.
        reasoning: reasoning by dimension, for dimensions with a column of reasoning; may be an empty text.
        seconds: duration in seconds; ``None`` if the sheet does not contain it.
        where: file and row, counted like the rows of a spreadsheet program.
    """

    request: AnnotationRequest
    annotator: str
    scores: Mapping[str, float]
    reasoning: Mapping[str, str]
    seconds: float | None
    where: Where

    @property
    def seat(self) -> tuple[str, str]:
        """Episode key and agent id."""
        return self.request.episode, self.request.agent


@dataclass(frozen=True, slots=True)
class AnnotationSet:
    """The annotations of a sheet.

    Attributes:
        key: key of the sheet.
        annotations: the rows that were filled in, in the key's order.
    """

    key: AnnotationKey
    annotations: tuple[Annotation, ...]

    @property
    def blank(self) -> int:
        """Number of rows that were not filled in."""
        return len(self.key.requests) - len(self.annotations)

    @property
    def missing(self) -> Mapping[str, int]:
        """Number of filled-in rows without a score, by dimension; dimensions without such rows are absent."""
        counts = {name: sum(name not in a.scores for a in self.annotations) for name in self.key.scales}
        return {name: count for name, count in counts.items() if count}


def completed_sheet(answers: AnnotationSet) -> str:
    """Returns annotations that were collected in another way as the CSV of a completed sheet."""
    names = answers.key.scales
    lines = []
    for item in answers.annotations:
        cells: list[object] = [item.request.annotation_id, item.annotator]
        for name in names:
            score = item.scores.get(name)
            cells += ["" if score is None else int(score), item.reasoning.get(name, "")]
        lines.append([*cells, "" if item.seconds is None else round(item.seconds, 1)])
    return csv_text((ID, ANNOTATOR, *(c for name in names for c in (name, name + REASONING)), SECONDS), lines)


def read_annotations(sheets: str | Path | Sequence[str | Path], key: AnnotationKey | str | Path) -> AnnotationSet:
    """Reads filled-in sheets: one file, or the copies that several annotators returned.

    A row without annotator, scores and reasoning is counted as not filled in. A filled-in row may lack scores. Columns
    may be in any order, separated by commas, semicolons or tabs; the read-only columns and those for reasoning are
    optional. A column ``duration_seconds`` may be added.

    Args:
        sheets: path of a sheet, or paths of several copies.
        key: the key of the sheet, or its path.

    Raises:
        DamagedRecordError: a file is not CSV in UTF-8, or the key cannot be read.
        UnknownNameError: a column or an annotation id is unknown; the message suggests the nearest one.
        InvalidValueError: a column is missing, a score is not an integer in its range, a row has no annotator, or a row
            was filled in twice. The message names file, row, column and value.
    """
    key = key if isinstance(key, AnnotationKey) else AnnotationKey.load(key)
    requests = {request.annotation_id: request for request in key.requests}
    by_id: dict[str, Annotation] = {}
    for sheet in [sheets] if isinstance(sheets, str | Path) else sheets:
        for where, cells in _rows(Path(sheet), key):
            item = _annotation(where, cells, key, requests)
            if item is None:
                continue
            earlier = by_id.setdefault(item.request.annotation_id, item)
            if earlier is not item:
                raise InvalidValueError(
                    f"the annotation is filled in twice, first in {earlier.where}",
                    field=ID,
                    got=item.request.annotation_id,
                    where=where,
                )
    return AnnotationSet(key, tuple(by_id[name] for name in requests if name in by_id))


def _rows(sheet: Path, key: AnnotationKey) -> Iterator[tuple[Where, dict[str, str]]]:
    try:
        text = sheet.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DamagedRecordError(f"cannot be read ({error.strerror})", where=sheet) from None
    except UnicodeDecodeError as error:
        raise not_utf8(DamagedRecordError, error.object[error.start], sheet) from None
    # Spreadsheet programs separate cells as the locale has it. The header's names contain none of the separators.
    head = text.split("\n", 1)[0]
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    columns: list[str] | None = None
    for number, cells in enumerate(_parse(lines, sheet, len(text)), start=1):
        where = Where(sheet, record=f"row {number}")
        if columns is None:
            columns = _columns(cells, key, where)
        elif any(cell.strip() for cell in cells):
            if len(cells) != len(columns):
                raise InvalidValueError(expected=f"{len(columns)} cells", got=len(cells), where=where)
            yield where, dict(zip(columns, cells, strict=True))
    if columns is None:
        raise InvalidValueError(
            expected=f"a header with {ID!r} and {ANNOTATOR!r}", got=Verbatim("an empty file"), where=sheet
        )


def _parse(lines: Iterator[list[str]], sheet: Path, longest: int) -> Iterator[list[str]]:
    number = 1
    while True:
        try:
            # Set for each row, because the caller runs between the rows and may read CSV files of its own.
            with _cells_up_to(longest):
                cells = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            where = Where(sheet, record=f"row {number}")
            raise DamagedRecordError(f"not valid CSV ({error})", where=where) from None
        yield cells
        number += 1


@contextmanager
def _cells_up_to(characters: int) -> Iterator[None]:
    """Raises the csv module's limit on the length of cells, which is global to the process, and restores it."""
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, characters))
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _columns(cells: Sequence[str], key: AnnotationKey, where: Where) -> list[str]:
    names = [cell.strip().casefold() for cell in cells]
    for name in names:
        if name not in (*key.columns, SECONDS):
            raise UnknownNameError(field="column", got=name, valid=(*key.columns, SECONDS), where=where)
        if names.count(name) > 1:
            raise InvalidValueError(
                expected="distinct columns", got=Verbatim(f"{name!r} {names.count(name)} times"), where=where
            )
    for name in (ID, ANNOTATOR, *key.scales):
        if name not in names:
            raise InvalidValueError(expected=f"a column {name!r}", where=where)
    return names


def _annotation(
    where: Where, cells: Mapping[str, str], key: AnnotationKey, requests: Mapping[str, AnnotationRequest]
) -> Annotation | None:
    name, annotator = cells[ID].strip(), unescape_formulas(cells[ANNOTATOR].strip())
    if name not in requests:
        raise UnknownNameError(field=ID, got=name, valid=requests, where=where)
    texts = {d: unescape_formulas(cells[d + REASONING].strip()) for d in key.scales if d + REASONING in cells}
    scores = {d: value for d in key.scales if (value := _score(where, d, cells[d], key.scales[d])) is not None}
    # An invalid score has raised by now: a row with a typing mistake must not pass for an empty one.
    if not (annotator or scores or any(texts.values())):
        return None
    if not annotator:
        raise InvalidValueError(field=ANNOTATOR, expected="the name of the annotator of this row", where=where)
    return Annotation(requests[name], annotator, scores, texts, _seconds(where, cells.get(SECONDS, "")), where)


def _score(where: Where, column: str, cell: str, scale: tuple[int, int]) -> float | None:
    text, (low, high) = unescape_formulas(cell.strip()), scale
    if not text:
        return None
    # ``float`` alone would accept "nan", "1e1" and "1_0".
    if not (_WHOLE.fullmatch(text) and low <= float(text) <= high):
        raise InvalidValueError(
            field=column,
            expected=f"a whole number from {low} to {high} or nothing",
            got=text[:80],
            where=where,
        )
    return float(text)


def _seconds(where: Where, cell: str) -> float | None:
    text = unescape_formulas(cell.strip())
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]+)?", text):
        raise InvalidValueError(field=SECONDS, expected="a number of seconds or nothing", got=text[:80], where=where)
    return float(text)
