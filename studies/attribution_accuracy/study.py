"""The study of attribution: measures the accuracy of every attribution method on recorded episodes.

Each of its steps can be resumed: probes are created from the episodes (``probes.jsonl``), the states before and after
every forced action are measured (``values.jsonl``), and the attribution stage runs on the probes (``attribution/``).
``report.md``, ``accuracy.csv`` and ``accuracy.png`` show the results.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field, model_validator
from sotopia_training.attribution.by_outcome import VERIFIED
from sotopia_training.attribution.counterfactual import Measurement, StateValues
from sotopia_training.attribution.methods import METHODS, Method, Unattributed, dimension_name, read_attributions
from sotopia_training.attribution.questions import MakeModel
from sotopia_training.attribution.settings import AttributionSettings, CounterfactualSettings, QuestionSettings
from sotopia_training.attribution.stage import check_attributors
from sotopia_training.attribution.stage import run as attribute
from sotopia_training.stage.access import opened
from sotopia_training.stage.directory import StageDirectory

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import make_policy
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode, write_episodes
from studies.attribution_accuracy.accuracy import MethodAccuracy, RewardedAction, accuracies, accuracy_report, nearest
from studies.attribution_accuracy.probes import Probe, ProbeMaker, Truth, truth_of

logger = logging.getLogger(__name__)
STAGE = "credit_accuracy"
"""The name of the study in ``stage.json``, which is its earlier name."""
RESAMPLES = 1000
"""Number of resamples of the bootstrap."""
PROBES, VALUES, EPISODES, REPORT = "probes.jsonl", "values.jsonl", "episodes.jsonl", "report.md"


class AttributionAccuracySettings(Settings):
    """Settings of the study.

    Attributes:
        runs: run directories or ``.jsonl`` files of episodes of verified tasks.
        alternatives: names of policies whose actions are forced besides the recorded ones; at least one.
        states: the maximum number of states per episode in which actions are forced.
        dimension: the dimension whose score is attributed and measured: GOAL or FIN.
        evaluator: the evaluator of the probes, whose scores are attributed.
        attributors: as in the attribution stage; ``counterfactual`` uses another seed than the measurement of the
            truth.
        methods: as in the attribution stage.
        question: the manner of asking language models.
        counterfactual: the measurement of the truth; at least 2 samples, because one sample has no standard error.
        seed: the seed of the draws of states and alternatives, and of the bootstrap.
        models: the access to language models; may differ when a study is continued.
        output: the directory of the study.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    alternatives: tuple[str, ...] = Field(min_length=1)
    states: int = Field(default=2, ge=1)
    dimension: str = "goal"
    evaluator: str = "verified"
    attributors: tuple[str, ...] = ("prospect", "acts", "silence")
    methods: tuple[Method, ...] = (*METHODS, "turn_reward")
    question: QuestionSettings = QuestionSettings()
    counterfactual: CounterfactualSettings = CounterfactualSettings(samples=16)
    seed: int = Field(default=0, ge=0)
    models: ModelOptions = ModelOptions()
    output: str

    @model_validator(mode="after")
    def _check_truth(self) -> AttributionAccuracySettings:
        if dimension_name(self.dimension) not in VERIFIED:
            raise InvalidValueError(
                field="dimension", expected="GOAL or FIN, which outcomes verify", got=self.dimension
            )
        if self.counterfactual.samples < 2:
            raise InvalidValueError(field="counterfactual.samples", expected="at least 2, for a standard error", got=1)
        return self

    @property
    def attribution(self) -> AttributionSettings:
        """The settings of the probes' attribution."""
        # With the same seed, the attributor would repeat the measurement of the truth and be right by construction.
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


def run(settings: AttributionAccuracySettings, make_model: MakeModel | None = None) -> None:
    """Runs the study; does nothing if it is complete.

    Args:
        settings: the settings of the study.
        make_model: creates an attributor's language model by its name; by default as ``settings.models`` says.

    Raises:
        InvalidValueError: an episode's task has no outcome, a policy cannot be recreated from its record, or no action
            could be measured.
        UnknownNameError: an attributor, an evaluator or a policy does not exist.
        DamagedRecordError: a record cannot be read or does not replay.
        BudgetExceededError: the limit is reached; the same command with a higher limit continues.
    """
    stage = StageDirectory(Path(settings.output), STAGE, settings)
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


def _prepared(settings: AttributionAccuracySettings) -> tuple[ProbeMaker, Measurement]:
    """Returns the maker of the probes and the measurement of the truth, after checking every name and every episode."""
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


def _episodes(settings: AttributionAccuracySettings) -> Iterator[Episode]:
    return (episode for path in settings.runs for episode in read_run(path))


def _probes(settings: AttributionAccuracySettings, maker: ProbeMaker) -> list[Probe]:
    folder = Path(settings.output)

    async def make() -> list[Probe]:
        async with opened(maker.continuations.models, folder):
            return await maker.make(_episodes(settings), folder / PROBES)

    return asyncio.run(make())


def _truths(settings: AttributionAccuracySettings, probes: Sequence[Probe], values: StateValues) -> dict[str, Truth]:
    """Returns the worth of each probe's action, by the key of its episode; unmeasured ones are left out."""
    logger.info("%d actions: %d continuations before and after each", len(probes), settings.counterfactual.samples)
    values.measure((state for probe in probes for state in (probe.before, probe.after)), 2 * len(probes))
    name = dimension_name(settings.dimension)
    truths = {probe.episode.key: truth_of(probe, values, name) for probe in probes}
    missing = [truth for truth in truths.values() if isinstance(truth, Unattributed)]
    if len(missing) == len(truths):
        raise InvalidValueError(
            f"no action could be measured: {(missing[0].reason if missing else 'no actions')}", field="runs"
        )
    if missing:
        logger.warning("%d of %d actions left out: %s", len(missing), len(truths), missing[0].reason)
    return {key: truth for key, truth in truths.items() if isinstance(truth, Truth)}


def _observations(
    settings: AttributionAccuracySettings, probes: Sequence[Probe], truths: Mapping[str, Truth]
) -> dict[tuple[str, str], list[RewardedAction]]:
    """Returns the rewards of the forced turns, by attributor and method; other turns of the probes are ignored."""
    by_key = {probe.episode.key: probe for probe in probes}
    observations: dict[tuple[str, str], list[RewardedAction]] = defaultdict(list)
    for item in read_attributions(settings.attribution.output):
        probe, truth = by_key[item.episode], truths.get(item.episode)
        if truth is not None and (item.seat, item.turn) == (probe.seat, probe.turn):
            observation = RewardedAction(probe.family, item.task, probe.situation, truth, item.reward)
            observations[item.attributor, item.method].append(observation)
    return observations


# --- report -------------------------------------------------------------------------------------------------------


def _report(
    settings: AttributionAccuracySettings, rows: Sequence[MethodAccuracy], counts: Mapping[str, int | None]
) -> None:
    tokens = "unknown" if counts["tokens"] is None else counts["tokens"]
    best = nearest(rows, METHODS)
    notes = [
        f"{settings.dimension}; {counts['probes']} forced actions, {settings.counterfactual.samples} continuations of "
        f"each state: {counts['states']} states, {counts['turns']} turns, {tokens} tokens. 95 % intervals: bootstrap "
        "over tasks. Chance is 0 for correlation, 0.5 for sign and ranking.",
        f"Nearest of the four methods: {best[0].method} by {best[0].attributor}." if best else "",
    ]
    accuracy_report(rows, notes).write(settings.output, ("png", "svg"), markdown=True)
