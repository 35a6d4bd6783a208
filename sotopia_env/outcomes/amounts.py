"""Exact numbers: reading what people and models write as decimals, and the one JSON form of a decimal.

A float is taken by its shortest text (``0.1`` is one tenth), so that nothing here depends on binary fractions.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

# A text of more characters is not a plausible amount.
_LONGEST = 64
# Larger integers are refused before any decimal arithmetic, whose cost grows with the number of digits.
_LARGEST_BITS = 200
# Only a number format, never prose: digits, thousands commas that group correctly, decimals after a point.
_NUMBER = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]+)?")


def fold(text: str) -> str:
    """Returns the normal form of a name, equal for all its spellings: NFKC, case folded, blanks collapsed."""
    # Case folding can leave text that is not in normal form, so it is normalised again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def decimals(*numbers: Decimal) -> int:
    """The number of digits after the point that the longest of ``numbers`` needs."""
    # ``normalize`` drops trailing zeros, so that 5.00 needs no digits.
    exponents = (number.normalize().as_tuple().exponent for number in numbers)
    return max(0, *(-exponent for exponent in exponents if isinstance(exponent, int)), 0)


def read_amount(value: object, unit: str = "") -> Decimal | None:
    """Reads ``84``, ``84.0``, ``"84.00"``, ``"1,250"`` and, with ``unit``, ``"$84"``; ``None`` for anything else."""
    # Tested first, because ``True`` is an ``int`` in Python.
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value) if value.bit_length() <= _LARGEST_BITS else None
    # ``repr`` is the shortest text that reads back as the float: 0.1 is one tenth.
    if isinstance(value, float):
        return Decimal(repr(float(value))) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return _amount_of_text(value, unit) if isinstance(value, str) and len(value) <= _LONGEST else None


def _amount_of_text(text: str, unit: str) -> Decimal | None:
    text = unicodedata.normalize("NFKC", text).strip().replace("\N{MINUS SIGN}", "-")
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = text[len(sign) :].strip()
    # A number without a unit is read first: the unit may itself begin or end with a digit.
    if not _NUMBER.fullmatch(digits):
        digits = _without_unit(digits, unicodedata.normalize("NFKC", unit))
    match = _NUMBER.fullmatch(digits)
    # A second sign after the unit, such as ``-$-5``, makes the text invalid.
    if match is None or (sign and match.group(1)):
        return None
    return Decimal(sign + digits.replace(",", ""))


def _without_unit(text: str, unit: str) -> str:
    if unit and text.casefold().startswith(unit.casefold()):
        return text[len(unit) :].strip()
    if unit and text.casefold().endswith(unit.casefold()):
        return text[: len(text) - len(unit)].strip()
    return text


def count_text(count: int) -> str:
    """Returns a whole number as text: in full up to 15 digits, above that as a power of ten."""
    return f"{count:,}" if count < 10**15 else f"more than 10^{int(count.bit_length() * math.log10(2)) - 1}"


def money_text(amount: int | float | Decimal, decimals: int) -> str:
    """Returns an amount of money as text: with thousands commas, and at least two decimals unless ``decimals`` is 0."""
    return f"{amount:,.{max(2, decimals) if decimals else 0}f}"


def conjunction(names: Sequence[str]) -> str:
    """Returns the names as part of a sentence: ``Ana``, ``Ana and Ben`` or ``Ana, Ben and Cleo``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def json_number(number: Decimal) -> int | float:
    """Returns the canonical JSON form: an int where the number is whole, else the float of its decimal text."""
    return int(number) if number == number.to_integral_value() else float(number)


def _exact(value: Any) -> Any:
    amount = read_amount(value)
    if amount is None:
        raise ValueError("must be a number, such as 5, 0.01 or '0.01'")
    return amount


def _no_truth_value(value: Any) -> Any:
    # Pydantic would read "5" as 5.0 and true as 1.0.
    if isinstance(value, (bool, str)):
        raise ValueError("must be a number")
    return value


Amount = Annotated[Decimal, BeforeValidator(_exact), PlainSerializer(json_number, return_type=int | float)]
"""An exact decimal in a record; JSON writes it as a number."""

Value = Annotated[float, BeforeValidator(_no_truth_value), Field(ge=-1e12, le=1e12)]
"""A number of a worth: finite, between -10¹² and 10¹²; numbers in quotes and truth values are refused."""
