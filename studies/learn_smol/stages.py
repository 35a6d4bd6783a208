"""The stages of the study in order: scripts with YAML files of this folder, and settings that depend on the seed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sotopia_training.collect.filtering import selection_path

from sotopia_env.foundation.errors import SotopiaError

FOLDER = Path(__file__).parent
SCRIPTS = FOLDER.parents[1] / "scripts"
logger = logging.getLogger(__name__)
TIMES, LOG = "times.jsonl", "log.txt"
TRAINED = ("clone", "sr-1", "sr-2", "grpo")
"""Directories of the trained models, in their order."""
PARTNERS = ("linear", "conceder")
"""The partners of the model's own episodes."""
SCENARIOS, STEPS = {1: 44, 2: 22}, {1: 20, 2: 12}
"""Training tasks of each round of self-reinforcement, played in both seats with each partner, and optimiser steps."""
SHARED, EVALUATION = "shared", "evaluation"
"""The directory that all seeds share, with test tasks and references; and that of an evaluation in each directory."""
Overrides = Mapping[str, object]
SHORT: Mapping[str, Overrides] = {
    "tasks": {"given": "bargaining:n=2,seed=7"},
    "bc": {"trainer.max_steps": 20},
    "play": {"tasks.scenarios": 4},
    "filter": {"filter.minimum": 0.0},
    "sr": {"trainer.max_steps": 2},
    "grpo": {"situations.count": 4, "trainer.max_steps": 1, "trainer.gradient_accumulation_steps": 4},
}
"""Settings of a run that only shows that the stages fit together, by file."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command: a script with a YAML file of this folder.

    Attributes:
        script: the name of a file in ``scripts/``, without its suffix.
        config: the name of the YAML file, without its suffix.
        overrides: settings that replace the file's.
    """

    script: str
    config: str
    overrides: Overrides = field(default_factory=dict)

    def command(self, changes: Overrides) -> list[str]:
        """Returns the command line; ``changes`` are further settings, by key."""
        settings = {**self.overrides, **changes}
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        script, config = SCRIPTS / f"{self.script}.py", FOLDER / f"{self.config}.yaml"
        return [sys.executable, str(script), "--config", str(config), *sets]


TASKS = Stage("generate_tasks", "tasks")
"""The stage that makes the test tasks, before all others."""
REFERENCES = Stage("evaluate", "references")
"""The stage that plays the base model and scripts on the test tasks, once for all seeds."""


def seed_stages(seed: int) -> Iterator[Stage]:
    """Yields the stages of one training seed, which decides training tasks, order of rows, adapter and sampling."""
    yield Stage("collect", "expert", {"tasks.families.seed": 1000 * seed})
    yield Stage("train_bc", "bc", {"trainer.seed": seed})
    yield from _reinforcement(seed, 1, "clone", "sr-1")
    yield from _reinforcement(seed, 2, "sr-1", "sr-2")
    # Evaluated before GRPO, too, so that most results are there if it is interrupted.
    yield Stage("evaluate", "evaluate", {"policies": [evaluated(name) for name in TRAINED[:-1]]})
    yield Stage("train_grpo", "grpo", {"situations.task_seed": 1000 * seed + 3, "trainer.seed": seed})
    yield Stage("evaluate", "evaluate", {"policies": [evaluated(name) for name in TRAINED]})


def _reinforcement(seed: int, number: int, model: str, trained: str) -> Iterator[Stage]:
    """One round: the model plays with each partner and is trained on its best seats."""
    runs = [f"play-{number}-{partner}" for partner in PARTNERS]
    own = {"tasks.families.seed": 1000 * seed + number, "play.seed": 10 * seed + number}
    own["tasks.scenarios"] = SCENARIOS[number]
    for partner, run in zip(PARTNERS, runs, strict=True):
        yield Stage("collect", "play", {"agent": player(model), "partner": partner, "output": run, **own})
    selection = f"filter-{number}"
    yield Stage("filter_episodes", "filter", {"runs": runs, "output": selection})
    data = [{"run": run, "selection": str(selection_path(selection, index))} for index, run in enumerate(runs)]
    settings = {"start_from": model, "data": data, "output": trained, "trainer.seed": 10 * seed + number}
    settings["trainer.max_steps"] = STEPS[number]
    yield Stage("train_sr", "sr", settings)


def player(directory: str) -> str:
    """Returns the name of a trained model as the learner of its own episodes, at the temperature of training."""
    return f"./{directory}:temperature=1.0,dtype=bfloat16,constrained=off,name=learner"


def evaluated(directory: str) -> str:
    """Returns the name of a trained model in the evaluation."""
    return f"./{directory}:temperature=0.7,dtype=bfloat16,constrained=off,name={directory}"


class Study:
    """The directory of a study, in which stages are run.

    Attributes:
        out: the directory, with one of each seed and :data:`SHARED`; and :data:`TIMES`, a line for each stage.
    """

    def __init__(self, out: Path, short: bool = False) -> None:
        """Creates the study in ``out``; ``short`` applies the settings of :data:`SHORT`."""
        self.out = out.resolve()
        self._short = short
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, stage: Stage, name: str) -> None:
        """Runs a stage in the directory ``name``, which contains the results of the stages before.

        A complete stage does nothing. The output goes to ``log.txt`` there.

        Raises:
            SotopiaError: the stage failed; the same study continues from it.
        """
        folder, began = self.out / name, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent), **os.environ}
        command = stage.command(SHORT.get(stage.config, {}) if self._short else {})
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            self._running.add(process)
            # Not ``process.wait``, which does not return the processor time.
            _, status, usage = os.wait4(process.pid, 0)
        self._running.remove(process)
        process.returncode = os.waitstatus_to_exitcode(status)
        record = {
            "seed": name,
            "stage": stage.config,
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "code": process.returncode,
        }
        with (self.out / TIMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        logger.info("%s", ", ".join(f"{key} {value}" for key, value in record.items()))
        if process.returncode:
            raise SotopiaError(f"{folder / LOG}: the stage ended with code {process.returncode}: {' '.join(command)}")

    def stop(self) -> None:
        """Ends the stages that are running."""
        for process in list(self._running):
            process.terminate()
