"""The outcome space: everything that can be agreed on, as the product of its issues over the seats."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sotopia_env.foundation.errors import UnknownNameError, excerpt
from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.issues import ChoiceIssue, ItemsIssue, NumberIssue, Seats
from sotopia_env.outcomes.move import InvalidMoveError

Terms = dict[str, Any]
"""One point of a space in normal form: issue name to value, in the order of the issues. Treat as immutable."""

MOST_TEXTS = 4_096
"""The number of texts of terms, acceptances and menus that each space caches, per kind."""

OPTION = "option"
"""The one issue of a ballot's space."""


def remember(texts: dict[tuple[Any, ...], str], key: tuple[Any, ...], text: str) -> str:
    """Returns ``text`` and stores it in ``texts``, which never grows beyond :data:`MOST_TEXTS`."""
    if len(texts) >= MOST_TEXTS:
        # Cleared as a whole: texts recur within an episode, so tracking their use would not pay.
        texts.clear()
    texts[key] = text
    return text


@dataclass(frozen=True)
class OutcomeSpace:
    """The issues and the seats: the public part of a specification, and all of it that policies see.

    A ballot's space has one issue, the choice ``option``; the space of claims has no issue, hence one outcome, ``{}``.

    Attributes:
        issues: in the order of the file.
        names: agent id to character name, in seat order.
    """

    issues: tuple[NumberIssue | ChoiceIssue | ItemsIssue, ...]
    names: Seats = field(hash=False)

    @cached_property
    def size(self) -> int:
        """The exact number of outcomes."""
        return math.prod(issue.size(len(self.names)) for issue in self.issues)

    @cached_property
    def _issue_names(self) -> tuple[str, ...]:
        return tuple(issue.name for issue in self.issues)

    @cached_property
    def _readers(self) -> tuple[tuple[str, Callable[[object, Seats], Any]], ...]:
        return tuple((issue.name, issue.read) for issue in self.issues)

    @cached_property
    def _writers(self) -> tuple[tuple[str, str, Callable[[Any, Seats], str]], ...]:
        return tuple((issue.name, f"{issue.name}{':' * (issue.kind == 'items')} ", issue.text) for issue in self.issues)

    def outcomes(self) -> Iterator[Terms]:
        """Every outcome in normal form; the last issue varies fastest."""
        values = [list(issue.values(self.names)) for issue in self.issues]
        for row in itertools.product(*values):
            yield dict(zip(self._issue_names, row, strict=True))

    def terms_at(self, index: int) -> Terms:
        """The outcome at ``index`` in the order of :meth:`outcomes`."""
        # The index in mixed radix: the last issue is the lowest digit, as it varies fastest.
        values: dict[str, Any] = {}
        for issue in reversed(self.issues):
            index, position = divmod(index, issue.size(len(self.names)))
            values[issue.name] = next(itertools.islice(issue.values(self.names), position, None))
        return {name: values[name] for name in self._issue_names}

    def draw(self, rng: random.Random) -> Terms:
        """A random outcome in normal form; each is equally likely."""
        return {issue.name: issue.draw(self.names, rng) for issue in self.issues}

    def key(self, terms: Mapping[str, Any]) -> tuple[Any, ...]:
        """A hashable key of terms in normal form."""
        if not self._has_items:
            return tuple([terms[name] for name in self._issue_names])
        values = [terms[name] for name in self._issue_names]
        # A division is a dict; its values in seat order can be hashed.
        return tuple([tuple(value.values()) if isinstance(value, dict) else value for value in values])

    @cached_property
    def _has_items(self) -> bool:
        return any(issue.kind == "items" for issue in self.issues)

    def normalise(self, terms: object, seats: Seats | None = None) -> Terms:
        """Returns complete ``terms`` in their one normal form; terms in normal form stay as they are.

        Args:
            terms: a mapping of issue names (whatever their case) to values.
            seats: agent id to name; by default, the seats of the space.

        Raises:
            InvalidMoveError: an issue is missing or unknown, or a value is invalid; names the nearest valid one.
        """
        seats = self.names if seats is None else seats
        readers = self._readers
        # Terms are nearly always a dict with the exact names of all issues, which is read in a third of the time.
        if type(terms) is dict and len(terms) == len(readers):
            normal: Terms = {}
            try:
                for name, read in readers:
                    normal[name] = read(terms[name], seats)
                return normal
            # A name in another case, or an unknown one.
            except KeyError:
                pass
        if not isinstance(terms, Mapping):
            raise InvalidMoveError(field="terms", expected=f"an object with {self._listed()}", got=terms)
        exact = self._by_exact_name(terms)
        return {name: read(exact[name], seats) for name, read in self._readers}

    def _listed(self) -> str:
        return ", ".join(excerpt(name) for name in self._issue_names[:12])

    def _by_exact_name(self, terms: Mapping[Any, Any]) -> dict[str, Any]:
        names = ChoiceIssue(name="terms", options=self._issue_names) if self.issues else None
        exact: dict[str, Any] = {}
        # One key more than there are issues suffices to meet an unknown or a repeated one.
        for key in itertools.islice(terms, len(self.issues) + 1):
            if names is None:
                raise InvalidMoveError("there is nothing to agree on", field="terms", got=key)
            name = names.read(key, self.names)
            if name in exact:
                raise InvalidMoveError(f"{excerpt(name)} occurs twice", field="terms")
            exact[name] = terms[key]
        if missing := [name for name in self._issue_names if name not in exact]:
            raise InvalidMoveError(
                f"{excerpt(missing[0])} is missing", field="terms", expected=f"all of {self._listed()}"
            )
        return exact

    def describe(self, terms: Mapping[str, Any], names: Seats | None = None) -> str:
        """Returns terms in normal form for people: ``price $84, start June 1, firewood: Ana 2, Ben 1``."""
        if names is not None:
            return ", ".join([f"{label}{text(terms[name], names)}" for name, label, text in self._writers])
        key = self.key(terms)
        text = self._texts.get(key)
        return remember(self._texts, key, self.describe(terms, self.names)) if text is None else text

    @cached_property
    def _texts(self) -> dict[tuple[Any, ...], str]:
        """Terms as text, cached by key, because each turn shows every open offer again."""
        return {}

    @cached_property
    def notes(self) -> dict[tuple[Any, ...], str]:
        """The table's notes on offers, by the seats that have accepted and rejected them."""
        return {}

    @cached_property
    def menus(self) -> dict[tuple[Any, ...], str]:
        """Menus as text, by the numbers of the offers that are open."""
        return {}

    def values_text(self, index: int) -> str:
        """The possible values of one issue, in words with the exact JSON forms."""
        issue = self.issues[index]
        if issue.kind == "number":
            return issue.range_text()
        if issue.kind == "items":
            return issue.example(self.names)
        return " or ".join(quote(option) for option in issue.options)

    @cached_property
    def offer_form(self) -> tuple[str, str]:
        """An offer's JSON with … in place of values, and a note on the seats of a division (empty without items)."""
        seats = ", ".join(f'"{agent}": …' for agent in self.names)
        values = {"items": f"{{{seats}}}"}
        terms = ", ".join(f"{quote(issue.name)}: {values.get(issue.kind, '…')}" for issue in self.issues)
        people = ", ".join(f"{agent} is {name}" for agent, name in self.names.items())
        return f'{{"propose": {{{terms}}}}}', f" ({people})" if self._has_items else ""

    def issue(self, name: str) -> NumberIssue | ChoiceIssue | ItemsIssue:
        """Returns the issue called ``name``; raises UnknownNameError if the space has no issue of this name."""
        for issue in self.issues:
            if issue.name == name:
                return issue
        raise UnknownNameError(got=name, valid=self._issue_names)
