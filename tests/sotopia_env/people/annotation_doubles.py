"""Episodes to be annotated, and annotators who fill in sheets as a test tells them to."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from sotopia_env.people import read_annotations
from sotopia_env.people.answers import AnnotationSet
from sotopia_env.people.sheet import AnnotationKey, AnnotationRequest, key_path, write_template
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import StopReason, Turn
from sotopia_env.world.episode import Episode, Evaluation, Generation, PolicyInfo, RecordedTurn, Score
from sotopia_env.world.reward import DIMENSIONS, CustomDimension
from sotopia_env.world.scenario import Task
from tests.sotopia_env.runs.rollout_doubles import make_task

POLICY, MODEL, RATIONALE = "zz-policy", "zz-model-4", "zz-rationale"
"""What no annotator may read."""
REASONS = "a sentence of some six words"
CHARM = CustomDimension(name="charm", low=1, high=3, instruction="Was it charming?")
Scores = Mapping[str, float]


def episode(
    key: str = "e0",
    text: str = "Good morning.",
    task: Task | None = None,
    scores: Mapping[str, Scores] | None = None,
    judge: str = "judge",
    custom: tuple[CustomDimension, ...] = (),
) -> Episode:
    """One turn each; ``scores`` by agent and dimension make an evaluation by ``judge``."""
    task = make_task(key, private=True) if task is None else task
    turns = tuple(
        RecordedTurn(
            turn=Turn(index, 0, agent, Action(ActionType.SPEAK, f"{text} {index}")),
            generation=Generation(text=f"{POLICY} thinks", model=MODEL, parse_failure=RATIONALE),
        )
        for index, agent in enumerate(task.agents)
    )
    policies = tuple(PolicyInfo(agent=agent, name=f"{POLICY}-{agent}") for agent in task.agents)
    record = Episode(key=key, task=task, policies=policies, turns=turns, stop=StopReason.TURN_LIMIT)
    return record if scores is None else judged(record, scores, judge, custom)


def judged(
    record: Episode,
    scores: Mapping[str, Scores],
    judge: str = "judge",
    custom: tuple[CustomDimension, ...] = (),
) -> Episode:
    """The episode with an evaluation by ``judge``."""
    rows = [
        Score(agent=agent, dimension=name, value=value, reasoning=RATIONALE)
        for agent, by_dimension in scores.items()
        for name, value in by_dimension.items()
    ]
    return record.with_evaluation(Evaluation(evaluator=judge, dimensions=custom, scores=tuple(rows), comment=RATIONALE))


def cells(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def write_cells(path: Path, rows: list[list[str]], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter).writerows(rows)


Filling = Callable[[AnnotationRequest], Mapping[str, object] | None]


def fill_in(path: Path, filling: Filling) -> None:
    """Writes what ``filling`` gives for a row into its columns; ``None`` leaves the row empty."""
    key = AnnotationKey.load(key_path(path))
    requests = {request.annotation_id: request for request in key.requests}
    header, *rows = cells(path)
    for row in rows:
        values = filling(requests[row[0]])
        for column, value in (values or {}).items():
            row[header.index(column)] = str(value)
    write_cells(path, [header, *rows])


def full(scores: Mapping[str, object], annotator: str = "ann", reasoning: str = REASONS) -> dict[str, object]:
    """A filled-in row: the scores given, each with a reasoning."""
    return {"annotator": annotator, **scores, **{f"{name}_reasoning": reasoning for name in scores}}


SEVEN: dict[str, float] = dict(zip((d.value for d in DIMENSIONS), (8, 1, 4, 0, 0, 2, 7), strict=True))
"""Plausible scores on all seven dimensions."""


def annotated(folder: Path, episodes: list[Episode], filling: Filling, per_episode: int = 2) -> AnnotationSet:
    """Writes a sheet for the episodes, fills it in and reads it back."""
    path = folder / "people.csv"
    write_template(episodes, path, per_episode=per_episode)
    fill_in(path, filling)
    return read_annotations(path, key_path(path))
