"""The card of an arena: a suite, the rows that were played, and where they came from. Cards merge into larger ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from sotopia_env.arena.rows import Row, play_of, policy_name, rows_of
from sotopia_env.arena.suites import SUITE_FILE, Suite
from sotopia_env.errors import InvalidValueError, Verbatim, Where
from sotopia_env.files import read_text
from sotopia_env.json_text import decode_json
from sotopia_env.records import Record, canonical_json, first_difference, read_record
from sotopia_env.reports.seat_results import policy_labels
from sotopia_env.storage import read_failures, read_run
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task

CARD_FILE = "card.json"


class FailedEpisode(Record):
    """An episode that could not be finished, with the names of its policies and the kind of failure."""

    key: str
    policies: tuple[str, ...]
    kind: str


class Card(Record):
    """Everything that ratings are computed from.

    Attributes:
        suite: the suite, with the hashes of its tasks and of its pool's behaviour.
        code: the versions of the package that played the episodes.
        rows: the results of seats.
        failures: the episodes that failed and have no rows.
    """

    suite: Suite
    code: tuple[str, ...]
    rows: tuple[Row, ...]
    failures: tuple[FailedEpisode, ...] = ()

    @cached_property
    def rated(self) -> tuple[str, ...]:
        """The identities of the policies that have met every opponent of the pool, by name.

        Raises:
            InvalidValueError: a policy outside the pool has fewer than half of its episodes.
        """
        pool = self.suite.pool_identities
        met: dict[str, list[Row]] = {}
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

    def failures_of(self, name: str) -> Counter[str]:
        """Returns the number of failed episodes with a policy of this name, by kind."""
        return Counter(item.kind for item in self.failures if name in item.policies)

    def _incomplete(self, policy: str, rows: Sequence[Row]) -> InvalidValueError:
        name, expected = policy_name(policy), self.suite.expected(policy)
        failed = self.failures_of(name)
        kinds = f" ({', '.join(f'{count} {kind}' for kind, count in failed.most_common(2))})" if failed else ""
        return InvalidValueError(
            f"{sum(failed.values())} episodes of it failed{kinds}",
            field=f"policy {name!r}",
            expected=f"at least half of its {expected} episodes against the pool",
            got=Verbatim(sum(row.payoff is not None for row in rows)),
            hint="the command that played them plays the rest; remove its run to rate the others",
        )

    def of_play(self, play: str, *, clean: bool = False) -> list[Row]:
        """Returns the rows of rated policies in one kind of play; ``clean`` leaves out those whose opponent failed."""
        pool, rated = self.suite.pool_identities, set(self.rated)
        return [
            row
            for row in self.rows
            if row.policy in rated and play_of(row, pool) == play and not (clean and row.opponent_failed)
        ]


def card_of_runs(paths: Iterable[Path]) -> Card:
    """Returns the card of run directories that ``sotopia arena run`` wrote, and of cards among them.

    Raises:
        InvalidValueError: a path is not a run of a suite, or the paths are of different suites.
        DamagedRecordError: a record cannot be read.
    """
    cards = [read_card(path) for path in paths]
    if not cards:
        raise InvalidValueError(field="runs", expected="at least one run of a suite or card")
    return merged_cards(cards)


def read_card(path: Path) -> Card:
    """Returns the card in a JSON file or in a folder with one, or the card of a run directory.

    Raises:
        InvalidValueError: ``path`` is neither; or an episode is not one of the suite.
        DamagedRecordError: a record cannot be read.
    """
    if path.is_file():
        return read_record(Card, read_text(path), path)
    if (path / SUITE_FILE).is_file():
        return _of_run(path)
    if (path / CARD_FILE).is_file():
        return read_record(Card, read_text(path / CARD_FILE), path / CARD_FILE)
    raise InvalidValueError(
        expected=f"a card, or a run with {SUITE_FILE}", where=path, hint="`sotopia arena run` writes such a run"
    )


def _of_run(path: Path) -> Card:
    suite = read_record(Suite, read_text(path / SUITE_FILE), path / SUITE_FILE)
    hashes, code, tasks = set(suite.hashes), set[str](), dict[str, Task]()

    def episodes() -> Iterator[Episode]:
        for episode in read_run(path):
            if episode.task.content_hash not in hashes:
                where = Where(path, record=f"episode {episode.key!r}")
                hint = "remove the line, and continue the run"
                raise InvalidValueError("its task is not one of the suite", field="task", hint=hint, where=where)
            code.add(episode.code_version)
            # The episodes of a task share its reference points and rankings, which the task remembers.
            task = tasks.setdefault(episode.task.content_hash, episode.task)
            yield episode.model_copy(update={"task": task})

    rows = rows_of(episodes(), suite.evaluator, suite.metric)
    failed = [FailedEpisode(key=item.key, policies=item.policies, kind=item.kind) for item in read_failures(path)]
    return Card(suite=suite, code=tuple(sorted(code)), rows=tuple(rows), failures=_outstanding(failed, rows))


def _outstanding(failures: Iterable[FailedEpisode], rows: Iterable[Row]) -> tuple[FailedEpisode, ...]:
    """Each failed episode once, without those that were played after all."""
    done = {row.key for row in rows}
    return tuple({item.key: item for item in failures if item.key not in done}.values())


def merged_cards(cards: Sequence[Card]) -> Card:
    """Returns one card with the rows of all, each seat of an episode once.

    Raises:
        InvalidValueError: the cards are of different suites or versions, or the same episode was played differently,
            so that the code of one of them differs where it matters.
    """
    first, *others = cards
    for other in others:
        _check_same(first.suite, other.suite)
    rows: dict[tuple[str, int], Row] = {}
    for row in (row for card in cards for row in card.rows):
        earlier = rows.setdefault((row.key, row.seat), row)
        if (earlier.payoff, earlier.turns, earlier.values) != (row.payoff, row.turns, row.values):
            _, expected, got = first_difference("row", earlier.model_dump(), row.model_dump())
            raise InvalidValueError(
                "two results disagree about the same episode, so their code or models differ",
                field=f"episode {row.key!r}",
                expected=expected,
                got=Verbatim(got),
                hint="add only one of them",
            )
    return Card(
        suite=first.suite,
        code=tuple(sorted({version for card in cards for version in card.code})),
        rows=tuple(rows.values()),
        failures=_outstanding((item for card in cards for item in card.failures), rows.values()),
    )


def _check_same(suite: Suite, other: Suite) -> None:
    if suite.content_hash == other.content_hash:
        return
    ours, theirs = (item.model_dump(exclude={"about", "tasks"}) for item in (suite, other))
    field, expected, got = first_difference("suite", ours, theirs)
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
