"""Rows from episodes: one per turn of the focal seat, in TRL's conversational prompt/completion format.

The prompt is what the seat was told when it acted, rendered from the replayed episode exactly as a policy would be told
it (:class:`~sotopia_env.policies.agent_prompt.AgentPrompt`). The completion is the text that the seat's model wrote,
byte for byte; of a seat without a model, the action as JSON (SOTOPIA-π, arXiv 2403.08715, B.3). Another seat's words
are only ever in prompts, and completion-only loss trains on none of them.

A row that is too long loses the oldest turns of its prompt, four at a time, and a marker says so; never the
instructions, the last turns or the completion. Training and validation are split by scenario, never by utterance.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import InvalidValueError, SotopiaError, UnknownNameError, Verbatim
from sotopia_env.policies import KEPT_TURNS, AgentPrompt
from sotopia_env.table import observations
from sotopia_env.tasks import task_key
from sotopia_env.world import (
    Action,
    ActionType,
    ChatMessage,
    Episode,
    Generation,
    Observation,
    to_json,
)
from training.data.held_out import check_not_reserved
from training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset, Features

CountTokens = Callable[[Sequence[ChatMessage], str], int]
"""Tokens of a prompt and its completion together, templates and end token included."""


@dataclass(frozen=True, slots=True)
class Row:
    """One turn of a focal seat.

    Attributes:
        prompt: what the seat was told, as chat messages.
        completion: what its policy wrote, or the action it took, as JSON.
        value: what the turn is worth, where somebody said (reward model); ``None`` otherwise.
        episode: key of the episode.
        task: id of the task.
        scenario: what is split and refused by, see :func:`sotopia_env.tasks.task_key`.
        seat: the focal agent's id.
        partner: names of the policies in the other seats, joined by ``+``.
        turn: index of the turn in the episode.
        dropped: how many of the oldest turns the prompt leaves out.
        state: the episode before the turn.
    """

    prompt: tuple[ChatMessage, ...]
    completion: str
    episode: str
    task: str
    scenario: str
    seat: str
    partner: str
    turn: int
    dropped: int = 0
    value: float | None = None
    state: Episode | None = None

    def columns(self) -> dict[str, Any]:
        """The row as TRL reads it; the columns beyond prompt and completion reach reward functions."""
        return {
            "prompt": list(self.prompt),
            "completion": [{"role": "assistant", "content": self.completion}],
            **{name: getattr(self, name) for name in _KEPT_COLUMNS},
        }


_KEPT_COLUMNS = ("value", "episode", "task", "scenario", "seat", "partner", "turn", "dropped")


@dataclass(slots=True)
class Counts:
    """What became of the turns that were looked at.

    Attributes:
        rows: turns that became rows.
        shortened: of these, how many lost oldest turns.
        dropped_turns: how many turns these lost together.
        too_long: turns left out because instructions, last turns and an answer do not fit into the limit.
        longest: tokens of the longest of these, without their oldest turns.
        long_answers: turns left out because their completion is longer than answers may be.
        longest_answer: tokens of the longest of these.
        unusable: turns left out because their text was no possible action.
        silent: turns left out because nothing was done in them.
    """

    rows: int = 0
    shortened: int = 0
    dropped_turns: int = 0
    too_long: int = 0
    longest: int = 0
    long_answers: int = 0
    longest_answer: int = 0
    unusable: int = 0
    silent: int = 0

    def text(self) -> str:
        """The counts in one sentence."""
        return (
            f"{self.rows} rows ({self.shortened} without their {self.dropped_turns} oldest turns); left out: "
            f"{self.too_long} too long, {self.long_answers} with too long an answer, {self.unusable} unusable, "
            f"{self.silent} silent turns"
        )

    def lost(self, prompt: PromptSettings) -> str:
        """How many turns the limits on lengths cost, and which limits would keep them; empty if none.

        Args:
            prompt: with the limits.
        """
        total = self.rows + self.too_long + self.long_answers
        parts = []
        if self.long_answers:
            parts.append(
                f"{self.long_answers} of {total} turns have an answer of more than {prompt.max_answer} tokens and are "
                f"left out; prompt.max_answer: {self.longest_answer} would keep them"
            )
        if self.too_long:
            parts.append(
                f"{self.too_long} of {total} turns do not fit into {prompt.max_length} tokens and are left out; "
                f"prompt.max_length: {self.longest} would keep them"
            )
        return "; ".join(parts)


@dataclass
class RowMaker:
    """Cuts episodes into rows.

    Attributes:
        prompt: format and limits.
        count: counts the tokens of a row; ``None`` shortens nothing.
        count_answer: counts those of a completion, which is left out above ``prompt.max_answer``; ``None`` keeps all.
        counts: what became of the turns, so far.
    """

    prompt: PromptSettings = field(default_factory=PromptSettings)
    count: CountTokens | None = None
    count_answer: Callable[[str], int] | None = None
    counts: Counts = field(default_factory=Counts, init=False)

    def rows(
        self,
        episode: Episode,
        seat: str,
        values: Mapping[int, float] | None = None,
        turns: Collection[int] | None = None,
    ) -> Iterator[Row]:
        """Yields the rows of one seat of one episode.

        Args:
            episode: replayed from its record.
            seat: the focal agent's id.
            values: worth of turns by index; turns without one are left out. ``None`` gives rows without values.
            turns: indices to make rows of; ``None`` for all of the seat's.

        Raises:
            UnknownNameError: the episode has no such seat.
            DamagedRecordError: the record cannot be replayed.
        """
        if seat not in episode.task.agents:
            raise UnknownNameError(field="seat", got=seat, valid=episode.task.agents)
        scenario, partner = task_key(episode.task), _partner(episode, seat)
        for observation, index in observations(episode, seat):
            selected = (values is None or index in values) and (turns is None or index in turns)
            if not selected or not self._usable(episode, index):
                continue
            turn = episode.turns[index].turn
            generation = episode.turns[index].generation
            completion = written(generation, turn.attempted or turn.action, episode.task.names)
            if self._has_long_answer(completion):
                continue
            fit = self._fit(observation, completion)
            if fit is None:
                self._note_too_long(observation, completion)
                continue
            prompt, dropped = fit
            self.counts.rows += 1
            self.counts.shortened += dropped > 0
            self.counts.dropped_turns += dropped
            value = None if values is None else values[index]
            turn_of = (episode.key, episode.task.id, scenario, seat, partner, index)
            yield Row(prompt, completion, *turn_of, dropped, value, episode.before(index))

    def _usable(self, episode: Episode, index: int) -> bool:
        item = episode.turns[index]
        failed = item.generation is not None and item.generation.parse_failure is not None
        silent = item.turn.action.action_type is ActionType.NONE
        if failed or item.turn.violation is not None:
            self.counts.unusable += 1
        elif silent:
            self.counts.silent += 1
        else:
            return True
        return False

    def _has_long_answer(self, completion: str) -> bool:
        length = 0 if self.count_answer is None else self.count_answer(completion)
        if length <= self.prompt.max_answer:
            return False
        self.counts.long_answers += 1
        self.counts.longest_answer = max(self.counts.longest_answer, length)
        return True

    def _note_too_long(self, observation: Observation, completion: str) -> None:
        assert self.count is not None
        dropped = max(0, len(observation.turns) - KEPT_TURNS)
        length = self.count(AgentPrompt(self.prompt.format).messages(observation, dropped), completion)
        self.counts.too_long += 1
        self.counts.longest = max(self.counts.longest, length)

    def _fit(self, observation: Observation, completion: str) -> tuple[tuple[ChatMessage, ...], int] | None:
        return fit_prompt(observation, completion, self.prompt, self.count)


def written(generation: Generation | None, action: Action, names: Mapping[str, str]) -> str:
    """Returns a turn as its policy wrote it, as in its own later prompts; as JSON where it wrote none."""
    message = None if generation is None else generation.message
    return to_json(action, names) if message is None else message.text


def fit_prompt(
    observation: Observation, completion: str, settings: PromptSettings, count: CountTokens | None
) -> tuple[tuple[ChatMessage, ...], int] | None:
    """Returns the prompt for an observation and how many of its oldest turns it leaves out; ``None``: it cannot fit."""
    prompt = AgentPrompt(settings.format)
    limit = max(0, len(observation.turns) - KEPT_TURNS)
    for dropped in [*range(0, limit, KEPT_TURNS), limit]:
        messages = prompt.messages(observation, dropped)
        if count is None or count(messages, completion) <= settings.max_length:
            return tuple(messages), dropped
    return None


def _partner(episode: Episode, seat: str) -> str:
    return "+".join(info.name for info in episode.policies if info.agent != seat)


@dataclass(frozen=True, slots=True)
class Split:
    """Scenario keys for training and for validation; no scenario is in both."""

    train: frozenset[str]
    validation: frozenset[str]


def split_scenarios(scenarios: Iterable[str], validation: float, seed: int = 0) -> Split:
    """Returns a split by scenario that depends on the keys and the seed alone, not on their order.

    Args:
        scenarios: keys, repeated or not.
        validation: share of the scenarios for validation, from 0 to below 1; at least one when above 0.
        seed: another one, another split.

    Raises:
        InvalidValueError: the share is out of range, or there are too few scenarios to leave any for training.
    """
    if not 0 <= validation < 1:
        raise InvalidValueError(field="validation", expected="a share from 0 to below 1", got=validation)
    order = sorted(set(scenarios), key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).digest())
    size = max(1, round(validation * len(order))) if validation and order else 0
    if size and size == len(order):
        raise InvalidValueError(
            field="validation",
            expected="a share that leaves a scenario to train on",
            got=Verbatim(f"{validation} of {len(order)}"),
            hint="set it to 0 or give more scenarios",
        )
    return Split(frozenset(order[size:]), frozenset(order[:size]))


def refuse_evaluation_scenarios(rows: Iterable[Row], reserved: Mapping[str, str]) -> Iterator[Row]:
    """Yields the rows, and raises :class:`InvalidValueError` at the first whose scenario is kept for evaluation.

    Args:
        rows: of training data.
        reserved: see :func:`~training.data.held_out.evaluation_scenarios`.
    """
    for row in rows:
        check_not_reserved(row.scenario, reserved, got=row.episode)
        yield row


def weighted(rows: Iterable[Row], weight: float) -> Iterator[Row]:
    """Yields each conversation's rows as often as ``weight`` says; the fraction is drawn from its episode and seat.

    A conversation is one seat's rows of one episode, which follow each other: they are repeated or left out together.

    Raises:
        InvalidValueError: the weight is negative or not finite.
    """
    if not 0 <= weight < float("inf"):
        raise InvalidValueError(field="weight", expected="a number of at least 0", got=weight)
    for (episode, seat), conversation in itertools.groupby(rows, key=lambda row: (row.episode, row.seat)):
        digest = hashlib.sha256(f"{episode}:{seat}".encode()).digest()
        extra = int.from_bytes(digest[:6], "big") / 2**48 < weight % 1
        yield from itertools.chain(*itertools.tee(conversation, int(weight) + extra))


def stream_dataset(records: Iterable[Mapping[str, Any]], features: Features, folder: str | Path) -> Dataset:
    """Returns the records as a ``datasets.Dataset``, written to ``folder`` one by one and read from there.

    Raises:
        InvalidValueError: there are no records.
        SotopiaError: whatever the records raise.
    """
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    iterator = iter(records)
    first = next(iterator, None)
    if first is None:
        raise InvalidValueError(field="rows", expected="at least one")

    def produce() -> Iterator[Mapping[str, Any]]:
        yield first
        yield from iterator

    # Without a fingerprint the library pickles the function to make one, and an iterator cannot be pickled; a new one
    # each time, so that nothing older in the folder is taken for these records.
    fingerprint = uuid.uuid4().hex[:16]
    try:
        dataset: Dataset = Dataset.from_generator(
            produce, cache_dir=str(folder), features=features, fingerprint=fingerprint
        )
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, SotopiaError):  # what is wrong with the records, behind the library's own words
            raise error.__cause__ from None
        raise
    return dataset
