"""The sheet that annotators fill in, and its key file, which they do not get.

The sheet is one CSV row per annotator and seat. It has no policy, no model and no judge's score, and its order can
only be undone with the key file (SOTOPIA, arXiv 2310.11667, §5.1 and appendix E: annotators do not know who
plays a character, and rate every agent on the dimensions that the judge rates, with a rationale for each).
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from sotopia_env.errors import DamagedRecordError, InvalidValueError, Verbatim, Where, check_whole
from sotopia_env.files import csv_text, read_text, write_text_atomically
from sotopia_env.outcomes import describe_space, describe_worth
from sotopia_env.prompts import fill, load
from sotopia_env.quoting import disarm
from sotopia_env.records import Record, read_record
from sotopia_env.storage.recordings import recordings
from sotopia_env.world.dynamics import TurnOrder
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import OWN_FIELDS, describe, render_turn
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension
from sotopia_env.world.scenario import Task

logger = logging.getLogger(__name__)

ID, ANNOTATOR, SECONDS = "annotation_id", "annotator", "duration_seconds"
READ_ONLY = ("situation", "participant", "participant_profile", "participant_goal", "transcript")
"""Columns for the annotator to read; ignored, and optional, in a sheet that comes back."""
REASONING = "_reasoning"
"""Suffix of the column with the reasoning for a dimension."""
_LONGEST_CELL = 32_767  # characters of a cell in spreadsheet programs


class AnnotationRequest(Record):
    """One row of a sheet.

    Attributes:
        annotation_id: random id in the sheet.
        episode: the episode's key.
        agent: the seat to be scored.
        slot: index of the annotator of this seat, from 0.
        transcript: hash of the transcript in the sheet (:func:`fingerprint`).
    """

    annotation_id: str
    episode: str
    agent: str
    slot: int
    transcript: str


class AnnotationKey(Record):
    """The data that undoes the blinding of one sheet; not for annotators.

    Attributes:
        requests: the rows, in the sheet's order.
        per_episode: annotators of each episode.
        dimensions: custom dimensions scored beside the seven.
    """

    schema_version: Literal[1] = 1
    seed: int
    per_episode: int
    dimensions: tuple[CustomDimension, ...] = ()
    requests: tuple[AnnotationRequest, ...]

    @cached_property
    def scales(self) -> Mapping[str, tuple[int, int]]:
        """Inclusive range by dimension: the seven, then the custom ones."""
        return {d.value: RANGES[d] for d in DIMENSIONS} | {d.name: (d.low, d.high) for d in self.dimensions}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the template, in order."""
        return (ID, ANNOTATOR, *READ_ONLY, *(column for name in self.scales for column in (name, name + REASONING)))

    @classmethod
    def load(cls, path: str | Path) -> AnnotationKey:
        """Reads a key file, or raises :class:`DamagedRecordError`."""
        if not Path(path).is_file():
            raise DamagedRecordError(expected="the key of an annotation sheet", where=path)
        return read_record(cls, read_text(path, DamagedRecordError), path)


def key_path(sheet: str | Path) -> Path:
    """Path of the key of a sheet, beside it."""
    return Path(sheet).with_suffix(".key.json")


def guide_path(sheet: str | Path) -> Path:
    """Path of the annotators' guide to a sheet, beside it."""
    return Path(sheet).with_suffix(".guide.txt")


def draw(episodes: Iterable[Episode], n: int | None, seed: int) -> list[Episode]:
    """Returns ``n`` different episodes, the same for the same seed; all of them for ``None``.

    Raises:
        InvalidValueError: there are fewer.
    """
    ordered = _different(episodes)
    if n is None:
        return ordered
    if not 1 <= n <= len(ordered):
        raise InvalidValueError(field="n", expected=f"1 to {len(ordered)}, the number of episodes", got=n)
    return random.Random(f"draw:{seed}").sample(ordered, n)


def _different(episodes: Iterable[Episode]) -> list[Episode]:
    plays = [record.episode for record in recordings(episodes, one_play=True) if record.first]
    return sorted(plays, key=lambda episode: episode.key)


def write_template(
    episodes: Iterable[Episode], path: str | Path, *, per_episode: int = 2, seed: int = 0
) -> AnnotationKey:
    """Writes a sheet to be filled in, its key and a guide for the annotators (:func:`key_path`, :func:`guide_path`).

    The rows of the first annotators come first, then those of the second, …; within these the episodes stand in an
    order of their own each time, and the seats of an episode too. The same seed and episodes give the same files.

    Args:
        episodes: to be annotated, two records of one counting once; custom dimensions of their evaluations are added
            to the seven.
        path: the ``.csv`` file; it must not exist, because an existing one may be filled in.
        per_episode: annotators per episode (2 in SOTOPIA, appendix E.1).
        seed: of the order and the ids.

    Raises:
        InvalidValueError: no episodes, two plays of one episode, a file in the way, or custom dimensions that
            contradict each other.
    """
    path, records = Path(path), list(episodes)
    ordered = _different(records)
    _check_template(path, ordered, per_episode)
    key = AnnotationKey(
        seed=seed,
        per_episode=per_episode,
        dimensions=_custom_dimensions(records),
        requests=_requests(ordered, per_episode, seed),
    )
    _check_columns(key)
    _warn_of_long_cells(ordered)
    by_key = {episode.key: episode for episode in ordered}
    rows = [_row(by_key[request.episode], request, len(key.columns)) for request in key.requests]
    write_text_atomically(key_path(path), key.model_dump_json(indent=2) + "\n")
    write_text_atomically(guide_path(path), _guide(path.name, key))
    # Spreadsheet programs take a CSV file for UTF-8 only when it begins with this mark.
    write_text_atomically(path, "\ufeff" + csv_text(key.columns, rows))
    return key


def _check_template(path: Path, episodes: Sequence[Episode], per_episode: int) -> None:
    if path.suffix != ".csv":
        raise InvalidValueError(expected="a .csv file to write", where=path)
    for file in (path, key_path(path)):
        if file.exists():
            raise InvalidValueError(
                "the file exists already", hint="choose a new one, so that no annotations are lost", where=file
            )
    check_whole("per_episode", per_episode, 1)
    if not episodes:
        raise InvalidValueError(field="episodes", expected="at least one to annotate")


def _warn_of_long_cells(episodes: Iterable[Episode]) -> None:
    for episode in episodes:
        length = len(transcript_text(episode))
        if length > _LONGEST_CELL:
            logger.warning("episode %s: transcript of %d characters; spreadsheet programs cut it", episode.key, length)


def _check_columns(key: AnnotationKey) -> None:
    for name in (d.name for d in key.dimensions):
        for column in (name, name + REASONING):
            if (*key.columns, SECONDS).count(column) > 1:
                raise InvalidValueError(
                    f"the sheet would have two columns {column!r}", hint="rename it", field="dimension", got=name
                )


def _custom_dimensions(episodes: Iterable[Episode]) -> tuple[CustomDimension, ...]:
    by_name: dict[str, CustomDimension] = {}
    for item in (d for episode in episodes for evaluation in episode.evaluations for d in evaluation.dimensions):
        first = by_name.setdefault(item.name, item)
        if (first.low, first.high) != (item.low, item.high):
            raise InvalidValueError(
                field="dimension",
                expected="one range in all evaluations",
                got=Verbatim(f"{first.low} to {first.high} and {item.low} to {item.high}"),
                where=Where(record=f"dimension {item.name!r}"),
            )
    return tuple(by_name.values())


def _requests(episodes: Sequence[Episode], per_episode: int, seed: int) -> tuple[AnnotationRequest, ...]:
    # The keys are part of the seed: the seed alone is not enough to repeat the shuffle.
    generator = random.Random("\0".join([str(seed), *(episode.key for episode in episodes)]))
    rows = []
    for slot in range(per_episode):
        for episode in generator.sample(episodes, len(episodes)):
            transcript = fingerprint(episode)
            seats = generator.sample(episode.task.agents, len(episode.task.agents))
            rows += [(episode.key, agent, slot, transcript) for agent in seats]
    # A letter in front: spreadsheet programs read "12e45678" as a number.
    ids = [f"a{number:08x}" for number in generator.sample(range(16**8), len(rows))]
    return tuple(
        AnnotationRequest(annotation_id=name, episode=key, agent=agent, slot=slot, transcript=transcript)
        for name, (key, agent, slot, transcript) in zip(ids, rows, strict=True)
    )


def _row(episode: Episode, request: AnnotationRequest, width: int) -> list[str]:
    view = episode_view(episode)
    seat = view.seats[episode.task.agents.index(request.agent)]
    texts = (view.situation, seat.name, seat.profile, seat.goals, disarm(transcript_text(episode)))
    cells = [request.annotation_id, "", *texts]
    return [*cells, *[""] * (width - len(cells))]


@dataclass(frozen=True, slots=True)
class SeatView:
    """What an annotator reads about one seat: all that the seat itself knows.

    Attributes:
        agent: the seat's id.
        name: of its character.
        profile: its character, private information, worth and relationships, one a line.
        goals: one a line.
    """

    agent: str
    name: str
    profile: str
    goals: str


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """What an annotator reads about an episode, without any sign of who played; harmless to terminals and pages.

    Attributes:
        situation: the context, and what can be agreed on.
        seats: in seat order.
        transcript: a line for each turn, and one for how it ended; empty for a task that was not played.
    """

    situation: str
    seats: tuple[SeatView, ...]
    transcript: tuple[str, ...]


def episode_view(played: Episode | Task) -> EpisodeView:
    """Returns what an annotator reads about an episode, or about a task before it is played."""
    task = played.task if isinstance(played, Episode) else played
    transcript = transcript_text(played).split("\n") if isinstance(played, Episode) else []
    seats = tuple(
        SeatView(
            agent=agent,
            name=disarm(task.characters[seat].name),
            profile=disarm(_profile(task, seat)),
            goals=disarm("\n".join(task.scenario.seats[seat].goals)),
        )
        for seat, agent in enumerate(task.agents)
    )
    return EpisodeView(disarm(_situation(task)), seats, tuple(map(disarm, transcript)))


class DimensionGuide(NamedTuple):
    """How a dimension is scored: the ends of its range, and what its points mean."""

    low: int
    high: int
    text: str


def dimension_guides(custom: Iterable[CustomDimension] = ()) -> dict[str, DimensionGuide]:
    """Returns how annotators score the seven dimensions and custom ones, by name."""
    seven = {d.value: DimensionGuide(*RANGES[d], disarm(load(f"judge_{d.value}").strip())) for d in DIMENSIONS}
    return seven | {d.name: DimensionGuide(d.low, d.high, disarm(d.instruction.strip())) for d in custom}


def _situation(task: Task) -> str:
    spec = task.scenario.outcome
    return task.scenario.context if spec is None else f"{task.scenario.context}\n{describe_space(spec, task.names)}"


def _profile(task: Task, seat: int) -> str:
    """What the seat knows of itself: without its secret and private information nobody could score SECRET."""
    character, side, spec = task.characters[seat], task.scenario.seats[seat], task.scenario.outcome
    lines = [describe(character, OWN_FIELDS)]
    lines += [f"Private information: {side.private_info}"] if side.private_info else []
    lines += [] if spec is None else [f"Worth: {describe_worth(spec, seat, task.names)}"]
    for other in range(len(task.agents)):
        if other != seat:
            bond = task.relationship(seat, other)
            lines.append(f"To {task.characters[other].name}: {bond.kind.value}. {bond.backstory}".rstrip())
    return "\n".join(lines)


def transcript_text(episode: Episode) -> str:
    """Returns the turns, one a line, and the stop reason, without any sign of who played.

    Private messages have their recipients; arguments are quoted, so that none can pose as a turn. What
    a move did stands behind the words.
    """
    by_round = episode.rules.turn_order is TurnOrder.SIMULTANEOUS
    lines = [render_turn(item.turn, episode.task.names, by_round) for item in episode.turns]
    end = "it goes on" if episode.stop is None else episode.stop.value
    return "".join(lines or ["(nobody acted)\n"]) + f"Ended: {end}"


def fingerprint(episode: Episode) -> str:
    """Hash of the transcript in the sheet (16 hex digits)."""
    return hashlib.sha256(transcript_text(episode).encode()).hexdigest()[:16]


def _guide(file: str, key: AnnotationKey) -> str:
    guides = dimension_guides(key.dimensions).items()
    parts = [f"{name}, {guide.low} to {guide.high}\n  {guide.text}" for name, guide in guides]
    return fill(load("annotation_guide"), file=file, dimensions="\n\n".join(parts)) + "\n"
