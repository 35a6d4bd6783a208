"""Rows from episodes: one per turn of the focal seat, in TRL's conversational prompt/completion format.

The prompt is rendered from the replayed episode exactly as the seat's policy would receive it
(:class:`~sotopia_env.policies.agent_prompt.AgentPrompt`). The completion is the text that the seat's model wrote, byte
for byte, or the action as JSON if the seat has no model (SOTOPIA-π, arXiv 2403.08715, B.3). The words of other seats
appear in prompts only, so completion-only loss never trains on them.

A row that is too long loses the oldest turns of its prompt, four at a time, and a marker replaces them; the
instructions, the last turns and the completion always remain. Training and validation are split by scenario, never by
utterance.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError, UnknownNameError, Verbatim
from sotopia_env.policies.agent_prompt import KEPT_TURNS, AgentPrompt
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.world import Action, Observation
from sotopia_env.world.action import ActionType, to_json
from sotopia_env.world.episode import Episode, Generation
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.recorded import observations
from sotopia_training.data.held_out import check_not_reserved
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset, Features

CountTokens = Callable[[Sequence[ChatMessage], str], int]
"""Counts the tokens of a prompt and its completion together, including templates and end token."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One turn of a focal seat.

    Attributes:
        prompt: the prompt of the turn, as chat messages.
        completion: the text of the seat's policy, or its action as JSON.
        value: the target of the reward model; ``None`` in other stages.
        episode: the key of the episode.
        task: the id of the task.
        scenario: the key by which rows are split or refused; see :func:`sotopia_env.tasks.open_scenario.task_key`.
        seat: the focal agent's id.
        partner: the names of the policies in the other seats, joined by ``+``.
        turn: the index of the turn in the episode.
        dropped: the number of oldest turns that the prompt leaves out.
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
        """Returns the row as TRL reads it; columns other than prompt and completion are passed to reward functions."""
        return {
            "prompt": list(self.prompt),
            "completion": [{"role": "assistant", "content": self.completion}],
            **{name: getattr(self, name) for name in _KEPT_COLUMNS},
        }


_KEPT_COLUMNS = ("value", "episode", "task", "scenario", "seat", "partner", "turn", "dropped")


@dataclass(slots=True)
class Counts:
    """Counts of the turns that became rows or were left out.

    Attributes:
        rows: turns that became rows.
        shortened: rows whose prompts lost their oldest turns.
        dropped_turns: the total number of turns that these prompts lost.
        too_long: turns left out because instructions, last turns and an answer exceed the limit.
        longest: the number of tokens of the longest of these, without their oldest turns.
        long_answers: turns left out because their completion exceeds the limit on answers.
        longest_answer: the number of tokens of the longest of these completions.
        unusable: turns left out because their text was not a possible action.
        silent: turns left out because the seat took no action.
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
        """Returns the counts in one sentence."""
        return (
            f"{self.rows} rows ({self.shortened} without their {self.dropped_turns} oldest turns); left out: "
            f"{self.too_long} too long, {self.long_answers} with too long an answer, {self.unusable} unusable, "
            f"{self.silent} silent turns"
        )

    def lost(self, prompt: PromptSettings) -> str:
        """Returns the number of turns lost to the length limits, and limits that would keep them; empty if none.

        Args:
            prompt: the prompt settings with the limits.
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
        prompt: the format and limits of prompts.
        count: counts the tokens of a row; ``None`` keeps all prompts at full length.
        count_answer: counts the tokens of a completion; turns with more than ``prompt.max_answer`` are left out.
            ``None`` keeps all.
        counts: the counts of turns so far.
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
        labels: Mapping[int, str] | None = None,
    ) -> Iterator[TrainingRow]:
        """Yields the rows of one seat of one episode.

        Args:
            episode: the recorded episode, which is replayed.
            seat: the focal agent's id.
            values: the values of turns by index; turns without one are left out. ``None`` gives rows without values.
            turns: the indices of the turns to use; ``None`` uses all turns of the seat.
            labels: a teacher's answers by turn, which replace those of the seat's policy; turns without one are left
                out. The prompts remain those of the episode.

        Raises:
            UnknownNameError: the episode has no such seat.
            DamagedRecordError: the record cannot be replayed.
        """
        if seat not in episode.task.agents:
            raise UnknownNameError(field="seat", got=seat, valid=episode.task.agents)
        scenario, partner = task_key(episode.task), _partner(episode, seat)
        for observation, index in observations(episode, seat):
            selected = (values is None or index in values) and (turns is None or index in turns)
            completion = self._completion(episode, index, labels) if selected else None
            if completion is None or self._has_long_answer(completion):
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
            yield TrainingRow(prompt, completion, *turn_of, dropped, value, episode.before(index))

    def _completion(self, episode: Episode, index: int, labels: Mapping[int, str] | None) -> str | None:
        if labels is not None:  # also where the seat's own answer was unusable: its teacher's is not
            return labels.get(index)
        if not self._usable(episode, index):
            return None
        item = episode.turns[index]
        return completion_of(item.generation, item.turn.attempted or item.turn.action, episode.task.names)

    def _usable(self, episode: Episode, index: int) -> bool:
        # A refused or unreadable action is not one to imitate, although it is in the record.
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


def completion_of(generation: Generation | None, action: Action, names: Mapping[str, str]) -> str:
    """Returns the text of a turn as later prompts repeat it; JSON if the policy wrote no text."""
    message = None if generation is None else generation.message
    return to_json(action, names) if message is None else message.text


def fit_prompt(
    observation: Observation, completion: str, settings: PromptSettings, count: CountTokens | None
) -> tuple[tuple[ChatMessage, ...], int] | None:
    """Returns the prompt for an observation and the number of oldest turns it leaves out; ``None`` if it cannot fit."""
    prompt = AgentPrompt(settings.format)
    limit = max(0, len(observation.turns) - KEPT_TURNS)
    # Steps of several turns: each attempt renders and tokenises the prompt again.
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
        scenarios: the scenario keys; repetitions have no effect.
        validation: the share of the scenarios for validation, from 0 to below 1; at least one scenario if above 0.
        seed: selects one of the possible splits.

    Raises:
        InvalidValueError: the share is out of range, or there are too few scenarios to leave any for training.
    """
    if not 0 <= validation < 1:
        raise InvalidValueError(field="validation", expected="a share from 0 to below 1", got=validation)
    # A hash, not a shuffle: adding scenarios does not reorder the others.
    order = sorted(set(scenarios), key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).digest())
    size = max(1, round(validation * len(order))) if validation and order else 0
    if size and size == len(order):
        raise InvalidValueError(
            field="validation",
            expected="a share that leaves a scenario to train on",
            got=Verbatim(f"{validation} of {len(order)}"),
            hint="set it to 0 or use more scenarios",
        )
    return Split(frozenset(order[size:]), frozenset(order[:size]))


def refuse_evaluation_scenarios(rows: Iterable[TrainingRow], reserved: Mapping[str, str]) -> Iterator[TrainingRow]:
    """Yields the rows, and raises :class:`InvalidValueError` at the first whose scenario is reserved for evaluation.

    Args:
        rows: the rows of training data.
        reserved: the result of :func:`~sotopia_training.data.held_out.evaluation_scenarios`.
    """
    for row in rows:
        check_not_reserved(row.scenario, reserved, got=row.episode)
        yield row


def weighted(rows: Iterable[TrainingRow], weight: float) -> Iterator[TrainingRow]:
    """Yields each conversation's rows ``weight`` times; a fraction selects that share of the conversations.

    A conversation consists of one seat's rows of one episode, which must be adjacent. They are repeated or left out
    together.

    Raises:
        InvalidValueError: the weight is negative or not finite.
    """
    if not 0 <= weight < float("inf"):
        raise InvalidValueError(field="weight", expected="a number of at least 0", got=weight)
    for (episode, seat), conversation in itertools.groupby(rows, key=lambda row: (row.episode, row.seat)):
        extra = in_share(f"{episode}:{seat}", weight % 1)
        yield from itertools.chain(*itertools.tee(conversation, int(weight) + extra))


def in_share(key: str, share: float) -> bool:
    """Returns whether a key is one of a ``share`` of all keys, drawn by the key alone."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48 < share  # 48 bits of the hash as a number in [0, 1)


def stream_dataset(records: Iterable[Mapping[str, Any]], features: Features, folder: str | Path) -> Dataset:
    """Returns the records as a ``datasets.Dataset``, written to ``folder`` one by one and read from there.

    Raises:
        InvalidValueError: ``records`` is empty.
        SotopiaError: an error of the records, unchanged.
    """
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    # The first record is read here: the library's error about an empty generator is hard to understand.
    iterator = iter(records)
    first = next(iterator, None)
    if first is None:
        raise InvalidValueError(field="rows", expected="at least one")

    def produce() -> Iterator[Mapping[str, Any]]:
        yield first
        yield from iterator

    # The library computes a missing fingerprint by pickling the function, which fails for an iterator. A new one each
    # time keeps it from taking older data in the folder for these records.
    fingerprint = uuid.uuid4().hex[:16]
    try:
        dataset: Dataset = Dataset.from_generator(
            produce, cache_dir=str(folder), features=features, fingerprint=fingerprint
        )
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, SotopiaError):  # the library wraps errors of the records
            raise error.__cause__ from None
        raise
    return dataset
