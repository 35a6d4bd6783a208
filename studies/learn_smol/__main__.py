"""Runs the study: ``python -m studies.learn_smol --out runs/learn-smol``; the same command continues it.

Seeds run in parallel, each on one thread, one stage after the other. Every stage is a script with a YAML file of this
folder, run in the directory of its seed; its output is the input of the next one. ``report.md`` is written at the end.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.yaml_text import parse_yaml
from studies.learn_smol.report import write_report
from studies.learn_smol.stages import (
    FOLDER,
    REFERENCES,
    SHARED,
    SHORT,
    SHORT_RECIPE,
    TASKS,
    Overrides,
    Recipe,
    Study,
    seed_stages,
)
from studies.learn_smol.transcripts import write_transcripts
from studies.study import exit_code

logger = logging.getLogger(__name__)


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/learn-smol"), help="directory of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument(
        "--processes", type=int, default=3, help="number of seeds at a time, each with up to 7 GB of memory"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="a short run of two teachers, one partner and fewer steps: 33 to 45 minutes of CPU time with AVX512-BF16",
    )
    parser.add_argument(
        "--tasks",
        default="",
        metavar="SET",
        help="other test tasks, to choose a recipe on, e.g. bargaining:n=16,seed=50",
    )
    parser.add_argument(
        "--teacher", nargs="+", metavar="SCRIPT", help="the script that is cloned; several share the episodes equally"
    )
    parser.add_argument(
        "--partners",
        nargs="+",
        help="the partners of the teacher's episodes and of the clone's own",
    )
    parser.add_argument("--relabel", action="store_true", help="also train the arm of the relabelled clone")
    parser.add_argument(
        "--clone-only", action="store_true", help="end after the clone; the same command without this goes on with GRPO"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FILE.KEY=VALUE",
        help="a setting of a file of this folder, e.g. grpo.reward.invalid=-3; may be repeated",
    )
    options = parser.parse_args()
    changes = {name: dict(settings) for name, settings in SHORT.items()} if options.short else {}
    if options.tasks:
        changes["tasks"] = {"given": options.tasks}
    for text in options.set:
        name, key, value = _change(parser, text)
        changes.setdefault(name, {})[key] = value
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    recipe = SHORT_RECIPE if options.short else Recipe()
    try:
        recipe = Recipe(
            tuple(options.teacher or recipe.teachers),
            tuple(options.partners or recipe.partners),
            relabelled=options.relabel,
            improved=not options.clone_only,
        )
    except SotopiaError as error:
        parser.error(str(error))
    return exit_code(partial(run, options.out, options.seeds, options.processes, changes, recipe))


def _change(parser: argparse.ArgumentParser, text: str) -> tuple[str, str, object]:
    """Returns the file, the key and the value of ``FILE.KEY=VALUE``; ends with a usage message if it is none."""
    named, _, value = text.partition("=")
    name, _, key = named.partition(".")
    if not (key and value) or not (FOLDER / f"{name}.yaml").is_file():
        files = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
        parser.error(f"argument --set: expected FILE.KEY=VALUE with one of the files {files}, got {text!r}")
    try:
        return name, key, parse_yaml(value, text)
    except SotopiaError as error:
        parser.error(f"argument --set: {error}")


def run(
    out: Path,
    seeds: list[int],
    processes: int,
    changes: Mapping[str, Overrides] | None = None,
    recipe: Recipe | None = None,
) -> None:
    """Runs the incomplete stages, and writes the report.

    Args:
        out: the directory of the study.
        seeds: the training seeds.
        processes: the number of seeds at a time.
        changes: settings that replace those of stages, by the name of their YAML file.
        recipe: the teacher and its partners; by default those of the declared study.

    Raises:
        SotopiaError: a stage fails; raised after the other seeds have finished.
    """
    changed = [f"{name}.{key}={value}" for name, settings in (changes or {}).items() for key, value in settings.items()]
    changed += (recipe or Recipe()).changed
    threads = max(1, (os.cpu_count() or 1) // min(processes, len(seeds)))
    study = Study(out, changes, threads)
    for stage in (TASKS, *REFERENCES, *seed_stages(seeds[0], recipe)):
        study.check(stage)  # not after an hour, when its turn has come
    study.run(TASKS, SHARED)

    def train(seed: int) -> None:
        for stage in seed_stages(seed, recipe):
            study.run(stage, str(seed))

    def play_references() -> None:
        for stage in REFERENCES:
            study.run(stage, SHARED)

    with ThreadPoolExecutor(processes) as pool:
        jobs = [pool.submit(play_references), *(pool.submit(train, seed) for seed in seeds)]
        try:
            for job in jobs:
                job.result()
        except KeyboardInterrupt:
            # Threads cannot be interrupted, but they end when the processes that they wait for are terminated.
            pool.shutdown(wait=False, cancel_futures=True)
            study.stop()
            raise
    logger.info("report: %s, %s", write_report(study.out, seeds, changed), write_transcripts(study.out, seeds[0]))


if __name__ == "__main__":
    sys.exit(main())
