"""Checks of one situation's texts: gender-neutral words, nothing private in what others read, numbers of the worth."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sotopia_env.outcomes import BallotRules, ChoiceIssue, ClaimsRules, OutcomeSpec
from sotopia_env.tasks.checks import number_warnings
from sotopia_env.tasks.lint.texts import GENDERED, PRONOUNS, Leak, answer_leak, gendered_words, leak
from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world.scenario import Character, Relationship, Scenario, Task
from sotopia_env.world.taskset import Cast

_GOAL = re.compile(r"(seats\.\d+\.goals\.\d+)")


@dataclass(frozen=True, slots=True)
class Situation:
    """A scenario as it stands in a record, with the people where there are some.

    Attributes:
        record: the task, template or scenario.
        scenario: of it; of a template that of its first instance.
        task: with these people, where there are some.
    """

    record: Task | Template | Scenario
    scenario: Scenario
    task: Task | None

    @classmethod
    def of(cls, record: Task | Template | Scenario) -> Situation:
        """Returns the situation of a record."""
        if isinstance(record, Scenario):
            return cls(record, record, None)
        task = record if isinstance(record, Task) else instantiate(record, 0, 0)
        return cls(record, task.scenario, task)

    @property
    def label(self) -> str:
        """Kind and id of the record, for messages."""
        return f"{type(self.record).__name__.lower()} {self.record.id!r}"

    @property
    def key(self) -> str:
        """Equal for situations of equal texts, whoever sits there."""
        return self.scenario.model_dump_json()

    @property
    def text(self) -> str:
        """What is compared with other situations: the context and the goals."""
        return " ".join([self.scenario.context, *(goal for seat in self.scenario.seats for goal in seat.goals)])

    def sentence(self, sentence: str) -> str:
        """Returns a sentence that begins with a field of the scenario, with the field as the record has it."""
        if isinstance(self.record, Template):
            sentence = _GOAL.sub(r"\1.text", sentence.removeprefix("interview."), count=1)
        return f"scenario.{sentence}" if isinstance(self.record, Task) else sentence


def scenario_sentences(situation: Situation) -> Iterator[str]:
    """Yields a sentence for everything in the scenario's own texts that others than its authors would stumble over."""
    scenario = situation.scenario
    sentences = (_gender_sentences(scenario), _leak_sentences(situation), _answer_sentences(situation))
    yield from itertools.chain(*sentences, number_warnings(scenario))


def _gender_sentences(scenario: Scenario) -> Iterator[str]:
    private = (item for seat in range(len(scenario.seats)) for item in _private_texts(scenario, seat))
    for field, text, words in (("context", scenario.context, GENDERED), *((f, t, PRONOUNS) for f, t in private)):
        if names := gendered_words(text, words):
            yield (
                f"{field}: expected words that fit people of any gender, got {', '.join(map(repr, names))}; write "
                "'they', 'partner', 'relative' or the like"
            )


def _private_texts(scenario: Scenario, seat: int) -> Iterator[tuple[str, str]]:
    side = scenario.seats[seat]
    yield from ((f"seats.{seat}.goals.{index}", goal) for index, goal in enumerate(side.goals))
    if side.private_info:
        yield f"seats.{seat}.private_info", side.private_info


def _leak_sentences(situation: Situation) -> Iterator[str]:
    scenario = situation.scenario
    public, shared = _public_words(situation), _shared_texts(situation)
    for seat in range(len(scenario.seats)):
        for field, text in _private_texts(scenario, seat):
            for location, shared_text in shared:
                if (match := leak(text, shared_text, public)) is not None:
                    yield _leak_text(field, location, match)


def _shared_texts(situation: Situation) -> list[tuple[str, str]]:
    """What others than one seat read of the situation, with its place."""
    texts, task = [("context", situation.scenario.context)], situation.task
    return texts if task is None else [*texts, *_texts_of_people(task.characters, task.relationships)]


def _texts_of_people(
    characters: Sequence[Character], relationships: Sequence[Relationship]
) -> Iterator[tuple[str, str]]:
    """What is public of each character, and the backstory of each pair."""
    for index, character in enumerate(characters):
        if character.public_info:
            yield f"characters.{index}.public_info", character.public_info
    for index, tie in enumerate(relationships):
        if tie.backstory:
            yield f"relationships.{index}.backstory (of {tie.seats[0]} and {tie.seats[1]})", tie.backstory


def _leak_text(field: str, location: str, match: Leak) -> str:
    return (
        f"{field}: expected less than {match.limit:g} of it in {location}, which others read, got {match}; say there "
        "less of it, or the same in other words"
    )


def _answer_sentences(situation: Situation) -> Iterator[str]:
    scenario, names = situation.scenario, _names(situation)
    questions = () if scenario.interview is None else scenario.interview.questions
    for index, question in enumerate(questions):
        others = (seat for seat in range(len(scenario.seats)) if seat != question.about)
        read = [*_shared_texts(situation), *(item for seat in others for item in _private_texts(scenario, seat))]
        for location, text in read:
            if (match := answer_leak(question.answer, question.wrong, text, names)) is not None:
                yield _leak_text(f"interview.questions.{index}.answer", location, match)


def _names(situation: Situation) -> str:
    return " ".join(situation.task.names.values()) if situation.task else ""


def _public_words(situation: Situation) -> str:
    """The names of people and those in the rules, which everybody reads."""
    spec = situation.scenario.outcome
    return " ".join([_names(situation), *(_rule_words(spec) if spec else ())])


def _rule_words(spec: OutcomeSpec) -> Iterator[str]:
    if isinstance(spec.protocol, BallotRules):
        yield from spec.protocol.options
    elif isinstance(spec.protocol, ClaimsRules):
        yield from spec.protocol.candidates
    for issue in spec.issues:
        yield issue.name
        yield from issue.options if isinstance(issue, ChoiceIssue) else ()


def people_sentences(record: Task | Cast) -> Iterator[tuple[str, str]]:
    """Yields a secret and a sentence for every secret that stands in what others may read: in the context, too."""
    names = " ".join(character.name for character in record.characters)
    shared = [*_texts_of_people(record.characters, record.relationships)]
    shared += [("scenario.context", record.scenario.context)] if isinstance(record, Task) else []
    for index, character in enumerate(record.characters):
        for location, text in shared:
            if (match := leak(character.secret, text, names)) is not None:
                yield character.secret, _leak_text(f"characters.{index}.secret", location, match)
