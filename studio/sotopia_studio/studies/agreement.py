"""The annotations of a study as the library's agreement statistics and quality rules read them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people import human_agreement
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.quality import QualityRules, applicable, screen
from sotopia_env.people.report import agreement_report
from sotopia_env.people.sheet import AnnotationKey, AnnotationRequest, custom_dimensions, fingerprint
from sotopia_env.people.studies.settings import AnnotateStudy
from sotopia_env.reports.sheet import Report
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import Dimension
from sotopia_studio.store import episodes, studies
from sotopia_studio.studies.rating import GOLD_SLOT, REASONING, scores_of


async def annotation_set(
    connection: AsyncConnection, study: AnnotateStudy, row: Any
) -> tuple[AnnotationSet, list[Episode]]:
    """Returns the annotations of a study in the form of an annotation sheet, and the annotated episodes.

    Raises:
        InvalidValueError: the study has no annotations yet.
    """
    # Qualification items have gold scores; counted as annotations they would inflate the agreement.
    done = [item for item in await studies.assignments(connection, row.id, "done") if item.slot != GOLD_SLOT]
    if not done:
        raise InvalidValueError("the study has no annotations yet", field="study", got=row.name)
    by_id = {item: await episodes.record_of(connection, item) for item in dict.fromkeys(item.item for item in done)}
    annotations = [annotation for item in done for annotation in _annotations(item, by_id[item.item])]
    key = AnnotationKey(
        seed=study.seed,
        per_episode=study.overlap,
        # Tasks and evaluations have dimensions of their own, which the form has asked about, too.
        dimensions=custom_dimensions(by_id.values(), study.custom),
        requests=tuple(annotation.request for annotation in annotations),
    )
    return AnnotationSet(key, tuple(annotations)), list(by_id.values())


def _annotations(assignment: Any, episode: Episode) -> list[Annotation]:
    """The annotations in the form of one assignment: one for each seat."""
    answers = parse_json(assignment.answers, "assignment")
    annotations = []
    for agent in episode.task.agents:
        request = AnnotationRequest(
            annotation_id=f"{assignment.id}.{agent}",
            episode=episode.key,
            agent=agent,
            slot=assignment.slot,
            transcript=fingerprint(episode),
        )
        names = [name.removeprefix(f"{agent}.") for name in answers if name.startswith(f"{agent}.")]
        names = [name for name in names if not name.endswith(REASONING)]
        reasons = {name: str(answers.get(f"{agent}.{name}{REASONING}") or "") for name in names}
        # The time was measured for the whole form, which has one part for each seat.
        seconds = None if assignment.seconds is None else assignment.seconds / len(episode.task.agents)
        where = Where(record=f"assignment {assignment.id}")
        scores = scores_of(answers, agent, names)
        annotations.append(Annotation(request, assignment.participant, scores, reasons, seconds, where))
    return annotations


async def agreement(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> Report:
    """Returns the agreement of annotators with each other and with the judges of the episodes.

    Raises:
        InvalidValueError: the study has no annotations yet.
    """
    answers, records = await annotation_set(connection, study, row)
    return agreement_report(human_agreement(records, answers, rules=_rules(study, answers)))


def _rules(study: AnnotateStudy, answers: AnnotationSet) -> QualityRules:
    limits = study.screening.model_dump()
    most = limits.pop("max_difference")
    differences = {} if most is None else {Dimension.GOAL.value: most}
    return applicable(QualityRules(min_words=study.min_words, max_difference=differences, **limits), answers)


async def screen_and_relaunch(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> dict[str, int]:
    """Rejects annotations by the quality rules and opens a new assignment for each; returns the number by rule.

    An annotator judges all seats of an episode at once, so one rejected seat rejects the assignment. SOTOPIA-π
    relaunched rejected annotations by hand (appendix C.5).
    """
    answers, _ = await annotation_set(connection, study, row)
    by_assignment = {
        removal.annotation.request.annotation_id.rpartition(".")[0]: removal.reason.value
        for removal in screen(answers, _rules(study, answers)).removals
    }
    counts: dict[str, int] = {}
    for assignment in await studies.assignments(connection, row.id, "done"):
        reason = by_assignment.get(assignment.id)
        if reason is None or assignment.slot == GOLD_SLOT:
            continue
        values = parse_json(assignment.answers, "assignment")
        content = json.dumps({**values, "rejected": reason}, ensure_ascii=False)
        await studies.change_assignment(connection, assignment.id, state="rejected", answers=content)
        await studies.add_assignments(connection, row.id, [(assignment.item, assignment.slot)])
        counts[reason] = counts.get(reason, 0) + 1
    return counts
