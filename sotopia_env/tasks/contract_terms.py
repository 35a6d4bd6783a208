"""Finding salaries and start dates in speech, as options of one ``hiring`` task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sotopia_env.tasks.bargain_speech import Mention, normalise
from sotopia_env.tasks.prices import find_prices, to_price

SALARY = "salary"
START_DATE = "start_date"
ISSUES = (SALARY, START_DATE)

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MONTH = "|".join(f"{name.lower()}|{name[:3].lower()}\\.?" for name in MONTHS if name != "May") + "|may"
_DAYS = {"first": 1, "fifteenth": 15}
_DAY = r"(?:[0-3]?\d(?:[snr][td]|th)?|first|fifteenth)"
_DATE = re.compile(
    rf"\b(?:(?:the )?(?P<day1>{_DAY})(?: day)? (?:of )?(?P<month1>{_MONTH})"
    rf"|(?P<month2>{_MONTH}) (?:the )?(?P<day2>{_DAY})"
    rf"|(?P<month3>{_MONTH.removesuffix('|may')}))(?:,? 20\d\d)?(?![\w-])"
)
_PLACEHOLDER = "\ue000"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one task, as labels: ``("$100k", …)`` and ``("June 1", …)``."""

    salary: tuple[str, ...]
    start_date: tuple[str, ...]

    @classmethod
    def of(cls, issues: Mapping[str, Sequence[str]]) -> Options:
        """Reads the ``issues`` of a task's shared data."""
        return cls(tuple(issues[SALARY]), tuple(issues[START_DATE]))

    def by_issue(self) -> dict[str, tuple[str, ...]]:
        """Options by issue."""
        return {SALARY: self.salary, START_DATE: self.start_date}


@lru_cache(maxsize=512)
def _amounts(options: Options) -> dict[float, str]:
    return {_yearly(label): label for label in options.salary}


def _yearly(label: str) -> float:
    amount = to_price(label)
    if amount is None:
        raise ValueError(f"salary: expected an amount of money, got {label!r}")
    return amount


@lru_cache(maxsize=512)
def _dates(options: Options) -> dict[tuple[str, int], str]:
    return {(label.split(" ")[0][:3].lower(), int(label.split(" ")[1])): label for label in options.start_date}


def find_terms(text: str, options: Options) -> tuple[str, tuple[Mention, ...]]:
    """Returns normalised ``text`` with each salary and start date replaced by a token, and the mentions.

    A salary or a date that is no option of the task, or a month without a day, is a mention without a value.
    """
    dates: list[Mention] = []

    def keep(match: re.Match[str]) -> str:
        dates.append(Mention(START_DATE, _date(match, options)))
        return _PLACEHOLDER

    text = _DATE.sub(keep, text.replace(_PLACEHOLDER, " "))
    amounts = _amounts(options)
    low, high = min(amounts) * 0.6, max(amounts) * 1.6
    text, prices = find_prices(text, lambda value: low <= value <= high or low <= value * 1000 <= high)
    mentions = [Mention(SALARY, _salary(price.value, amounts)) for price in prices]
    for date in dates:
        text = text.replace(_PLACEHOLDER, f" <{len(mentions)}> ", 1)
        mentions.append(date)
    return re.sub(" +", " ", text).strip(), tuple(mentions)


def _salary(value: float | None, amounts: Mapping[float, str]) -> str | None:
    if value is None:
        return None
    return amounts.get(value, amounts.get(value * 1000))


def _date(match: re.Match[str], options: Options) -> str | None:
    day, month = match["day1"] or match["day2"], match["month1"] or match["month2"]
    if day is None or month is None:
        return None
    number = _DAYS[day] if day in _DAYS else int(re.sub(r"\D", "", day))
    return _dates(options).get((month[:3], number))


def to_option(issue: str, value: object, options: Options) -> str | None:
    """Returns the option that a value of the explicit form names, or ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text, mentions = find_terms(normalise(str(value)), options)
    if len(mentions) != 1 or mentions[0].issue != issue or text != "<0>":
        return None
    found: str | None = mentions[0].value
    return found
