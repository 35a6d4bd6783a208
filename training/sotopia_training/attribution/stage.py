"""The attribution stage: reads runs, writes ``attributions.jsonl`` and a report.

First the values of states are measured (:mod:`sotopia_training.attribution.counterfactual`) and language models are
asked (:mod:`sotopia_training.attribution.questions`); each value and answer is stored as soon as it is known. The other
attributors are quick and run again each time. ``attributions.jsonl`` is written at the end, in the order of the
episodes.

The report (``report.md``, its tables also as CSV) contains the number of seats of episodes that each attributor
attributed, the missing ones with reasons, and the distribution of the rewards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import replacement
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.world.episode import Episode
from sotopia_training.attribution.by_outcome import make_attributor
from sotopia_training.attribution.counterfactual import Counterfactual, Measurement, StateValues, states_of
from sotopia_training.attribution.methods import (
    FILE,
    NO_ATTRIBUTOR,
    Attribution,
    Attributor,
    Importance,
    Method,
    SeatScore,
    Unattributed,
    attributable_turns,
    attributed,
    seat_score,
)
from sotopia_training.attribution.questions import (
    Answers,
    MakeModel,
    ScoreQuestion,
    ask_models,
    episodes_of,
    open_answers,
    survey,
)
from sotopia_training.attribution.report import SeatTally, Spread, attribution_report
from sotopia_training.attribution.settings import COUNTERFACTUAL, LLM, AttributionSettings
from sotopia_training.stage.directory import StageDirectory

__all__ = ["AttributionSettings", "run"]
logger = logging.getLogger(__name__)
ANSWERS, VALUES, REPORT = "answers.jsonl", "values.jsonl", "report.md"
WITH_TURN_REWARDS = (COUNTERFACTUAL, "standing", "silence")
"""Attributors that have turn rewards in units of the score."""


def run(settings: AttributionSettings, make_model: MakeModel | None = None) -> None:
    """Attributes the scores of all episodes; does nothing if the stage is complete.

    Args:
        settings: the settings of the stage.
        make_model: creates a language model by its name; by default as ``settings.models`` says.

    Raises:
        UnknownNameError: an attributor, a policy's seat or a dimension does not exist.
        InvalidValueError: no episode has a score, two episodes have the same key, or the output holds another stage.
        DamagedRecordError: a record cannot be read.
        BudgetExceededError: the limit is reached; the same command with a higher limit continues.
        ModelRefusedError: a model refuses every question.
    """
    # Limits may be raised when a stage is continued, so they are not among the settings that must stay equal.
    stage = StageDirectory(Path(settings.output), "attribution", settings.model_copy(update={"models": None}))
    if stage.figures is not None:
        stage.open()
        logger.info("%s: complete", stage.path)
        return
    # All checks run before the directory is created and before anything is paid for.
    offline = check_attributors(settings)
    total = survey(settings)
    continuations = _continuations(settings)
    stage.open()
    with ExitStack() as resources:
        cost: dict[str, Any] = {}
        if continuations is not None:
            values = resources.enter_context(StateValues(stage.path / VALUES, continuations))
            cost[COUNTERFACTUAL] = _measure(settings, values)
            offline.append(Counterfactual(values))
        answers = resources.enter_context(open_answers(stage.path / ANSWERS))
        spent = ask_models(settings, stage.path, answers, total, make_model) if settings.model_names else {}
        figures = _write(settings, stage.path, offline, answers)
    stage.finish({**figures, "models": spent, **cost})
    logger.info("%s: %d rewards; see %s", stage.path, figures["rewards"], stage.path / REPORT)


def check_attributors(settings: AttributionSettings) -> list[Attributor]:
    """Returns the attributors that need neither a language model nor measured values of states.

    Raises:
        InvalidValueError: an attributor is named twice, or a method needs one that is not named.
        UnknownNameError: an attributor does not exist.
    """
    names = list(dict.fromkeys(settings.attributors))
    if names != list(settings.attributors):
        raise InvalidValueError(field="attributors", expected="each name once", got=list(settings.attributors))
    if not names and set(settings.methods) != {"uniform"}:
        raise InvalidValueError(f"methods {list(settings.methods)} need at least one", field="attributors")
    offline = [make_attributor(name) for name in names if not name.startswith(LLM) and name != COUNTERFACTUAL]
    if "turn_reward" in settings.methods and not any(name.startswith(WITH_TURN_REWARDS) for name in names):
        needed = ", ".join(WITH_TURN_REWARDS)
        raise InvalidValueError(f"method 'turn_reward' needs one of {needed}", field="attributors", got=names)
    return offline


def _continuations(settings: AttributionSettings) -> Measurement | None:
    """Returns the measurement of the values of states, after checking every episode; ``None`` if it is not used."""
    if COUNTERFACTUAL not in settings.attributors:
        return None
    access = settings.models or ModelOptions()
    continuations = Measurement(settings.counterfactual, ModelPool(access))
    for episode, seats in episodes_of(settings):
        if seats:
            continuations.check(episode)
    return continuations


def _measure(settings: AttributionSettings, values: StateValues) -> dict[str, int | None]:
    """Measures every state of the episodes and returns the cost."""
    # An episode of T turns has T + 1 states; continuations of the state before turn t play about T - t turns.
    lengths = [len(episode.turns) for episode, seats in episodes_of(settings) if seats]
    samples = settings.counterfactual.samples
    logger.info(
        "the values of %d states: %d continuations each, together about %d turns",
        sum(lengths) + len(lengths),
        samples,
        samples * sum(length * (length + 1) // 2 for length in lengths),
    )
    states = (state for episode, seats in episodes_of(settings) if seats for state in states_of(episode))
    values.measure(states, sum(lengths) + len(lengths))
    return values.cost()


# --- rewards ------------------------------------------------------------------------------------------------------


def _write(settings: AttributionSettings, folder: Path, offline: list[Attributor], answers: Answers) -> dict[str, Any]:
    """Writes the rewards and the report, and returns their figures."""
    writer = _AttributionWriter(settings, offline, answers)
    with replacement(folder / FILE) as stream:
        for line in writer.lines():
            stream.write(line.encode())
    attribution_report(writer.tally, writer.spread).write(folder, markdown=True)
    if not writer.spread.count:
        raise InvalidValueError("no score could be attributed", hint=f"{folder / REPORT} has the reasons", where=folder)
    return {"rewards": writer.spread.count, "seats": writer.tally.figures()}


class _AttributionWriter:
    """Generates the lines of ``attributions.jsonl``, and collects the figures of the report meanwhile."""

    def __init__(self, settings: AttributionSettings, offline: list[Attributor], answers: Answers) -> None:
        self._settings, self._answers = settings, answers
        self._offline = {attributor.name: attributor for attributor in offline}
        self.tally, self.spread = SeatTally(), Spread()

    def lines(self) -> Iterator[str]:
        """Yields the records of all episodes, in their order, as JSON."""
        for episode, seats in episodes_of(self._settings):
            identity = (task_key(episode.task), episode.turns_hash)
            for seat in seats:
                turns = attributable_turns(episode, seat)
                for name in self._settings.names:
                    for record in self._of_score(episode, identity, seat, name, turns):
                        self.spread.add(record)
                        yield record.model_dump_json() + "\n"

    def _of_score(
        self, episode: Episode, identity: tuple[str, str], seat: str, name: str, turns: tuple[int, ...]
    ) -> Iterator[Attribution]:
        score = seat_score(episode, seat, name, self._settings.evaluator)
        if isinstance(score, SeatScore) and not turns:
            score = Unattributed("no turn to attribute to")
        importance = self._importance(ScoreQuestion(episode, seat, score)) if isinstance(score, SeatScore) else {}
        if isinstance(score, Unattributed):
            self.tally.missing(name, "", score.reason)
            return
        for attributor, rating in importance.items():
            if isinstance(rating, Unattributed):
                self.tally.missing(name, attributor, rating.reason)
            else:
                self.tally.attributed(name, attributor, len(turns))
        base, (scenario, content) = score.base(self._settings.sign), identity
        for attributor, method, rewards in _methods(self._settings.methods, importance, turns, base):
            for turn, (weight, reward) in rewards.items():
                yield Attribution(
                    episode=episode.key,
                    task=episode.task.id,
                    scenario=scenario,
                    content=content,
                    seat=seat,
                    turn=turn,
                    dimension=name,
                    attributor=attributor,
                    method=method,
                    attribution=weight,
                    score=score.value,
                    reward=reward + 0.0,  # turns -0.0 into 0.0
                )

    def _importance(self, question: ScoreQuestion) -> dict[str, Importance | Unattributed]:
        """Returns the result of each attributor; one that does not rate such scores has no entry."""
        importance: dict[str, Importance | Unattributed] = {}
        # A negative G is a loss, so importance must rate who caused it.
        blame = question.score.base(self._settings.sign) < 0
        for name in self._settings.attributors:
            attributor = self._offline.get(name)
            if attributor is None:
                answer = self._answers.get(question.key(name))
                importance[name] = Unattributed("not asked") if answer is None else answer.answer
            elif attributor.applies(question.episode, question.score):
                importance[name] = attributor.attribute(question.episode, question.seat, question.score, blame)
        return importance


_Rewards = dict[int, tuple[float | None, float]]
"""A and r of each turn, by the index of the turn."""


def _methods(
    methods: tuple[Method, ...],
    importance: Mapping[str, Importance | Unattributed],
    turns: tuple[int, ...],
    base: float,
) -> Iterator[tuple[str, Method, _Rewards]]:
    if "uniform" in methods:
        yield NO_ATTRIBUTOR, "uniform", dict.fromkeys(turns, (1.0, base))
    for attributor, rating in importance.items():
        for method in methods:
            if method == "uniform" or isinstance(rating, Unattributed):
                continue
            if method != "turn_reward":
                yield attributor, method, {t: (a, base * a) for t, a in attributed(method, rating, turns).items()}
            elif rating.rewards is not None:
                yield attributor, method, {turn: (None, reward) for turn, reward in rating.rewards.items()}
