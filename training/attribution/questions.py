"""Questions of attribution: the scores to attribute, put to language models so that no answer is ever lost.

Every answer is kept in a file that only grows, one line for each seat of an episode and dimension, as it comes. A stage
that was stopped or killed asks again for nothing that it has; what was missing is asked for once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from sotopia_env.chat_model import ChatModel
from sotopia_env.errors import (
    FATAL,
    BudgetExceededError,
    InvalidValueError,
    ModelRefusedError,
    UnknownNameError,
    name_hint,
)
from sotopia_env.evaluators import Manner
from sotopia_env.files import AppendOnlyFile, read_lines
from sotopia_env.records import Record, read_record
from sotopia_env.runs import Progress, Stop, all_or_first_error, stop_on_signals
from sotopia_env.storage import read_run
from sotopia_env.world import Episode
from training.attribution.by_model import LLMAttributor
from training.attribution.credits import Importance, Missing, SeatScore, content_of, seat_score
from training.attribution.settings import AttributionSettings
from training.data.sources import seats_of
from training.stage.access import ModelAccess, opened

logger = logging.getLogger(__name__)
MakeModel = Callable[[str], ChatModel]
"""Makes a language model by its name, ``PROVIDER/MODEL``."""


# --- episodes -----------------------------------------------------------------------------------------------------


def episodes_of(settings: AttributionSettings) -> Iterator[tuple[Episode, list[str]]]:
    """The episodes of all runs with the seats that are wanted; one that stands in several runs comes once.

    Raises:
        InvalidValueError: two different episodes have one key, or a run cannot be read.
    """
    contents: dict[str, tuple[str, str]] = {}
    for path in settings.runs:
        for episode in read_run(path):
            content = content_of(episode)
            if episode.key in contents:
                other, there = contents[episode.key]
                if other != content:
                    raise InvalidValueError(
                        f"{path}: episode {episode.key!r} is another one than that of the same key in {there}; "
                        "attribute these runs in stages of their own"
                    )
                continue
            contents[episode.key] = (content, path)
            yield episode, seats_of(episode, settings.seats)


def survey(settings: AttributionSettings) -> int:
    """Looks at every episode, before a model is asked or a directory is made, and returns the number of scores.

    Raises:
        UnknownNameError: no episode has a score on a dimension.
        InvalidValueError: no episode has a score at all, or a seat that is wanted.
    """
    scores: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seats, scored = 0, dict[str, None]()
    for episode, chosen in episodes_of(settings):
        seats += len(chosen)
        evaluation = episode.evaluation(settings.evaluator)
        scored |= dict.fromkeys(str(score.dimension) for score in evaluation.scores) if evaluation else {}
        for seat in chosen:
            for name in settings.names:
                score = seat_score(episode, seat, name, settings.evaluator)
                scores[name] += isinstance(score, SeatScore)
                reasons[score.reason if isinstance(score, Missing) else ""] += 1
    if not seats:
        raise InvalidValueError(f"runs: no episode has one of the seats {settings.seats}")
    if not scored:
        reason = next((text for text, _ in reasons.most_common() if text), "no scores")
        raise InvalidValueError(f"runs: no episode has a score to attribute ({reason}); evaluate the runs first")
    for name in settings.names:
        if not scores[name]:
            raise UnknownNameError(f"dimensions: no episode has a score on it: {name_hint(name, scored)}")
    return scores.total()


def questions(settings: AttributionSettings) -> Iterator[Question]:
    """The scores that there are, in the order of the episodes."""
    for episode, seats in episodes_of(settings):
        for seat in seats:
            for name in settings.names:
                score = seat_score(episode, seat, name, settings.evaluator)
                if isinstance(score, SeatScore):
                    yield Question(episode, seat, score)


# --- language models ----------------------------------------------------------------------------------------------


class _Answer(Record):
    """What a model answered for one seat and dimension; ``of`` tells the episode and the question from others."""

    episode: str
    of: str
    seat: str
    dimension: str
    attributor: str
    weights: dict[int, float] = Field(default_factory=dict)
    key: int | None = None
    missing: str | None = None

    @property
    def answer(self) -> Importance | Missing:
        return Missing(self.missing) if self.missing is not None else Importance(self.weights, self.key)


@dataclass(frozen=True, slots=True)
class Question:
    """One seat of one episode, with one of its scores."""

    episode: Episode
    seat: str
    score: SeatScore


class Answers:
    """The answers so far: in memory to be looked up, on disk to outlive the process."""

    def __init__(self, path: Path) -> None:
        self._file = AppendOnlyFile(path, exclusive=True)
        self._found: dict[tuple[str, str, str, str], _Answer] = {}
        for where, line in read_lines(path):
            self._keep(read_record(_Answer, line, where, "answer"))

    def _keep(self, answer: _Answer) -> None:
        self._found[answer.episode, answer.seat, answer.dimension, answer.attributor] = answer

    def get(self, question: Question, attributor: str) -> _Answer | None:
        """What the attributor answered; ``None`` when it was not asked."""
        return self._found.get((question.episode.key, question.seat, question.score.dimension, attributor))

    def append(self, answer: _Answer) -> None:
        """Keeps an answer; it is safe from the death of the process when this returns."""
        self._file.append(f"{answer.model_dump_json()}\n".encode())
        self._keep(answer)

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@dataclass(slots=True)
class _Job:
    """The shared state of those who ask."""

    attributors: list[LLMAttributor]
    answers: Answers
    progress: Progress
    stop: Stop = field(default_factory=Stop)
    failure: BudgetExceededError | ModelRefusedError | None = None

    def pending(self, questions: Iterator[Question]) -> Iterator[tuple[Question, LLMAttributor, str]]:
        """What is still to be asked; what was missing is asked again."""
        for question in questions:
            content = content_of(question.episode)
            for attributor in self.attributors:
                of = f"{content} {attributor.tag}"
                record = self.answers.get(question, attributor.name)
                if record is not None and record.of == of and record.missing is None:
                    self.progress.advance(1)
                else:
                    yield question, attributor, of

    async def work(self, pending: Iterator[tuple[Question, LLMAttributor, str]]) -> None:
        """Takes questions from the shared iterator until it is empty or the work is stopped."""
        for question, attributor, of in pending:
            if self.stop.reason:
                return
            self.progress.begin()
            try:
                answer = await attributor.attribute(question.episode, question.seat, question.score)
            except FATAL as error:
                self.failure = self.failure or error
                self.stop.ask(str(error))
                return
            self.answers.append(_answer(question, attributor.name, of, answer))
            self.progress.end(failed=isinstance(answer, Missing))


def _answer(question: Question, attributor: str, of: str, answer: Importance | Missing) -> _Answer:
    record: dict[str, Any] = {"missing": answer.reason} if isinstance(answer, Missing) else {}
    if isinstance(answer, Importance):
        record = {"weights": dict(answer.by_turn), "key": answer.key}
    dimension = question.score.dimension
    return _Answer(
        episode=question.episode.key, of=of, seat=question.seat, dimension=dimension, attributor=attributor, **record
    )


def ask_models(
    settings: AttributionSettings, folder: Path, answers: Answers, total: int, make_model: MakeModel | None
) -> Mapping[str, Any]:
    """Asks the language models what is not answered yet.

    Args:
        settings: of the stage.
        folder: of the ledger.
        answers: takes the answers.
        total: number of scores.
        make_model: makes the models by name; by default as ``settings.access`` says.

    Returns:
        Who was asked how, who answered, and what was spent.

    Raises:
        BudgetExceededError: the limit is reached; answers given until then are kept.
        ModelRefusedError: a model refuses every question; likewise.
        KeyboardInterrupt: a signal asked for the end; likewise.
    """
    access = settings.access or ModelAccess()
    models = access.models()
    question = settings.question
    manner = Manner(question.temperature, question.reasks, question.max_tokens)
    attributors = [
        LLMAttributor(
            (make_model or models.judge)(name), scale=question.scale, key="singular" in settings.methods, manner=manner
        )
        for name in settings.models
    ]
    models.check_answers(*(attributor.parameters for attributor in attributors))
    job = _Job(attributors, answers, Progress(total * len(attributors), 0, None, "attributions", models.ledger))

    async def all_of_it() -> None:
        async with opened(models, folder), job.progress.refreshed():
            pending = job.pending(questions(settings))
            await all_or_first_error([job.work(pending) for _ in range(access.concurrency)], job.stop)

    with stop_on_signals(job.stop, logger.warning):
        asyncio.run(all_of_it())
    if isinstance(job.failure, BudgetExceededError):
        raise BudgetExceededError(f"{job.failure}; all answers are kept: the same command with a higher limit goes on")
    if job.failure is not None:
        raise job.failure
    if job.stop.reason:
        raise job.stop.interruption
    spent = models.ledger.totals("judge")
    return {
        "asked": {attributor.name: dict(attributor.parameters) for attributor in attributors},
        "answered": models.ledger.answered(),
        "tokens": None if spent.uncounted else spent.tokens,
        "cost": spent.cost_text,
    }
