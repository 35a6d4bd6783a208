"""Spoken outcomes against known ones: precision, recall and Cohen's kappa of ``spoken-outcome:MODEL``.

A file of cases has one of two things in each line:

- a recorded episode, such as a line of a run's ``episodes.jsonl``. Its outcome is computed from its moves, which are
  then taken away; the model reads the words alone. Episodes without an outcome that can be agreed on are left out.
- a dialogue: ``outcome`` as in a scenario file, the ``names`` of the seats, the ``turns``, the ``terms`` that were
  agreed on (null for none), and maybe the ``context`` that all participants knew::

    {"outcome": {"protocol": {"kind": "agreement"}, "issues": [{"name": "price", "kind": "number", "low": 0,
     "high": 100}], "worth": [{"issues": {"price": {"per_unit": -1}}}, {"issues": {"price": {"per_unit": 1}}}]},
     "names": ["Ana", "Ben"], "turns": [{"seat": 0, "text": "40?"}, {"seat": 1, "text": "Deal."}],
     "terms": {"price": 40}}

Precision is exact deals of all deals that were read, recall exact deals of all known ones (those of unscored dialogues
included), kappa that of deal or no deal over the scored dialogues.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sotopia_env.errors import DamagedRecordError, EvaluationError, InvalidTaskError, InvalidValueError, Where
from sotopia_env.evaluators import SpokenOutcome
from sotopia_env.evaluators.spoken_agreement import protocol_of
from sotopia_env.files import read_lines
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.records import Name, Record, invalid, read_record
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
    """Who spoke, and what."""

    seat: int = Field(ge=0)
    text: str


class Dialogue(Record):
    """A line of the second kind, see above."""

    outcome: OutcomeSpec
    names: tuple[Name, ...]
    turns: tuple[DialogueTurn, ...]
    terms: dict[str, Any] | None
    context: str = "A conversation."


@dataclass(frozen=True, slots=True)
class Case:
    """A dialogue with the terms that were agreed on; ``None`` for no agreement."""

    where: str
    episode: Episode
    terms: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Result:
    """What was read in a case: terms, ``None`` for no agreement, or why nothing was."""

    case: Case
    terms: dict[str, Any] | None = None
    unscored: str = ""

    @property
    def exact(self) -> bool:
        """Whether exactly the known deal was read."""
        return not self.unscored and self.case.terms is not None and self.terms == self.case.terms

    def to_json(self) -> dict[str, Any]:
        """The case in one row."""
        return {"where": self.case.where, "known": self.case.terms, "read": self.terms, "unscored": self.unscored}


def known_cases(path: Path) -> Iterator[Case]:
    """Yields the dialogues of a file.

    Raises:
        DamagedRecordError: a line is neither an episode nor a dialogue; names the line and what is wrong.
    """
    for where, line in read_lines(path):
        case = _episode_case(line, where) if '"schema_version":' in line else _dialogue_case(line, where)
        if case is not None:
            yield case


def _episode_case(line: str, where: Where) -> Case | None:
    """The words of an episode and what its moves came to; ``None`` where nothing could be agreed on."""
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
    """The turn without its move."""
    action = Action(turn.action.action_type, turn.action.argument, turn.action.to)
    return Turn(turn.index, turn.round, turn.actor, action, veiled=turn.veiled)


def _dialogue_case(line: str, where: Where) -> Case:
    """The case of a line of the second kind."""
    try:
        dialogue = read_record(Dialogue, line, where)
        task = _task_of(dialogue, str(where))
        terms = None if dialogue.terms is None else protocol_of(task).space.normalise(dialogue.terms)
        return Case(str(where), Episode(task=task).with_turns(_turns_of(dialogue)), terms)
    except ValidationError as error:
        raise DamagedRecordError.of(invalid(error), where=where) from None
    except InvalidValueError as error:
        raise DamagedRecordError.of(error, where=where) from None
    except EvaluationError as error:
        raise DamagedRecordError(str(error), where=where) from None


def _turns_of(dialogue: Dialogue) -> tuple[Turn, ...]:
    """The turns; a turn without text is silence."""
    turns = []
    for index, (seat, text) in enumerate((turn.seat, turn.text) for turn in dialogue.turns):
        if seat >= len(dialogue.names):
            raise InvalidValueError(field=f"turns.{index}.seat", expected=f"0 to {len(dialogue.names) - 1}", got=seat)
        action = Action(ActionType.SPEAK, text) if text.strip() else Action(ActionType.NONE)
        turns.append(Turn(index, index // len(dialogue.names), f"agent_{seat}", action))
    return tuple(turns)


def _task_of(dialogue: Dialogue, where: str) -> Task:
    """A task of strangers about whom nothing is known but their names; the model reads no more of them anyway."""
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
    """What the evaluator reads in a case."""
    try:
        answer = await evaluator.read(case.episode)
    except EvaluationError as error:
        return Result(case, unscored=str(error))
    if answer.value is None:
        return Result(case, unscored=answer.refusal)
    return Result(case, answer.value.terms if answer.value.agreed else None)


def _ratio(part: int, whole: int) -> float | None:
    """A share; ``None`` of nothing."""
    return part / whole if whole else None


def spoken_summary(results: Sequence[Result]) -> dict[str, Any]:
    """Every number that is printed, by name."""
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
    """The numbers, and the reasons why dialogues are unscored, in words."""
    lines = [
        f"{name:12} {'n/a' if value is None else format(value, '.3f') if isinstance(value, float) else value}"
        for name, value in spoken_summary(results).items()
    ]
    reasons = Counter(result.unscored for result in results if result.unscored)
    return "\n".join([*lines, *(f"unscored ({count}): {reason}" for reason, count in reasons.most_common())])
