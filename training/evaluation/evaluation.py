"""Evaluation of policies: the papers' settings by name, several partners, several judges, paired tests.

Every policy plays every partner in a separate run directory, in every seat, and every judge scores the same episodes: a
table of partners and a table of judges (SOTOPIA-RL, tables 7 and 8) show whether a gain holds beyond one of them. An
interrupted evaluation is continued by the same command; partners, judges and policies may be added.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from sotopia_env import naming
from sotopia_env.chat_model import ModelOptions, ModelPool
from sotopia_env.concurrency import Stop, stop_on_signals
from sotopia_env.errors import BudgetExceededError, InvalidValueError, Verbatim
from sotopia_env.naming import task_set
from sotopia_env.policies import Policy, policy_identity
from sotopia_env.records import canonical_json
from sotopia_env.reports import (
    CLOSEST,
    METRICS,
    Report,
    SeatResult,
    compare_judges,
    comparison_report,
    seated_policies,
)
from sotopia_env.runs import evaluate_run_async, plan_episodes, run_episodes_async
from sotopia_env.settings import Settings
from sotopia_env.storage import RUN, read_failures, read_manifest, read_run
from sotopia_env.world import Evaluator, Rules, TaskSet
from training.stage.access import opened
from training.stage.directory import StageDirectory

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
        both_orders: whether every seat begins once; ``None`` leaves it to the settings.
        max_turns: turn limit instead of the tasks'; ``None`` leaves it to the settings.
    """

    scenarios: int | None
    castings: int | None
    about: str
    both_orders: bool | None = None
    max_turns: int | None = None


PRESETS: Mapping[str, Preset] = {
    "sotopia-all": Preset(90, 2, "all scenarios of SOTOPIA (SOTOPIA-RL, section 5)", both_orders=True, max_turns=20),
    "sotopia-hard": Preset(14, 10, "the hard scenarios of SOTOPIA (likewise)", both_orders=True, max_turns=20),
    "verified": Preset(None, None, "generated tasks whose outcome can be verified; no API key"),
}
"""The presets by name. The papers' scenarios are not part of this package; their presets need a task file.

Both orders are those of SOTOPIA-π, section 4; 20 turns are the limit of SOTOPIA, which both papers play.
"""


class EvaluationSettings(Settings):
    """One evaluation.

    Attributes:
        output: directory of the run directories and the report.
        policies: the evaluated policies: directories of trained models, models, scripted policies.
        partners: policies of the other seats.
        judges: evaluators; every one scores every episode.
        baseline: the policies are compared with it: one of ``policies``, a run directory, or the output of an earlier
            evaluation; by default the first policy.
        baseline_name: name in records of the baseline's policy, if its runs hold several.
        preset: a name of :data:`PRESETS`.
        tasks: a task file; for ``verified`` also families of tasks, all by default.
        partial: accept a task file with a part of the preset; the report says so.
        n: number of generated tasks, all families together.
        level: of generated tasks.
        seed: of generated tasks and of the episodes.
        repeats: of every episode, with different seeds.
        both_orders: whether every seat begins once (SOTOPIA-π, section 4: equal opportunities to initiate); required by
            the papers' presets.
        max_turns: turn limit; by default the preset's, else the task's or 20.
        concurrency: episodes in flight at once.
        metrics: of the report; dimensions, ``overall``, ``surplus_share``, ``success``, ….
        models: to language models.
    """

    output: str
    policies: tuple[str, ...] = Field(min_length=1)
    partners: tuple[str, ...] = Field(min_length=1)
    judges: tuple[str, ...] = Field(default=("verified+rules",), min_length=1)
    baseline: str | None = None
    baseline_name: str | None = None
    preset: Literal["sotopia-all", "sotopia-hard", "verified"] = "verified"
    tasks: str | None = None
    partial: bool = False
    n: int = Field(default=200, ge=1)
    level: Literal["easy", "medium", "hard"] = "medium"
    seed: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1)
    both_orders: bool = True
    max_turns: int | None = Field(default=None, ge=1)
    concurrency: int = Field(default=256, ge=1)
    metrics: tuple[str, ...] = Field(default=("goal", "overall"), min_length=1)
    models: ModelOptions = ModelOptions()

    @field_validator("both_orders", "max_turns")
    @classmethod
    def _check_preset(cls, value: int | None, info: ValidationInfo) -> int | None:
        name = info.data.get("preset", "verified")
        fixed = getattr(PRESETS[name], str(info.field_name))
        if fixed is not None and value not in (None, fixed):
            context = {"fixed": str(fixed), "name": name}
            raise PydanticCustomError("preset", "expected {fixed} with preset '{name}'", context)
        return value

    @property
    def turn_limit(self) -> int | None:
        """The turn limit of the settings or of the preset; ``None`` for the task's or 20."""
        return self.max_turns or PRESETS[self.preset].max_turns


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
        InvalidValueError: a paper's preset without its task file, or with one of another size.
        InvalidTaskError: the file cannot be read.
    """
    preset = PRESETS[settings.preset]
    if preset.scenarios is None:
        source = settings.tasks or "all"
        generated = all(name in _families() for name in source.split(","))
        return task_set(source, settings.n if generated else None, settings.seed, settings.level)
    size = f"{preset.scenarios} scenarios with {preset.castings} castings each"
    if settings.tasks is None:
        raise InvalidValueError(
            f"preset {settings.preset!r} needs a task file of {size}",
            field="tasks",
            hint="the papers' data is not shipped",
        )
    tasks = task_set(settings.tasks, None, settings.seed, settings.level)
    castings = Counter(task.scenario.id for task in tasks)
    if not settings.partial and (len(castings) != preset.scenarios or set(castings.values()) != {preset.castings}):
        each = " to ".join(str(count) for count in sorted({min(castings.values()), max(castings.values())}))
        raise InvalidValueError(
            f"preset {settings.preset!r} is {size}, and {settings.tasks} holds {len(castings)} with {each}",
            field="tasks",
            hint="give the whole set, or set partial: true for a part of it",
        )
    return tasks


def _families() -> tuple[str, ...]:
    from sotopia_env import tasks

    return ("all", *tasks.FAMILIES)


@dataclass(frozen=True, slots=True)
class Pairing:
    """A policy with a partner, which holds all other seats, and the directory of their run."""

    policy: Policy
    partner: Policy
    run: Path


def run(settings: EvaluationSettings) -> None:
    """Plays, judges and compares.

    Raises:
        InvalidValueError: a setting is invalid, the baseline's runs do not match, or the output holds another
            evaluation.
        UnknownNameError: a policy, an evaluator or a metric does not exist.
        BudgetExceededError: the models' budget is spent; finished episodes stay on disk.
        KeyboardInterrupt: a signal ended the run; finished episodes stay on disk.
    """
    for metric in settings.metrics:
        if metric not in METRICS:
            raise InvalidValueError(field="metrics", got=metric, valid=METRICS)
    tasks = read_tasks(settings)
    models = ModelPool(settings.models)
    policies = {
        spec: naming.make_policy(spec, models) for spec in dict.fromkeys((*settings.policies, *settings.partners))
    }
    judges = [naming.make_evaluator(spec, model_factory=models.judge) for spec in dict.fromkeys(settings.judges)]
    models.check_answers(*(judge.parameters for judge in judges))
    _check_names(settings, policies, judges)
    stage = StageDirectory(Path(settings.output), "evaluation", _fixed(settings, tasks))
    stage.open()
    # Runs that exist come first, so that one that cannot be continued is refused before new ones are played.
    pairings = sorted(_pairings(settings, policies), key=lambda pairing: not pairing.run.exists())
    stop = Stop()
    with stop_on_signals(stop, logger.warning):
        asyncio.run(_play_all(settings, tasks, pairings, judges, models, stop))
    report = _report(settings, tasks, pairings, policies, [judge.name for judge in judges])
    report.write(stage.path, ("png", "svg"), markdown=True)
    stage.finish({sheet.name: sheet.records() for sheet in report.sheets if sheet.name in ("matrix", "differences")})
    logger.info("report: %s", stage.path / f"{report.name}.md")


def _check_names(settings: EvaluationSettings, policies: Mapping[str, Policy], judges: Sequence[Evaluator]) -> None:
    for setting, names in (
        ("policies", [policies[spec].name for spec in dict.fromkeys(settings.policies)]),
        ("partners", [policies[spec].name for spec in dict.fromkeys(settings.partners)]),
        ("judges", [judge.name for judge in judges]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InvalidValueError(
                f"two are called {twice[0]!r} in records", field=setting, hint="give one another name (name=…)"
            )
    baseline = settings.baseline
    if baseline is not None and baseline not in settings.policies and not Path(baseline).is_dir():
        raise InvalidValueError(field="baseline", expected="one of the policies or a directory of runs", got=baseline)


def _fixed(settings: EvaluationSettings, tasks: TaskSet) -> _Fixed:
    content = "\n".join(sorted(task.content_hash for task in tasks))
    return _Fixed(
        preset=settings.preset,
        tasks=hashlib.sha256(content.encode()).hexdigest()[:16],
        seed=settings.seed,
        repeats=settings.repeats,
        both_orders=settings.both_orders,
        max_turns=settings.turn_limit,
    )


def _pairings(settings: EvaluationSettings, policies: Mapping[str, Policy]) -> Iterator[Pairing]:
    for spec in dict.fromkeys(settings.policies):
        for other in dict.fromkeys(settings.partners):
            policy, partner = policies[spec], policies[other]
            yield Pairing(policy, partner, _run_directory(Path(settings.output) / "runs", policy, partner))


def _run_directory(runs: Path, policy: Policy, partner: Policy) -> Path:
    """The directory in which these two play; without one, that of two with their names.

    The run in the latter refuses to be continued with other parameters. A new directory beside it would instead play a
    complete evaluation again, after an update that changed a prompt or a model that was trained again.
    """
    both = f"{policy_identity(policy)}{policy_identity(partner)}"
    readable = "-vs-".join(_UNSAFE.sub("-", p.name).strip("-")[:40] for p in (policy, partner))
    own = runs / f"{readable}-{hashlib.sha256(both.encode()).hexdigest()[:8]}"
    others = [file.parent for file in sorted(runs.glob(f"{readable}-????????/{RUN}"))]
    names = {policy.name, partner.name}
    others = [path for path in others if {p.name for p in read_manifest(path).policies} == names]
    return own if own.exists() or not others else others[0]


async def _play_all(
    settings: EvaluationSettings,
    tasks: TaskSet,
    pairings: Sequence[Pairing],
    judges: Sequence[Evaluator],
    models: ModelPool,
    stop: Stop,
) -> None:
    async with opened(models, Path(settings.output)):
        for number, pairing in enumerate(pairings, start=1):
            logger.info("%d of %d: %s with %s", number, len(pairings), pairing.policy.name, pairing.partner.name)
            await _play(settings, tasks, pairing, models, stop)
            for judge in judges:
                await _judge(settings, pairing, judge, models, stop)


async def _play(settings: EvaluationSettings, tasks: TaskSet, pairing: Pairing, models: ModelPool, stop: Stop) -> None:
    plans = plan_episodes(
        tasks,
        [(pairing.policy, pairing.partner)],
        repeats=settings.repeats,
        seed=settings.seed,
        rules=Rules(max_turns=settings.turn_limit),
        orders="both" if settings.both_orders else "first",
    )
    result = await run_episodes_async(
        plans, run_dir=pairing.run, concurrency=settings.concurrency, stop=stop, ledger=models.ledger
    )
    _check_end(result.stopped, stop)
    if result.failures:
        first = result.failures[0]
        logger.warning(
            "%s: %d of %d episodes failed, the first with %s: %s; the same command tries them again",
            *(pairing.run, len(result.failures), result.planned, first.kind, first.message),
        )


async def _judge(
    settings: EvaluationSettings, pairing: Pairing, judge: Evaluator, models: ModelPool, stop: Stop
) -> None:
    result = await evaluate_run_async(
        pairing.run, judge, concurrency=settings.concurrency, stop=stop, ledger=models.ledger
    )
    _check_end(result.stopped, stop)
    if result.unscored:
        logger.warning(
            "%s: %d of %d episodes are unscored by %s, the first because of %s",
            *(pairing.run, result.unscored, result.episodes, judge.name, result.reason),
        )


def _check_end(stopped: str, stop: Stop) -> None:
    if stopped and stop.signal is not None:
        raise stop.interruption
    if stopped:
        raise BudgetExceededError(f"{stopped}; with a higher models.max_cost the same command continues")


# --- report -------------------------------------------------------------------------------------------------------

_Identity = tuple[str, str]  # a policy's name and its parameters as JSON


def _report(
    settings: EvaluationSettings,
    tasks: TaskSet,
    pairings: Sequence[Pairing],
    policies: Mapping[str, Policy],
    judges: Sequence[str],
) -> Report:
    runs, partners = [pairing.run for pairing in pairings], {_identity(pairing.partner) for pairing in pairings}
    compared = {_identity(pairing.policy) for pairing in pairings}
    spec = settings.baseline or settings.policies[0]
    if spec in settings.policies:
        baseline = _identity(policies[spec])
    else:
        runs += [file.parent for file in sorted(Path(spec).glob(f"**/{RUN}"))]
        baseline = _recorded_baseline(settings, partners, judges, runs)
        compared.add(baseline)

    def select(rows: Sequence[SeatResult]) -> list[SeatResult]:
        others = [{other for seat, other in enumerate(row.policies) if seat != row.seat} for row in rows]
        met = [len(group) == 1 and group <= partners for group in others]
        return [row for row, is_met in zip(rows, met, strict=True) if is_met and row.policies[row.seat] in compared]

    results = compare_judges(runs, judges, settings.metrics, baseline=baseline[0], select=select)
    if spec not in settings.policies and not all(
        result.differences and {item.paired_by for item in result.differences} == {CLOSEST} for result in results
    ):
        raise InvalidValueError(
            f"its episodes are not of the same {CLOSEST} as these",
            field="baseline",
            hint="it was played with other settings",
        )
    failed = [f"{count} episodes of `{run}` failed and are missing." for run in runs if (count := _failed(run))]
    notes = [_heading(settings, tasks), " ".join(failed)]
    return replace(comparison_report(*results, title="Evaluation", notes=notes), name="report")


def _identity(policy: Policy) -> _Identity:
    return policy.name, canonical_json(dict(policy.parameters))


def _failed(run: Path) -> int:
    complete = {episode.key for episode in read_run(run)}
    return len({failure.key for failure in read_failures(run)} - complete)


def _recorded_baseline(
    settings: EvaluationSettings, partners: Iterable[_Identity], judges: Sequence[str], runs: Sequence[Path]
) -> _Identity:
    """The one policy that met the partners in the baseline's runs, which are the last ones."""
    earlier = [run for run in runs if run.is_relative_to(str(settings.baseline))]
    episodes = [episode for run in earlier for episode in read_run(run)]
    for judge in judges:
        if not any(episode.evaluation(judge) for episode in episodes):
            raise InvalidValueError("has no scores by this judge", field="baseline", got=judge)
    found: set[_Identity] = set()
    for partner in partners:
        seated = [(seat, policies) for policies in map(seated_policies, episodes) for seat in range(len(policies))]
        met = {policies[seat] for seat, policies in seated if {*policies[:seat], *policies[seat + 1 :]} == {partner}}
        named = {policy for policy in met if settings.baseline_name in (None, policy[0])}
        found |= named - {partner} or named or {("none", "")}
    if len(found) != 1 or ("none", "") in found:
        raise InvalidValueError(
            field="baseline",
            expected=f"one policy with partner {' and '.join(repr(name) for name, _ in partners)} in its runs",
            got=Verbatim(", ".join(sorted(name for name, _ in found))),
            hint="baseline_name says which",
        )
    first, *others = [
        {replace(rules, first_seat=0) for rules in read_manifest(run).config.rules} for run in (runs[0], *earlier)
    ]
    if any(rules != first for rules in others):
        raise InvalidValueError("was played by other rules", field="baseline", hint="see config.rules in run.json")
    return found.pop()


def _heading(settings: EvaluationSettings, tasks: TaskSet) -> str:
    preset = PRESETS[settings.preset]
    castings = Counter(task.scenario.id for task in tasks)
    part = " (a part of the preset)" if settings.partial and preset.scenarios not in (None, len(castings)) else ""
    orders = "each seat begins once" if settings.both_orders else "the first seat begins"
    turns = "" if settings.turn_limit is None else f"at most {settings.turn_limit} turns, "
    return (
        f"Preset `{settings.preset}`: {preset.about}{part}. {len(castings)} scenarios, {len(tasks)} tasks; every "
        f"policy in every seat, {orders}, {turns}{settings.repeats} × each, seed {settings.seed}."
    )
