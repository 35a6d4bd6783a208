"""Finding prices in speech: figures, amounts with a currency, numbers in words."""

from __future__ import annotations

import re
from collections.abc import Callable

from sotopia_env.tasks.bargain_speech import Mention

ISSUE = "price"
Plausible = Callable[[float], bool]

_UNITS = dict(
    zip(
        [
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ],
        range(1, 20),
        strict=True,
    )
)
_TENS = dict(
    zip(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], range(20, 100, 10), strict=True)
)
_SCALES = {"hundred": 100, "thousand": 1000, "grand": 1000}
_MOST_WORDS = 12
_WORD = "|".join((*_UNITS, *_TENS, *_SCALES))
_IN_WORDS = re.compile(rf"\b(?:a (?=hundred|thousand|grand))?(?:{_WORD})(?:(?:[ -]|,? and )(?:{_WORD}))*\b")
_FIGURE = re.compile(
    r"(?P<sign>(?:us ?)?[$€£] ?)?(?<![\w.,/])(?P<number>\d{1,3}(?:,\d{3}){1,2}|\d{1,9})"
    r"(?P<cents>\.\d{1,2})?(?P<kilo> ?(?:k|thousand|grand)\b)?"
    r"(?P<unit> ?(?:dollars?|bucks?|usd|euros?|eur|pounds?(?! of)|quid)\b)?(?![\w%]|[.,]\d|/\d)"
)
_OTHER_UNIT = re.compile(
    r"[ -]?(?:years?|months?|weeks?|days?|hours?|minutes?|seconds?|km|kilomet\w+|miles?|met\w+s?|cm|mm"
    r"|inch\w*|feet|foot"
    r"|kg|kilos?|grams?|lbs?|litres?|liters?|percent|per cent|%|gb|mb|tb|watts?|volts?|speeds?|gears?|pieces?|keys?"
    r"|times|points?|people|persons?|seats?|chairs?|of (?:them|these|those|the)|o'?clock|am\b|pm\b|[snr][td]\b"
    r"|th\b|miles|millions?|billions?)\b|%"
)
_RELATIVE_BEFORE = re.compile(
    r"\b(?:another|by|down|up|off|extra|additional|knock|shave|add|adding|minus|plus|split|difference of"
    r"|discount of|save"
    r"|saving|saves|lowered by|all)\s*(?:me |you |the |an? )?$"
)
_RELATIVE_AFTER = re.compile(
    r"\s*(?:off|more|less|extra|discount|apart|difference|lower|higher|cheaper|dearer|too (?:much|high|low)|increments?"
    r"|steps?|each|per(?! year| annum)|short)\b"
)
_LABEL = re.compile(
    r"\b(?:in|since|year|model|from the|number|no|nr|size|page|chapter|room|route|bus|flat|channel)\.? $"
)
_SPREAD = re.compile(r"(\d) ?-(?= ?[$€£]?\d)")
_SPACES = re.compile(" +")
_DIGIT = re.compile(r"\d")
_ISH = re.compile(r"(\d) ?-?ish\b")


def find_prices(text: str, plausible: Plausible) -> tuple[str, tuple[Mention, ...]]:
    """Returns ``text`` with each price replaced by a token, and the prices.

    A bare number is a price only when it is ``plausible`` as one and no other unit follows; differences ("ten
    dollars off") are mentions without a value.

    Args:
        text: normalised text (:func:`sotopia_env.tasks.bargain_speech.normalise`).
        plausible: whether a number without a currency may be a price here.
    """
    if not text:
        return text, ()
    text = _ISH.sub(r"\1 ish", _SPREAD.sub(r"\1 to ", text))
    text = _IN_WORDS.sub(_figures, text)
    mentions: list[Mention] = []

    def token(match: re.Match[str]) -> str:
        money = bool(match["sign"] or match["unit"] or match["kilo"])
        before, after = text[max(0, match.start() - 32) : match.start()], text[match.end() : match.end() + 32]
        value = _value(match)
        if _OTHER_UNIT.match(after) or (not money and (_LABEL.search(before) or not plausible(value))):
            return _DIGIT.sub("", match.group())
        negative = before.endswith("-") and before[-2:-1] in ("", " ")
        relative = (
            negative
            or _RELATIVE_BEFORE.search(before)
            or (_RELATIVE_AFTER.match(after) and not re.match(r"\s*too", after))
        )
        mentions.append(Mention(ISSUE, None if relative else value))
        return f" <{len(mentions) - 1}> "

    return _SPACES.sub(" ", _FIGURE.sub(token, text)).strip(), tuple(mentions)


def to_price(value: object) -> int | float | None:
    """Returns a price from the explicit form (``95``, ``"$1,200"``), or ``None`` when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _FIGURE.fullmatch(str(value).strip().lower())
    return _value(match) if match else None


def _value(match: re.Match[str]) -> int | float:
    value = float(match["number"].replace(",", "") + (match["cents"] or ""))
    value = round(value * 1000 if match["kilo"] else value, 2)
    return int(value) if value == int(value) else value


def _figures(match: re.Match[str]) -> str:
    """Number words as figures; ``one`` to ``nineteen`` alone stay words, they are rarely prices."""
    words = re.split(r"[ -]|,? and ", match.group().removeprefix("a "))
    total, current = 0, 0
    words = [word for word in words if word]
    if len(words) > _MOST_WORDS or (len(words) == 1 and words[0] in _UNITS):
        return match.group()
    for word in words:
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] == 1000:
                total, current = total + current, 0
        else:
            current += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return str(total + current)
