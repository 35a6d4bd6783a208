"""Settings of studies: one YAML document for each study. The three kinds differ only in their task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.people.studies.forms import FormQuestion, Section, check_names
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.play.notes import CarriedNotes, notes_length
from sotopia_env.world.reward import CustomDimension

PERSON = "person"
"""The partner of a play study whose partners are other participants."""
CONSENT = (
    "You take part voluntarily and may stop at any time, without giving a reason. What you write and choose is stored "
    "under a code, not under your name, and may be published. Do not write anything by which you could be recognised. "
    "You may talk to a computer program. Such programs are artificial and do not mean their words."
)


_TEXTS = ("partner", "tasks", "level", "instructions", "assistance", "adviser")


FINISHED = ("done", "declined", "no_partner", "not_qualified", "stopped", "dropped")
"""The states in which a participation has ended."""


class Codes(Settings):
    """Completion codes of a panel, such as Prolific's, by how a participation ends.

    Attributes:
        completed: everything was done.
        declined: consent was not given.
        no_partner: no other participant came in time.
        not_qualified: the qualification was not passed.
        stopped: the person stopped before anything was done.
        dropped: the person did not answer in time.
        url: address to which a participant returns, with the code in place of ``{code}``; without it the code is shown.
    """

    completed: str = "COMPLETED"
    declined: str = "DECLINED"
    no_partner: str = "NOPARTNER"
    not_qualified: str = "SCREENED"
    stopped: str = "STOPPED"
    dropped: str = "TIMEOUT"
    url: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Participants follow this address with a code that is worth money: only over HTTPS.
        if self.url and not (self.url.startswith("https://") and "{code}" in self.url):
            raise InvalidValueError(field="url", expected="an https:// address with {code} in it", got=self.url)
        return self

    def of(self, state: str) -> str:
        """Returns the code of a participation in one of the states of :data:`FINISHED`; else an empty text."""
        code: str = getattr(self, "completed" if state == "done" else state) if state in FINISHED else ""
        return code


class Study(Settings):
    """Settings that all kinds of studies share.

    Attributes:
        name: unique name; part of the study's address.
        title: the title on the participants' pages.
        consent: the text of the consent form.
        instructions: the text shown before the first assignment; empty lines separate paragraphs.
        open: whether everyone with the study's address may join; otherwise only people with a personal link.
        per_person: the maximum number of conversations, episodes or scenarios for one person.
        questionnaire: questions at the end.
        codes: completion codes for a panel.
        seed: seed of the order of assignments.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")
    title: str
    consent: str = CONSENT
    instructions: str = ""
    open: bool = True
    per_person: int = Field(default=1, ge=1)
    questionnaire: tuple[FormQuestion, ...] = ()
    codes: Codes = Codes()
    seed: int = 0

    @model_validator(mode="after")
    def _check_questions(self) -> Self:
        check_names((Section(questions=self.questionnaire),))
        return self


def _number(value: Any) -> Any:
    """A number for the text of one: a form sends texts, and a file holds what was meant."""
    if value == "":
        raise InvalidValueError(expected="a value")
    is_number = isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 16
    return int(value) if is_number else value


class Level(Settings):
    """One level of a factor.

    Attributes:
        name: its name in the results.
        value: the value of the setting that the factor varies.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")
    value: Annotated[int | float | str, BeforeValidator(_number)]


class Factor(Settings):
    """A setting that differs between the conditions of a study.

    Attributes:
        name: its name in the results.
        varies: the setting.
        levels: its levels, two or more.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")
    varies: Literal["partner", "tasks", "level", "instructions", "max_turns", "turn_seconds", "assistance", "adviser"]
    levels: tuple[Level, ...] = Field(min_length=2)


class TaskStudy(Study):
    """A study with situations, which may be of the studio's own library.

    Attributes:
        library: tasks and scenarios of the library: ``ID``, or ``ID@HASH`` with the beginning of its content's hash.
            With some and without ``only``, no other situations are used. People are drawn for a scenario.
        frozen: their tasks as JSON, as they were when the study was opened; written by the studio.
    """

    library: tuple[str, ...] = ()
    frozen: tuple[str, ...] = Field(default=(), json_schema_extra={"hidden": True})


class PlayStudy(TaskStudy):
    """People hold conversations, with a policy or with each other (SOTOPIA, arXiv 2310.11667, §7 and appendix F).

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: number of tasks.
        only: ids of the tasks to use among them; all by default.
        level: difficulty of generated tasks.
        partner: the policy in the other seats, such as ``local/my-model``; ``person`` for other participants.
        seats: the seat that people take: ``first``, ``second``, or ``both``, each once per task.
        repeats: the number of people who play each task and seat.
        max_turns: the turn limit of a conversation.
        evaluator: the evaluator of the episodes.
        turn_seconds: the time limit of a person's turn.
        on_timeout: the consequence if a person does not answer: the character leaves, or the turn passes.
        wait_seconds: the time for which a person waits for a partner.
        interview: questions to a person after each conversation. A question with ``{partner}`` in its text is asked
            about each partner, by the character's name.
        assistance: whether a policy helps the people: ``propose`` (they may copy its proposals into the form),
            ``advise`` (they read them), or ``act`` (it acts for them unless they take over).
        adviser: the policy that helps.
        factors: what differs between conditions; every combination of their levels is one condition.
        assignment: whether each of the ``people`` stays in one condition, or the ``conversations`` of a person are in
            different ones.
        show_result: whether people read what they got when a conversation has ended.
        scenario_interview: whether people also say which of their goals they reached, and answer the scenario's own
            questions on the partners' private information, if it has any (AgentSense, arXiv 2410.19346, §3.4).
        carry: ``notes`` (or ``notes:N``, N characters): people and policies take notes to their next conversation with
            the same partners in this study.
    """

    kind: Literal["play"] = "play"
    tasks: str = "starter"
    n: int | None = Field(default=None, ge=1)
    only: tuple[str, ...] = ()
    level: str = "medium"
    partner: str = PERSON
    seats: Literal["first", "second", "both"] = "both"
    repeats: int = Field(default=1, ge=1)
    max_turns: int = Field(default=20, ge=1)
    evaluator: str = "verified"
    turn_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    on_timeout: Literal["leave", "none"] = "leave"
    wait_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    interview: tuple[FormQuestion, ...] = ()
    scenario_interview: bool = False
    show_result: bool = True
    assistance: Literal["none", "propose", "advise", "act"] = "none"
    adviser: str = ""
    factors: tuple[Factor, ...] = ()
    assignment: Literal["people", "conversations"] = "people"
    carry: CarriedNotes | None = None

    @property
    def has_interview(self) -> bool:
        """Whether people are asked something after each conversation."""
        return bool(self.interview or self.scenario_interview or self.carry)

    @property
    def rules(self) -> Rules:
        """The rules of its conversations."""
        return Rules(max_turns=self.max_turns, carry=notes_length(self.carry) if self.carry else 0)

    @model_validator(mode="after")
    def _check_interview(self) -> Self:
        check_names((Section(questions=self.interview),))
        return self

    @model_validator(mode="after")
    def _check_assistance(self) -> Self:
        # A level may be the setting that needs an adviser, and another one that names it.
        varied = {factor.varies for factor in self.factors}
        if self.assistance != "none" and not self.adviser and "adviser" not in varied:
            raise InvalidValueError(
                field="adviser", expected=f"the policy that helps, for assistance {self.assistance!r}", got=self.adviser
            )
        return self

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        for number, factor in enumerate(self.factors):
            field, others = f"factors.{number}", self.factors[:number]
            if factor.name in {other.name for other in others}:
                raise InvalidValueError("another factor has this name", field=f"{field}.name", got=factor.name)
            if factor.varies in {other.varies for other in others}:
                raise InvalidValueError("another factor varies this", field=f"{field}.varies", got=factor.varies)
            # Instructions are read before the first conversation, whose condition is not known before it begins.
            if factor.varies == "instructions" and self.assignment == "conversations":
                raise InvalidValueError(
                    field="assignment", expected="people, because instructions vary", got="conversations"
                )
            self._check_levels(factor, field)
        return self

    def _check_levels(self, factor: Factor, field: str) -> None:
        for number, level in enumerate(factor.levels):
            path = f"{field}.levels.{number}"
            if level.name in {other.name for other in factor.levels[:number]}:
                raise InvalidValueError("another level has this name", field=f"{path}.name", got=level.name)
            try:
                self.with_level(factor, level)
            except ValidationError as error:
                problem = invalid_part(error.errors()[0])
                raise InvalidValueError.of(problem, field=f"{path}.value") from None

    def with_level(self, factor: Factor, level: Level) -> PlayStudy:
        """Returns the study in which a factor has one level; raises :class:`pydantic.ValidationError`."""
        value = str(level.value) if factor.varies in _TEXTS else level.value
        values = {name: getattr(self, name) for name in PlayStudy.model_fields}
        return PlayStudy.model_validate(values | {"factors": (), factor.varies: value})


class Gold(Settings):
    """Gold scores of an episode, with which a new annotator's scores are compared.

    Attributes:
        episode: id of the episode.
        scores: scores by agent id and dimension.
    """

    episode: str
    scores: dict[str, dict[str, int]]


class RejectionLimits(Settings):
    """Limits by which annotations are rejected; without a value, a rule is not applied.

    Attributes:
        min_seconds: the shortest time for one seat, in seconds.
        max_difference: the largest difference of two annotators of a seat on GOAL, in points.
        denial_tolerance: the largest distance of a score from 0, in points, if its rationale denies that anything
            relevant happened.
        max_distance: the largest mean distance of an annotator from the others, in points.
        straight_lines: whether annotators are rejected who give everything the same score.
    """

    min_seconds: float | None = Field(default=60, ge=0, allow_inf_nan=False)
    max_difference: float | None = Field(default=5, ge=0, allow_inf_nan=False)
    denial_tolerance: float | None = Field(default=2, ge=0, allow_inf_nan=False)
    max_distance: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    straight_lines: bool = True


class AnnotateStudy(Study):
    """People score episodes, blind to who played (SOTOPIA, appendix E; SOTOPIA-π, arXiv 2403.08715, appendix C).

    Attributes:
        runs: ids of the runs whose episodes are scored.
        n: number of their episodes; all by default.
        dimensions: the dimensions to score, among the seven and those of tasks and evaluations; all by default.
        custom: further dimensions.
        overlap: people per episode.
        buttons: whether a score is one of 11 buttons and not a slider.
        min_words: the fewest words of a rationale.
        gold: the episodes that a new annotator scores first.
        tolerance: the allowed distance of a score from the gold, in points.
        pass_share: the share of scores that must be within the tolerance.
        screening: the quality rules.
    """

    kind: Literal["annotate"] = "annotate"
    runs: tuple[str, ...] = ()
    n: int | None = Field(default=None, ge=1)
    dimensions: tuple[str, ...] = ()
    custom: tuple[CustomDimension, ...] = ()
    overlap: int = Field(default=2, ge=1, le=100)
    buttons: bool = True
    min_words: int = Field(default=5, ge=0)
    gold: tuple[Gold, ...] = ()
    tolerance: int = Field(default=2, ge=0)
    pass_share: float = Field(default=0.8, ge=0, le=1)
    screening: RejectionLimits = RejectionLimits()


class ValidateStudy(TaskStudy):
    """People check scenarios before they are played (AgentSense, arXiv 2410.19346, A.3; SOTOPIA, E.2).

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: number of tasks.
        only: ids of the tasks to use among them; all by default.
        overlap: people per scenario.
        questions: questions about the whole scenario.
        per_seat: questions about each seat.
    """

    kind: Literal["validate"] = "validate"
    tasks: str = "everyday"
    n: int | None = Field(default=None, ge=1)
    only: tuple[str, ...] = ()
    overlap: int = Field(default=3, ge=1)
    questions: tuple[FormQuestion, ...] = (
        FormQuestion(name="plausible", text="Could this situation happen?", kind="choice", options=("no", "yes")),
        FormQuestion(name="remarks", text="Would you change anything? What?", required=False),
    )
    per_seat: tuple[FormQuestion, ...] = (
        FormQuestion(
            name="goal",
            text="Is the goal valid: does it fit the person and the situation, and could it be reached by talking?",
            kind="choice",
            options=("invalid", "valid", "needs fixing"),
        ),
        FormQuestion(
            name="private",
            text="How well does the private information of this person fit the situation?",
            kind="scale",
            low=0,
            high=3,
            note="0: not at all; 3: very well",
        ),
    )


AnyStudy = PlayStudy | AnnotateStudy | ValidateStudy
KINDS: Mapping[str, type[AnyStudy]] = {"play": PlayStudy, "annotate": AnnotateStudy, "validate": ValidateStudy}
"""The settings of each kind of study."""


def study_of(values: Any, where: Callable[[Sequence[str]], Where] = lambda _: Where()) -> AnyStudy:
    """Returns the study in a mapping.

    Args:
        values: the settings; ``kind`` selects their class.
        where: returns the location of the setting at a path, for errors.

    Raises:
        InvalidValueError: a setting is missing, unknown or invalid.
    """
    if not isinstance(values, dict):
        raise InvalidValueError(expected="settings, such as `kind: play`", got=type(values), where=where(()))
    name = values.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        problem = "this is not a study of the studio"
        raise UnknownNameError(problem, field="kind", got=name, valid=KINDS, where=where(("kind",)))
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _located(error.errors(), kind, where) from None


def _located(
    problems: Sequence[Any], kind: type[AnyStudy], where: Callable[[Sequence[str]], Where]
) -> InvalidValueError:
    """The most helpful problem: an unknown setting is often the misspelt name of a missing one."""
    problem = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    part, path = invalid_part(problem), [str(step) for step in problem["loc"]]
    location = where([*path, *filter(None, part.field.split("."))])
    if problem["type"] == "extra_forbidden" and len(path) == 1:
        return UnknownNameError("unknown setting", field=path[0], got=path[0], valid=kind.model_fields, where=location)
    return InvalidValueError.of(part, within=".".join(path), where=location)
