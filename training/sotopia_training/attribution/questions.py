"""Questions to language models about the scores to attribute, and a journal of the answers.

Every answer is written to the journal as soon as it arrives, with one line per seat of an episode and dimension. A
stage that continues after a stop or a kill asks only the questions that have no valid answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from sotopia_env.chat_model import ChatModel
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.progress import Progress
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.records import Record
from sotopia_env.storage import Journal, read_run
from sotopia_env.world.episode import Episode
from sotopia_training.attribution.by_model import LLMAttributor
from sotopia_training.attribution.methods import Importance, SeatScore, Unattributed, seat_score
from sotopia_training.attribution.settings import AttributionSettings
from sotopia_training.data.sources import seats_of
from sotopia_training.stage.access import work_with_models

MakeModel = Callable[[str], ChatModel]
"""Creates a language model by its name, ``PROVIDER/MODEL``."""


# --- episodes -----------------------------------------------------------------------------------------------------


def episodes_of(settings: AttributionSettings) -> Iterator[tuple[Episode, list[str]]]:
    """Yields the episodes of all runs with their selected seats; an episode that several runs contain is yielded once.

    Raises:
        InvalidValueError: two different episodes have the same key, or a run cannot be read.
    """
    contents: dict[str, tuple[str, str]] = {}
    for path in settings.runs:
        for episode in read_run(path):
            content = episode.turns_hash
            if episode.key in contents:
                first_content, first_path = contents[episode.key]
                if first_content != content:
                    raise InvalidValueError(
                        f"episode {episode.key!r} differs from the episode with the same key in {first_path}",
                        hint="attribute these runs in separate stages",
                        where=path,
                    )
                continue
            contents[episode.key] = (content, path)
            yield episode, seats_of(episode, settings.seats)


def survey(settings: AttributionSettings) -> int:
    """Checks every episode before a model is asked or a directory is created, and returns the number of scores.

    Raises:
        UnknownNameError: no episode has a score on a dimension.
        InvalidValueError: no episode has a score at all, or none has one of the selected seats.
    """
    scores: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seats, scored = 0, dict[str, None]()
    for episode, focal_seats in episodes_of(settings):
        seats += len(focal_seats)
        evaluation = episode.evaluation(settings.evaluator)
        by_seat = evaluation.by_agent.values() if evaluation else ()
        scored |= dict.fromkeys(str(name) for of_seat in by_seat for name in of_seat)
        for seat in focal_seats:
            for name in settings.names:
                score = seat_score(episode, seat, name, settings.evaluator)
                scores[name] += isinstance(score, SeatScore)
                reasons[score.reason if isinstance(score, Unattributed) else ""] += 1
    if not seats:
        raise InvalidValueError(f"no episode has one of the seats {settings.seats}", field="runs")
    if not scored:
        reason = next((text for text, _ in reasons.most_common() if text), "no scores")
        raise InvalidValueError(
            f"no episode has a score to attribute ({reason})", field="runs", hint="evaluate the runs first"
        )
    for name in settings.names:
        if not scores[name]:
            raise UnknownNameError("no episode has a score on it", field="dimensions", got=name, valid=scored)
    return scores.total()


def questions(settings: AttributionSettings) -> Iterator[ScoreQuestion]:
    """Yields a question for every score, in the order of the episodes; missing scores are left out."""
    for episode, seats in episodes_of(settings):
        for seat in seats:
            for name in settings.names:
                score = seat_score(episode, seat, name, settings.evaluator)
                if isinstance(score, SeatScore):
                    yield ScoreQuestion(episode, seat, score)


# --- language models ----------------------------------------------------------------------------------------------


class AttributorAnswer(Record):
    """A model's answer about one seat and dimension; ``of`` identifies the content of the episode and the question."""

    episode: str
    of: str
    seat: str
    dimension: str
    attributor: str
    weights: dict[int, float] = Field(default_factory=dict)
    key: int | None = None
    missing: str | None = None

    @property
    def answer(self) -> Importance | Unattributed:
        """The importance of the turns, or the reason for its absence."""
        return Unattributed(self.missing) if self.missing is not None else Importance(self.weights, self.key)


@dataclass(frozen=True, slots=True)
class ScoreQuestion:
    """One seat of one episode, with one of its scores."""

    episode: Episode
    seat: str
    score: SeatScore

    def key(self, attributor: str) -> tuple[str, str, str, str]:
        """Returns the key of the attributor's answer in the journal."""
        return self.episode.key, self.seat, self.score.dimension, attributor


Answers = Journal[AttributorAnswer]
"""The journal of answers, by :meth:`ScoreQuestion.key`."""


def open_answers(path: Path) -> Answers:
    """Opens the file of answers; see :class:`~sotopia_env.storage.Journal`."""
    return Journal(
        path, AttributorAnswer, lambda answer: (answer.episode, answer.seat, answer.dimension, answer.attributor)
    )


@dataclass(frozen=True, slots=True)
class _PendingQuestion:
    """A question for one attributor; ``of`` identifies the turns and the attributor's parameters."""

    question: ScoreQuestion
    attributor: LLMAttributor
    of: str


def _pending(
    questions: Iterable[ScoreQuestion], attributors: Sequence[LLMAttributor], answers: Answers, progress: Progress
) -> Iterator[_PendingQuestion]:
    """Yields the questions without a valid answer in the journal."""
    for question in questions:
        content = question.episode.turns_hash
        for attributor in attributors:
            pending = _PendingQuestion(question, attributor, f"{content} {attributor.tag}")
            record = answers.get(question.key(attributor.name))
            # An answer about other turns, or to another prompt or model, has another ``of`` and is replaced.
            if record is not None and record.of == pending.of and record.missing is None:
                progress.advance(1)
            else:
                yield pending


def _answer(pending: _PendingQuestion, answer: Importance | Unattributed) -> AttributorAnswer:
    record: dict[str, Any] = {"missing": answer.reason} if isinstance(answer, Unattributed) else {}
    if isinstance(answer, Importance):
        record = {"weights": dict(answer.by_turn), "key": answer.key}
    episode, seat, dimension, attributor = pending.question.key(pending.attributor.name)
    return AttributorAnswer(
        episode=episode, of=pending.of, seat=seat, dimension=dimension, attributor=attributor, **record
    )


def ask_models(
    settings: AttributionSettings, folder: Path, answers: Answers, total: int, make_model: MakeModel | None
) -> Mapping[str, Any]:
    """Asks the language models the questions without an answer; answers that arrived before an error are kept.

    Args:
        settings: the settings of the stage.
        folder: the directory of the ledger.
        answers: the journal of answers.
        total: the number of scores, for the progress bar.
        make_model: creates a model by its name; by default as ``settings.models`` says.

    Returns:
        The attributors with their parameters, the models that answered, and the tokens and cost spent.

    Raises:
        BudgetExceededError: the limit is reached.
        ModelRefusedError: a model refuses every question.
        KeyboardInterrupt: a signal requested the stop.
    """
    access = settings.models or ModelOptions()
    models = ModelPool(access)
    question = settings.question
    manner = Manner(question.temperature, question.reasks)
    attributors = [
        LLMAttributor(
            (make_model or models.judge)(name), scale=question.scale, key="singular" in settings.methods, manner=manner
        )
        for name in settings.model_names
    ]
    models.check_answers(*(attributor.parameters for attributor in attributors))
    progress = Progress(total * len(attributors), 0, None, "attributions", models.ledger)

    async def work(pending: _PendingQuestion) -> bool:
        question = pending.question
        answer = await pending.attributor.attribute(question.episode, question.seat, question.score)
        answers.append(_answer(pending, answer))
        return not isinstance(answer, Unattributed)

    items = _pending(questions(settings), attributors, answers, progress)
    work_with_models(items, work, models, folder, progress, access.concurrency)
    spent = models.ledger.totals("judge")
    return {
        "asked": {attributor.name: dict(attributor.parameters) for attributor in attributors},
        "answered": models.ledger.answered(),
        "tokens": None if spent.uncounted else spent.tokens,
        "cost": spent.cost_text,
    }
