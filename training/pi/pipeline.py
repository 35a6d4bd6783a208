"""SOTOPIA-π from tasks to a table: any number of updates, each stage a directory that can be continued.

An update is: generate tasks, collect episodes, rate them, filter them, train, evaluate (arXiv 2403.08715, figure 1).
Behaviour cloning collects the expert with itself, self-reinforcement the model as the update before has left it. A
stage that is complete is left alone, one that was cut off goes on where it was; so the same command continues a
pipeline whatever became of the process. Each stage compares its own settings with those it was begun with.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sotopia_env import naming, tasks
from sotopia_env.errors import InvalidValueError, SotopiaError
from sotopia_env.files import write_text_atomically
from sotopia_env.policies.policy import Policy
from sotopia_env.reports.compare import Comparison, compare_runs
from sotopia_env.reports.seat_results import OVERALL, SHARE, SUCCESS
from sotopia_env.reports.tables import show_estimate, table, to_json
from training.collect import collection, filtering, task_generation
from training.collect.collection import CollectionSettings, PlaySettings, RatingSettings, Seated, make_judge
from training.collect.filtering import FilteringSettings, selection_path
from training.collect.task_generation import TASKS, TaskGenerationSettings, TaskSettings, TaskSource
from training.collect.task_writer import SCENARIOS
from training.data.sources import SourceSettings
from training.fitting import behavior_cloning
from training.fitting.behavior_cloning import BehaviorCloningSettings
from training.models import tiny_base
from training.models.loading import find_model
from training.models.tiny_base import TinyBaseStage
from training.pi.settings import PipelineSettings, Update
from training.stage.directory import DONE

logger = logging.getLogger(__name__)
SUMMARY, COMPARISON = "summary.txt", "comparison.json"
_SHOWN = ("goal", OVERALL, SHARE, SUCCESS)
Train = Callable[[BehaviorCloningSettings], None]
Load = Callable[[Path, str, PipelineSettings], Policy]
"""Makes a policy of a trained model's directory and the name it shall have."""


def load_trained(place: Path, name: str, settings: PipelineSettings) -> Policy:
    """Returns the model in a directory as a policy, prompted as the pipeline prompts it and sampled as it says."""
    from training.models.policy import load

    found = load(place, name=name, max_tokens=settings.prompt.max_answer, **settings.sampling.model_dump())
    room = min(settings.prompt.max_length, found.prompt.max_length)  # a base model says nothing but its context
    return dataclasses.replace(found, prompt=settings.prompt.model_copy(update={"max_length": room}))


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline.

    Attributes:
        name: of the directory below the pipeline's.
        output: the directory.
        work: does it, goes on with it, or finds it done.
    """

    name: str
    output: Path
    work: Callable[[], None]

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return (self.output / DONE).is_file()


@dataclass(frozen=True)
class Pipeline:
    """The stages of the settings, in order.

    Attributes:
        settings: what was asked for.
        train: trains one update; by default :func:`training.fitting.behavior_cloning.run`, or what ``launch`` names.
        load: makes policies of trained models.
    """

    settings: PipelineSettings
    train: Train | None = None
    load: Load = load_trained

    @property
    def output(self) -> Path:
        """Where all the stages' directories are."""
        return Path(self.settings.output)

    def stages(self) -> list[Stage]:
        """Returns all stages; nothing is done yet."""
        evaluation = self.settings.evaluation
        found = [] if self.settings.tiny is None else [self._stage("base", self._make_base)]
        found.append(self._stage("evaluation/tasks", self._keep_tasks))
        if evaluation.base:
            found.append(self._stage("evaluation/base", lambda out: self._evaluate(out, self.base, -1)))
        if evaluation.expert:
            found.append(self._stage("evaluation/expert", lambda out: self._evaluate(out, self.settings.expert, None)))
        for number in range(len(self.settings.updates)):
            found += self._update(number)
        return found

    def _stage(self, name: str, work: Callable[[str], None]) -> Stage:
        return Stage(name, self.output / name, lambda: work(str(self.output / name)))

    def _update(self, number: int) -> list[Stage]:
        steps = {
            "tasks": self._make_tasks,
            "episodes": self._collect,
            "rating": self._rate,
            "filter": self._filter,
            "training": self._train,
            "evaluation": lambda out, number: self._evaluate(out, str(self._place(number, "training")), number),
        }

        def stage(step: str, work: Callable[[str, int], None]) -> Stage:
            return self._stage(f"{self.name(number)}/{step}", lambda out: work(out, number))

        return [stage(step, work) for step, work in steps.items()]

    def name(self, number: int) -> str:
        """Returns what an update is called: ``1-bc``, ``2-sr`` and so on, for update 0, 1 and so on."""
        return f"{number + 1}-{self.settings.updates[number]}"

    def _place(self, number: int, step: str) -> Path:
        return self.output / self.name(number) / step

    # --- what plays -----------------------------------------------------------------------------------------------
    @property
    def base(self) -> str:
        """The model before the first update: a directory or hub name, empty where there is none."""
        if self.settings.start_from is not None:
            return self.settings.start_from
        if self.settings.tiny is not None:
            return str(self.output / "base")
        return self.settings.model.adapter or self.settings.model.base

    def _trained(self, number: int) -> Policy:
        """The model after an update; before the first one, the base."""
        if number < 0:
            return self.load(Path(self.base), "base", self.settings)
        return self.load(self._place(number, "training"), self.name(number), self.settings)

    # --- the stages -----------------------------------------------------------------------------------------------
    def _make_base(self, out: str) -> None:
        assert self.settings.tiny is not None
        tiny_base.run(TinyBaseStage(base=self.settings.tiny, prompt=self.settings.prompt, output=out))

    def _make_tasks(self, out: str, number: int) -> None:
        task_generation.run(TaskGenerationSettings(output=out, **self._tasks(number).model_dump()))

    def _tasks(self, number: int) -> TaskSettings:
        """The tasks of an update: none that is evaluated, and none of another's unless they are given."""
        asked = self.settings.tasks
        before = [self._place(earlier, "tasks") for earlier in range(number)]
        changes: dict[str, Any] = {
            "seed": asked.seed + number,
            "evaluation": (*asked.evaluation, self.settings.evaluation.tasks),
        }
        if asked.given is None:
            changes["earlier"] = (*asked.earlier, *(TaskSource(source=str(place / TASKS)) for place in before))
        if asked.families is not None:
            changes["families"] = asked.families.model_copy(update={"seed": asked.families.seed + number})
        if asked.writer is not None:
            used = tuple(str(place / SCENARIOS) for place in before)
            changes["writer"] = asked.writer.model_copy(update={"used": (*asked.writer.used, *used)})
        return asked.model_copy(update=changes)

    def _collect(self, out: str, number: int) -> None:
        cloning = self.settings.updates[number] == "bc"
        own = self.settings.expert if cloning else str(self._place(number - 1, "training") if number else self.base)
        settings = CollectionSettings(
            agent=own,
            partner=None if cloning else self.settings.sr_partner,
            tasks=TaskSettings(given=TaskSource(source=str(self._place(number, "tasks") / TASKS)), pairs=0),
            evaluator=collection.NO_EVALUATOR,
            play=self.settings.play.model_copy(update={"seed": self.settings.play.seed + number}),
            output=out,
        )
        self._play(settings, None if cloning else number - 1)

    def _play(self, settings: CollectionSettings, update: int | None) -> None:
        """Plays as the settings say, the agent being the model after this update; ``None`` takes the one they name."""
        done = (Path(settings.output) / DONE).is_file()
        collection.run(settings, Seated(agent=None if update is None or done else self._trained(update)))

    def _rate(self, out: str, number: int) -> None:
        play = self.settings.play
        collection.rate(
            RatingSettings(
                run=str(self._place(number, "episodes")),
                evaluator=self.settings.evaluator,
                concurrency=play.concurrency,
                timeout=play.timeout,
                max_unscored=self.settings.max_unscored,
                access=play.access,
                output=out,
            )
        )

    def _filter(self, out: str, number: int) -> None:
        chosen = self.settings.bc_filter if self.settings.updates[number] == "bc" else self.settings.sr_filter
        judge = make_judge(self.settings.evaluator, self.settings.play.access.models())
        changes: dict[str, Any] = {"evaluator": chosen.evaluator or (judge.name if judge else None)}
        if self.settings.updates[number] == "sr" and self.settings.sr_partner is not None:
            changes["policies"] = (self.name(number - 1) if number else "base",)
        runs = (str(self._place(number, "episodes")),)
        filtering.run(FilteringSettings(runs=runs, filter=chosen.model_copy(update=changes), output=out))

    def _train(self, out: str, number: int) -> None:
        settings = self._training(out, number)
        if self.train is not None:
            self.train(settings)
        elif self.settings.launch:
            launch(self.settings.launch, settings, Path(out))
        else:
            behavior_cloning.run(settings)

    def _training(self, out: str, number: int) -> BehaviorCloningSettings:
        how = self.settings.bc if self.settings.updates[number] == "bc" else self.settings.sr
        begin = self.settings.start_from or (self.base if self.settings.tiny is not None else None)
        selection = selection_path(self._place(number, "filter"))
        return BehaviorCloningSettings(
            model=self.settings.model,
            start_from=str(self._place(number - 1, "training")) if number else begin,
            prompt=self.settings.prompt,
            data=(SourceSettings(run=str(self._place(number, "episodes")), selection=str(selection)),),
            evaluation_tasks=self._evaluation_tasks,
            validation=how.validation,
            keep_silence=how.keep_silence,
            output=out,
            fit=how.fit,
        )

    def _keep_tasks(self, out: str) -> None:
        task_generation.run(TaskGenerationSettings(given=self.settings.evaluation.tasks, pairs=0, output=out))

    @property
    def _evaluation_tasks(self) -> str:
        return str(self.output / "evaluation" / "tasks" / TASKS)

    def _evaluate(self, out: str, agent: str, update: int | None) -> None:
        evaluation = self.settings.evaluation
        settings = CollectionSettings(
            agent=agent,
            partner=evaluation.partner,
            tasks=TaskSettings(given=TaskSource(source=self._evaluation_tasks), pairs=0),
            evaluator=self.settings.evaluator,
            play=evaluation.play,
            output=out,
        )
        self._play(settings, update)

    # --- the end --------------------------------------------------------------------------------------------------
    def evaluations(self) -> list[tuple[str, Path]]:
        """Returns what was measured and in which run: the base, the expert, and the model after every update."""
        evaluation = self.settings.evaluation
        first = [name for name, asked in (("base", evaluation.base), ("expert", evaluation.expert)) if asked]
        found = [(name, self.output / "evaluation" / name) for name in first]
        numbers = range(len(self.settings.updates))
        return found + [(self.name(number), self._place(number, "evaluation")) for number in numbers]


def launch(command: Sequence[str], settings: BehaviorCloningSettings, output: Path) -> None:
    """Trains in processes of their own, whose command is followed by ``--config`` and a file with the settings.

    Raises:
        SotopiaError: the command cannot be run, or fails.
    """
    file = output.with_suffix(".yaml")
    write_text_atomically(file, yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))
    words = [*command, "--config", str(file)]
    try:
        ended = subprocess.run(words, check=False)
    except OSError as error:
        raise SotopiaError(f"launch: {command[0]!r} cannot be run ({error.strerror})") from None
    if ended.returncode or not (output / DONE).is_file():
        raise SotopiaError(
            f"launch: {' '.join(words)} ended with code {ended.returncode} and did not complete {output}; the same "
            "command continues the pipeline"
        )


def run(settings: PipelineSettings, train: Train | None = None, load: Load = load_trained) -> None:
    """Runs the pipeline, or continues it, and writes the final table to ``summary.txt``.

    Args:
        settings: what is asked for.
        train: trains an update, instead of :func:`training.fitting.behavior_cloning.run`.
        load: makes policies of trained models, instead of :func:`load_trained`.

    Raises:
        InvalidValueError: a setting cannot be meant, or a stage was begun with other settings.
        SotopiaError: a stage could not be completed; the same call goes on with it.
    """
    pipeline = Pipeline(settings, train, load)
    check(settings, load)
    stages = pipeline.stages()
    for number, stage in enumerate(stages, start=1):
        was_done, began = stage.done, time.monotonic()
        stage.work()
        said = "was done" if was_done else f"done in {time.monotonic() - began:.1f} s"
        if not was_done:
            gc.collect()  # the model that played shall not lie beside the one that is trained next
        logger.info("stage %d of %d, %s: %s", number, len(stages), stage.name, said)
    text = summarise(pipeline)
    logger.info("%s", text)


def check(settings: PipelineSettings, load: Load = load_trained) -> None:
    """Finds out what can be known to be wrong before anything is played.

    Args:
        settings: of the pipeline.
        load: makes policies of trained models; :func:`load_trained` needs them in directories.

    Raises:
        InvalidValueError: the first update has nothing to begin with, the base would have to play and is not here, or
            nobody rates.
        UnknownNameError: a policy, an evaluator or a family is not known.
    """
    if settings.evaluator == collection.NO_EVALUATOR:
        raise InvalidValueError("evaluator: expected one, got 'none'; an unrated run cannot be filtered")
    if settings.tiny is not None and settings.start_from is not None:
        raise InvalidValueError("start_from: expected it or tiny, got both")
    for play, names in (
        (settings.play, (settings.expert, settings.sr_partner)),
        (settings.evaluation.play, (settings.expert, settings.evaluation.partner)),
    ):
        _check_names(play, names, settings.evaluator)
    if settings.tasks.families is not None:
        for family in settings.tasks.families.names:
            tasks.generate(family, 1, settings.tasks.families.seed, settings.tasks.families.level)
    _check_beginning(settings, load)


def _check_beginning(settings: PipelineSettings, load: Load) -> None:
    """The first update trains a model; where the model is to play before, its weights must be in a directory."""
    pipeline = Pipeline(settings)
    base, first = pipeline.base, Path(settings.output) / pipeline.name(0) / "training" / DONE
    if settings.tiny is not None or first.is_file():
        return
    if not base:
        raise InvalidValueError("model.base: the first update has nothing to begin with; give it, start_from or tiny")
    plays = "evaluation.base" if settings.evaluation.base else "updates" if settings.updates[0] == "sr" else None
    if load is not load_trained or not (settings.start_from or plays):
        return
    try:
        find_model(base)
    except InvalidValueError as error:
        why = f"{plays}: the model plays before it is trained, so it must be in a directory" if plays else "start_from"
        raise InvalidValueError(f"{why}: {error}") from None


def _check_names(play: PlaySettings, names: Sequence[str | None], evaluator: str) -> None:
    models = play.access.models()
    for name in names:
        if name is not None:
            naming.make_policy(name, models, play.manner)
    make_judge(evaluator, models)


def summarise(pipeline: Pipeline) -> str:
    """Returns the final table, and writes it beside the whole comparison."""
    settings = pipeline.settings
    models = settings.play.access.models()
    judge = make_judge(settings.evaluator, models)
    measured = pipeline.evaluations()
    compared = compare_runs([place for _, place in measured], evaluator=judge.name if judge else None)
    expert = naming.make_policy(settings.expert, models).name
    shown = [expert if place.name == "expert" else name for name, place in measured]
    text = summary_table(compared, shown)
    write_text_atomically(pipeline.output / SUMMARY, text)
    write_text_atomically(pipeline.output / COMPARISON, to_json(compared))
    return text


def summary_table(compared: Comparison, names: Sequence[str]) -> str:
    """Returns means with 95 % intervals of these policies, a line for each."""
    metrics = [metric for metric in _SHOWN if metric in compared.metrics]
    cells = {(cell.policy, cell.metric): show_estimate(cell.estimate) for cell in compared.cells}
    rows = [(name, *(cells.get((name, metric), "n/a") for metric in metrics)) for name in names]
    head = f"{compared.episodes} episodes, {compared.unscored} unscored; scores by {compared.evaluator}"
    return f"{head}\n\n{table(('mean [95 % interval] n', *metrics), rows)}\n"


__all__ = ["Load", "Pipeline", "PipelineSettings", "Stage", "Train", "Update", "check", "launch", "load_trained", "run"]
