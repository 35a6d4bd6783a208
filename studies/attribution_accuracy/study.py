"""The study of attribution: measures the accuracy of every attribution method on recorded episodes.

Each of its steps can be resumed: probes are created from the episodes (``probes.jsonl``), the states before and after
every forced action are measured (``values.jsonl``), and the attribution stage runs on the probes (``attribution/``).
``report.md``, ``accuracy.csv`` and ``accuracy.png`` show the results. With ``ranked_episodes``, the turns of recorded
episodes are measured and attributed, too (``turn_values.jsonl``, ``turn_attribution/``); ``turns.md``, ``turns.csv``
and ``turns.png`` show how well they are ranked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.naming import make_policy
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode, write_episodes
from studies.attribution_accuracy.accuracy import (
    MethodAccuracy,
    Observations,
    RewardedAction,
    accuracies,
    accuracy_report,
    nearest,
)
from studies.attribution_accuracy.probes import Probe, ProbeMaker
from studies.attribution_accuracy.worth import (
    DRAWS,
    TurnKey,
    Worth,
    measured_worths,
    ranks_by_draws,
    ranks_by_order,
    turns_of,
)

logger = logging.getLogger(__name__)
STAGE = "credit_accuracy"
"""The name of the study in ``stage.json``, which is its earlier name."""
PROBES, VALUES, EPISODES, REPORT = "probes.jsonl", "values.jsonl", "episodes.jsonl", "report.md"
DRAWN, TURN_VALUES, RECORDED = "drawn_values.jsonl", "turn_values.jsonl", "recorded.jsonl"
ATTRIBUTION, TURN_ATTRIBUTION = "attribution", "turn_attribution"


class AttributionAccuracySettings(Settings):
    """Settings of the study.

    Attributes:
        runs: run directories or ``.jsonl`` files of episodes of verified tasks.
        alternatives: names of policies whose actions are forced besides the recorded ones; at least one.
        states: the maximum number of states per episode in which actions are forced.
        ranked_episodes: the number of recorded episodes, spread evenly over all of them, whose turns are ranked within
            the episode. Both rankings then also have counterfactual rewards of 1, 2, 4 and 8 draws of their own. 0 for
            neither.
        dimension: the dimension whose score is attributed and measured: GOAL or FIN.
        evaluator: the evaluator of the probes, whose scores are attributed.
        attributors: as in the attribution stage; ``counterfactual`` uses another seed than the measurement of the
            truth.
        methods: as in the attribution stage.
        question: the manner of asking language models.
        counterfactual: the measurement of the truth; at least 2 samples, because one sample has no standard error.
        seed: the seed of the draws of states and alternatives.
        models: the access to language models; may differ when a study is continued.
        output: the directory of the study.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    alternatives: tuple[str, ...] = Field(min_length=1)
    states: int = Field(default=2, ge=1)
    ranked_episodes: int = Field(default=0, ge=0)
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
    def drawn(self) -> CounterfactualSettings:
        """The settings of counterfactual rewards that are judged, which have other draws than the truth."""
        # With the same seed, they would repeat the measurement of the truth and be right by construction.
        return self.counterfactual.model_copy(update={"seed": self.counterfactual.seed + 1})

    def attribution(self, episodes: str = EPISODES, output: str = ATTRIBUTION) -> AttributionSettings:
        """The settings of the attribution of some episodes of the study's directory, by default of the probes."""
        return AttributionSettings(
            runs=(str(Path(self.output) / episodes),),
            dimensions=(self.dimension,),
            attributors=self.attributors,
            methods=self.methods,
            question=self.question,
            counterfactual=self.drawn,
            models=self.models,
            output=str(Path(self.output) / output),
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
    write_episodes(stage.path / EPISODES, [probe.episode for probe in probes])
    worths, cost = _worths(settings, {probe.key: probe for probe in probes}, continuations, VALUES)
    attribute(settings.attribution(), make_model)
    observed = _observations(settings.attribution(), worths)
    if settings.ranked_episodes:
        observed |= _by_draws(settings, worths, DRAWN)[0]
    rows = accuracies(observed)
    _report(settings, rows, {"probes": len(probes), **cost})
    figures = {"probes": len(probes), "truth": cost, "accuracy": [row.figures() for row in rows]}
    if settings.ranked_episodes:
        figures["turns"] = _rank_turns(settings, maker.continuations, continuations, make_model)
    stage.finish(figures)
    logger.info("%s: complete; see %s", stage.path, stage.path / REPORT)


def _prepared(settings: AttributionAccuracySettings) -> tuple[ProbeMaker, Measurement]:
    """Returns the maker of the probes and the measurement of the truth, after checking every name and every episode."""
    check_attributors(settings.attribution())
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


def _worths(
    settings: AttributionAccuracySettings, turns: Mapping[TurnKey, Probe], continuations: Measurement, file: str
) -> tuple[dict[TurnKey, Worth], dict[str, int | None]]:
    """Returns the measured worth of turns, without those that could not be measured, and what the measurement cost."""
    logger.info("%d turns: %d continuations before and after each", len(turns), continuations.settings.samples)
    with StateValues(Path(settings.output) / file, continuations) as values:
        worths = measured_worths(turns, values, dimension_name(settings.dimension))
        cost = values.cost()
    missing = [worth.reason for worth in worths.values() if isinstance(worth, Unattributed)]
    if len(missing) == len(worths):
        raise InvalidValueError(
            f"no action could be measured: {(missing[0] if missing else 'no actions')}", field="runs"
        )
    if missing:
        logger.warning("%d of %d actions left out: %s", len(missing), len(worths), missing[0])
    return {key: worth for key, worth in worths.items() if isinstance(worth, Worth)}, cost


def _observations(attribution: AttributionSettings, worths: Mapping[TurnKey, Worth]) -> Observations:
    """Returns the rewards of the measured turns, by attributor and method; other turns are ignored."""
    observations: dict[tuple[str, str], list[RewardedAction]] = defaultdict(list)
    for item in read_attributions(attribution.output):
        worth = worths.get((item.episode, item.seat, item.turn))
        if worth is not None:
            observations[item.attributor, item.method].append(worth.rewarded(item.reward))
    return dict(observations)


def _by_draws(
    settings: AttributionAccuracySettings, worths: Mapping[TurnKey, Worth], file: str
) -> tuple[Observations, float]:
    """Returns the rewards by counterfactual of each of ``DRAWS``, and the turns of play that one draw takes a turn."""
    continuations = Measurement(settings.drawn.model_copy(update={"samples": max(DRAWS)}), ModelPool(settings.models))
    drawn, cost = _worths(settings, {key: worth.probe for key, worth in worths.items()}, continuations, file)
    return ranks_by_draws(worths, drawn), (cost["turns"] or 0) / max(DRAWS) / len(worths)


def _rank_turns(
    settings: AttributionAccuracySettings,
    players: Measurement,
    continuations: Measurement,
    make_model: MakeModel | None,
) -> dict[str, Any]:
    """Ranks the turns of recorded episodes within their episode, and returns the figures."""
    episodes = _recorded(settings, players)
    worths, cost = _worths(settings, turns_of(episodes), continuations, TURN_VALUES)
    attribution = settings.attribution(RECORDED, TURN_ATTRIBUTION)
    attribute(attribution, make_model)
    by_draws, turns = _by_draws(settings, worths, "drawn_" + TURN_VALUES)
    observed = {**_observations(attribution, worths), ("order", "later is better"): ranks_by_order(worths), **by_draws}
    rows = accuracies(observed)
    _turn_report(settings, rows, len(episodes), len(worths), turns)
    return {"episodes": len(episodes), "truth": cost, "draw": turns, "accuracy": [row.figures() for row in rows]}


def _recorded(settings: AttributionAccuracySettings, players: Measurement) -> list[Episode]:
    """Returns the evaluated episodes whose turns are ranked."""
    path = Path(settings.output) / RECORDED
    if not path.exists():
        episodes = list(_episodes(settings))
        step = max(1, len(episodes) // settings.ranked_episodes)
        chosen = episodes[::step][: settings.ranked_episodes]

        async def evaluate() -> list[Episode]:
            async with opened(players.models, path.parent):
                return await all_at_once(players.play(episode) for episode in chosen)

        write_episodes(path, asyncio.run(evaluate()))
    return list(read_run(path))


# --- report -------------------------------------------------------------------------------------------------------


def _report(
    settings: AttributionAccuracySettings, rows: Sequence[MethodAccuracy], counts: Mapping[str, int | None]
) -> None:
    tokens = "unknown" if counts["tokens"] is None else counts["tokens"]
    best = nearest(rows, METHODS)
    notes = [
        f"{settings.dimension}; {counts['probes']} forced actions, {settings.counterfactual.samples} continuations of "
        f"each state: {counts['states']} states, {counts['turns']} turns, {tokens} tokens. 95 % intervals: jackknife "
        "over tasks. Chance is 0 for correlation, 0.5 for sign and ranking.",
        "Ranking is of actions of one state. They come from different episodes, so uniform credit ranks them as "
        "well as a single draw of the truth: it measures the noise of one return, not an attribution.",
        f"Nearest of the four methods: {best[0].method} by {best[0].attributor}." if best else "",
    ]
    accuracy_report(rows, notes).write(settings.output, ("png", "svg"), markdown=True)


def _turn_report(
    settings: AttributionAccuracySettings, rows: Sequence[MethodAccuracy], episodes: int, turns: int, draw: float
) -> None:
    note = (
        f"{settings.dimension}; {turns} turns of {episodes} recorded episodes, {settings.counterfactual.samples} "
        "continuations of each state. Ranking: of two turns of one seat in one episode, whose order the measurement "
        "decides. 95 % intervals: jackknife over tasks. Chance is 0.5; uniform credit is 0.5 by definition. One "
        "draw is the most that one return can tell. A counterfactual reward costs "
        f"{draw:.1f} turns of play for each turn and draw; the other rewards cost none."
    )
    accuracy_report(rows, [note], "turns", "Ranking of turns within an episode").write(
        settings.output, ("png", "svg"), markdown=True
    )
