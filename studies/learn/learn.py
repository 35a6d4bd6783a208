"""The whole study: one base model, several training seeds in parallel, references, and the report."""

from __future__ import annotations

import ctypes
import json
import logging
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from pydantic import Field
from sotopia_training.models.policy import load
from sotopia_training.stage.directory import StageDirectory

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.settings import Settings
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet
from studies.learn.base_model import make_base
from studies.learn.claims import required_failures
from studies.learn.recipe import Recipe
from studies.learn.report import UNTRAINED, read_results, write_report
from studies.learn.results import results
from studies.learn.seed_run import PATIENT, SeedRun
from studies.learn.speakers import PlainDealer
from studies.learn.tasks import TaskSplit, overlaps, split_tasks

logger = logging.getLogger(__name__)
_KEEP = ((-4, 0), (-1, 2**31 - 1))
"""glibc's M_MMAP_MAX and M_TRIM_THRESHOLD."""


class LearnSettings(Settings):
    """The settings of ``make learn``.

    Attributes:
        output: the directory of all results, ``report.md`` among them.
        recipe: see :mod:`studies.learn.recipe`.
        processes: the number of training seeds that run at a time, each on one thread.
        strict: whether to raise an error if a required claim does not hold.
    """

    output: str = "runs/learn"
    recipe: Recipe = Recipe()
    processes: int = Field(default=3, ge=1)
    strict: bool = True


def run(settings: LearnSettings) -> None:
    """Runs the incomplete stages and writes the report.

    Raises:
        SotopiaError: a required claim does not hold.
    """
    started = time.perf_counter()
    _keep_memory()
    folder, recipe = Path(settings.output).absolute(), settings.recipe
    stage = StageDirectory(folder, "learn", settings)
    stage.open()
    logger.info("making the tasks and the base model for %d training seeds", len(recipe.seeds))
    split = split_of(recipe)
    TaskSet(list(split.dev)).save(folder / "dev_tasks.jsonl")
    own = {"output": str(folder / "base"), "words": recipe.words}
    base = make_base(recipe.base.model_copy(update=own), split.base)
    logger.info("base model: %.0f s", time.perf_counter() - started)
    with ProcessPoolExecutor(settings.processes, multiprocessing.get_context("spawn"), _one_thread) as pool:
        # The processes do not need the 2,000 tasks of the base model, which would be pickled for each.
        played = replace(split, base=())
        untrained = pool.submit(_play_untrained, settings, base, split.test)
        try:
            for seed in pool.map(_run_seed, [(settings, base, played, seed) for seed in recipe.seeds]):
                logger.info("seed %d is done after %.0f s", seed, time.perf_counter() - started)
        except Exception as error:
            # Logged now, because the pool raises only when its running seeds have ended, perhaps in half an hour.
            logger.error("a seed failed; the running ones will finish first: %s", error)
            raise
        untrained.result()
    _references(folder, split, recipe)
    spent = time.perf_counter() - started + (stage.figures or {}).get("seconds", 0)
    facts = _facts(split, recipe, spent)
    report = write_report(folder, facts, recipe.seeds)
    logger.info("%s is written after %.0f s", report, time.perf_counter() - started)
    runs = read_results(folder, recipe.seeds)
    failed = required_failures(runs)
    stage.finish({"failed": failed, "seconds": round(spent)})
    if failed and settings.strict:
        raise SotopiaError(f"{report}: required claims do not hold: {'; '.join(failed)}")


def split_of(recipe: Recipe) -> TaskSplit:
    """Returns the tasks of a recipe."""
    counts = (recipe.base_tasks, recipe.train, recipe.dev, recipe.test)
    return split_tasks(recipe.families, *counts, recipe.level, recipe.task_seed)


def _keep_memory() -> None:
    """Makes glibc keep freed memory, in this process from now on.

    Otherwise a small model's tensors are requested from the system again in every step.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    # Not every C library has mallopt.
    if set_option is not None:
        for option, value in _KEEP:
            set_option(option, value)


def _one_thread() -> None:
    import torch

    _keep_memory()

    # Two processes with one thread each: threads of a model this small wait for each other more than they compute.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when its parent has died, because the next call would write into the same directories."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # Not sys.exit, which would end only this thread.
    os._exit(1)


def _run_seed(job: tuple[LearnSettings, Path, TaskSplit, int]) -> int:
    settings, base, split, seed = job
    folder = Path(settings.output).absolute()
    SeedRun(settings.recipe, base, split, seed, folder / f"seed_{seed}").run()
    return seed


def _play_untrained(settings: LearnSettings, base: Path, tasks: Sequence[Task]) -> None:
    file = Path(settings.output) / UNTRAINED
    if not file.exists():
        policy = load(
            str(base), name="untrained", temperature=settings.recipe.temperature, max_batch=128, constrained="off"
        )
        rows = results(policy, tasks, settings.recipe, seed=0)
        write_text_atomically(file, json.dumps({"untrained": rows}) + "\n")


def _references(folder: Path, split: TaskSplit, recipe: Recipe) -> None:
    speakers = {
        "expert": PlainDealer(recipe.expert_patience, recipe.words),
        "patient": PlainDealer(words=recipe.words, name=PATIENT),
    }
    rows = {name: results(policy, split.test, recipe, seed=0) for name, policy in speakers.items()}
    write_text_atomically(folder / "references.json", json.dumps(rows) + "\n")


def _facts(split: TaskSplit, recipe: Recipe, seconds: float) -> dict[str, str]:
    shared = {
        where: ", ".join(f"{name} {count} of {whole}" for name, (count, whole) in counts.items())
        for where, counts in overlaps(split).items()
    }
    return {
        "command": "`python -m studies.learn` with the settings in `stage.json`; `make learn` takes learn.yaml there",
        "test tasks": f"{len(split.test)} of {' and '.join(recipe.families)} ({recipe.level}), both seats",
        "turns": f"{recipe.max_turns} in an episode",
        "of the tests, also in training": shared["training"],
        "of the tests, also in the base model's talk": f"{shared['base']}; all training seeds share the base model",
        "of the tests, also in dev tasks": f"{shared['dev']}; these show whether the reward model is exploited",
        "training seeds": ", ".join(map(str, recipe.seeds)),
        "seen partners": "; ".join(recipe.training_partners),
        "unseen partners": "; ".join(recipe.test_partners),
        "wall time": f"{seconds:.0f} s in all calls, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
