"""Importers of AMPO's dialogues: training rows, evaluation results, and its list of hard combinations.

Profiles and combinations have SOTOPIA's formats (:mod:`~sotopia_env.importers.formats.profiles`); ``env_id`` is the
index of a combination in its file, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import StrictInt

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, ForeignValue, Format, Product, ProductKind, converted
from sotopia_env.importers.formats.episodes import imported_episode
from sotopia_env.importers.formats.evaluations import evaluation_of
from sotopia_env.importers.formats.scene import ObservedScene
from sotopia_env.importers.formats.sotopia_text import UNKNOWN, action_of, opening_of
from sotopia_env.importers.library import Library
from sotopia_env.importers.playback import Act, play_acts, utterance
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Task

_SIDES = ("agent1", "agent2")


class AmpoDialogue(Foreign):
    """A dialogue of a training row or an evaluation result."""

    dialog: tuple[str, ...]
    env_id: int | None = None
    instruction: str | None = None
    complete_intro: str | None = None
    agent1_name: str
    agent2_name: str
    agent1_goal: str
    agent2_goal: str
    agent1_goal_score: float | None = None
    agent2_goal_score: float | None = None
    agent1_avg_score: float | None = None
    agent2_avg_score: float | None = None
    agent1_intro: Any = None
    agent2_intro: Any = None
    agent1_scores: dict[str, Any] | None = None
    agent2_scores: dict[str, Any] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the participants, in seat order."""
        return [self.agent1_name, self.agent2_name]

    def rewards(self) -> list[Any] | None:
        """Scores by seat, in the form of SOTOPIA's rewards; ``None`` if there are none."""
        sides = []
        for side in _SIDES:
            scores, goal = getattr(self, f"{side}_scores"), getattr(self, f"{side}_goal_score")
            # A score is a number or a list of reasoning and number.
            values = {
                name: entry[-1] if isinstance(entry, list) and entry else entry
                for name, entry in (scores or {}).items()
            }
            values |= {} if goal is None or "goal" in values else {"goal": goal}
            sides.append([None, values] if values else None)
        return sides if any(sides) else None


class CombinationIndex(ForeignValue[StrictInt]):
    """The index of a combination in its file, from 0."""


def _act(number: int, text: str, names: Sequence[str]) -> Act:
    """The act in a line such as ``Tova: It is pouring.`` or ``Tova Brandt left the conversation``."""
    ids = {name: f"agent_{seat}" for seat, name in enumerate(names)}
    for seat, name in enumerate(names):
        for form in (name, name.partition(" ")[0]):
            rest = text.removeprefix(form)
            if rest != text and rest[:1] in (":", " "):
                words = rest.lstrip(": ")
                try:
                    return Act(seat, action_of(words, ids))
                except DamagedRecordError:
                    # AMPO writes speech as plain words, without the marks of SOTOPIA's actions.
                    return utterance(seat, words)
    raise DamagedRecordError(field=f"dialog.{number}", expected=f"a line of {' or '.join(map(repr, names))}", got=text)


def _task(dialogue: AmpoDialogue, library: Library) -> Task:
    index, names = dialogue.env_id, dialogue.names
    if index is not None and 0 <= index < len(library.order):
        task = library.task(*library.order[index])
        # The index may belong to another file of combinations than the imported one, so the names must agree too.
        if list(task.names.values()) == names:
            return task
    scene = ObservedScene(
        "" if index is None else f"ampo-{index}",
        _scenario(dialogue.complete_intro or dialogue.instruction or "", names),
        {dialogue.agent1_name: dialogue.agent1_goal, dialogue.agent2_name: dialogue.agent2_goal},
        {},
        {},
    )
    return library.shared(scene.key, scene.task)


def _scenario(text: str, names: Sequence[str]) -> str:
    """The scenario in a prompt; the rest of the prompt is private to one seat."""
    try:
        return opening_of(text, names).scenario
    except DamagedRecordError:
        return f"{UNKNOWN}."


def read(dialogue: AmpoDialogue, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a dialogue."""
    acts = [_act(number, text, dialogue.names) for number, text in enumerate(dialogue.dialog)]
    task = converted(lambda: _task(dialogue, library))
    evaluation = evaluation_of(dialogue.rewards(), "", "", len(task.agents))
    playback = converted(lambda: play_acts(task, acts))
    key = f"{item.file.stem[:60]}-{item.number}"
    yield Product(ProductKind.EPISODE, imported_episode(key, task, playback, (), (evaluation,)))


def read_hard(record: CombinationIndex, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields a list of one entry, the combination with the record's index."""
    index = record.root
    if not 0 <= index < len(library.order):
        expected = f"0 to {len(library.order) - 1}" if library.order else "combinations imported with it"
        raise DamagedRecordError(field="index", expected=expected, got=index)
    scenario, characters = library.order[index]
    entry = {"scenario": scenario, "seat": None, "task": library.combinations.get((scenario, characters))}
    yield Product(ProductKind.LIST, {"name": item.file.stem, "entries": [entry]})


DIALOGUES = Format(
    "ampo-dialogues",
    "AMPO training rows and results",
    ProductKind.EPISODE,
    AmpoDialogue,
    read,
)
HARD = Format(
    "ampo-hard",
    "AMPO list of hard combinations",
    ProductKind.LIST,
    CombinationIndex,
    read_hard,
)
AMPO = (DIALOGUES, HARD)
