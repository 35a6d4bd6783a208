"""Settings of studies: one YAML document for each study. The three kinds differ only in their task."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.world.reward import CustomDimension
from sotopia_studio.studies.forms import FormQuestion, Section, check_names

PERSON = "person"
"""The partner of a play study whose partners are other participants."""
CONSENT = (
    "You take part voluntarily and may stop at any time, without giving a reason. What you write and choose is stored "
    "under a code, not under your name, and may be published. Do not write anything by which you could be recognised. "
    "You may talk to a computer program. Such programs are artificial and do not mean their words."
)


class Codes(Settings):
    """Completion codes of a panel, such as Prolific's, by how a participation ends.

    Attributes:
        completed: everything was done.
        declined: consent was not given.
        no_partner: no other participant came in time.
        not_qualified: the qualification was not passed.
        dropped: the person did not answer in time.
        url: address to which a participant returns, with the code in place of ``{code}``; without it the code is shown.
    """

    completed: str = "COMPLETED"
    declined: str = "DECLINED"
    no_partner: str = "NOPARTNER"
    not_qualified: str = "SCREENED"
    dropped: str = "TIMEOUT"
    url: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Participants follow this address with a code that is worth money: only over HTTPS.
        if self.url and not (self.url.startswith("https://") and "{code}" in self.url):
            raise InvalidValueError(field="url", expected="an https:// address with {code} in it", got=self.url)
        return self


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


class PlayStudy(Study):
    """People hold conversations, with a policy or with each other (SOTOPIA, arXiv 2310.11667, §7 and appendix F).

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: number of tasks.
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
        scenario_interview: whether people also say which of their goals they reached, and answer the scenario's own
            questions on the partners' private information, if it has any (AgentSense, arXiv 2410.19346, §3.4).
    """

    kind: Literal["play"] = "play"
    tasks: str = "starter"
    n: int | None = Field(default=None, ge=1)
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

    @model_validator(mode="after")
    def _check_interview(self) -> Self:
        check_names((Section(questions=self.interview),))
        return self


class Gold(Settings):
    """Gold scores of an episode, with which a new annotator's scores are compared.

    Attributes:
        episode: id of the episode.
        scores: scores by agent id and dimension.
    """

    episode: str
    scores: dict[str, dict[str, int]]


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


class ValidateStudy(Study):
    """People check scenarios before they are played (AgentSense, arXiv 2410.19346, A.3; SOTOPIA, E.2).

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: number of tasks.
        overlap: people per scenario.
        questions: questions about the whole scenario.
        per_seat: questions about each seat.
    """

    kind: Literal["validate"] = "validate"
    tasks: str = "everyday"
    n: int | None = Field(default=None, ge=1)
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
_ADAPTER: TypeAdapter[AnyStudy] = TypeAdapter(Annotated[AnyStudy, Field(discriminator="kind")])


def study_of(values: Any) -> AnyStudy:
    """Returns the study in a mapping.

    Raises:
        InvalidValueError: a setting is missing, unknown or invalid.
    """
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        # pydantic puts the tag of the union into the path; users know only the names of their settings.
        path = ".".join(str(part) for part in first["loc"] if part not in ("play", "annotate", "validate"))
        raise InvalidValueError.of(invalid_part(first), field=path or "kind") from None
