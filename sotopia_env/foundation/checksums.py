"""Checksums of records: the last field of a JSON line, by which a change after it was written is noticed.

They show mistakes and edits by hand; a person who wants to deceive can compute them, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from sotopia_env.foundation.errors import DamagedRecordError, Where
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.foundation.records import SourcedRecord, read_record

_DIGITS = 16
_TAIL = len(f',"checksum":"{"0" * _DIGITS}"}}')


def with_checksum(body: str) -> str:
    """Returns the text of a JSON object with one more field at its end: ``checksum``, the hash of ``body``."""
    digest = hashlib.blake2b(body.encode(), digest_size=_DIGITS // 2).hexdigest()
    return f'{body[:-1]},"checksum":"{digest}"}}'


def without_checksum(line: str) -> str | None:
    """Returns the object that :func:`with_checksum` got; ``None`` if the line is not exactly what it returned."""
    line = line.rstrip("\r\n")
    body = f"{line[:-_TAIL]}}}"
    return body if with_checksum(body) == line else None


def _forget(checksum: str) -> str:
    return ""


class CheckedRecord(SourcedRecord):
    """A record whose lines have a checksum, which is forgotten once it is read: a changed copy has another one."""

    checksum: Annotated[str, AfterValidator(_forget)] = ""


_CheckedT = TypeVar("_CheckedT", bound=CheckedRecord)


def read_checked(
    kind: type[_CheckedT], line: str, where: Where | str, write: Callable[[_CheckedT], str]
) -> tuple[_CheckedT, bool]:
    """Returns the record in a line, and whether the line has a checksum.

    Args:
        kind: the class of the record.
        line: the line of a file.
        where: its location, for messages.
        write: returns the line of a record as this version writes it.

    Raises:
        DamagedRecordError: the line is not such a record, or was changed after it was written.
    """
    body = without_checksum(line)
    if body is not None:
        return read_record(kind, body, where), True
    record = read_record(kind, line, where)
    checksum = parse_json(line, where).get("checksum")
    if not checksum:
        return record, False
    # Another program may have written the same content in another form, such as with blanks.
    if not write(record).endswith(f'"checksum":"{checksum}"}}\n'):
        raise DamagedRecordError(
            "the record was changed after it was written",
            hint="restore the line, or delete its field 'checksum' to read it unchecked",
            where=where,
        )
    return record, True
