"""Checks of a situation's texts: gender-neutral words, no private text in shared texts, and numbers of the worth."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sotopia_env.outcomes import BallotRules, ChoiceIssue, ClaimsRules, OutcomeSpec
from sotopia_env.tasks.checks import number_warnings
from sotopia_env.tasks.lint.texts import GENDERED, PRONOUNS, TextLeak, answer_leak, gendered_words, leak
from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world.scenario import Character, Relationship, Scenario, Task
from sotopia_env.world.taskset import Cast

_GOAL = re.compile(r"(seats\.\d+\.goals\.\d+)")


@dataclass(frozen=True, slots=True)
class LintedSituation:
    """The scenario of a record, with its characters if it has any.

    Attributes:
        record: the task, template or scenario.
        scenario: the record's scenario; for a template, that of its first instance.
        task: the task of the record or of the template's first instance; ``None`` for a scenario.
    """

    record: Task | Template | Scenario
    scenario: Scenario
    task: Task | None

    @classmethod
    def of(cls, record: Task | Template | Scenario) -> LintedSituation:
        """Returns the situation of a record."""
        if isinstance(record, Scenario):
            return cls(record, record, None)
        task = record if isinstance(record, Task) else instantiate(record, 0, 0)
        return cls(record, task.scenario, task)

    @property
    def label(self) -> str:
        """The kind and id of the record, for messages."""
        return f"{type(self.record).__name__.lower()} {self.record.id!r}"

    @property
    def key(self) -> str:
        """A key that is equal for equal scenarios, independently of the cast."""
        return self.scenario.model_dump_json()

    @property
    def text(self) -> str:
        """The text that is compared with other situations: the context and the goals."""
        return " ".join([self.scenario.context, *(goal for seat in self.scenario.seats for goal in seat.goals)])

    def sentence(self, sentence: str) -> str:
        """Returns a sentence about a field of the scenario, with the field's path in the record."""
        if isinstance(self.record, Template):
            sentence = _GOAL.sub(r"\1.text", sentence.removeprefix("interview."), count=1)
        return f"scenario.{sentence}" if isinstance(self.record, Task) else sentence


def scenario_sentences(situation: LintedSituation) -> Iterator[str]:
    """Yields a sentence for every problem in the scenario's own texts."""
    scenario = situation.scenario
    sentences = (_gender_sentences(scenario), _leak_sentences(situation), _answer_sentences(situation))
    yield from itertools.chain(*sentences, number_warnings(scenario))


def _gender_sentences(scenario: Scenario) -> Iterator[str]:
    private = (item for seat in range(len(scenario.seats)) for item in _private_texts(scenario, seat))
    # Private texts may have gendered nouns, which name third persons ("your sister"), but no pronouns for characters.
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


def _leak_sentences(situation: LintedSituation) -> Iterator[str]:
    scenario = situation.scenario
    public, shared = _public_words(situation), _shared_texts(situation)
    for seat in range(len(scenario.seats)):
        for field, text in _private_texts(scenario, seat):
            for location, shared_text in shared:
                if (match := leak(text, shared_text, public)) is not None:
                    yield _leak_text(field, location, match)


def _shared_texts(situation: LintedSituation) -> list[tuple[str, str]]:
    """The texts of the situation that several seats read, with their paths."""
    texts, task = [("context", situation.scenario.context)], situation.task
    return texts if task is None else [*texts, *_texts_of_people(task.characters, task.relationships)]


def _texts_of_people(
    characters: Sequence[Character], relationships: Sequence[Relationship]
) -> Iterator[tuple[str, str]]:
    """The public information of each character and the backstory of each pair, with their paths."""
    for index, character in enumerate(characters):
        if character.public_info:
            yield f"characters.{index}.public_info", character.public_info
    for index, tie in enumerate(relationships):
        if tie.backstory:
            yield f"relationships.{index}.backstory (of {tie.seats[0]} and {tie.seats[1]})", tie.backstory


def _leak_text(field: str, location: str, match: TextLeak) -> str:
    return (
        f"{field}: expected less than {match.limit:g} of it in {location}, which other seats read, got {match}; "
        "shorten or rephrase that text"
    )


def _answer_sentences(situation: LintedSituation) -> Iterator[str]:
    scenario, names = situation.scenario, _names(situation)
    questions = () if scenario.interview is None else scenario.interview.questions
    for index, question in enumerate(questions):
        others = (seat for seat in range(len(scenario.seats)) if seat != question.about)
        read = [*_shared_texts(situation), *(item for seat in others for item in _private_texts(scenario, seat))]
        for location, text in read:
            if (match := answer_leak(question.answer, question.wrong, text, names)) is not None:
                yield _leak_text(f"interview.questions.{index}.answer", location, match)


def _names(situation: LintedSituation) -> str:
    return " ".join(situation.task.names.values()) if situation.task else ""


def _public_words(situation: LintedSituation) -> str:
    """The names of characters, and the names in the rules: words that all seats read."""
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
    """Yields ``(secret, sentence)`` for every secret that occurs in a text that other seats read."""
    names = " ".join(character.name for character in record.characters)
    shared = [*_texts_of_people(record.characters, record.relationships)]
    shared += [("scenario.context", record.scenario.context)] if isinstance(record, Task) else []
    for index, character in enumerate(record.characters):
        for location, text in shared:
            if (match := leak(character.secret, text, names)) is not None:
                yield character.secret, _leak_text(f"characters.{index}.secret", location, match)
