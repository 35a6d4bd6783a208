"""The stages of the study in order, with the YAML files of this folder; all of them run in this process.

A tiny model trains for seconds, so the imports of a process for each stage would cost more than the stages.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sotopia_training.commands import STAGES as COMMANDS

from sotopia_env.foundation.settings import Settings, read_settings
from studies.learn_smol.stages import Overrides
from studies.social_learning import clone, evaluation, tasks
from studies.study import TIMES

FOLDER = Path(__file__).parent
logger = logging.getLogger(__name__)
_OWN: Mapping[str, tuple[type[Settings], Callable[[Any], object]]] = {
    "tasks": (tasks.TasksSettings, tasks.run),
    "clone": (clone.CloneSettings, clone.run),
    "evaluation": (evaluation.EvaluationSettings, evaluation.run),
}
"""The stages of this package, by name; all others are those of ``sotopia train``."""
_ONE_STEP: Overrides = {"trainer.max_steps": 1}
SHORT: Mapping[str, Overrides] = {
    "tasks": {"most": 4},
    "clone": {"model.fit.trainer.max_steps": 4, "model.hidden": 32},
    **dict.fromkeys(("win", "belief", "outcome", "promises"), _ONE_STEP),
}
"""Settings of a run that only shows that the stages fit together, by output."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        command: a stage of ``sotopia train``, or of this package.
        config: the name of the YAML file, without its suffix.
        overrides: settings that replace the file's.
    """

    command: str
    config: str
    overrides: Overrides = field(default_factory=dict)

    @property
    def kind(self) -> tuple[type[Settings], Callable[[Any], object]]:
        """The class of its settings, and the function that runs it."""
        if self.command in _OWN:
            return _OWN[self.command]
        command = COMMANDS[self.command]()
        return command.settings, command.run

    def settings(self, changes: Overrides) -> Any:
        """Returns the settings; ``changes`` precede those of the stage."""
        values = {**self.overrides, **changes}
        sets = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        return read_settings(FOLDER / f"{self.config}.yaml", self.kind[0], sets)


BELIEFS = "verified+facts:probe=turns,trust=false,interviewee=bayesian"
"""Scores Mini-Mafia, and asks one observer after every turn what it believes with the view of each seat."""
NORMS = "verified+facts:probe=none,trust=false"
"""Scores dilemmas, and SOC by the share of statements that break the norm of promises."""
STAGES = (
    Stage("tasks", "tasks"),
    Stage("collect", "expert"),
    Stage(
        "collect",
        "expert",
        {"output": "expert-dilemma", "tasks.given": "tasks/expert-dilemma.jsonl"},
    ),
    Stage("clone", "clone"),
    Stage("grpo", "grpo_mini_mafia"),
    Stage("grpo", "grpo_mini_mafia", {"output": "belief", "reward.evaluator": BELIEFS, "reward.turns": "belief"}),
    Stage("grpo", "grpo_dilemma"),
    Stage(
        "grpo",
        "grpo_dilemma",
        {
            "output": "promises",
            "reward.evaluator": NORMS,
            "reward.scalarisation": {"goal": 1.0, "social_rules": 1.0},
        },
    ),
    Stage("evaluation", "evaluation"),
)
"""The stages in order, of one training seed."""


class Study:
    """The directory of the study, in which stages are run one after the other.

    Attributes:
        out: the directory, with the output of every stage, and a line of :data:`TIMES` for each.
    """

    def __init__(self, out: Path, short: bool = False) -> None:
        """Creates the study in ``out``.

        Args:
            out: the directory.
            short: whether everything is as small as it can be.
        """
        self.out, self._short = out.resolve(), short

    def run(self, stage: Stage) -> None:
        """Runs a stage; a complete one does nothing, and one that was stopped continues."""
        self.out.mkdir(parents=True, exist_ok=True)
        settings = self.settings(stage)
        began, processor = time.monotonic(), time.process_time()
        with contextlib.chdir(self.out):
            stage.kind[1](settings)
        record = {
            "stage": settings.output,
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(time.process_time() - processor, 1),
        }
        with (self.out / TIMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        logger.info("%s", ", ".join(f"{key} {value}" for key, value in record.items()))

    def settings(self, stage: Stage) -> Any:
        """Returns the settings of a stage in this study."""
        settings = stage.settings({})
        return stage.settings(SHORT.get(settings.output, {})) if self._short else settings
