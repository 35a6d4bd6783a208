"""Annotation and validation in a study: the forms, the qualification by gold scores, and answers as annotations."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.foundation.errors import Where
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.quality import QualityRules, applicable
from sotopia_env.people.sheet import AnnotationRequest, dimension_guides, dimensions_of, episode_view, fingerprint
from sotopia_env.people.studies.forms import FormQuestion, Section
from sotopia_env.people.studies.guidance import rationale_note, title
from sotopia_env.people.studies.settings import AnnotateStudy, ValidateStudy
from sotopia_env.world import Task
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import Dimension

REASONING = ".reasoning"
"""Suffix of the answer with the rationale of a score."""


def rated_items(study: AnnotateStudy | ValidateStudy, items: Sequence[str]) -> list[tuple[str, int]]:
    """Returns the assignments of a study, one for each item and slot, in an order drawn with the study's seed.

    Args:
        study: the study.
        items: ids of episodes or tasks. Those with gold scores belong to the qualification and are left out.
    """
    gold = {example.episode for example in study.gold} if isinstance(study, AnnotateStudy) else set[str]()
    rated = [item for item in items if item not in gold]
    shuffled = random.Random(f"items:{study.seed}").sample(rated, len(rated))[: study.n]
    return [(item, slot) for slot in range(study.overlap) for item in shuffled]


def annotation_form(study: AnnotateStudy, episode: Episode) -> tuple[Section, ...]:
    """Returns the form for an episode: for each agent, a rationale and a score on each dimension."""
    guides = dimension_guides((*study.custom, *dimensions_of(episode)))
    # In the order of the guides, which begin with the seven dimensions of SOTOPIA.
    names = [name for name in guides if not study.dimensions or name in study.dimensions]
    return tuple(
        Section(
            title=episode.task.names[agent],
            questions=tuple(
                question
                for name in names
                for question in (
                    FormQuestion(
                        # The rationale comes before the score: annotators justify a score before they give it.
                        name=f"{agent}.{name}{REASONING}",
                        text=f"{title(name)}: why?",
                        note=rationale_note(name),
                        min_words=study.min_words,
                    ),
                    FormQuestion(
                        name=f"{agent}.{name}",
                        text=title(name),
                        kind="scale",
                        low=guides[name].low,
                        high=guides[name].high,
                        note=guides[name].text,
                    ),
                )
            ),
        )
        for agent in episode.task.agents
    )


def validation_form(study: ValidateStudy, task: Task) -> tuple[Section, ...]:
    """Returns the form for a scenario: the questions about each seat, and those about the whole."""
    per_seat = tuple(
        Section(
            title=seat.name,
            questions=tuple(q.model_copy(update={"name": f"{seat.agent}.{q.name}"}) for q in study.per_seat),
        )
        for seat in episode_view(task).seats
    )
    return (*per_seat, Section(title="The whole situation", questions=study.questions))


def qualification(study: AnnotateStudy, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the result of a new annotator's qualification.

    Args:
        study: the study.
        answers: the annotator's answers by the id of the episode, for every episode with gold scores.

    Returns:
        The ``share`` of scores within the tolerance, whether that is enough (``passed``), and the dimensions with
        others (``read_again``).
    """
    misses: dict[str, int] = {}
    total = 0
    for example in study.gold:
        scored = answers[example.episode]
        for agent, scores in example.scores.items():
            for dimension, gold in scores.items():
                total += 1
                score = scored.get(f"{agent}.{dimension}")
                if score is None or abs(score - gold) > study.tolerance:
                    misses[dimension] = misses.get(dimension, 0) + 1
    # Gold without scores measures nothing, so everyone passes.
    share = 1 - sum(misses.values()) / total if total else 1.0
    return {"share": share, "passed": share >= study.pass_share, "read_again": sorted(misses)}


def scores_of(answers: Mapping[str, Any], agent: str, names: Sequence[str]) -> dict[str, float]:
    """Returns a seat's scores in an annotator's answers, by dimension."""
    scores = {name: answers.get(f"{agent}.{name}") for name in names}
    return {name: float(value) for name, value in scores.items() if isinstance(value, int)}


def annotations_of(
    assignment: str, slot: int, annotator: str, episode: Episode, answers: Mapping[str, Any], seconds: float | None
) -> list[Annotation]:
    """Returns the answers to one form as annotations, one for each seat.

    Args:
        assignment: id of the assignment.
        slot: index of the annotator among those of the episode.
        annotator: code of the annotator.
        episode: the episode.
        answers: the answers by the name of the question.
        seconds: the time taken for the form; ``None`` if it is unknown.
    """
    annotations = []
    for agent in episode.task.agents:
        request = AnnotationRequest(
            annotation_id=f"{assignment}.{agent}",
            episode=episode.key,
            agent=agent,
            slot=slot,
            transcript=fingerprint(episode),
        )
        names = [name.removeprefix(f"{agent}.") for name in answers if name.startswith(f"{agent}.")]
        names = [name for name in names if not name.endswith(REASONING)]
        reasons = {name: str(answers.get(f"{agent}.{name}{REASONING}") or "") for name in names}
        # The time was measured for the whole form, which has one part for each seat.
        share = None if seconds is None else seconds / len(episode.task.agents)
        where = Where(record=f"assignment {assignment}")
        scores = scores_of(answers, agent, names)
        annotations.append(Annotation(request, annotator, scores, reasons, share, where))
    return annotations


def rules_of(study: AnnotateStudy, answers: AnnotationSet) -> QualityRules:
    """Returns the quality rules of a study, as far as they apply to its annotations."""
    limits = study.screening.model_dump()
    most = limits.pop("max_difference")
    differences = {} if most is None else {Dimension.GOAL.value: most}
    return applicable(QualityRules(min_words=study.min_words, max_difference=differences, **limits), answers)
