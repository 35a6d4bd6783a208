"""The parts that all importers share: formats, the base class of foreign records, field types and products."""

from __future__ import annotations

import ast
import difflib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, RootModel, ValidationError, model_validator
from pydantic.fields import FieldInfo

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.foundation.quoting import structural_character
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


class Foreign(BaseModel):
    """Base of foreign records. Fields that are not declared are kept as they are; a misspelt field is refused.

    Attributes:
        one_of: groups of optional fields; a record has at least one of each group.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True, allow_inf_nan=False)
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def of(cls, value: Any) -> Self:
        """Returns the record in a JSON value.

        Raises:
            DamagedRecordError: ``value`` is not such a record; the message names field, value and correction.
        """
        if not isinstance(value, dict):
            raise DamagedRecordError(field="record", expected="an object with fields", got=value)
        for name, nearest in cls.misspelt(value).items():
            raise DamagedRecordError("unknown field", field=name, got=value[name], nearest=nearest)
        if group := cls._missing_group(value):
            raise DamagedRecordError(f"missing, as are {', '.join(group[1:])}", field=group[0], hint="give one of them")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise DamagedRecordError.of(invalid(error, cls.model_fields, value)) from None

    @model_validator(mode="before")
    @classmethod
    def _check_groups(cls, value: Any) -> Any:
        if isinstance(value, dict) and (group := cls._missing_group(value)):
            raise ValueError(f"one of {', '.join(group)} is missing")
        return value

    @classmethod
    def _missing_group(cls, value: Mapping[str, Any]) -> tuple[str, ...]:
        """The first group of :attr:`one_of` of which ``value`` has no field; empty if there is none."""
        return next((group for group in cls.one_of if not value.keys() & set(group)), ())

    @classmethod
    @cache
    def groups(cls) -> tuple[tuple[str, ...], ...]:
        """Returns the groups of field names of which a record must have one each, the alternatives in order."""
        required = [_spellings(field, info) for field, info in cls.model_fields.items() if info.is_required()]
        return (*map(tuple, required), *cls.one_of)

    @classmethod
    @cache
    def field_names(cls) -> frozenset[str]:
        """Returns all names of the declared fields."""
        return frozenset(itertools.chain(*(_spellings(field, info) for field, info in cls.model_fields.items())))

    @classmethod
    def misspelt(cls, value: Mapping[str, Any]) -> dict[str, str]:
        """Returns undeclared fields whose names resemble those of declared ones that are missing, with these names."""
        unknown = value.keys() - cls.field_names()
        if not unknown:
            return {}
        spellings = ((field, _spellings(field, info)) for field, info in cls.model_fields.items())
        missing = [field for field, names in spellings if not value.keys() & set(names)]
        pairs = ((name, difflib.get_close_matches(name, missing, n=1, cutoff=_ALIKE)) for name in sorted(unknown))
        return {name: nearest[0] for name, nearest in pairs if nearest}


_ValueT = TypeVar("_ValueT")


class ForeignValue(RootModel[_ValueT]):
    """Base of foreign records that are not objects, such as a line of text or a list."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Returns the record in a JSON value; raises as :meth:`Foreign.of` does."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise DamagedRecordError.of(invalid(error, (), value), field="record") from None


def _spellings(field: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    return [str(name) for name in alias.choices] if isinstance(alias, AliasChoices) else [str(alias or field)]


class Shape(Protocol):
    """A class of foreign records: :class:`Foreign` for objects, :class:`ForeignValue` for other values."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """Returns the record in a JSON value, or raises :class:`DamagedRecordError`."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """As in pydantic."""


_ShapeT = TypeVar("_ShapeT", bound=Shape)


@dataclass(frozen=True, slots=True)
class Format(Generic[_ShapeT]):
    """A foreign format.

    Attributes:
        name: name on command lines.
        summary: contents, for listings.
        kind: kind of the converted records.
        shape: the record that the format needs. A value has the format if it is valid as this record; of several such
            formats, the one that declares most of the value's fields is used, and of these the first in the registry.
        read: converts a valid record, with the location that it was read from, to products.
        write: converts a product's value back to a foreign record; ``None`` if the format is read-only.
        joins: whether a value continues the record that the values before it began. With it, ``shape`` is a list of
            values.
        gathers: the key of the record that a value is a part of, anywhere in the file, and what the record needs of the
            value. With it, ``shape`` is a list of values.
        telling: a narrower record for detection, if files of other kinds are valid as ``shape`` too.
    """

    name: str
    summary: str
    kind: ProductKind
    shape: type[_ShapeT]
    read: Callable[[_ShapeT, RawRecord, Library], Iterable[Product]]
    write: Callable[[Any], Any] | None = None
    joins: Callable[[Sequence[Any], Any], bool] | None = None
    gathers: Callable[[Any], tuple[str, Any]] | None = None
    telling: type[Shape] | None = None

    def products(self, item: RawRecord, library: Library) -> list[Product]:
        """Returns the products of a raw record; raises :class:`DamagedRecordError` if it has another shape."""
        return converted(lambda: list(self.read(self.shape.of(item.value), item, library)))

    def detects(self, value: Any) -> bool:
        """Whether a value is valid as one of this format."""
        return self.problems(value) == 0

    def problems(self, value: Any) -> int:
        """Returns the number of parts of a value that the format's shape refuses."""
        if missing := len(self.missing(value)):
            return missing
        shape = self.telling or self.shape
        try:
            shape.model_validate(self._whole(value))
        except ValidationError as error:
            return error.error_count()
        return len(shape.misspelt(value)) if issubclass(shape, Foreign) else 0

    def check(self, value: Any) -> None:
        """Raises :class:`DamagedRecordError` for a value that has another shape than the format's records."""
        (self.telling or self.shape).of(self._whole(value))

    def continues(self, values: Sequence[Any], value: Any) -> bool:
        """Whether a value continues the record that ``values`` began."""
        # Values of another shape are refused later, one by one; ``joins`` need not expect them.
        joins = self.joins
        return joins is not None and self.detects(values[-1]) and self.detects(value) and joins(values, value)

    def missing(self, value: Any) -> list[tuple[str, ...]]:
        """Returns the groups of fields of which a value has none; a group without names if it is not an object."""
        if not issubclass(self.shape, Foreign):
            return []
        if not isinstance(value, dict):
            return [()]
        return [group for group in self.shape.groups() if not any(name in value for name in group)]

    def coverage(self, value: Any) -> int:
        """Returns the number of a value's fields that the format declares."""
        if not isinstance(value, dict) or not issubclass(self.shape, Foreign):
            return 0
        return len(value.keys() & self.shape.field_names())

    @property
    def has_parts(self) -> bool:
        """Whether several values of a file are one record."""
        return self.joins is not None or self.gathers is not None

    def _whole(self, value: Any) -> Any:
        return [value] if self.has_parts else value


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


def plain_name(name: str) -> str:
    """Returns a name without the characters that structure a line at the table, which foreign names often have."""
    # Normalised first, so that every structural character that is reported is in the text and can be removed.
    plain = unicodedata.normalize("NFKC", one_line(name))
    while character := structural_character(plain):
        plain = plain.replace(character, " ")
    return " ".join(plain.split()) or name


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
