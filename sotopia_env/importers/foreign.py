"""The parts that all importers share: formats, the base class of foreign records, field types and products."""

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

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.foundation.validation import invalid
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord

_CONTROL = re.compile(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]+\s*")
_NOTHING = ("", "nan", "none", "null")
# Similarity (``difflib``) from which a name counts as misspelt. Below it, legitimate extra fields of other tools would
# be refused; every unlisted field is allowed otherwise.
_ALIKE = 0.8


class ProductKind(StrEnum):
    """The kind of record that a foreign record is converted to; the value is its file name in a folder of imports."""

    CHARACTER = "cast"
    SCENARIO = "scenarios"
    RELATIONSHIP = "relationships"
    TASK = "tasks"
    LIST = "lists"
    EPISODE = "episodes"
    ROW = "rows"


@dataclass(frozen=True, slots=True)
class Product:
    """A converted record: a :class:`~sotopia_env.foundation.records.Record`, or the JSON of a row or list.

    Attributes:
        kind: kind of the record.
        value: the record.
        notes: contradictions in the foreign record, one sentence each, with how it was resolved.
    """

    kind: ProductKind
    value: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """A foreign format.

    Attributes:
        name: name on command lines.
        summary: contents, for listings.
        kind: kind of the converted records.
        marks: groups of field names by which a record is detected: it must have a field of every group. If several
            formats match, the first one in the registry is used.
        read: converts a record to products.
        write: converts a product's value back to a foreign record; ``None`` if the format is read-only.
        fits: an additional check of a record that has the fields; ``None`` if the fields are sufficient.
        scalar: type of the records if they are not objects: ``str`` in files of lines of text, ``list`` in objects of
            lists by name.
        pairs: whether two consecutive values are one record. With it, the values passed to ``read`` are lists of one
            or two.
    """

    name: str
    summary: str
    kind: ProductKind
    marks: tuple[tuple[str, ...], ...]
    read: Callable[[RawRecord, Library], Iterable[Product]]
    write: Callable[[Any], Any] | None = None
    fits: Callable[[Any], bool] | None = None
    scalar: type[str] | type[int] | type[list[Any]] | None = None
    pairs: Callable[[Any, Any], bool] | None = None

    def detects(self, value: Any) -> bool:
        """Whether a record looks like one of this format."""
        # The exact type: ``True`` is an ``int`` to ``isinstance``, but not a number in JSON.
        if type(value) is not (self.scalar or dict):
            return False
        if isinstance(value, dict) and not all(any(name in value for name in group) for group in self.marks):
            return False
        return self.fits is None or self.fits(value)


class Foreign(BaseModel):
    """Base of foreign records. Fields that are not declared are kept as they are; a misspelt field is refused."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True, allow_inf_nan=False)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Returns the record in a JSON value.

        Raises:
            DamagedRecordError: ``value`` is not such a record; the message names field, value and correction.
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
        """Refuses an undeclared field whose name resembles that of a declared field that is missing."""
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
    """Returns ``make()``, with validation errors of the records that it builds as one sentence.

    Raises:
        DamagedRecordError: the foreign record cannot be converted.
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
    """Returns ``text`` with line ends and control characters replaced by spaces."""
    return _CONTROL.sub(" ", text).strip() if _CONTROL.search(text) else text


def _nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().casefold() in _NOTHING)


def read_literal(value: Any) -> Any:
    """Returns the value of a Python literal, or of an unquoted list such as ``[actor, actor]``.

    Returns ``None`` for ``None``, ``""``, ``"nan"``, ``"none"`` and ``"null"``. A value that is not a text is returned
    as it is.
    """
    if _nothing(value):
        return None
    if not isinstance(value, str):
        return value
    try:
        literal = ast.literal_eval(value.strip())
        # Raises ``UnicodeEncodeError``, a ``ValueError``, for an escape such as ``"\ud800"``: no record can hold it.
        str(literal).encode()
        return literal
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [word.strip().strip("'\"") for word in value.strip().strip("[]()").split(",") if word.strip()]


def _text(value: Any) -> Any:
    return "" if value is None else value


def _identity(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A text; ``null`` is read as an empty text."""
Identity = Annotated[str, BeforeValidator(_identity)]
"""An id; a number is read as its digits."""


def check_distinct_names(names: Sequence[str]) -> None:
    """Raises :class:`DamagedRecordError` unless there are two names or more, all different."""
    if len(names) < 2 or len(set(names)) != len(names):
        raise DamagedRecordError(field="participants", expected="two or more different names", got=list(names))
