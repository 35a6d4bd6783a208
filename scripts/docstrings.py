"""The reStructuredText of our docstrings as Markdown, for the documentation site.

Docstrings name objects as PyCharm and Sphinx read them, such as ``:class:`~sotopia_env.world.Task```, open a block of
code with ``::``, and have simple tables.
"""

from __future__ import annotations

import re

_ROLE = re.compile(r":[a-z]+:`(~?)([^`]+)`")
_LITERAL = re.compile(r"^(.*?) ?::$", re.MULTILINE)
_TABLE = re.compile(r"^(=+(?: +=+)+)\n(.*?)\n\1\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)


def markdown(text: str) -> str:
    """Returns a docstring with roles as code, the last part of a name after ``~``, and with Markdown's tables."""
    text = _ROLE.sub(lambda match: f"`{match[2].rpartition('.')[2] if match[1] else match[2]}`", text)
    text = _LITERAL.sub(lambda match: f"{match[1]}:" if match[1] else "", text)
    return _TABLE.sub(_table, text).replace("``", "`")


def _table(match: re.Match[str]) -> str:
    # The rules of ``=`` mark the columns: a cell begins where its column's rule begins.
    starts = [rule.start() for rule in re.finditer("=+", match[1])]
    lines = [match[2], *match[3].splitlines()]
    rows = [[line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    return "\n".join(table_rows(rows))


def table_rows(rows: list[list[str]]) -> list[str]:
    """Returns the lines of a Markdown table whose first row is its heading."""
    heading, *body = (f"| {' | '.join(row)} |" for row in rows)
    return [heading, f"|{' --- |' * len(rows[0])}", *body]
