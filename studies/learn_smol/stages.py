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
from itertools import product
from pathlib import Path

from sotopia_training.commands import STAGES

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.settings import Settings, read_settings
from studies.study import TIMES

FOLDER = Path(__file__).parent
SCRIPTS = FOLDER.parents[1] / "scripts"
logger = logging.getLogger(__name__)
LOG = "log.txt"
MET, NEVER_MET = ("conceder", "linear", "boulware"), ("tit-for-tat", "micro")
"""The partners of the evaluation: those that every stage met, and those that no stage met."""
SHARED, EVALUATION = "shared", "evaluation"
"""The directory that all seeds share, with test tasks and references; and that of an evaluation in each directory."""
Overrides = Mapping[str, object]
SHORT: Mapping[str, Overrides] = {
    "tasks": {"given": "bargaining:n=64,seed=7"},
    "bc": {"trainer.max_steps": 48, "trainer.save_steps": 24},
    "play": {"tasks.scenarios": 6},
    "grpo": {
        "situations.partners": ["conceder"],
        "situations.count": 40,
        "trainer.max_steps": 8,
        "trainer.gradient_accumulation_steps": 16,  # four groups a step
        "trainer.learning_rate": 2e-4,
        # A tenth of this clone's turns is refused; at the study's price GRPO made another one worse (docs/learnt.md).
        "reward.invalid": -1.0,
    },
    "references": {"partners": ["conceder"]},
    "evaluate": {"partners": ["conceder"]},
}
"""Settings of a short run of one seed and one partner, by file."""


_SCRIPTS = {"tasks": "generate_tasks", "bc": "train_bc", "grpo": "train_grpo"}
"""Files of ``scripts/`` that are not named as their stage."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command: a script with a YAML file of this folder.

    Attributes:
        name: the name of the stage, as in ``sotopia train NAME``.
        config: the name of the YAML file, without its suffix.
        overrides: settings that replace the file's.
    """

    name: str
    config: str
    overrides: Overrides = field(default_factory=dict)

    @property
    def _file(self) -> Path:
        return FOLDER / f"{self.config}.yaml"

    def _sets(self, changes: Overrides) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in {**self.overrides, **changes}.items()]

    def command(self, changes: Overrides) -> list[str]:
        """Returns the command line; ``changes`` are further settings, by key."""
        sets = [part for text in self._sets(changes) for part in ("--set", text)]
        script = SCRIPTS / f"{_SCRIPTS.get(self.name, self.name)}.py"
        return [sys.executable, str(script), "--config", str(self._file), *sets]

    def settings(self, changes: Overrides) -> Settings:
        """Returns the settings of the stage.

        Raises:
            SotopiaError: a setting does not exist, or its value is invalid.
        """
        return read_settings(self._file, STAGES[self.name]().settings, self._sets(changes))


TASKS = Stage("tasks", "tasks")
"""The stage that makes the test tasks, before all others."""
_BASE = "smol:format=brief,max_length=1500,max_tokens=64,temperature=0.7,constrained=on,name=base-constrained"
REFERENCES = (
    Stage("evaluate", "references"),
    Stage("evaluate", "references", {"policies": [_BASE], "partners": list(MET)}),
)
"""The stages that play scripts and the base model on the test tasks, once for all seeds."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a study of this kind may choose without another file.

    Attributes:
        teachers: the scripts that are cloned, in equal shares of the episodes; one alone also answers in the clone's
            own states.
        partners: the partners of the teachers' episodes and of the clone's own.
        relabelled: whether the arm of the relabelled clone is trained, too.
        improved: whether the clone is trained further, by GRPO.
    """

    teachers: tuple[str, ...] = ("linear",)
    partners: tuple[str, ...] = (*MET, "random-walk")
    relabelled: bool = False
    improved: bool = True

    def __post_init__(self) -> None:
        if self.relabelled and len(self.teachers) > 1:
            raise InvalidValueError(
                field="teacher",
                expected="one, to answer in the clone's own states",
                got=self.teachers,
                hint="name one with --teacher, or leave out --relabel",
            )

    @property
    def changed(self) -> list[str]:
        """What differs from the recipe of the declared study, as text."""
        declared = Recipe()
        changed = [f"teacher={' '.join(self.teachers)}"] if self.teachers != declared.teachers else []
        changed += [f"partners={' '.join(self.partners)}"] if self.partners != declared.partners else []
        return changed + ([] if self.improved else ["without GRPO"])

    @property
    def taught(self) -> list[Overrides]:
        """The sources of rows from the teachers' episodes."""
        pairs = product(self.teachers, self.partners)
        return [{"run": _taught(teacher, partner), "seats": [f"policy:{teacher}"]} for teacher, partner in pairs]

    @property
    def own(self) -> list[Overrides]:
        """The sources of rows from the learner's own episodes, before they are labelled."""
        return [{"run": f"play-{partner}", "seats": ["policy:learner"], "scored": False} for partner in self.partners]


SHORT_RECIPE = Recipe(("conceder", "boulware"), ("conceder", "linear"))
"""The recipe of a short run: of its two teachers one gives in early and one at the end, so GRPO has a choice."""


def seed_stages(seed: int, recipe: Recipe | None = None) -> Iterator[Stage]:
    """Yields the stages of one training seed, which decides training tasks, order of rows, adapter and sampling.

    Args:
        seed: the training seed.
        recipe: the teacher and its partners; by default those of the declared study.
    """
    recipe = recipe or Recipe()
    for teacher, (number, partner) in product(recipe.teachers, enumerate(recipe.partners)):
        expert = {"agent": teacher, "partner": partner, "output": _taught(teacher, partner)}
        yield Stage("collect", "expert", {**expert, "tasks.families.seed": 1000 * seed + 10 * number})
    yield Stage("bc", "bc", {"data": recipe.taught, "trainer.seed": seed})
    yield Stage("evaluate", "evaluate", {"policies": [evaluated("clone")]})
    if recipe.improved:
        yield Stage("grpo", "grpo", {"situations.task_seed": 1000 * seed + 5, "trainer.seed": seed})
        yield Stage("evaluate", "evaluate", {"policies": [evaluated("grpo")]})
    if recipe.relabelled:
        yield from _relabelled(seed, recipe)


def _taught(teacher: str, partner: str) -> str:
    """Returns the directory of a teacher's episodes with a partner."""
    return f"expert-{teacher}-{partner}"


def _relabelled(seed: int, recipe: Recipe) -> Iterator[Stage]:
    """Yields the stages of the arm that is trained on the teacher's answers in the clone's own states."""
    for number, partner in enumerate(recipe.partners, 1):
        own = {"partner": partner, "output": f"play-{partner}", "tasks.families.seed": 1000 * seed + 10 * number + 1}
        yield Stage("collect", "play", {**own, "play.seed": seed})
    (teacher,) = recipe.teachers
    yield Stage("relabel", "relabel", {"teacher": teacher, "data": recipe.own})
    # DAgger (Ross, Gordon and Bagnell, 2011) adds the labels to what the teacher has said so far; a third of that is as
    # many conversations as the clone's own, which are the smaller part otherwise.
    labelled = [{**source, "labels": "labels/labels.jsonl"} for source in recipe.own]
    data = [*({**source, "weight": 1 / 3} for source in recipe.taught), *labelled]
    again = {"start_from": "clone", "output": "relabelled", "data": data, "trainer.seed": 10 * seed}
    yield Stage("bc", "bc", {**again, "trainer.learning_rate": 5e-4, "trainer.max_steps": 48})
    yield Stage("evaluate", "evaluate", {"policies": [evaluated("relabelled")], "partners": list(MET)})


def evaluated(directory: str) -> str:
    """Returns the name of a trained model in the evaluation."""
    return f"./{directory}:temperature=0.7,constrained=off,name={directory}"


class Study:
    """The directory of a study, in which stages are run.

    Attributes:
        out: the directory, with one of each seed and :data:`SHARED`; and :data:`TIMES`, a line for each stage.
    """

    def __init__(self, out: Path, changes: Mapping[str, Overrides] | None = None, threads: int = 1) -> None:
        """Creates the study in ``out``.

        Args:
            out: the directory.
            changes: settings that replace those of stages, by the name of their YAML file, such as :data:`SHORT`.
            threads: the number of threads of each stage, unless ``OMP_NUM_THREADS`` is set.
        """
        self.out = out.resolve()
        self._changes = changes or {}
        self._threads = threads
        self._running: set[subprocess.Popen[bytes]] = set()

    def check(self, stage: Stage) -> None:
        """Raises :class:`SotopiaError` if a stage has a setting that does not exist, or an invalid value."""
        stage.settings(self._changes.get(stage.config, {}))

    def run(self, stage: Stage, name: str) -> None:
        """Runs a stage in the directory ``name``, which contains the results of the stages before.

        A complete stage does nothing. The output goes to ``log.txt`` there.

        Raises:
            SotopiaError: the stage failed; the same study continues from it.
        """
        folder, began = self.out / name, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"OMP_NUM_THREADS": str(self._threads), "PYTHONPATH": str(SCRIPTS.parent), **os.environ}
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
