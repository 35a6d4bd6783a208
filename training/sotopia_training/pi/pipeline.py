"""SOTOPIA-π as a pipeline of any number of updates, in which each step is a stage directory that can be continued.

An update is: generate tasks, collect episodes, rate them, filter them, train, evaluate (arXiv 2403.08715, figure 1).
Behaviour cloning collects episodes of the expert with itself; self-reinforcement collects episodes of the model that
the previous update trained. An update ``relabel``, which is not in the paper, collects the latter, too, and trains on
the expert's actions in the model's states instead of rating and filtering its own (DAgger).

A complete step is skipped and an interrupted one is continued, so the same command resumes a pipeline.
Each step compares its settings with those in its directory.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sotopia_env import naming, tasks
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import FieldError, InvalidValueError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.policies import Policy
from sotopia_env.reports import compare_runs, comparison_report
from sotopia_env.reports.compare import Comparison
from sotopia_env.reports.sheet import show_estimate, table
from sotopia_training.collect import collection, filtering, relabelling, task_generation
from sotopia_training.collect.collection import (
    CollectionSettings,
    Participants,
    PlaySettings,
    RatingSettings,
    partner_names,
)
from sotopia_training.collect.filtering import FilteringSettings, selection_path
from sotopia_training.collect.relabelling import LABELS, RelabellingSettings
from sotopia_training.collect.task_generation import SCENARIOS, TASKS, TaskGenerationSettings, TaskSettings
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, CloningSettings
from sotopia_training.fitting.checks import check_trackers
from sotopia_training.models import tiny_base
from sotopia_training.models.loading import find_model
from sotopia_training.models.tiny_base import TinyBaseStage
from sotopia_training.pi.launch import launch
from sotopia_training.pi.settings import PipelineSettings
from sotopia_training.stage.directory import DONE

logger = logging.getLogger(__name__)
SUMMARY, COMPARISON = "summary.txt", "comparison.json"
Train = Callable[[BehaviorCloningSettings], None]
Load = Callable[[Path, str, PipelineSettings], Policy]
"""Returns the policy of a trained model: from its directory, its name in records, and the settings."""


def load_trained(directory: Path, name: str, settings: PipelineSettings) -> Policy:
    """Returns the model in a directory as a policy, with the pipeline's prompt and sampling settings."""
    from sotopia_training.models.policy import load

    # Unconstrained text, as in training: constrained decoding would hide actions that the model cannot write.
    sampling = {"max_tokens": settings.prompt.max_answer, "constrained": "off", **settings.sampling.model_dump()}
    return load(directory, name=name, prompt=settings.prompt, **sampling)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step of the pipeline.

    Attributes:
        name: the path of its directory below the pipeline's.
        output: the directory.
        run: runs or continues the step; does nothing if it is complete.
    """

    name: str
    output: Path
    run: Callable[[], None]

    @property
    def done(self) -> bool:
        """Whether the step is complete."""
        return (self.output / DONE).is_file()


@dataclass(frozen=True)
class Pipeline:
    """The steps of a pipeline, in order.

    Attributes:
        settings: the settings of the pipeline.
        train: trains one update; by default :func:`sotopia_training.fitting.behavior_cloning.run`, or the ``launch``
        command.
        load: creates the policies of trained models.
    """

    settings: PipelineSettings
    train: Train | None = None
    load: Load = load_trained

    @property
    def output(self) -> Path:
        """The directory that contains the directories of the steps."""
        return Path(self.settings.output)

    def steps(self) -> list[PipelineStep]:
        """Returns all steps, without running them."""
        evaluation = self.settings.evaluation
        steps = [] if self.settings.tiny is None else [self._step("base", self._make_base)]
        steps.append(self._step("evaluation/tasks", self._save_evaluation_tasks))
        if evaluation.base:
            steps.append(self._step("evaluation/base", lambda out: self._evaluate(out, self.base, -1)))
        if evaluation.expert:
            steps.append(self._step("evaluation/expert", lambda out: self._evaluate(out, self.settings.expert, None)))
        for number in range(len(self.settings.updates)):
            steps += self._update(number)
        return steps

    def _step(self, name: str, run: Callable[[str], None]) -> PipelineStep:
        return PipelineStep(name, self.output / name, lambda: run(str(self.output / name)))

    def _update(self, number: int) -> list[PipelineStep]:
        runs: dict[str, Callable[[str, int], None]] = {
            "tasks": self._make_tasks,
            "episodes": self._collect,
            "rating": self._rate,
            "filter": self._filter,
            "labels": self._relabel,
            "training": self._train,
            "evaluation": lambda out, number: self._evaluate(out, str(self._directory(number, "training")), number),
        }

        def step(name: str) -> PipelineStep:
            return self._step(f"{self.name(number)}/{name}", lambda out: runs[name](out, number))

        relabels = self.settings.updates[number] == "relabel"
        skipped = ("rating", "filter") if relabels else ("labels",)
        return [step(name) for name in runs if name not in skipped]

    def name(self, number: int) -> str:
        """Returns the name of an update: ``1-bc`` for update 0, ``2-sr`` for update 1 and so on."""
        return f"{number + 1}-{self.settings.updates[number]}"

    def _directory(self, number: int, step: str) -> Path:
        return self.output / self.name(number) / step

    # --- models ---------------------------------------------------------------------------------------------------
    @property
    def base(self) -> str:
        """The model before the first update: a directory or hub name; empty if the settings name none."""
        if self.settings.start_from is not None:
            return self.settings.start_from
        if self.settings.tiny is not None:
            return str(self.output / "base")
        return self.settings.model.adapter or self.settings.model.base

    def _trained(self, number: int) -> Policy:
        """Returns the policy of the model after an update; for a negative number, of the base."""
        if number < 0:
            return self.load(Path(self.base), "base", self.settings)
        return self.load(self._directory(number, "training"), self.name(number), self.settings)

    # --- the steps ------------------------------------------------------------------------------------------------
    def _make_base(self, out: str) -> None:
        assert self.settings.tiny is not None
        tiny_base.run(TinyBaseStage(base=self.settings.tiny, prompt=self.settings.prompt, output=out))

    def _make_tasks(self, out: str, number: int) -> None:
        task_generation.run(TaskGenerationSettings(output=out, **self._tasks(number).model_dump()))

    def _tasks(self, number: int) -> TaskSettings:
        """Returns the tasks' settings of an update, which exclude evaluation tasks and those of earlier updates."""
        # Tasks of a file are the same in every update, so earlier updates exclude none of them.
        settings = self.settings.tasks
        earlier_paths = [self._directory(earlier, "tasks") for earlier in range(number)]
        changes: dict[str, Any] = {
            "seed": settings.seed + number,
            "evaluation": (*settings.evaluation, self.settings.evaluation.tasks),
        }
        if settings.given is None:
            changes["earlier"] = (*settings.earlier, *(str(path / TASKS) for path in earlier_paths))
        if settings.families is not None:
            changes["families"] = settings.families.model_copy(update={"seed": settings.families.seed + number})
        if settings.writer is not None:
            paths = tuple(str(path / SCENARIOS) for path in earlier_paths)
            changes["writer"] = settings.writer.model_copy(update={"used": (*settings.writer.used, *paths)})
        return settings.model_copy(update=changes)

    def _collect(self, out: str, number: int) -> None:
        cloning = self.settings.updates[number] == "bc"
        model = str(self._directory(number - 1, "training")) if number else self.base
        settings = CollectionSettings(
            agent=self.settings.expert if cloning else model,
            partner=None if cloning else self.settings.sr_partner,
            tasks=TaskSettings(given=str(self._directory(number, "tasks") / TASKS), pairs=0),
            evaluator=naming.NO_EVALUATOR,
            play=self.settings.play.model_copy(update={"seed": self.settings.play.seed + number}),
            rules_of=self.settings.tasks.given,
            output=out,
        )
        self._play(settings, None if cloning else number - 1)

    def _play(self, settings: CollectionSettings, update: int | None) -> None:
        """Collects episodes; the agent is the model after ``update``; for ``None``, the agent of the settings."""
        # A complete collection does not need the model, which takes time and memory to load.
        complete = (Path(settings.output) / DONE).is_file()
        collection.run(settings, Participants(agent=None if update is None or complete else self._trained(update)))

    def _rate(self, out: str, number: int) -> None:
        play = self.settings.play
        collection.rate(
            RatingSettings(
                run=str(self._directory(number, "episodes")),
                evaluator=self.settings.evaluator,
                concurrency=play.concurrency,
                timeout=play.timeout,
                max_unscored=self.settings.max_unscored,
                models=play.models,
                output=out,
            )
        )

    def _filter(self, out: str, number: int) -> None:
        filter_settings = self.settings.bc_filter if self.settings.updates[number] == "bc" else self.settings.sr_filter
        models = ModelPool(self.settings.play.models)
        judge = naming.make_optional_evaluator(self.settings.evaluator, model_factory=models.judge)
        changes: dict[str, Any] = {"evaluator": filter_settings.evaluator or (judge.name if judge else None)}
        # With another partner, only the model's own seats are trained on; in self-play all seats are its own.
        if self.settings.updates[number] == "sr" and self.settings.sr_partner is not None:
            changes["policies"] = self._own_policies(number)
        runs = (str(self._directory(number, "episodes")),)
        filtering.run(FilteringSettings(runs=runs, filter=filter_settings.model_copy(update=changes), output=out))

    def _relabel(self, out: str, number: int) -> None:
        data = (self._own_turns(number),)
        relabelling.run(RelabellingSettings(data=data, teacher=self.settings.expert, output=out))

    def _own_policies(self, number: int) -> tuple[str, ...] | None:
        """Returns the name of the model in episodes that it played for an update; ``None`` if it held all seats."""
        if self.settings.sr_partner is None:
            return None
        return (self.name(number - 1) if number else "base",)

    def _own_turns(self, number: int) -> SourceSettings:
        """Returns the model's turns in the unrated episodes of an update."""
        policies = self._own_policies(number)
        seats = None if policies is None else tuple(f"policy:{name}" for name in policies)
        return SourceSettings(run=str(self._directory(number, "episodes")), seats=seats, scored=False)

    def _source(self, number: int) -> SourceSettings:
        """Returns the turns that an update adds to the training data."""
        if self.settings.updates[number] == "relabel":
            labels = str(self._directory(number, "labels") / LABELS)
            return self._own_turns(number).model_copy(update={"labels": labels})
        selection = selection_path(self._directory(number, "filter"))
        return SourceSettings(run=str(self._directory(number, "episodes")), selection=str(selection))

    def _sources(self, number: int) -> tuple[SourceSettings, ...]:
        """Returns the training data of an update; labels are added to all that the expert gave before."""
        updates = self.settings.updates
        earlier = range(number if updates[number] == "relabel" else 0)
        return tuple(self._source(n) for n in (*(n for n in earlier if updates[n] != "sr"), number))

    def _train(self, out: str, number: int) -> None:
        settings = self._training(out, number)
        if self.train is not None:
            self.train(settings)
        elif self.settings.launch:
            launch(self.settings.launch, settings, Path(out))
        else:
            behavior_cloning.run(settings)

    def _training(self, out: str, number: int) -> BehaviorCloningSettings:
        update: CloningSettings = getattr(self.settings, self.settings.updates[number])
        # The base of a ``tiny`` pipeline is itself a stage's output, so it is loaded like one.
        begin = self.settings.start_from or (self.base if self.settings.tiny is not None else None)
        return BehaviorCloningSettings(
            model=self.settings.model,
            start_from=str(self._directory(number - 1, "training")) if number else begin,
            prompt=self.settings.prompt,
            data=self._sources(number),
            evaluation_tasks=self._evaluation_tasks,
            output=out,
            **{name: getattr(update, name) for name in CloningSettings.model_fields},
        )

    def check_training(self) -> None:
        """Checks the trainer's arguments of every update, and that what it reports to is installed."""
        for number, update in enumerate(self.settings.updates):
            settings = self._training(str(self._directory(number, "training")), number)
            try:
                check_trackers(behavior_cloning.trainer_arguments(settings))
            except FieldError as error:
                raise InvalidValueError.of(error, within=update) from None

    def _save_evaluation_tasks(self, out: str) -> None:
        task_generation.run(TaskGenerationSettings(given=self.settings.evaluation.tasks, pairs=0, output=out))

    @property
    def _evaluation_tasks(self) -> str:
        return str(self.output / "evaluation" / "tasks" / TASKS)

    def _evaluate(self, out: str, agent: str, update: int | None) -> None:
        evaluation = self.settings.evaluation
        settings = CollectionSettings(
            agent=agent,
            partner=evaluation.partner,
            tasks=TaskSettings(given=self._evaluation_tasks, pairs=0),
            evaluator=self.settings.evaluator,
            play=evaluation.play,
            rules_of=evaluation.tasks,
            output=out,
        )
        self._play(settings, update)

    # --- the end --------------------------------------------------------------------------------------------------
    def evaluations(self) -> list[tuple[str, Path]]:
        """Returns the name and run directory of every evaluation: the base, the expert, the model after each update."""
        evaluation = self.settings.evaluation
        first = [name for name, enabled in (("base", evaluation.base), ("expert", evaluation.expert)) if enabled]
        runs = [(name, self.output / "evaluation" / name) for name in first]
        numbers = range(len(self.settings.updates))
        return runs + [(self.name(number), self._directory(number, "evaluation")) for number in numbers]


def run(settings: PipelineSettings, train: Train | None = None, load: Load = load_trained) -> None:
    """Runs the pipeline, or continues it, and writes the final table to ``summary.txt``.

    Args:
        settings: the settings of the pipeline.
        train: trains an update, instead of :func:`sotopia_training.fitting.behavior_cloning.run`.
        load: creates the policies of trained models, instead of :func:`load_trained`.

    Raises:
        InvalidValueError: a setting is invalid, or a step's directory holds other settings.
        SotopiaError: a step could not be completed; the same call continues it.
    """
    pipeline = Pipeline(settings, train, load)
    check(settings, load)
    steps = pipeline.steps()
    for number, step in enumerate(steps, start=1):
        was_done, began = step.done, time.monotonic()
        step.run()
        outcome = "was done" if was_done else f"done in {time.monotonic() - began:.1f} s"
        if not was_done:
            gc.collect()  # frees the memory of the model that played before the next one is trained
        logger.info("stage %d of %d, %s: %s", number, len(steps), step.name, outcome)
    logger.info("%s", summarise(pipeline))


def check(settings: PipelineSettings, load: Load = load_trained) -> None:
    """Checks the settings before the first episode.

    Args:
        settings: the settings of the pipeline.
        load: makes policies of trained models; :func:`load_trained` needs them in directories.

    Raises:
        InvalidValueError: the first update has no model to start from, the base must play and is not in a directory,
            no evaluator is named, or an argument of a trainer is invalid.
        UnknownNameError: a policy, an evaluator or a family does not exist.
    """
    if settings.evaluator == naming.NO_EVALUATOR:
        raise InvalidValueError("an unrated run cannot be filtered", field="evaluator", got="none")
    if settings.tiny is not None and settings.start_from is not None:
        raise InvalidValueError("contradicts tiny", field="start_from", hint="remove one of the two")
    if "relabel" in settings.updates:
        try:
            relabelling.make_teacher(settings.expert)
        except InvalidValueError as error:
            raise InvalidValueError.of(error, within="expert", hint="updates: relabel needs it") from None
    for play, names in (
        (settings.play, (settings.expert, *partner_names(settings.sr_partner))),
        (settings.evaluation.play, (settings.expert, settings.evaluation.partner)),
    ):
        _check_names(play, names, settings.evaluator)
    if settings.tasks.families is not None:
        for family in settings.tasks.families.names:
            tasks.generate(family, 1, settings.tasks.families.seed)
    _check_beginning(settings, load)
    Pipeline(settings).check_training()


def _check_beginning(settings: PipelineSettings, load: Load) -> None:
    """Checks that the first update has a model, which must be in a directory if it plays before it is trained."""
    pipeline = Pipeline(settings)
    base, first = pipeline.base, Path(settings.output) / pipeline.name(0) / "training" / DONE
    if settings.tiny is not None or first.is_file():
        return
    if not base:
        raise InvalidValueError(
            "the first update has no model to start from", field="model.base", hint="set it, start_from or tiny"
        )
    plays = "evaluation.base" if settings.evaluation.base else "updates" if settings.updates[0] != "bc" else None
    if load is not load_trained or not (settings.start_from or plays):
        return
    try:
        find_model(base)
    except InvalidValueError as error:
        hint = "the model plays before it is trained, so it must be in a directory" if plays else ""
        raise InvalidValueError.of(error, within=plays or "start_from", hint=hint) from None


def _check_names(play: PlaySettings, names: Sequence[str | None], evaluator: str) -> None:
    models = ModelPool(play.models)
    for name in names:
        if name is not None:
            naming.make_policy(name, models, play.manner)
    naming.make_optional_evaluator(evaluator, model_factory=models.judge)


def summarise(pipeline: Pipeline) -> str:
    """Returns the final table, and writes it and the whole comparison to the output directory."""
    settings = pipeline.settings
    models = ModelPool(settings.play.models)
    judge = naming.make_optional_evaluator(settings.evaluator, model_factory=models.judge)
    runs = pipeline.evaluations()
    comparison = compare_runs([path for _, path in runs], evaluator=judge.name if judge else None)
    expert = naming.make_policy(settings.expert, models).name
    names = [expert if path.name == "expert" else name for name, path in runs]
    text = summary_table(comparison, names)
    write_text_atomically(pipeline.output / SUMMARY, text)
    write_text_atomically(pipeline.output / COMPARISON, comparison_report(comparison).json())
    return text


def summary_table(comparison: Comparison, names: Sequence[str]) -> str:
    """Returns the means of these policies with 95 % intervals, one line per policy."""
    metrics = [metric for metric in comparison.headlines if metric in comparison.metrics]
    cells = {(cell.policy, cell.metric): show_estimate(cell.estimate) for cell in comparison.cells}
    rows = [(name, *(cells.get((name, metric), "n/a") for metric in metrics)) for name in names]
    head = f"{comparison.episodes} episodes, {comparison.unscored} unscored; scores by {comparison.evaluator}"
    return f"{head}\n\n{table(('mean [95 % interval] n', *metrics), rows)}\n"
