"""Texts of the procedural families as JSON files: items, contexts, goals, hints and phrases.

The texts name no characters, so that other people can play the same scenario, or the same people in exchanged seats. A
family fills the fields in braces; its module documents the use of each list.

A folder with the code of a language (ISO 639-1) has the texts of families in it, in lists of the same lengths and in
the same order, so that a task with the same seed is the same task: everything is drawn by position. The roles that one
setting deals must have the same alphabetical order in every language, because deals are sorted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.records import Record, read_record

_TextsT = TypeVar("_TextsT", bound=Record)


ENGLISH = "en"
LANGUAGES = ("es", "zh")
"""The codes of the other languages of the families that have them."""


def read_texts(kind: type[_TextsT], name: str, language: str = ENGLISH) -> _TextsT:
    """Returns the texts in a JSON file of this folder.

    Args:
        kind: type of the record in the file.
        name: name of the file, without its suffix.
        language: the code of a language.

    Raises:
        InvalidTaskError: the file is missing or does not contain such a record; the message names the field.
    """
    folder = Path(__file__).parent
    path = (folder if language == ENGLISH else folder / language) / f"{name}.json"
    return read_record(kind, read_text(path, InvalidTaskError), str(path), InvalidTaskError)
