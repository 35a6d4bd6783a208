"""Annotation sheets to be filled in, with key files that undo their blinding.

A sheet has one CSV row per annotator and seat. It contains no policies, models or judges' scores, and the order of its
rows can only be undone with the key file, which annotators do not get (SOTOPIA, arXiv 2310.11667, §5.1 and appendix E:
annotators do not know who plays a character, and rate every agent on the judge's dimensions, with a rationale for
each).
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from sotopia_env.evaluators.judge.prompt import judge_text
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Verbatim, Where, check_whole
from sotopia_env.foundation.files import csv_text, read_text, write_text_atomically
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.outcomes.descriptions import describe_space, describe_worth
from sotopia_env.storage.recordings import recordings
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import OWN_FIELDS, describe, render_turn
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension
from sotopia_env.world.scenario import Task

load = reader(__package__)

logger = logging.getLogger(__name__)

ID, ANNOTATOR, SECONDS = "annotation_id", "annotator", "duration_seconds"
READ_ONLY = ("situation", "participant", "participant_profile", "participant_goal", "transcript")
"""Columns for the annotator to read; optional and ignored in a returned sheet."""
REASONING = "_reasoning"
"""Suffix of the column with the reasoning for a dimension."""
_LONGEST_CELL = 32_767  # maximum number of characters in a cell of a spreadsheet program


class AnnotationRequest(Record):
    """One row of a sheet.

    Attributes:
        annotation_id: random id of the row in the sheet.
        episode: key of the episode.
        agent: id of the agent to be scored.
        slot: index of the annotator of this seat, from 0.
        transcript: hash of the transcript in the sheet (:func:`fingerprint`).
    """

    annotation_id: str
    episode: str
    agent: str
    slot: int
    transcript: str


class AnnotationKey(Record):
    """The data that undoes the blinding of a sheet; not for annotators.

    Attributes:
        schema_version: version of the record's format.
        seed: seed of the order and the ids.
        per_episode: number of annotators per episode.
        dimensions: custom dimensions, which are scored in addition to the seven.
        requests: the rows, in the sheet's order.
    """

    schema_version: Literal[1] = 1
    seed: int
    per_episode: int
    dimensions: tuple[CustomDimension, ...] = ()
    requests: tuple[AnnotationRequest, ...]

    @cached_property
    def scales(self) -> Mapping[str, tuple[int, int]]:
        """Inclusive ranges by dimension: the seven, then the custom ones."""
        return {d.value: RANGES[d] for d in DIMENSIONS} | {d.name: (d.low, d.high) for d in self.dimensions}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the template, in order."""
        return (ID, ANNOTATOR, *READ_ONLY, *(column for name in self.scales for column in (name, name + REASONING)))

    @classmethod
    def load(cls, path: str | Path) -> AnnotationKey:
        """Reads a key file; raises :class:`DamagedRecordError` if it is missing or invalid."""
        if not Path(path).is_file():
            raise DamagedRecordError(expected="the key of an annotation sheet", where=path)
        return read_record(cls, read_text(path, DamagedRecordError), path)


def key_path(sheet: str | Path) -> Path:
    """Returns the path of a sheet's key, in the same folder."""
    return Path(sheet).with_suffix(".key.json")


def guide_path(sheet: str | Path) -> Path:
    """Returns the path of the annotators' guide to a sheet, in the same folder."""
    return Path(sheet).with_suffix(".guide.txt")


def draw(episodes: Iterable[Episode], n: int | None, seed: int) -> list[Episode]:
    """Returns a random sample of different episodes.

    Args:
        episodes: the episodes; several records of one episode count once.
        n: size of the sample; ``None`` returns all episodes.
        seed: seed of the sample.

    Raises:
        InvalidValueError: there are fewer than ``n`` episodes.
    """
    ordered = _different(episodes)
    if n is None:
        return ordered
    if not 1 <= n <= len(ordered):
        raise InvalidValueError(field="n", expected=f"1 to {len(ordered)}, the number of episodes", got=n)
    return random.Random(f"draw:{seed}").sample(ordered, n)


def _different(episodes: Iterable[Episode]) -> list[Episode]:
    # Sorted by key, so that the sample does not depend on the order in which episodes were finished.
    plays = [record.episode for record in recordings(episodes, one_play=True) if record.first]
    return sorted(plays, key=lambda episode: episode.key)


def write_template(
    episodes: Iterable[Episode], path: str | Path, *, per_episode: int = 2, seed: int = 0
) -> AnnotationKey:
    """Writes a sheet to be filled in, its key and a guide for the annotators (:func:`key_path`, :func:`guide_path`).

    The rows of the first annotators come first, then those of the second annotators, and so on. All parts have the
    episodes in one random order, so that the annotations of few people, or of people who stop early, are of the same
    episodes. The order of the seats differs between the parts. Equal seeds and episodes give equal files.

    Args:
        episodes: the episodes to annotate; several records of one episode count once. Custom dimensions of their
            tasks and evaluations are added to the seven.
        path: path of the ``.csv`` file, which must not exist, because an existing file may contain annotations.
        per_episode: number of annotators per episode (2 in SOTOPIA, appendix E.1).
        seed: seed of the order and the ids.

    Raises:
        InvalidValueError: there are no episodes or two plays of one episode, a file exists, or custom dimensions
            contradict each other.
    """
    path, records = Path(path), list(episodes)
    ordered = _different(records)
    _check_template(path, ordered, per_episode)
    key = AnnotationKey(
        seed=seed,
        per_episode=per_episode,
        dimensions=custom_dimensions(records),
        requests=_requests(ordered, per_episode, seed),
    )
    _check_columns(key)
    _warn_of_long_cells(ordered)
    by_key = {episode.key: episode for episode in ordered}
    rows = [_row(by_key[request.episode], request, len(key.columns)) for request in key.requests]
    # The key is written first: a sheet without its key could not be evaluated.
    write_text_atomically(key_path(path), key.model_dump_json(indent=2) + "\n")
    write_text_atomically(guide_path(path), _guide(path.name, key))
    # Spreadsheet programs read a CSV file as UTF-8 only if it begins with a byte order mark.
    write_text_atomically(path, "\ufeff" + csv_text(key.columns, rows))
    return key


def _check_template(path: Path, episodes: Sequence[Episode], per_episode: int) -> None:
    if path.suffix != ".csv":
        raise InvalidValueError(expected="a .csv file to write", where=path)
    for file in (path, key_path(path)):
        if file.exists():
            raise InvalidValueError(
                "the file exists already", hint="choose another path, so that no annotations are lost", where=file
            )
    check_whole("per_episode", per_episode, 1)
    if not episodes:
        raise InvalidValueError(field="episodes", expected="at least one to annotate")


def _warn_of_long_cells(episodes: Iterable[Episode]) -> None:
    for episode in episodes:
        length = len(transcript_text(episode))
        if length > _LONGEST_CELL:
            logger.warning("episode %s: spreadsheet programs truncate its %d characters", episode.key, length)


def _check_columns(key: AnnotationKey) -> None:
    for name in (d.name for d in key.dimensions):
        for column in (name, name + REASONING):
            if (*key.columns, SECONDS).count(column) > 1:
                raise InvalidValueError(
                    f"the sheet would have two columns {column!r}", hint="rename it", field="dimension", got=name
                )


def custom_dimensions(
    episodes: Iterable[Episode], further: Iterable[CustomDimension] = ()
) -> tuple[CustomDimension, ...]:
    """Returns the custom dimensions of episodes, after ``further`` ones, each once.

    Raises:
        InvalidValueError: two dimensions of one name have different ranges.
    """
    by_name: dict[str, CustomDimension] = {}
    for item in (*further, *(dimension for episode in episodes for dimension in dimensions_of(episode))):
        first = by_name.setdefault(item.name, item)
        if (first.low, first.high) != (item.low, item.high):
            raise InvalidValueError(
                field="dimension",
                expected="one range in all tasks and evaluations",
                got=Verbatim(f"{first.low} to {first.high} and {item.low} to {item.high}"),
                where=Where(record=f"dimension {item.name!r}"),
            )
    return tuple(by_name.values())


def dimensions_of(episode: Episode) -> Iterator[CustomDimension]:
    """Yields the custom dimensions of the task, whether a judge has scored them or not, and of the evaluations."""
    yield from episode.task.scenario.dimensions
    for evaluation in episode.evaluations:
        yield from evaluation.dimensions


def _requests(episodes: Sequence[Episode], per_episode: int, seed: int) -> tuple[AnnotationRequest, ...]:
    # The episodes' keys are part of the seed, so that the blinding cannot be undone by repeating the shuffle with small
    # seeds.
    generator = random.Random("\0".join([str(seed), *(episode.key for episode in episodes)]))
    rows = []
    # One order for all parts: annotators who stop early have scored the same episodes and can be compared.
    order = generator.sample(episodes, len(episodes))
    for slot in range(per_episode):
        for episode in order:
            transcript = fingerprint(episode)
            seats = generator.sample(episode.task.agents, len(episode.task.agents))
            rows += [(episode.key, agent, slot, transcript) for agent in seats]
    # The letter keeps spreadsheet programs from reading an id such as "12e45678" as a number.
    ids = [f"a{number:08x}" for number in generator.sample(range(16**8), len(rows))]
    return tuple(
        AnnotationRequest(annotation_id=name, episode=key, agent=agent, slot=slot, transcript=transcript)
        for name, (key, agent, slot, transcript) in zip(ids, rows, strict=True)
    )


def _row(episode: Episode, request: AnnotationRequest, width: int) -> list[str]:
    view = episode_view(episode)
    seat = view.seats[episode.task.agents.index(request.agent)]
    texts = (view.situation, seat.name, seat.profile, seat.goals, escape(transcript_text(episode)))
    cells = [request.annotation_id, "", *texts]
    return [*cells, *[""] * (width - len(cells))]


@dataclass(frozen=True, slots=True)
class AnnotatedSeat:
    """The texts on one seat that an annotator reads, which include all private information of the seat.

    Attributes:
        agent: id of the agent.
        name: name of the character.
        profile: the character, private information, worth and relationships, one per line.
        goals: the goals, one per line.
    """

    agent: str
    name: str
    profile: str
    goals: str


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """The texts of an episode that an annotator reads, without the policies, and escaped for terminals and pages.

    Attributes:
        situation: the context and the outcome space.
        seats: the texts on each seat, in seat order.
        transcript: a line for each turn and one for the end; empty for a task that has not been played.
    """

    situation: str
    seats: tuple[AnnotatedSeat, ...]
    transcript: tuple[str, ...]


def episode_view(played: Episode | Task) -> EpisodeView:
    """Returns the texts that an annotator reads about an episode, or about a task before it is played."""
    task = played.task if isinstance(played, Episode) else played
    transcript = transcript_text(played).split("\n") if isinstance(played, Episode) else []
    seats = tuple(
        AnnotatedSeat(
            agent=agent,
            name=escape(task.characters[seat].name),
            profile=escape(_profile(task, seat)),
            goals=escape("\n".join(task.scenario.seats[seat].goals)),
        )
        for seat, agent in enumerate(task.agents)
    )
    return EpisodeView(escape(_situation(task)), seats, tuple(map(escape, transcript)))


class DimensionGuide(NamedTuple):
    """Instructions for scoring a dimension: the ends of its range, and the meaning of its points."""

    low: int
    high: int
    text: str


def dimension_guides(custom: Iterable[CustomDimension] = ()) -> dict[str, DimensionGuide]:
    """Returns the annotators' instructions for the seven dimensions and custom ones, by name."""
    # The judge's own prompts: agreement is comparable only if both sides follow the same instructions.
    seven = {d.value: DimensionGuide(*RANGES[d], escape(judge_text(f"judge_{d.value}").strip())) for d in DIMENSIONS}
    return seven | {d.name: DimensionGuide(d.low, d.high, escape(d.instruction.strip())) for d in custom}


def _situation(task: Task) -> str:
    spec = task.scenario.outcome
    return task.scenario.context if spec is None else f"{task.scenario.context}\n{describe_space(spec, task.names)}"


def _profile(task: Task, seat: int) -> str:
    """The profile of a seat, including its private texts."""
    # Without the secret and the private information, annotators could not score SECRET.
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
    """Returns the turns, one per line, and the stop reason, without the policies.

    Private messages name their recipients. Arguments are quoted, so that none can pose as a turn. The effect of a move
    follows the words.
    """
    by_round = episode.rules.turn_order.veiled
    lines = [render_turn(item.turn, episode.task.names, by_round) for item in episode.turns]
    end = "it goes on" if episode.stop is None else episode.stop.value
    return "".join(lines or ["(nobody acted)\n"]) + f"Ended: {end}"


def fingerprint(episode: Episode) -> str:
    """Returns a hash of the transcript in the sheet (16 hex digits)."""
    return hashlib.sha256(transcript_text(episode).encode()).hexdigest()[:16]


def _guide(file: str, key: AnnotationKey) -> str:
    guides = dimension_guides(key.dimensions).items()
    parts = [f"{name}, {guide.low} to {guide.high}\n  {guide.text}" for name, guide in guides]
    return fill(load("annotation_guide"), file=file, dimensions="\n\n".join(parts)) + "\n"
