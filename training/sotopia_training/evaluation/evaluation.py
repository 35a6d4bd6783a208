"""Evaluation of policies: the settings of the papers as presets, several partners and judges, paired tests.

Every policy plays every partner in a separate run directory, in every seat, and every judge scores the same episodes: a
table of partners and a table of judges (SOTOPIA-RL, tables 7 and 8) show whether a gain holds for more than one partner
and judge. An interrupted evaluation is continued by the same command; partners, judges and policies may be added.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sotopia_env import naming
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.evaluators.evaluator import custom_dimensions
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.settings import Settings
from sotopia_env.policies import Policy
from sotopia_env.reports import comparison_report
from sotopia_env.reports.compare import CompareSpec, Comparison
from sotopia_env.reports.differences import CLOSEST
from sotopia_env.reports.seat_results import METRICS
from sotopia_env.reports.sheet import Report
from sotopia_env.runs import evaluate_run, run_episodes
from sotopia_env.runs.plan import Orders
from sotopia_env.runs.spec import TaskOptions
from sotopia_env.storage.manifest import RUN, read_manifest
from sotopia_env.world import Evaluator, TaskSet
from sotopia_env.world.play.policy import policy_identity
from sotopia_training.stage.access import run_with_models
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Preset:
    """An evaluation setting of the papers.

    Every policy always meets the same fixed partners. Partners and judges differ from table to table and are not part
    of a preset.

    Attributes:
        scenarios: required number of scenarios; ``None`` for any.
        castings: required number of character pairs per scenario; ``None`` for any.
        about: short description.
        fixed: the values of settings that the preset determines.
    """

    scenarios: int | None
    castings: int | None
    about: str
    fixed: Mapping[str, object] = field(default_factory=dict)


_PAPERS = {"orders": "both", "max_turns": 20}
PRESETS: Mapping[str, Preset] = {
    "sotopia-all": Preset(90, 2, "all scenarios of SOTOPIA (SOTOPIA-RL, section 5)", _PAPERS),
    "sotopia-hard": Preset(14, 10, "the hard scenarios of SOTOPIA (SOTOPIA-RL, section 5)", _PAPERS),
    "verified": Preset(None, None, "generated tasks whose outcome can be verified; no API key"),
}
"""The presets by name. The papers' scenarios are not part of this package; their presets need a task file.

Both orders are those of SOTOPIA-π, section 4; 20 turns are the limit of SOTOPIA, which both papers play.
"""


class EvaluationSettings(TaskOptions):
    """Settings of an evaluation.

    By default it plays all families of tasks, and every seat takes the first turn once (SOTOPIA-π, section 4: equal
    opportunities to initiate).

    Attributes:
        output: the directory of the run directories and the report.
        policies: the evaluated policies: directories of trained models, models, scripted policies.
        partners: the policies of the other seats.
        judges: the evaluators, each of which scores every episode.
        baseline: the policy with which the others are compared: one of ``policies``, a run directory, or the output of
            an earlier evaluation; by default the first policy.
        baseline_name: the name in records of the baseline's policy, if its runs contain several policies.
        preset: a name of :data:`PRESETS`.
        partial: whether a task file may contain only a part of the preset, which the report then states.
        metrics: the metrics of the report: dimensions, ``overall``, ``surplus_share``, ``success``, …, and
            the judges' own dimensions.
    """

    output: str
    policies: tuple[str, ...] = Field(min_length=1)
    partners: tuple[str, ...] = Field(min_length=1)
    judges: tuple[str, ...] = Field(default=("verified",), min_length=1)
    baseline: str | None = None
    baseline_name: str | None = None
    preset: Literal["sotopia-all", "sotopia-hard", "verified"] = "verified"
    partial: bool = False
    metrics: tuple[str, ...] = Field(default=("goal", "overall"), min_length=1)
    tasks: str = "all"
    orders: Orders = "both"

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: dict[str, Any]) -> dict[str, Any]:
        preset = str(values.get("preset"))
        fixed = PRESETS[preset].fixed if preset in PRESETS else {}
        for name, value in fixed.items():
            if values.get(name) not in (None, value):
                raise InvalidValueError(field=name, expected=f"{value} with preset {preset!r}", got=values[name])
        return {**values, **fixed}


class _Fixed(Settings):
    """The settings that may not change between two calls on one output; the runs check the rest."""

    preset: str
    tasks: str
    seed: int
    repeats: int
    both_orders: bool
    max_turns: int | None


def read_tasks(settings: EvaluationSettings) -> TaskSet:
    """Returns the tasks of the preset.

    Raises:
        InvalidValueError: the preset of a paper is used without its task file, or with one of another size.
        InvalidTaskError: the file cannot be read.
    """
    tasks, preset = settings.task_set(), PRESETS[settings.preset]
    castings = Counter(task.scenario.id for task in tasks)
    is_whole = (len(castings), {*castings.values()}) == (preset.scenarios, {preset.castings})
    accepts_part = settings.partial and "tasks" in settings.model_fields_set
    if preset.scenarios is not None and not (is_whole or accepts_part):
        each = " to ".join(str(count) for count in sorted({min(castings.values()), max(castings.values())}))
        raise InvalidValueError(
            f"preset {settings.preset!r} is {preset.scenarios} scenarios with {preset.castings} castings each, and "
            f"{settings.tasks} has {len(castings)} with {each}",
            field="tasks",
            hint="use a task file of the whole set (it is not shipped), or of a part of it with partial: true",
        )
    return tasks


def run(settings: EvaluationSettings) -> None:
    """Plays, judges and compares.

    Raises:
        InvalidValueError: a setting is invalid, the baseline's runs do not match, or the output holds another
            evaluation.
        UnknownNameError: a policy, an evaluator or a metric does not exist.
        BudgetExceededError: the models' budget is spent; finished episodes stay on disk.
        KeyboardInterrupt: a signal ended the run; finished episodes stay on disk.
    """
    tasks, models = read_tasks(settings), ModelPool(settings.models)
    specs = dict.fromkeys((*settings.policies, *settings.partners))
    policies: dict[str, Policy] = {spec: naming.make_policy(spec, models, settings.manner) for spec in specs}
    judges = [naming.make_evaluator(spec, model_factory=models.judge) for spec in dict.fromkeys(settings.judges)]
    pairs = ((judge, task) for judge in judges for task in tasks)
    custom = dict.fromkeys(dimension.name for pair in pairs for dimension in custom_dimensions(*pair))
    metrics = (*METRICS, *custom)
    for metric in settings.metrics:
        if metric not in metrics:
            raise InvalidValueError(field="metrics", got=metric, valid=metrics)
    models.check_answers(*(item.parameters for item in policies.values()), *(item.parameters for item in judges))
    _check_names(settings, [policy.name for policy in policies.values()], [judge.name for judge in judges])
    stage = StageDirectory(Path(settings.output), "evaluation", _fixed(settings, tasks))
    stage.open()
    pairings = [(policies[one], policies[other]) for one in settings.policies for other in settings.partners]
    runs = {_run_directory(stage.path, *pairing): pairing for pairing in pairings}
    # Runs that exist come first, so that one that cannot be continued is refused before new ones are played.
    runs = dict(sorted(runs.items(), key=lambda item: not item[0].exists()))
    run_with_models(models, stage.path, lambda stop: _play_all(settings, tasks, runs, judges, models, stop))
    report = _report(settings, tasks, list(runs), policies, judges)
    report.write(stage.path, ("png", "svg"), markdown=True)
    stage.finish({sheet.name: sheet.records() for sheet in report.sheets if sheet.name in ("matrix", "differences")})
    logger.info("report: %s", stage.path / f"{report.name}.md")


def _check_names(settings: EvaluationSettings, policies: Sequence[str], judges: Sequence[str]) -> None:
    for setting, names in (("policies", policies), ("judges", judges)):
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise InvalidValueError(
                f"two are called {name!r} in records", field=setting, hint="rename one of them (name=…)"
            )
    baseline = settings.baseline
    if baseline is not None and baseline not in settings.policies and not Path(baseline).is_dir():
        raise InvalidValueError(field="baseline", expected="one of the policies or a directory of runs", got=baseline)


def _fixed(settings: EvaluationSettings, tasks: TaskSet) -> _Fixed:
    content = "\n".join(sorted(task.content_hash for task in tasks))
    return _Fixed(
        **settings.model_dump(include={"preset", "seed", "repeats", "max_turns"}),
        tasks=hashlib.sha256(content.encode()).hexdigest()[:16],
        both_orders=settings.orders == "both",
    )


def _run_directory(output: Path, policy: Policy, partner: Policy) -> Path:
    """Returns the directory of the run of two policies; without one, that of a run of policies with their names."""
    # A run of other parameters refuses to be continued, which is intended: a new directory beside it would silently
    # play the evaluation again after a prompt was changed or a model was trained again.
    both = f"{policy_identity(policy)}{policy_identity(partner)}"
    readable = "-vs-".join(_UNSAFE.sub("-", p.name).strip("-")[:40] for p in (policy, partner))
    own = output / "runs" / f"{readable}-{hashlib.sha256(both.encode()).hexdigest()[:8]}"
    others = [file.parent for file in sorted(own.parent.glob(f"{readable}-????????/{RUN}"))]
    others = [path for path in others if _recorded_names(path) == {policy.name, partner.name}]
    return own if own.exists() or not others else others[0]


def _recorded_names(run: Path) -> set[str]:
    return {policy.name for policy in read_manifest(run).policies}


async def _play_all(
    settings: EvaluationSettings,
    tasks: TaskSet,
    runs: Mapping[Path, tuple[Policy, Policy]],
    judges: Sequence[Evaluator],
    models: ModelPool,
    stop: Stop,
) -> None:
    options: dict[str, Any] = {"concurrency": settings.concurrency, "timeout": settings.timeout}
    options |= {"stop": stop, "ledger": models.ledger}
    for number, (path, pairing) in enumerate(runs.items(), start=1):
        logger.info("%d of %d: %s", number, len(runs), " with ".join(policy.name for policy in pairing))
        await run_episodes(settings.plans(tasks, [pairing], settings.rules), run_dir=path, **options)
        for judge in judges:
            if stop.reason:
                return
            await evaluate_run(path, judge, **options)


# --- report -------------------------------------------------------------------------------------------------------


def _report(
    settings: EvaluationSettings,
    tasks: TaskSet,
    runs: Sequence[Path],
    policies: Mapping[str, Policy],
    judges: Sequence[Evaluator],
) -> Report:
    partners = {policies[spec].name for spec in settings.partners}
    spec, earlier = settings.baseline or settings.policies[0], list[Path]()
    if spec in policies:
        baseline = policies[spec].name
    else:
        earlier = [file.parent for file in sorted(Path(spec).glob(f"**/{RUN}"))]
        baseline = _recorded_baseline(settings, partners, earlier)
    comparison = CompareSpec(
        runs=tuple(map(str, (*runs, *earlier))),
        evaluators=tuple(judge.name for judge in judges),
        metrics=settings.metrics,
        baseline=baseline,
        policies=tuple(policies[spec].name for spec in settings.policies),
        partners=tuple(partners),
    )
    results = comparison.compare()
    if earlier:
        _check_pairs(results, runs[0], earlier)
    counts = {run: read_manifest(run).counts for run in (*runs, *earlier)}
    failed = [f"{c.failed} episodes of `{run}` failed and are missing." for run, c in counts.items() if c and c.failed]
    for sentence in failed:
        logger.warning("%s The same command tries them again.", sentence)
    notes = [_heading(settings, tasks), " ".join(failed)]
    return replace(comparison_report(*results, title="Evaluation", notes=notes), name="report")


def _recorded_baseline(settings: EvaluationSettings, partners: set[str], runs: Sequence[Path]) -> str:
    """Returns the name of the only policy in these runs that is not a partner."""
    # A run of a partner with itself counts as a run of that policy.
    met = [names for names in map(_recorded_names, runs) if names & partners]
    names = set().union(*(names - partners or names for names in met))
    if settings.baseline_name is not None:
        names &= {settings.baseline_name}
    if len(names) != 1:
        raise InvalidValueError(
            field="baseline",
            expected=f"one policy with partner {' and '.join(map(repr, sorted(partners)))} in its runs",
            got=Verbatim(", ".join(sorted(names)) or "none"),
            hint="set baseline_name",
        )
    return names.pop()


def _check_pairs(results: Sequence[Comparison], run: Path, earlier: Sequence[Path]) -> None:
    """Checks that the seats of a recorded baseline differ from those of ``run`` only by the policy and by chance."""
    for result in results:
        metrics = {cell.metric for cell in result.matrix if cell.policy != result.baseline}
        if {(item.metric, item.paired_by) for item in result.differences} != {(name, CLOSEST) for name in metrics}:
            raise InvalidValueError(
                f"its episodes are not of the same {CLOSEST} as these, or have no scores by {result.evaluator}",
                field="baseline",
                hint="it was played with other settings",
            )
    first, *others = [
        # Which seat begins varies within a run, so it is not compared.
        {replace(rules, first_seat=0) for rules in read_manifest(r).config.rules}
        for r in (run, *earlier)
    ]
    if any(rules != first for rules in others):
        raise InvalidValueError("it was played with other rules", field="baseline", hint="see config.rules in run.json")


def _heading(settings: EvaluationSettings, tasks: TaskSet) -> str:
    preset = PRESETS[settings.preset]
    castings = Counter(task.scenario.id for task in tasks)
    part = " (a part of the preset)" if settings.partial and preset.scenarios not in (None, len(castings)) else ""
    seats = "every seat" if settings.both_seats else "the first seat"
    orders = {"both": "each seat begins once", "first": "the first seat begins", "alternate": "the seats begin in turn"}
    turns = "" if settings.max_turns is None else f"at most {settings.max_turns} turns, "
    return (
        f"Preset `{settings.preset}`: {preset.about}{part}. {len(castings)} scenarios, {len(tasks)} tasks; every "
        f"policy in {seats}, {orders[settings.orders]}, {turns}{settings.repeats} × each, seed {settings.seed}."
    )
