"""Texts of the procedural families, as JSON files: items, contexts, goals, hints and phrases.

They name nobody: the same scenario may be played by other people, or with the people exchanged. What stands in braces
is filled in by the family, whose module says what each list is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from sotopia_env.errors import InvalidTaskError
from sotopia_env.files import read_text
from sotopia_env.records import Record, read_record

_TextsT = TypeVar("_TextsT", bound=Record)


def read_texts(kind: type[_TextsT], name: str) -> _TextsT:
    """Returns the texts in the file ``name``.

    Raises:
        InvalidTaskError: the file is missing or is not of this kind; the message names the field.
    """
    path = Path(__file__).with_name(f"{name}.json")
    return read_record(kind, read_text(path, InvalidTaskError), str(path), InvalidTaskError)
