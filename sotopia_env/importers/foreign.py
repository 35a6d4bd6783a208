"""Foreign records: their base, the fields they share, and what becomes of one."""

from __future__ import annotations

import ast
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from sotopia_env.errors import DamagedRecordError, InvalidValueError
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import Item
from sotopia_env.records import invalid

_CONTROL = re.compile(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]+\s*")
_NOTHING = ("", "nan", "none", "null")
_ALIKE = 0.8


class Kind(StrEnum):
    """What a foreign record becomes; the value is the file that holds it in a folder of imports."""

    CHARACTER = "cast"
    SCENARIO = "scenarios"
    RELATIONSHIP = "relationships"
    TASK = "tasks"
    LIST = "lists"
    EPISODE = "episodes"
    ROW = "rows"


@dataclass(frozen=True, slots=True)
class Product:
    """A record of ours: a :class:`~sotopia_env.records.Record`, or the JSON of a row or list.

    Attributes:
        kind: what it is.
        value: the record.
        notes: sentences on what contradicts itself in the foreign record, and what was made of it.
    """

    kind: Kind
    value: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """A foreign format.

    Attributes:
        name: on command lines.
        summary: what it holds, for people.
        kind: what its records become.
        marks: field names by which a record is known: one of each group. Of several formats that fit, the first counts.
        read: returns what a record becomes.
        write: returns the foreign record of one of ours of this kind; ``None`` where the format is only read.
        fits: whether a record with these fields is one; ``None`` where the fields tell.
        scalar: type of the records, where they are no objects: ``str`` in files of lines of text, ``list`` in objects
            of lists by name.
        pairs: whether two values that follow each other are one record; records are then lists of one or two values.
    """

    name: str
    summary: str
    kind: Kind
    marks: tuple[tuple[str, ...], ...]
    read: Callable[[Item, Library], Iterable[Product]]
    write: Callable[[Any], Any] | None = None
    fits: Callable[[Any], bool] | None = None
    scalar: type[str] | type[int] | type[list[Any]] | None = None
    pairs: Callable[[Any, Any], bool] | None = None

    def detects(self, value: Any) -> bool:
        """Whether a record looks like one of this format."""
        if type(value) is not (self.scalar or dict):
            return False
        if isinstance(value, dict) and not all(any(name in value for name in group) for group in self.marks):
            return False
        return self.fits is None or self.fits(value)


class Foreign(BaseModel):
    """Base of foreign records. Fields that are not listed are kept as they are; one that looks misspelt is refused."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True, allow_inf_nan=False)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Returns the record in a JSON value.

        Raises:
            DamagedRecordError: it is none; names field, value and mend.
        """
        if not isinstance(value, dict):
            raise DamagedRecordError(field="record", expected="an object with fields", got=value)
        cls._check_spelling(value)
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise DamagedRecordError.of(invalid(error, cls.model_fields, value)) from None

    @classmethod
    def _check_spelling(cls, value: Mapping[str, Any]) -> None:
        """Refuses a field that is not listed and looks like one that is and is missing."""
        names = {field: _spellings(field, info) for field, info in cls.model_fields.items()}
        unknown = value.keys() - set(itertools.chain(*names.values()))
        missing = [field for field, spellings in names.items() if not value.keys() & set(spellings)]
        for name in sorted(unknown) if missing else ():
            if close := difflib.get_close_matches(name, missing, n=1, cutoff=_ALIKE):
                raise DamagedRecordError("unknown field", field=name, got=value[name], nearest=close[0])


def _spellings(field: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    return [str(name) for name in alias.choices] if isinstance(alias, AliasChoices) else [field]


_ResultT = TypeVar("_ResultT")


def converted(make: Callable[[], _ResultT]) -> _ResultT:
    """Returns what ``make`` returns; what our records refuse about it is said in one sentence.

    Raises:
        DamagedRecordError: the record cannot be one of ours.
    """
    try:
        return make()
    except DamagedRecordError:
        raise
    except ValidationError as error:
        raise DamagedRecordError.of(invalid(error)) from None
    except InvalidValueError as error:
        raise DamagedRecordError.of(error) from None


def one_line(text: str) -> str:
    """Returns ``text`` with its line ends and control characters as blanks."""
    return _CONTROL.sub(" ", text).strip() if _CONTROL.search(text) else text


def _nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().casefold() in _NOTHING)


def read_literal(value: Any) -> Any:
    """Returns what a text says in Python's or a looser notation, such as ``[(18, 70)]`` or ``[actor, actor]``.

    ``None`` for nothing, which also stands as ``"nan"``, ``"none"`` and ``"null"``.
    """
    if _nothing(value):
        return None
    if not isinstance(value, str):
        return value
    try:
        literal = ast.literal_eval(value.strip())
        str(literal).encode()
        return literal
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [word.strip().strip("'\"") for word in value.strip().strip("[]()").split(",") if word.strip()]


def _text(value: Any) -> Any:
    return "" if value is None else value


def _identity(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A text; null is an empty one."""
Identity = Annotated[str, BeforeValidator(_identity)]
"""An id; a number is read as its digits."""


def check_distinct_names(names: Sequence[str]) -> None:
    """Raises :class:`DamagedRecordError` unless there are two names or more, all different."""
    if len(names) < 2 or len(set(names)) != len(names):
        raise DamagedRecordError(field="participants", expected="two or more different names", got=list(names))
