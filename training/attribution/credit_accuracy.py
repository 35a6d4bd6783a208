"""The study of credit: recorded episodes in, the accuracy of every attribution method against the truth out.

Three steps, each resumable: probes are made of the episodes (``probes.jsonl``), the states before and after every
forced action are measured (``values.jsonl``), and the probes go through the attribution stage like any other episodes
(``attribution/``). ``report.md``, ``accuracy.csv`` and ``accuracy.png`` show what came out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field, model_validator

from sotopia_env.chat_model import ModelOptions, ModelPool
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming import make_policy
from sotopia_env.settings import Settings
from sotopia_env.storage import read_run
from sotopia_env.world import Episode, write_episodes
from training.attribution.accuracy import Accuracy, Observation, accuracies, accuracy_report, nearest
from training.attribution.by_outcome import VERIFIED
from training.attribution.counterfactual import Measurement, StateValues
from training.attribution.credits import METHODS, Method, Missing, dimension_name, read_attributions
from training.attribution.probes import Probe, ProbeMaker, Truth, truth_of
from training.attribution.questions import MakeModel
from training.attribution.settings import AttributionSettings, CounterfactualSettings, QuestionSettings
from training.attribution.stage import check_attributors
from training.attribution.stage import run as attribute
from training.stage.access import opened
from training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
RESAMPLES = 1000
"""Of the bootstrap."""
PROBES, VALUES, EPISODES, REPORT = "probes.jsonl", "values.jsonl", "episodes.jsonl", "report.md"


class CreditAccuracySettings(Settings):
    """The study of credit.

    Attributes:
        runs: run directories or ``.jsonl`` files of episodes of verified tasks.
        alternatives: policies by name, whose actions are forced beside the recorded ones; at least one.
        states: of every episode, at most, in which actions are forced.
        dimension: whose score is attributed and measured: GOAL or FIN.
        evaluator: of the probes; attributors see its scores.
        attributors: as of the attribution stage; ``counterfactual`` measures with another seed than the truth.
        methods: as of the attribution stage.
        question: how language models are asked.
        counterfactual: the measurement of the truth; of at least 2 samples, or no error could be known.
        seed: of the draws of states and alternatives, and of the bootstrap.
        models: to language models; may differ when a study is continued.
        output: its directory.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    alternatives: tuple[str, ...] = Field(min_length=1)
    states: int = Field(default=2, ge=1)
    dimension: str = "goal"
    evaluator: str = "verified+rules"
    attributors: tuple[str, ...] = ("prospect", "acts", "silence")
    methods: tuple[Method, ...] = (*METHODS, "gain")
    question: QuestionSettings = QuestionSettings()
    counterfactual: CounterfactualSettings = CounterfactualSettings(samples=16)
    seed: int = Field(default=0, ge=0)
    models: ModelOptions = ModelOptions()
    output: str

    @model_validator(mode="after")
    def _check_truth(self) -> CreditAccuracySettings:
        if dimension_name(self.dimension) not in VERIFIED:
            raise InvalidValueError(
                field="dimension", expected="GOAL or FIN, which outcomes verify", got=self.dimension
            )
        if self.counterfactual.samples < 2:
            raise InvalidValueError(
                field="counterfactual.samples", expected="2 or more, or no error could be known", got=1
            )
        return self

    @property
    def attribution(self) -> AttributionSettings:
        """The settings of the probes' attribution."""
        other = self.counterfactual.model_copy(update={"seed": self.counterfactual.seed + 1})
        return AttributionSettings(
            runs=(str(Path(self.output) / EPISODES),),
            dimensions=(self.dimension,),
            attributors=self.attributors,
            methods=self.methods,
            question=self.question,
            counterfactual=other,
            models=self.models,
            output=str(Path(self.output) / "attribution"),
        )


def run(settings: CreditAccuracySettings, make_model: MakeModel | None = None) -> None:
    """Makes the study, or finds that it is done.

    Args:
        settings: of the study.
        make_model: makes the attributors' language models by name; by default as ``settings.models`` says.

    Raises:
        InvalidValueError: an episode's task has nothing to verify, a policy cannot be made again, or nothing is left
            to compare.
        UnknownNameError: an attributor, an evaluator or a policy is not known.
        DamagedRecordError: a record cannot be read or does not replay.
        BudgetExceededError: the limit is reached; the same command with a higher one goes on.
    """
    stage = StageDirectory(Path(settings.output), "credit_accuracy", settings)
    if stage.is_complete():
        return
    maker, continuations = _prepared(settings)
    stage.open()
    probes = _probes(settings, maker)
    with StateValues(stage.path / VALUES, continuations) as values:
        truths = _truths(settings, probes, values)
        cost = values.cost()
    write_episodes(stage.path / EPISODES, [probe.episode for probe in probes])
    attribute(settings.attribution, make_model)
    rows = accuracies(_observations(settings, probes, truths), RESAMPLES, settings.seed)
    _report(settings, rows, {"probes": len(probes), "measured": len(truths), **cost})
    stage.finish({"probes": len(probes), "truth": cost, "accuracy": [row.figures() for row in rows]})
    logger.info("%s: complete; see %s", stage.path, stage.path / REPORT)


def _prepared(settings: CreditAccuracySettings) -> tuple[ProbeMaker, Measurement]:
    """What makes the probes and what measures the truth, after a look at every name and every episode."""
    check_attributors(settings.attribution)
    continuations = Measurement(settings.counterfactual, ModelPool(settings.models))
    of_probes = settings.counterfactual.model_copy(update={"evaluator": settings.evaluator})
    players = Measurement(of_probes, ModelPool(settings.models))
    alternatives = [make_policy(name, players.models) for name in settings.alternatives]
    empty = True
    for episode in _episodes(settings):
        continuations.check(episode)
        empty = False
    if empty:
        raise InvalidValueError(field="runs", expected="at least one episode", got=list(settings.runs))
    return ProbeMaker(players, alternatives, settings.states, settings.seed), continuations


def _episodes(settings: CreditAccuracySettings) -> Iterator[Episode]:
    return (episode for path in settings.runs for episode in read_run(path))


def _probes(settings: CreditAccuracySettings, maker: ProbeMaker) -> list[Probe]:
    folder = Path(settings.output)

    async def make() -> list[Probe]:
        async with opened(maker.continuations.models, folder):
            return await maker.make(_episodes(settings), folder / PROBES)

    return asyncio.run(make())


def _truths(settings: CreditAccuracySettings, probes: Sequence[Probe], values: StateValues) -> dict[str, Truth]:
    """What each probe's action is worth, by the key of its episode."""
    logger.info("%d actions: %d continuations before and after each", len(probes), settings.counterfactual.samples)
    values.measure((state for probe in probes for state in (probe.before, probe.after)), 2 * len(probes))
    name, samples = dimension_name(settings.dimension), settings.counterfactual.samples
    truths = {probe.episode.key: truth_of(probe, values, name, samples) for probe in probes}
    missing = [truth for truth in truths.values() if isinstance(truth, Missing)]
    if len(missing) == len(truths):
        raise InvalidValueError(
            f"nothing could be measured: {(missing[0].reason if missing else 'no actions')}", field="runs"
        )
    if missing:
        logger.warning("%d of %d actions left out: %s", len(missing), len(truths), missing[0].reason)
    return {key: truth for key, truth in truths.items() if isinstance(truth, Truth)}


def _observations(
    settings: CreditAccuracySettings, probes: Sequence[Probe], truths: Mapping[str, Truth]
) -> dict[tuple[str, str], list[Observation]]:
    """The rewards of the forced turns, by attributor and method."""
    by_key = {probe.episode.key: probe for probe in probes}
    observations: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for item in read_attributions(settings.attribution.output):
        probe, truth = by_key[item.episode], truths.get(item.episode)
        if truth is not None and (item.seat, item.turn) == (probe.seat, probe.turn):
            observation = Observation(probe.family, item.task, probe.situation, truth, item.reward)
            observations[item.attributor, item.method].append(observation)
    return observations


# --- report -------------------------------------------------------------------------------------------------------


def _report(settings: CreditAccuracySettings, rows: Sequence[Accuracy], counts: Mapping[str, int | None]) -> None:
    tokens = "unknown" if counts["tokens"] is None else counts["tokens"]
    best = nearest(rows, METHODS)
    notes = [
        f"{settings.dimension}; {counts['probes']} forced actions, {settings.counterfactual.samples} continuations of "
        f"each state: {counts['states']} states, {counts['turns']} turns, {tokens} tokens. 95 % intervals: bootstrap "
        "over tasks. Chance is 0 for correlation, 0.5 for sign and ranking.",
        f"Nearest of the four methods: {best[0].method} by {best[0].attributor}." if best else "",
    ]
    accuracy_report(rows, notes).write(settings.output, ("png", "svg"), markdown=True)
