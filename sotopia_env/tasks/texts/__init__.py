"""Texts of the procedural families as JSON files: items, contexts, goals, hints and phrases.

The texts name no characters, so that other people can play the same scenario, or the same people in exchanged seats. A
family fills the fields in braces; its module documents the use of each list.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.records import Record, read_record

_TextsT = TypeVar("_TextsT", bound=Record)


def read_texts(kind: type[_TextsT], name: str) -> _TextsT:
    """Returns the texts in a JSON file of this folder.

    Args:
        kind: type of the record in the file.
        name: name of the file, without its suffix.

    Raises:
        InvalidTaskError: the file is missing or does not contain such a record; the message names the field.
    """
    path = Path(__file__).with_name(f"{name}.json")
    return read_record(kind, read_text(path, InvalidTaskError), str(path), InvalidTaskError)
