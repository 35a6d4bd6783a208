"""Validation of ``spoken-outcome:MODEL`` against known outcomes: precision, recall and Cohen's kappa.

Each line of a file of cases is one of:

- a recorded episode, such as a line of a run's ``episodes.jsonl``. Its outcome is computed from its moves, which are
  then removed, so that the model reads only the words. Episodes of tasks without an agreement are skipped.
- a dialogue: ``outcome`` as in a scenario file, the ``names`` of the seats, the ``turns``, the ``terms`` of the
  agreement (null for no agreement), and optionally the ``context`` that all participants know::

    {"outcome": {"protocol": {"kind": "agreement"}, "issues": [{"name": "price", "kind": "number", "low": 0,
     "high": 100}], "worth": [{"issues": {"price": {"per_unit": -1}}}, {"issues": {"price": {"per_unit": 1}}}]},
     "names": ["Ana", "Ben"], "turns": [{"seat": 0, "text": "40?"}, {"seat": 1, "text": "Deal."}],
     "terms": {"price": 40}}

A reading is exact if it has the known terms. Precision is the share of exact readings among the deals that were read,
recall their share among the known deals (including those of unscored dialogues). Kappa compares deal or no deal over
the scored dialogues.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sotopia_env.evaluators import SpokenOutcome
from sotopia_env.evaluators.spoken_agreement import protocol_of
from sotopia_env.foundation.errors import (
    DamagedRecordError,
    EvaluationError,
    InvalidTaskError,
    InvalidValueError,
    Where,
)
from sotopia_env.foundation.files import read_lines
from sotopia_env.foundation.records import Name, Record, read_record
from sotopia_env.foundation.validation import invalid
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.reports.agreement import cohens_kappa
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, read_episode
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.scenario import (
    Character,
    Relationship,
    RelationshipKind,
    Scenario,
    Seat,
    Task,
)


class DialogueTurn(Record):
    """An utterance, with the index of the speaker's seat."""

    seat: int = Field(ge=0)
    text: str


class Dialogue(Record):
    """A dialogue in a file of cases; the module's docstring describes its fields."""

    outcome: OutcomeSpec
    names: tuple[Name, ...]
    turns: tuple[DialogueTurn, ...]
    terms: dict[str, Any] | None
    context: str = "A conversation."


@dataclass(frozen=True, slots=True)
class Case:
    """A dialogue with known terms.

    Attributes:
        where: location in the file.
        episode: the dialogue as an episode without moves.
        terms: the terms of the agreement; ``None`` for no agreement.
    """

    where: str
    episode: Episode
    terms: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Result:
    """The evaluator's reading of a case.

    Attributes:
        case: the case.
        terms: the terms that were read; ``None`` for no agreement.
        unscored: why the evaluator gave no answer; empty if it did.
    """

    case: Case
    terms: dict[str, Any] | None = None
    unscored: str = ""

    @property
    def exact(self) -> bool:
        """Whether the case has a known deal and exactly its terms were read."""
        return not self.unscored and self.case.terms is not None and self.terms == self.case.terms

    def to_json(self) -> dict[str, Any]:
        """Returns the result as one row."""
        return {"where": self.case.where, "known": self.case.terms, "read": self.terms, "unscored": self.unscored}


def known_cases(path: Path) -> Iterator[Case]:
    """Yields the cases of a file.

    Raises:
        DamagedRecordError: a line is neither an episode nor a dialogue; the message names the line and the problem.
    """
    for where, line in read_lines(path):
        # Only episodes have a schema version; the search avoids parsing long lines twice.
        case = _episode_case(line, where) if '"schema_version":' in line else _dialogue_case(line, where)
        if case is not None:
            yield case


def _episode_case(line: str, where: Where) -> Case | None:
    """The words of an episode with the outcome of its moves; ``None`` for a task without an agreement."""
    episode = read_episode(line, where)
    try:
        protocol_of(episode.task)
        outcome = outcome_of(episode.task, episode.plain_turns)
    except EvaluationError:
        return None
    except InvalidTaskError as error:
        raise DamagedRecordError.of(error, where=where) from None
    words = episode.with_turns(map(_words_of, episode.plain_turns))
    return Case(str(where), words, outcome.terms if outcome.agreed else None)


def _words_of(turn: Turn) -> Turn:
    """The turn without its move and without the move's effect."""
    action = Action(turn.action.action_type, turn.action.argument, turn.action.to)
    return Turn(turn.index, turn.round, turn.actor, action, veiled=turn.veiled)


def _dialogue_case(line: str, where: Where) -> Case:
    """The case of a line with a dialogue."""
    try:
        dialogue = read_record(Dialogue, line, where)
        task = _task_of(dialogue, str(where))
        # In normal form, so that ``exact`` compares terms and not notations.
        terms = None if dialogue.terms is None else protocol_of(task).space.normalise(dialogue.terms)
        return Case(str(where), Episode(task=task).with_turns(_turns_of(dialogue)), terms)
    except ValidationError as error:
        raise DamagedRecordError.of(invalid(error), where=where) from None
    except InvalidValueError as error:
        raise DamagedRecordError.of(error, where=where) from None
    except EvaluationError as error:
        raise DamagedRecordError(str(error), where=where) from None


def _turns_of(dialogue: Dialogue) -> tuple[Turn, ...]:
    """The turns; a turn without text is a turn without an action."""
    turns = []
    for index, (seat, text) in enumerate((turn.seat, turn.text) for turn in dialogue.turns):
        if seat >= len(dialogue.names):
            raise InvalidValueError(field=f"turns.{index}.seat", expected=f"0 to {len(dialogue.names) - 1}", got=seat)
        action = Action(ActionType.SPEAK, text) if text.strip() else Action(ActionType.NONE)
        turns.append(Turn(index, index // len(dialogue.names), f"agent_{seat}", action))
    return tuple(turns)


def _task_of(dialogue: Dialogue, where: str) -> Task:
    """A task for the dialogue, with strangers of whom only the names are known."""
    # The evaluator's prompt contains nothing else of the characters.
    seats = len(dialogue.names)
    people = [Character(first_name=name, gender="", pronouns="", occupation="") for name in dialogue.names]
    scenario = Scenario(
        id=where[-80:],
        context=dialogue.context,
        seats=(Seat(goals=("Come to an agreement.",)),) * seats,
        outcome=dialogue.outcome,
    )
    pairs = itertools.combinations(range(seats), 2)
    strangers = tuple(Relationship(seats=pair, kind=RelationshipKind.STRANGER) for pair in pairs)
    return Task(id=where[-80:], scenario=scenario, characters=tuple(people), relationships=strangers)


async def read_case(evaluator: SpokenOutcome, case: Case) -> Result:
    """Returns the evaluator's reading of a case."""
    try:
        answer = await evaluator.read(case.episode)
    except EvaluationError as error:
        return Result(case, unscored=str(error))
    if answer.value is None:
        return Result(case, unscored=answer.refusal)
    return Result(case, answer.value.terms if answer.value.agreed else None)


def _ratio(part: int, whole: int) -> float | None:
    """``part / whole``; ``None`` if ``whole`` is 0."""
    return part / whole if whole else None


def spoken_summary(results: Sequence[Result]) -> dict[str, Any]:
    """Returns the statistics of the results by name."""
    # Unscored dialogues count as missed deals in the recall, and are not part of kappa, which needs two answers.
    scored = [result for result in results if not result.unscored]
    pairs = [(result.case.terms is not None, result.terms is not None) for result in scored]
    exact, deals = sum(result.exact for result in results), sum(read for _, read in pairs)
    all_deals = sum(result.case.terms is not None for result in results)
    return {
        "dialogues": len(results),
        "unscored": len(results) - len(scored),
        "known_deals": all_deals,
        "deals_read": deals,
        "exact": exact,
        "precision": _ratio(exact, deals),
        "recall": _ratio(exact, all_deals),
        "kappa": cohens_kappa(pairs),
    }


def spoken_report(results: Sequence[Result]) -> str:
    """Returns the statistics and the reasons for unscored dialogues as text."""
    lines = [
        f"{name:12} {'n/a' if value is None else format(value, '.3f') if isinstance(value, float) else value}"
        for name, value in spoken_summary(results).items()
    ]
    reasons = Counter(result.unscored for result in results if result.unscored)
    return "\n".join([*lines, *(f"unscored ({count}): {reason}" for reason, count in reasons.most_common())])
