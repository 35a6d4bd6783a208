"""Relabelling: a scripted teacher answers in every state that a seat of recorded episodes came to itself.

A clone is trained on states that its expert came to, and plays in those that its own mistakes lead to. DAgger (Ross,
Gordon and Bagnell, AISTATS 2011) labels these with the expert's actions and trains on them. A script acts in any state
of any family that it plays, and costs nothing. ``data: [{run: RUN, labels: OUTPUT/labels.jsonl}]`` gives the rows of
``bc``: the prompts are those of the recorded episodes, also after refused or unreadable answers, and the teacher's
answers are trained. The report says in how many states the recorded seat did what its teacher would.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.waiting import Waiter
from sotopia_env.naming import make_policy
from sotopia_env.policies import HumanPolicy, LLMPolicy, Policy
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType, to_json
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.policy import turn_seed
from sotopia_env.world.play.recorded import observations
from sotopia_training.data.agreement import MoveMatch, match_figures, move_match
from sotopia_training.data.sources import Label, SourceSettings, source_seats
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
LABELS = "labels.jsonl"


class RelabellingSettings(Settings):
    """Settings of relabelling.

    Attributes:
        data: the runs whose states are labelled, usually with ``seats: [policy:NAME]`` for the student's own.
        teacher: the script that labels them, by name with its options, as in a rollout.
        output: the directory of the stage, in which ``labels.jsonl`` is written.
    """

    data: tuple[SourceSettings, ...] = Field(min_length=1)
    teacher: str
    output: str


def run(settings: RelabellingSettings) -> None:
    """Labels the states; does nothing if the stage is complete.

    Raises:
        InvalidValueError: a run cannot be read, the teacher is not a script, or it does not play a task.
        UnknownNameError: there is no such teacher, or no seat of a name.
    """
    stage = StageDirectory(Path(settings.output), "relabelling", settings)
    if stage.is_complete():
        return
    labelling = _Labelling(make_teacher(settings.teacher))
    # Before the directory is created: a family without a script leaves no files.
    lines = [label.model_dump_json() + "\n" for label in labelling.labels(settings)]
    stage.open()
    write_text_atomically(stage.path / LABELS, "".join(lines))
    figures = labelling.figures()
    stage.finish(figures)
    logger.info("%s: complete; %s", stage.path, ", ".join(f"{name} {value}" for name, value in figures.items()))


def check(settings: RelabellingSettings) -> None:
    """Checks the teacher, without reading the runs; raises as :func:`make_teacher`."""
    make_teacher(settings.teacher)


def make_teacher(spec: str) -> Policy:
    """Returns the script of a name.

    Raises:
        UnknownNameError: there is no such policy.
        InvalidValueError: it is a person or a language model.
    """
    # Models, which have a slash in their names, would have to be paid for, and asked again where they fail.
    teacher = None if "/" in spec.partition(":")[0] else make_policy(spec)
    if teacher is None or not _is_script(teacher):
        raise InvalidValueError(field="teacher", expected="a script, such as 'linear'", got=spec)
    return teacher


def _is_script(policy: Policy) -> bool:
    # A plug-in, such as `smol`, may be a model without a slash in its name, and be inside a combined policy.
    parts = [part for name in ("policy", "adviser") if (part := getattr(policy, name, None)) is not None]
    return not isinstance(policy, (HumanPolicy, LLMPolicy)) and all(_is_script(part) for part in parts)


@dataclass
class _Labelling:
    """The labels of a teacher, and the figures about them.

    Attributes:
        teacher: the script.
        own: the agreement of the recorded seats with it, state by state.
        silent: the number of states in which it does nothing.
        plays: the number of its answers by family, apart from those of scripts that cannot play it.
        tasks: the id of a task of each family.
    """

    teacher: Policy
    own: list[MoveMatch] = field(default_factory=list)
    silent: int = 0
    plays: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, str] = field(default_factory=dict)

    def labels(self, settings: RelabellingSettings) -> list[Label]:
        waiter = Waiter()
        try:
            seats = (pair for source in settings.data for pair in source_seats(source))
            labels = [label for episode, seat in seats for label in self._of(episode, seat, waiter.wait)]
        finally:
            waiter.close()
        self._check_plays()
        return labels

    def _of(self, episode: Episode, seat: str, wait: Callable[..., Any]) -> Iterator[Label]:
        for observation, index in observations(episode, seat):
            seed = turn_seed(episode.seed, index, episode.task.seat_of[seat])
            action: Action = wait(self.teacher.act(observation, seed)).action
            recorded = episode.turns[index]
            failed = recorded.generation is not None and recorded.generation.parse_failure is not None
            own = None if failed else recorded.turn.attempted or recorded.turn.action
            self.own.append(move_match(own, action, observation.briefing.space))
            self._note(episode, action)
            if action.action_type is ActionType.NONE:
                self.silent += 1  # silence is no answer to imitate, as in the rows of cloning
            else:
                completion = to_json(action, episode.task.names)
                yield Label(episode=episode.key, seat=seat, turn=index, completion=completion)

    def _note(self, episode: Episode, action: Action) -> None:
        family = str(episode.task.scenario.shared_data.get("family", episode.task.scenario.id))
        self.tasks.setdefault(family, episode.task.id)
        # A script that cannot play makes small talk. Words alone are play where facts are shared in words, for claims.
        protocol = episode.task.protocol
        shares = protocol is not None and protocol.kind == "claims" and action.action_type is ActionType.SPEAK
        self.plays[family] += action.move is not None or shares

    def _check_plays(self) -> None:
        for family, task in self.tasks.items():
            if not self.plays[family]:
                raise InvalidValueError(
                    field="teacher",
                    expected=f"a script that plays tasks of {family!r}",
                    got=Verbatim(f"{self.teacher.name!r}, which does not play task {task!r}"),
                    hint="choose another script, or leave these tasks out",
                )

    def figures(self) -> dict[str, Any]:
        """The counts, and the shares of states in which the recorded seat agreed with its teacher."""
        counts = {"states": len(self.own), "labels": len(self.own) - self.silent, "silent": self.silent}
        return {**counts, "agreement": {k: round(v, 4) for k, v in match_figures(self.own).items()}}
