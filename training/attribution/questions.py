"""Questions of attribution: the scores to attribute, put to language models so that no answer is ever lost.

Every answer is kept in a journal, one line for each seat of an episode and dimension, as it comes. A stage that was
stopped or killed asks again for nothing that it has; what was missing is asked for once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from sotopia_env.chat_model import ChatModel, ModelOptions, ModelPool
from sotopia_env.concurrency import Progress
from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.evaluators import Manner
from sotopia_env.records import Record
from sotopia_env.storage import Journal, read_run
from sotopia_env.world import Episode
from training.attribution.by_model import LLMAttributor
from training.attribution.credits import Importance, Missing, SeatScore, seat_score
from training.attribution.settings import AttributionSettings
from training.data.sources import seats_of
from training.stage.access import work_with_models

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
            content = episode.turns_hash
            if episode.key in contents:
                other, there = contents[episode.key]
                if other != content:
                    raise InvalidValueError(
                        f"episode {episode.key!r} is another one than that of the same key in {there}",
                        hint="attribute these runs in stages of their own",
                        where=path,
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


def questions(settings: AttributionSettings) -> Iterator[Question]:
    """The scores that there are, in the order of the episodes."""
    for episode, seats in episodes_of(settings):
        for seat in seats:
            for name in settings.names:
                score = seat_score(episode, seat, name, settings.evaluator)
                if isinstance(score, SeatScore):
                    yield Question(episode, seat, score)


# --- language models ----------------------------------------------------------------------------------------------


class Answer(Record):
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
        """What it says about the turns, or why it says nothing."""
        return Missing(self.missing) if self.missing is not None else Importance(self.weights, self.key)


@dataclass(frozen=True, slots=True)
class Question:
    """One seat of one episode, with one of its scores."""

    episode: Episode
    seat: str
    score: SeatScore

    def key(self, attributor: str) -> tuple[str, str, str, str]:
        """Returns the key of the attributor's answer."""
        return self.episode.key, self.seat, self.score.dimension, attributor


Answers = Journal[Answer]
"""The answers so far, by :meth:`Question.key`."""


def open_answers(path: Path) -> Answers:
    """Opens the file of answers; see :class:`~sotopia_env.storage.Journal`."""
    return Journal(path, Answer, lambda answer: (answer.episode, answer.seat, answer.dimension, answer.attributor))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question for one attributor; ``of`` identifies the turns and the way of asking."""

    question: Question
    attributor: LLMAttributor
    of: str


def _pending(
    questions: Iterable[Question], attributors: Sequence[LLMAttributor], answers: Answers, progress: Progress
) -> Iterator[_Asked]:
    """What is still to be asked; what was missing is asked again."""
    for question in questions:
        content = question.episode.turns_hash
        for attributor in attributors:
            asked = _Asked(question, attributor, f"{content} {attributor.tag}")
            record = answers.get(question.key(attributor.name))
            if record is not None and record.of == asked.of and record.missing is None:
                progress.advance(1)
            else:
                yield asked


def _answer(asked: _Asked, answer: Importance | Missing) -> Answer:
    record: dict[str, Any] = {"missing": answer.reason} if isinstance(answer, Missing) else {}
    if isinstance(answer, Importance):
        record = {"weights": dict(answer.by_turn), "key": answer.key}
    episode, seat, dimension, attributor = asked.question.key(asked.attributor.name)
    return Answer(episode=episode, of=asked.of, seat=seat, dimension=dimension, attributor=attributor, **record)


def ask_models(
    settings: AttributionSettings, folder: Path, answers: Answers, total: int, make_model: MakeModel | None
) -> Mapping[str, Any]:
    """Asks the language models what is not answered yet.

    Args:
        settings: of the stage.
        folder: of the ledger.
        answers: takes the answers.
        total: number of scores.
        make_model: makes the models by name; by default as ``settings.models`` says.

    Returns:
        Who was asked how, who answered, and what was spent.

    Raises:
        BudgetExceededError: the limit is reached; answers given until then are kept.
        ModelRefusedError: a model refuses every question; likewise.
        KeyboardInterrupt: a signal asked for the end; likewise.
    """
    access = settings.models or ModelOptions()
    models = ModelPool(access)
    question = settings.question
    manner = Manner(question.temperature, question.reasks, question.max_tokens)
    attributors = [
        LLMAttributor(
            (make_model or models.judge)(name), scale=question.scale, key="singular" in settings.methods, manner=manner
        )
        for name in settings.model_names
    ]
    models.check_answers(*(attributor.parameters for attributor in attributors))
    progress = Progress(total * len(attributors), 0, None, "attributions", models.ledger)

    async def work(asked: _Asked) -> bool:
        question = asked.question
        answer = await asked.attributor.attribute(question.episode, question.seat, question.score)
        answers.append(_answer(asked, answer))
        return not isinstance(answer, Missing)

    pending = _pending(questions(settings), attributors, answers, progress)
    work_with_models(pending, work, models, folder, progress, access.concurrency)
    spent = models.ledger.totals("judge")
    return {
        "asked": {attributor.name: dict(attributor.parameters) for attributor in attributors},
        "answered": models.ledger.answered(),
        "tokens": None if spent.uncounted else spent.tokens,
        "cost": spent.cost_text,
    }
