"""The card of an arena: a suite, the rows that were played, and where they came from. Cards merge into larger ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, TypeVar

from pydantic import AfterValidator, PositiveInt

from sotopia_env.arena.rows import HUMAN, CardRow, Play, play_of, policy_name
from sotopia_env.arena.suites import FrozenSuite, Suite
from sotopia_env.foundation.errors import InvalidValueError, Verbatim, excerpt
from sotopia_env.foundation.json_text import canonical_json, decode_json, first_difference
from sotopia_env.foundation.records import Line, Record, not_blank
from sotopia_env.reports.seat_results import policy_labels

CARD_FILE = "card.json"
_RecordT = TypeVar("_RecordT", bound=Record)


class FailedEpisode(Record):
    """An episode that could not be finished.

    Attributes:
        key: the key of the episode.
        policies: the identities of the policies whose turn it was, or the names of all in the episode if the record
            does not say whose turn it was.
        kind: the kind of failure.
        task: the id of the task; ``None`` in cards of earlier versions.
        seats: the name of the policy in every seat; empty in cards of earlier versions.
    """

    key: str
    policies: tuple[str, ...]
    kind: Line
    task: str | None = None
    seats: tuple[str, ...] = ()


class LeftOut(Record):
    """Episodes of a source that are not of the suite.

    Attributes:
        source: the name of the run or file.
        reason: why they are not rated.
        episodes: their number.
    """

    source: Line
    reason: Line
    episodes: PositiveInt


def _identified(rows: tuple[CardRow, ...]) -> tuple[CardRow, ...]:
    for text in {identity for row in rows for identity in (row.policy, row.opponent)}:
        try:
            value = decode_json(text)
        except ValueError:
            value = None
        match value:
            case [str() as name, dict()] if name.isprintable() and canonical_json(value) == text:
                not_blank(name)
            case _:
                raise ValueError(f"a policy must be the JSON of its name and parameters, got {excerpt(text)}")
    return rows


class Card(Record):
    """Everything that ratings are computed from.

    Attributes:
        suite: the suite, with the hashes of its tasks and of its pool's behaviour.
        code: the versions of the package that played the episodes.
        rows: the results of seats.
        failures: the episodes that failed and have no rows.
        left_out: the episodes of the sources that are not of the suite.
    """

    suite: FrozenSuite
    code: tuple[Line, ...]
    rows: Annotated[tuple[CardRow, ...], AfterValidator(_identified)]
    failures: tuple[FailedEpisode, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @cached_property
    def rated(self) -> tuple[str, ...]:
        """The identities of the policies that have met every opponent of the pool, by name.

        Raises:
            InvalidValueError: a policy outside the pool has fewer than half of its episodes.
        """
        pool = self.suite.pool_identities
        met: dict[str, list[CardRow]] = {}
        for row in self.rows:
            if play_of(row, pool) == "pool":
                met.setdefault(row.policy, []).append(row)
        for policy, rows in met.items():
            if policy not in pool and 2 * sum(row.payoff is not None for row in rows) < self.suite.expected(policy):
                raise self._incomplete(policy, rows)
        # A member of the pool that was not named has met only the policies that were.
        return tuple(
            sorted(
                policy
                for policy, rows in met.items()
                if policy not in pool or {row.opponent for row in rows} == set(pool) - {policy}
            )
        )

    @property
    def unrated(self) -> tuple[str, ...]:
        """The identities of the policies, other than people and the pool, that have not met the pool."""
        reference = {*self.rated, *self.suite.pool_identities}
        return tuple(sorted({r.policy for r in self.rows if policy_name(r.policy) != HUMAN} - reference))

    def failures_of(self, policy: str) -> Counter[str]:
        """Returns the number of episodes in which the policy of an identity failed, by kind."""
        keys = {policy, policy_name(policy)}
        return Counter(item.kind for item in self.failures if keys & {*item.policies})

    def _incomplete(self, policy: str, rows: Sequence[CardRow]) -> InvalidValueError:
        name, expected = policy_name(policy), self.suite.expected(policy)
        failed = self.failures_of(policy)
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common(2))
        return InvalidValueError(
            f"{sum(failed.values())} episodes of it failed ({kinds})" if failed else "",
            field=f"policy {name!r}",
            expected=f"at least half of its {expected} episodes against the pool",
            got=Verbatim(sum(row.payoff is not None for row in rows)),
            hint="the command that played them plays the rest; remove its run to rate the others",
        )

    def of_play(self, play: Play, *, clean: bool = False) -> list[CardRow]:
        """Returns the rows of rated policies in one kind of play; those of people and their partners, rated or not.

        Args:
            play: the kind of play.
            clean: whether to leave out rows whose opponent failed.
        """
        pool, rated = self.suite.pool_identities, set(self.rated)
        return [
            row
            for row in self.rows
            if (play == HUMAN or row.policy in rated)
            and play_of(row, pool) == play
            and not (clean and row.opponent_failed)
        ]


def outstanding(failures: Iterable[FailedEpisode], rows: Iterable[CardRow]) -> tuple[FailedEpisode, ...]:
    """Returns each failed episode once, without those that were played after all, in the order of their keys."""
    done = {row.key for row in rows}
    # Of two records of one episode, the one that says where the policy failed is kept.
    records = sorted((item for item in failures if item.key not in done), key=lambda item: (item.key, bool(item.seats)))
    return tuple({item.key: item for item in records}.values())


def merged_cards(cards: Sequence[Card]) -> Card:
    """Returns one card with the rows of all, each seat of an episode once. The order of the cards does not matter.

    Raises:
        InvalidValueError: the cards are of different suites or versions, or the same episode was played differently,
            so that the code of one of them differs where it matters.
    """
    first, *others = cards
    for other in others:
        check_same(first.suite, other.suite)
    rows: dict[tuple[str, int], CardRow] = {}
    for row in _sorted(row for card in cards for row in card.rows):
        earlier = rows.setdefault((row.key, row.seat), row)
        if earlier is not row and (ours := earlier.played) != (theirs := row.played):
            field, expected, got = first_difference(f"episode {row.key!r}", ours, theirs)
            raise InvalidValueError(
                "two results disagree about the same episode, so their code, models or people differ",
                field=field,
                expected=expected,
                got=Verbatim(got),
                hint="add only one of them; people are told apart by `sotopia play --participant`",
            )
    return Card(
        suite=_sorted(card.suite for card in cards)[0],  # names may differ
        code=tuple(sorted({version for card in cards for version in card.code})),
        rows=tuple(sorted(rows.values(), key=lambda row: (row.key, row.seat))),
        failures=outstanding(_sorted(item for card in cards for item in card.failures), rows.values()),
        left_out=tuple(dict.fromkeys(_sorted(item for card in cards for item in card.left_out))),
    )


def _sorted(records: Iterable[_RecordT]) -> list[_RecordT]:
    return sorted(records, key=lambda record: record.model_dump_json())


def check_same(suite: Suite, other: Suite) -> None:
    """Raises :class:`InvalidValueError` if results of two suites are not comparable."""
    if suite.content_hash == other.content_hash:
        return
    # Names and versions say more than the first hash that differs.
    names, everything = {"name", "version"}, set(Suite.model_fields) - {"about", "tasks"}
    fields = everything if all(getattr(suite, name) == getattr(other, name) for name in names) else names
    field, expected, got = first_difference("suite", suite.model_dump(include=fields), other.model_dump(include=fields))
    raise InvalidValueError(
        "results of different suites cannot be merged",
        field=field,
        expected=expected,
        got=Verbatim(got),
        hint=f"play suite {suite.name!r} version {suite.version} with both",
    )


def label_of(identities: Iterable[str]) -> dict[str, str]:
    """Returns short labels: the name, and the parameters in which policies of one name differ."""
    pairs = {identity: decode_json(identity) for identity in identities}
    keys = {identity: (name, canonical_json(parameters)) for identity, (name, parameters) in pairs.items()}
    labels = policy_labels(keys.values())
    return {identity: labels[key] for identity, key in keys.items()}
