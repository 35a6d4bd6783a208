"""The annotations of a study as the library's agreement statistics and quality rules read them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people import human_agreement
from sotopia_env.people.answers import AnnotationSet
from sotopia_env.people.quality import screen
from sotopia_env.people.report import agreement_report
from sotopia_env.people.sheet import AnnotationKey, custom_dimensions
from sotopia_env.people.studies.ratings import annotations_of, rules_of
from sotopia_env.people.studies.settings import AnnotateStudy
from sotopia_env.reports.sheet import Report
from sotopia_env.world.episode import Episode
from sotopia_studio.store import episodes, studies
from sotopia_studio.studies.rating import GOLD_SLOT


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
        raise InvalidValueError(
            "the study has no annotations yet; they appear here as soon as two people have scored the same conversation"
        )
    by_id = {item: await episodes.record_of(connection, item) for item in dict.fromkeys(item.item for item in done)}
    annotations = [
        annotation
        for item in done
        for annotation in annotations_of(
            item.id, item.slot, item.participant, by_id[item.item], parse_json(item.answers, "assignment"), item.seconds
        )
    ]
    key = AnnotationKey(
        seed=study.seed,
        per_episode=study.overlap,
        # Tasks and evaluations have dimensions of their own, which the form has asked about, too.
        dimensions=custom_dimensions(by_id.values(), study.custom),
        requests=tuple(annotation.request for annotation in annotations),
    )
    return AnnotationSet(key, tuple(annotations)), list(by_id.values())


async def agreement(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> Report:
    """Returns the agreement of annotators with each other and with the judges of the episodes.

    Raises:
        InvalidValueError: the study has no annotations yet.
    """
    answers, records = await annotation_set(connection, study, row)
    return agreement_report(human_agreement(records, answers, rules=rules_of(study, answers)))


async def screen_and_relaunch(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> dict[str, int]:
    """Rejects annotations by the quality rules and opens a new assignment for each; returns the number by rule.

    An annotator judges all seats of an episode at once, so one rejected seat rejects the assignment. SOTOPIA-π
    relaunched rejected annotations by hand (appendix C.5).
    """
    answers, _ = await annotation_set(connection, study, row)
    by_assignment = {
        removal.annotation.request.annotation_id.rpartition(".")[0]: removal.reason.value
        for removal in screen(answers, rules_of(study, answers)).removals
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
