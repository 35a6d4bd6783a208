"""Makes a data set of turns with measured worth: ``python -m studies.turn_data_set --out data/turns``.

Policies play tasks of several families. In a share of the turns (``--explore``), another policy (``--explorers``) acts
in place of the seat's own: an action that the seat's policy would take anyway is worth nothing more than expected. For
every turn of every seat, the data set has what the seat read, what it did, and the turn's rewards of both kinds,
``standing`` and ``counterfactual`` (:mod:`sotopia_env.evaluators.turn_rewards`), the latter by continuations of the
seats' own policies and with a 95 % interval. A language model among the explorers is asked once per turn of its own,
since it does not play continuations. The data set is written as ``turns.parquet`` with a card, ``README.md``. The
explorers' answers are kept in ``explored.jsonl`` and the measurements in ``episodes.jsonl``, so the same command
continues after a stop without asking a model again, and a larger ``--turns`` adds to it.
"""

import argparse
import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field
from tqdm import tqdm

from sotopia_env import naming, tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.evaluators.turn_rewards import GOAL, counterfactual_rewards, standing_rewards, state_values
from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import canonical_json, decode_json
from sotopia_env.foundation.prompts import fill
from sotopia_env.foundation.records import Record
from sotopia_env.foundation.versions import code_version
from sotopia_env.foundation.waiting import all_at_once, wait
from sotopia_env.naming.grammar import split_names
from sotopia_env.policies import Decision, Policy
from sotopia_env.reports.intervals import critical_value, estimate
from sotopia_env.storage import Journal
from sotopia_env.world import Action, Observation, Rules
from sotopia_env.world.action import to_json
from sotopia_env.world.episode import Generation
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.play.recorded import observations
from sotopia_env.world.play.table import Table
from studies.attribution_accuracy.accuracy import RewardedAction, accuracies
from studies.attribution_accuracy.probes import Truth

MOST_TURNS = 16
AT_ONCE = 512
CARD = """---
license: mit
configs: [{config_name: default, data_files: turns.parquet}]
---

# Turns with measured worth

{{rows}} turns of {{episodes}} episodes of at most {{most}} turns. Families: {{families}} ({{level}}).
Policies of the seats: {{policies}}. In {{explored}} turns another policy than the seat's own, drawn at random from
{{explorers}}, acted once:

| acted in place of the seat's policy | turns | no action or not allowed | `counterfactual`, mean [95 %, over tasks] |
| --- | --- | --- | --- |
{{acted}}

{{models}}
`counterfactual` is the mean over {{samples}} pairs of continuations by the seats' own policies, which share their
random draws; {{played}} were played. For {{certain}} turns, its 95 % interval does not contain 0. Intervals are
Student's t over the pairs, and too narrow where policies draw at random and few pairs differ. An interval of width 0
says that all pairs have the same difference: it is then exact for policies that draw nothing, but not for others.
Correlation with `counterfactual`, mean of the families, 95 % intervals over tasks: `standing` {{standing}}, `reward`
{{reward}}.

| column | meaning |
| --- | --- |
| `text`, `action` | the seat's observation before the turn, and the action that took effect, as JSON |
| `answer`, `failure` | a model's own text, and why it was not an action or not all of it was allowed; empty otherwise |
| `policy`, `acted`, `partners` | the policy of the seat, the one that took this turn, and those of the other seats |
| `standing` | the exact change, until the seat's next turn, of the reward that its next move can obtain at once |
| `counterfactual`, `low`, `high` | the seat's expected reward after the turn minus before it, and its 95 % interval |
| `reward` | the seat's reward at the end of the episode, in [0, 1] |

All people are invented. Made by `studies/turn_data_set.py` of sotopia-env {{version}}, seed {{seed}}.
"""


class TurnRow(Record):
    """One turn of one seat; the 95 % interval of ``counterfactual`` is ``None`` with one sample."""

    episode: str
    family: str
    task: str
    agent: str
    policy: str
    acted: str
    partners: str
    turn: int
    turns: int
    text: str
    action: str
    answer: str
    failure: str
    standing: float
    counterfactual: float = Field(validation_alias=AliasChoices("counterfactual", "gain"))  # gain: in earlier files
    low: float | None
    high: float | None
    reward: float


class MeasuredEpisode(Record):
    """The turns of one episode, and what the options were."""

    number: int
    options: str
    continuations: int
    rows: tuple[TurnRow, ...]


class ExploredTurn(Record):
    """The answer of a policy that acted in place of another; the options and the turn's seed determine it."""

    seed: int
    options: str
    action: Action
    generation: Generation | None


class Exploring:
    """A policy that other policies replace in a share of its turns.

    Attributes:
        acted: the names of the policies that acted, turn by turn.
    """

    def __init__(
        self, own: str, policies: Mapping[str, Policy], options: argparse.Namespace, explored: Journal[ExploredTurn]
    ) -> None:
        self.acted: list[str] = []
        self._own, self._policies, self._explored = own, policies, explored
        self._others = [name for name in options.explorers if name != own]
        self._share, self._options = options.explore, identity(options)

    @property
    def name(self) -> str:
        """That of the policy."""
        return self._policies[self._own].name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Those of the policy."""
        return self._policies[self._own].parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Asks the policy or one of the others, drawn with ``seed``."""
        draw = random.Random(f"explore/{seed}")
        if not self._others or draw.random() >= self._share:
            self.acted.append(self._own)
            return await self._policies[self._own].act(observation, seed)
        self.acted.append(draw.choice(self._others))
        turn = self._explored.get((seed, self._options))
        if turn is None:
            decision = await self._policies[self.acted[-1]].act(observation, seed)
            turn = ExploredTurn(
                seed=seed, options=self._options, action=decision.action, generation=decision.generation
            )
            self._explored.append(turn)
        return Decision(turn.action, turn.generation)


async def measure(
    number: int, options: argparse.Namespace, policies: Mapping[str, Policy], explored: Journal[ExploredTurn]
) -> MeasuredEpisode:
    """Plays episode ``number`` and measures all of its turns."""
    draw = random.Random(f"{options.seed}/{number}")
    family = options.families[number % len(options.families)]
    task = tasks.generate(family, 1, options.seed + number, options.level)[0]
    names = {agent: draw.choice(options.policies) for agent in task.agents}
    seats = {agent: Exploring(name, policies, options, explored) for agent, name in names.items()}
    table = Table(task, Rules(max_turns=MOST_TURNS), options.seed + number, key=f"{family}-{options.seed + number}")
    await table.play(seats)
    evaluation = await table.evaluate(VerifiedOutcome())
    episode = table.episode()
    continuations = Continuations(lambda info: policies[names[info.agent]], VerifiedOutcome(), options.seed)
    values = await state_values(episode, continuations, options.samples)
    rows: list[TurnRow] = []
    for agent in task.agents:
        standing, measured = standing_rewards(episode, agent), counterfactual_rewards(episode, agent, values)
        partners = ",".join(names[other] for other in task.agents if other != agent)
        own = zip(observations(episode, agent), seats[agent].acted, strict=True)
        for (observation, turn), acted in own:
            reward, error, item = measured.by_turn[turn], measured.errors[turn], episode.turns[turn]
            answer, unreadable = ("", None)
            if item.generation is not None:
                answer, unreadable = item.generation.text, item.generation.parse_failure
            half = None if error is None else critical_value(0.05, options.samples - 1) * error
            rows.append(
                TurnRow(
                    episode=episode.key, family=family, task=task.id, agent=agent, policy=names[agent], acted=acted,
                    partners=partners, turn=turn, turns=len(episode.turns), text=observation.text,
                    action=to_json(item.turn.action), answer=answer,
                    failure=unreadable or item.turn.violation or "", standing=standing.by_turn[turn],
                    counterfactual=reward, low=None if half is None else reward - half,
                    high=None if half is None else reward + half,
                    reward=GOAL(evaluation.vector(agent, GOAL.dimensions)),
                )
            )  # fmt: skip
    played = sum(len(items) for items in values.values())
    return MeasuredEpisode(number=number, options=identity(options), continuations=played, rows=tuple(rows))


def identity(options: argparse.Namespace) -> str:
    """The options that determine an episode's measurement."""
    names = ("families", "policies", "explorers", "samples", "explore", "level", "seed")
    return canonical_json({name: getattr(options, name) for name in names})


def episodes(options: argparse.Namespace) -> Iterator[MeasuredEpisode]:
    """Yields measured episodes, those on disk first, until they have enough turns."""
    policies = {name: naming.make_policy(name) for name in (*options.policies, *options.explorers)}
    key, count, number = identity(options), 0, 0
    with (
        Journal(options.out / "explored.jsonl", ExploredTurn, lambda item: (item.seed, item.options)) as explored,
        Journal(options.out / "episodes.jsonl", MeasuredEpisode, lambda item: (item.number, item.options)) as journal,
        tqdm(total=options.turns, unit=" turns", disable=not sys.stderr.isatty()) as bar,
    ):

        async def add(number: int) -> None:
            journal.append(await measure(number, options, policies, explored))

        while count < options.turns:
            if (number, key) not in journal:
                # Many at once: a model in this process samples all turns that wait for it in one batch.
                # No more than are needed in any case.
                block = min(AT_ONCE, -(-(options.turns - count) // MOST_TURNS))
                missing = [item for item in range(number, number + block) if (item, key) not in journal]
                wait(all_at_once(map(add, missing)))
            episode = journal.get((number, key))
            assert episode is not None
            yield episode
            count, number = count + len(episode.rows), number + 1
            bar.update(len(episode.rows))


def agreement(rows: Sequence[TurnRow], column: str) -> str:
    """Returns the correlation of a column with the counterfactual rewards, as text."""
    items = [
        RewardedAction(
            row.family, row.task, f"{row.episode}/{row.turn}", Truth((row.counterfactual,)), getattr(row, column)
        )
        for row in rows
    ]
    correlation = accuracies({(column, ""): items})[-1].correlation
    if correlation is None:
        return "undefined"
    if correlation.low is None or correlation.high is None:
        return f"{correlation.mean:.2f} [n/a: {correlation.missing}]"
    return f"{correlation.mean:.2f} [{correlation.low:.2f}, {correlation.high:.2f}]"


def explorers_table(rows: Sequence[TurnRow]) -> str:
    """Returns a line for each policy that acted in place of another, with the mean reward of its actions."""
    lines = []
    for name in sorted({row.acted for row in rows if row.acted != row.policy}):
        own = [row for row in rows if row.acted == name != row.policy]
        mean = estimate([row.counterfactual for row in own], [row.task for row in own])
        interval = "" if mean.low is None else f" [{mean.low:+.3f}, {mean.high:+.3f}]"
        failed = sum(bool(row.failure) for row in own)
        lines.append(f"| {name} | {len(own):,} | {failed:,} | {mean.mean:+.3f}{interval} |")
    return "\n".join(lines)


def model_lines(names: Sequence[str]) -> str:
    """Returns a line with the parameters of each policy that is a language model."""
    parameters = {name: naming.make_policy(name).parameters for name in names}
    return "".join(
        f"`{name}` is a language model: `{canonical_json(dict(values))}`.\n"
        for name, values in parameters.items()
        if "model" in values
    )


def write(options: argparse.Namespace, measured: list[MeasuredEpisode]) -> None:
    """Writes the table and its card."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [row for episode in measured for row in episode.rows]
    parquet.write_table(pa.Table.from_pylist([row.model_dump() for row in rows]), options.out / "turns.parquet")
    certain = [row for row in rows if row.low is not None and row.high is not None and not row.low <= 0 <= row.high]
    settings = decode_json(identity(options))
    played = sum(episode.continuations for episode in measured)
    card = fill(
        CARD,
        rows=f"{len(rows):,}",
        episodes=f"{len(measured):,}",
        policies=", ".join(settings["policies"]),
        explorers=", ".join(f"`{name}`" for name in settings["explorers"]),
        acted=explorers_table(rows),
        models=model_lines(settings["explorers"]),
        families=", ".join(settings["families"]),
        level=settings["level"],
        most=str(MOST_TURNS),
        samples=str(settings["samples"]),
        played=f"{played:,}",
        certain=f"{len(certain):,}",
        standing=agreement(rows, "standing"),
        reward=agreement(rows, "reward"),
        explored=f"{sum(row.acted != row.policy for row in rows):,}",
        version=code_version(),
        seed=str(settings["seed"]),
    )
    write_text_atomically(options.out / "README.md", card)


def main(arguments: list[str] | None = None) -> int:
    """Measures and writes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the data set")
    parser.add_argument("--turns", type=int, default=10_000, help="turns at least")
    parser.add_argument("--families", default="bargaining,division,job_committee", help="families with outcomes")
    parser.add_argument(
        "--policies",
        default="random-offers,random-walk,conceder,boulware,tit-for-tat,micro",
        help="names of the policies of the seats, which also play on",
    )
    parser.add_argument("--explorers", help="names of the policies that act in place of others; default: --policies")
    parser.add_argument("--samples", type=int, default=8, help="continuations of each state")
    parser.add_argument("--explore", type=float, default=0.5, help="share of turns at which another policy acts")
    parser.add_argument("--level", default="medium", choices=tasks.LEVELS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.families, options.policies = options.families.split(","), split_names(options.policies)
    options.explorers = options.policies if options.explorers is None else split_names(options.explorers)
    if importlib.util.find_spec("pyarrow") is None:
        parser.error("parquet needs pyarrow: pip install pyarrow")
    if options.turns < 1 or not 0 <= options.explore <= 1:
        parser.error("--turns must be at least 1, and --explore a share between 0 and 1")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        write(options, list(episodes(options)))
    except (SotopiaError, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
