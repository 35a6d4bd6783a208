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

from sotopia_env.foundation.errors import SotopiaError

FOLDER = Path(__file__).parent
SCRIPTS = FOLDER.parents[1] / "scripts"
logger = logging.getLogger(__name__)
TIMES, LOG = "times.jsonl", "log.txt"
TRAINED = ("clone", "relabelled", "grpo")
"""Directories of the trained models, in their order."""
PARTNERS = ("linear", "conceder")
"""The partners of the teacher's episodes and of the clone's own."""
SHARED, EVALUATION = "shared", "evaluation"
"""The directory that all seeds share, with test tasks and references; and that of an evaluation in each directory."""
Overrides = Mapping[str, object]
SHORT: Mapping[str, Overrides] = {
    "tasks": {"given": "bargaining:n=2,seed=7"},
    "bc": {"trainer.max_steps": 20},
    "play": {"tasks.scenarios": 4},
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
    for number, partner in enumerate(PARTNERS):
        expert = {"partner": partner, "output": f"expert-{partner}", "tasks.families.seed": 1000 * seed + 10 * number}
        yield Stage("collect", "expert", expert)
    yield Stage("train_bc", "bc", {"trainer.seed": seed})
    for number, partner in enumerate(PARTNERS, 1):
        own = {"partner": partner, "output": f"play-{partner}", "tasks.families.seed": 1000 * seed + 10 * number + 1}
        yield Stage("collect", "play", {**own, "play.seed": seed})
    yield Stage("relabel", "relabel")
    labelled = [{"run": f"play-{partner}", "labels": "labels/labels.jsonl", **_OWN} for partner in PARTNERS]
    again = {"start_from": "clone", "output": "relabelled", "data": labelled, "trainer.seed": 10 * seed}
    yield Stage("train_bc", "bc", {**again, "trainer.learning_rate": 5e-4, "trainer.max_steps": 18})
    # Evaluated before GRPO, too, so that most results are there if it is interrupted.
    yield Stage("evaluate", "evaluate", {"policies": [evaluated(name) for name in TRAINED[:-1]]})
    yield Stage("train_grpo", "grpo", {"situations.task_seed": 1000 * seed + 3, "trainer.seed": seed})
    yield Stage("evaluate", "evaluate", {"policies": [evaluated(name) for name in TRAINED]})


_OWN: Mapping[str, object] = {"seats": ["policy:learner"], "scored": False}
"""The learner's seats of its own episodes, as a source of rows."""


def evaluated(directory: str) -> str:
    """Returns the name of a trained model in the evaluation."""
    return f"./{directory}:temperature=0.7,dtype=bfloat16,constrained=off,name={directory}"


class Study:
    """The directory of a study, in which stages are run.

    Attributes:
        out: the directory, with one of each seed and :data:`SHARED`; and :data:`TIMES`, a line for each stage.
    """

    def __init__(self, out: Path, changes: Mapping[str, Overrides] | None = None) -> None:
        """Creates the study in ``out``.

        Args:
            out: the directory.
            changes: settings that replace those of stages, by the name of their YAML file, such as :data:`SHORT`.
        """
        self.out = out.resolve()
        self._changes = changes or {}
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
        command = stage.command(self._changes.get(stage.config, {}))
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
