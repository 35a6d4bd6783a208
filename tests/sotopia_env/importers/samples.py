"""A record or several of every format, as its files have them, and values of no format."""

import contextlib
from typing import Any

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.importers.conversion import Conversion
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.test_social_reasoning import calendar, marketplace
from tests.sotopia_env.importers.test_training_files import AMPO_RESULT, AMPO_ROW, ANNOTATED, ROWS, SCENE

SAMPLES: dict[str, list[Any]] = {
    "sotopia-agents": [records.AGENT, records.AGENT_LINE, records.AGENT_UNKNOWN],
    "sotopia-environments": [records.ENVIRONMENT, records.ENVIRONMENT_LINE],
    "sotopia-relationships": [records.RELATIONSHIP, records.RELATIONSHIP_LINE],
    "sotopia-combos": [records.COMBINATION, records.COMBINATION_LINE],
    "sotopia-lists": [records.LIST],
    "sotopia-splits": [{"used": ["01H7VFHNV13MHN97GAH73E3KM8"], "hard": ["01H7VFHN5WVC5HKKVBHZBA553R"]}],
    "sotopia-logs": [records.log()],
    "sotopia-episodes": [records.line()],
    "agentsense": [SCENE],
    "srb-marketplace": [marketplace()],
    "srb-calendar": [calendar()],
    "ampo-dialogues": [AMPO_ROW, AMPO_RESULT],
    "ampo-hard": [[0, 7]],
    "sotopia-rl-annotated": [ANNOTATED],
    **ROWS,
}
"""Samples by the name of their format; each becomes a file of its own."""
OTHERS: list[Any] = [
    {"colours": ["red", "blue"]},
    {"colours": {"red": 1}},
    {"name": "x", "value": 3, "tags": ["a"]},
    {"messages": "hello"},
    {"prompt": "a question"},
    {"scenario": "A lift."},
    {"title": None, "rows": [[1, 2], [3, 4]]},
    {},
    [[1], [2]],
    ["red", "blue"],
    [1.5, None, True],
    "nonsense",
    '"half',
]
"""Values of no format."""


def outcome(path: Any, format: str | None = None) -> tuple[str, int]:
    """The sentence with which a file is refused, empty if it is read, and the number of its products.

    Any other exception than a sentence of ours fails the test.
    """
    conversion = Conversion([path], format)
    try:
        products = list(conversion.products())
    except SotopiaError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence
        return sentence, 0
    return "", len(products)


def misreadings(write: Any, own: dict[str, list[Any]], others: dict[str, list[Any]]) -> list[tuple[str, str, int]]:
    """Formats of ``own`` that read a sample of another format of ``others``, with that format and the sample's number.

    ``write`` writes a value into a file and returns its path.
    """
    files = {(name, n): write(value) for name, values in others.items() for n, value in enumerate(values)}
    return [
        (format, name, number)
        for format in own
        for (name, number), path in files.items()
        if name != format and not outcome(path, format)[0]
    ]


def detected(path: Any) -> str | None:
    """The format that a file is read as; ``None`` if it has no known one."""
    conversion = Conversion([path])
    with contextlib.suppress(SotopiaError):
        list(conversion.products())
    return conversion.counts[0].format if conversion.counts else None
