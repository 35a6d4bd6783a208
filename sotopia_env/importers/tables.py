"""Readers of tables: every row of a CSV or Parquet file is a record whose fields are its columns.

Texts of a CSV file stay texts, since ``007`` may be an id: the format that reads a row converts its numbers.
"""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, Verbatim, Where
from sotopia_env.foundation.extras import MissingExtraError, install_command
from sotopia_env.foundation.files import unescape_formulas
from sotopia_env.importers.source import RawRecord, RefusedRecord

DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
"""Suffixes of CSV files, with the characters that may separate their cells: the one that gives most columns does."""
MOST_BYTES = 1 << 30
"""Maximum size of a row group in memory."""
_MOST_CHARACTERS = 1 << 24  # of one line of a CSV file in memory
_BATCH = 64  # rows of a Parquet file in memory
_TOO_LONG = "write the table as JSON Lines or Parquet"


def csv_records(path: Path, stream: io.BufferedReader) -> Iterator[RawRecord | RefusedRecord]:
    """Yields the rows of a CSV file; an empty cell is a missing value, and a cell with a formula is a text.

    Raises:
        DamagedRecordError: the first row does not name the columns.
        UnicodeDecodeError: the file is not UTF-8.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    first = text.readline(_MOST_CHARACTERS)
    delimiters = DELIMITERS[path.suffix.lower()]
    delimiter = max(delimiters, key=lambda character: len(next(csv.reader([first], delimiter=character), [])))
    rows = csv.reader(itertools.chain([first], _lines(text)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    number, line = 0, 1
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            hint = _TOO_LONG if "limit" in str(error) else "close the quotes of every cell; the rest of it is not read"
            yield RefusedRecord(DamagedRecordError(f"not a row of CSV ({error})", hint=hint, where=Where(path, line)))
            return
        start, line = line, rows.line_num + 1
        if header is None:
            header = [_column(name) for name in cells]
            _check_header(path, header)
        elif any(cell.strip() for cell in cells):
            number += 1
            yield _csv_record(path, number, start, header, cells)


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a file; one that is too long comes in pieces, of which the reader refuses the first cell."""
    while line := text.readline(_MOST_CHARACTERS):
        yield line


def _column(name: str) -> str:
    """The name of a column as fields are written: ``First name`` is ``first_name``."""
    return name.strip().lower().replace(" ", "_")


def _check_header(path: Path, header: Sequence[str]) -> None:
    names = [name for name in header if name]
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise DamagedRecordError("two columns have one name", field=double, hint="rename one", where=Where(path, 1))
    if not names:
        raise DamagedRecordError(
            expected="the names of the columns", got=Verbatim("an empty line"), where=Where(path, 1)
        )


def _csv_record(
    path: Path, number: int, line: int, header: Sequence[str], cells: Sequence[str]
) -> RawRecord | RefusedRecord:
    # Cells beyond the header, or under no name, may be empty: spreadsheet programs write them.
    extra = [cell for n, cell in enumerate(cells) if cell.strip() and (n >= len(header) or not header[n])]
    if extra:
        expected = f"a cell for each of {len(header)} columns"
        hint = "quote a cell that contains the separator, and name every column"
        return RefusedRecord(DamagedRecordError(expected=expected, got=extra[0], hint=hint, where=Where(path, line)))
    filled = {name: unescape_formulas(cell) for name, cell in zip(header, cells, strict=False) if cell.strip()}
    value = {name: filled.get(name) for name in header if name}
    formulas = [name for name, cell in zip(header, cells, strict=False) if cell.startswith("=")]
    notes = tuple(
        f"{name}: a formula is a text here; save the table with values to import its result" for name in formulas
    )
    return RawRecord(path, number, line, value, notes=notes)


def parquet_records(path: Path) -> Iterator[RawRecord | RefusedRecord]:
    """Yields the rows of a Parquet file.

    Raises:
        MissingExtraError: pyarrow is not installed.
        DamagedRecordError: the file is damaged, or a part of it does not fit into memory.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        message = f"Parquet files need {error.name}, which is not installed: {install_command('train')}"
        raise MissingExtraError(message, name=error.name) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_size(path, file.metadata)
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield _parquet_record(path, number, row)
    except DamagedRecordError:
        raise
    # ``OverflowError`` is for a date that Python's calendar does not have, ``UnicodeDecodeError`` for damaged text.
    except (pyarrow.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DamagedRecordError(f"not a valid Parquet file ({reason})", hint="write it again", where=path) from None


def _check_size(path: Path, metadata: Any) -> None:
    """Raises :class:`DamagedRecordError` for a part that inflates to more than the memory that it may use."""
    sizes = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
    if max(sizes, default=0) > MOST_BYTES:
        got = Verbatim(f"one of {max(sizes)}")
        hint = "write the table with smaller row groups"
        raise DamagedRecordError(expected=f"row groups of at most {MOST_BYTES} bytes", got=got, hint=hint, where=path)


def _parquet_record(path: Path, number: int, row: dict[str, Any]) -> RawRecord | RefusedRecord:
    try:
        value = {name: _plain(cell) for name, cell in row.items()}
    except TypeError as error:
        where = Where(path, record=f"row {number}")
        return RefusedRecord(DamagedRecordError(f"not data of JSON ({error})", hint="write it as text", where=where))
    return RawRecord(path, number, 0, value)


def _plain(cell: Any) -> Any:
    """A cell as a value of JSON; ``None`` for a missing one, which pandas writes as NaN."""
    if isinstance(cell, dict):
        return {name: _plain(value) for name, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_plain(value) for value in cell]
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    if isinstance(cell, Decimal):
        return str(cell)
    if cell is None or isinstance(cell, str | bool | int | float):
        return cell
    raise TypeError(f"a value of type {type(cell).__name__}")
