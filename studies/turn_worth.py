"""Makes a data set of turns with measured worth: ``python studies/turn_worth.py --out data/turns``.

Policies play tasks of several families. In a share of the turns (``--explore``), another policy of the list acts in
place of the seat's own: an action that the seat's policy would take anyway is worth nothing more than expected. For
every turn of every seat, the data set has what the seat read, what it did, the exact change of what it had secured, and
the change of its expected reward by continuations of the seats' own policies, with a 95 % interval
(:mod:`sotopia_env.credit`). It is written as ``turns.parquet`` with a card, ``README.md``. The measurements are kept in
``episodes.jsonl``, so the same command continues after a stop, and a larger ``--turns`` adds to it.
"""

import argparse
import asyncio
import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sotopia_env import naming, tasks
from sotopia_env.continuations import Continuations
from sotopia_env.credit import GOAL, counterfactual_rewards, standing_rewards, state_values
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.files import write_text_atomically
from sotopia_env.json_text import decode_json
from sotopia_env.policies import Decision, Policy
from sotopia_env.prompts import fill
from sotopia_env.records import Record, canonical_json, code_version
from sotopia_env.reports.intervals import critical_value
from sotopia_env.storage import Journal
from sotopia_env.table import Table, observations
from sotopia_env.world import Observation, Rules, to_json
from training.attribution.accuracy import RewardedAction, accuracies
from training.attribution.probes import Truth

MOST_TURNS = 16
CARD = """---
license: mit
configs: [{config_name: default, data_files: turns.parquet}]
---

# Turns with measured worth

{{rows}} turns of {{episodes}} episodes of at most {{most}} turns. Families: {{families}} ({{level}}).
Policies: {{policies}}. In {{explored}} turns another of them than the seat's own, drawn at random, acted.
`gain` is the mean over {{samples}} pairs of continuations by the seats' own policies, which share their random draws;
{{played}} were played. For {{certain}} turns, the 95 % interval of the gain does not contain 0. An interval of width 0
says that all pairs have the same difference: for policies that draw nothing the gain is then exact.
Correlation with `gain`, mean of the families, 95 % intervals over tasks: `standing` {{standing}}, `reward` {{reward}}.

| column | meaning |
| --- | --- |
| `text`, `action` | what the seat read before the turn, and the action it took, as JSON |
| `policy`, `acted`, `partners` | the policy of the seat, the one that took this turn, and those of the other seats |
| `standing` | the exact change, until the seat's next turn, of the reward that its next move can obtain at once |
| `gain`, `low`, `high` | the seat's expected reward after the turn minus before it, and its 95 % interval |
| `reward` | the seat's reward at the end of the episode, in [0, 1] |

All people are invented. Made by `studies/turn_worth.py` of sotopia-env {{version}}, seed {{seed}}.
"""


class TurnRow(Record):
    """One turn of one seat; ``low`` and ``high`` are the 95 % interval of ``gain``, ``None`` with one sample."""

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
    standing: float
    gain: float
    low: float | None
    high: float | None
    reward: float


class MeasuredEpisode(Record):
    """The turns of one episode, and what the options were."""

    number: int
    options: str
    continuations: int
    rows: tuple[TurnRow, ...]


class Exploring:
    """A policy in whose place others act at a share of its turns.

    Attributes:
        acted: the names of the policies that acted, turn by turn.
    """

    def __init__(self, policy: Policy, others: Sequence[Policy], share: float) -> None:
        self.acted: list[str] = []
        self._policy, self._others, self._share = policy, others, share

    @property
    def name(self) -> str:
        """That of the policy."""
        return self._policy.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Those of the policy."""
        return self._policy.parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Asks the policy or one of the others, as ``seed`` draws."""
        draw = random.Random(f"explore/{seed}")
        explores = self._others and draw.random() < self._share
        policy = draw.choice(self._others) if explores else self._policy
        self.acted.append(policy.name)
        return await policy.act(observation, seed)


async def measure(number: int, options: argparse.Namespace) -> MeasuredEpisode:
    """Plays episode ``number`` and measures all of its turns."""
    draw = random.Random(f"{options.seed}/{number}")
    family = options.families[number % len(options.families)]
    task = tasks.generate(family, 1, options.seed + number, options.level)[0]
    names = {agent: draw.choice(options.policies) for agent in task.agents}
    policies = {name: naming.make_policy(name) for name in options.policies}
    seats = {
        agent: Exploring(policies[name], [policies[o] for o in policies if o != name], options.explore)
        for agent, name in names.items()
    }
    table = Table(task, Rules(max_turns=MOST_TURNS), options.seed + number, key=f"{family}-{options.seed + number}")
    await table.play(seats)
    evaluation = await table.evaluate(VerifiedOutcome())
    episode = table.episode()
    continuations = Continuations(lambda info: policies[names[info.agent]], VerifiedOutcome(), options.seed)
    values = await state_values(episode, continuations, options.samples)
    rows: list[TurnRow] = []
    for agent in task.agents:
        standing, gains = standing_rewards(episode, agent), counterfactual_rewards(episode, agent, values)
        partners = ",".join(names[other] for other in task.agents if other != agent)
        own = zip(observations(episode, agent), seats[agent].acted, strict=True)
        for (observation, turn), acted in own:
            gain, error = gains.by_turn[turn], gains.errors[turn]
            half = None if error is None else critical_value(0.05, options.samples - 1) * error
            rows.append(
                TurnRow(
                    episode=episode.key, family=family, task=task.id, agent=agent, policy=names[agent], acted=acted,
                    partners=partners, turn=turn, turns=len(episode.turns), text=observation.text,
                    action=canonical_json(to_json(episode.turns[turn].turn.action)), standing=standing.by_turn[turn],
                    gain=gain, low=None if half is None else gain - half, high=None if half is None else gain + half,
                    reward=GOAL(evaluation.vector(agent, GOAL.dimensions)),
                )
            )  # fmt: skip
    played = sum(len(items) for items in values.values())
    return MeasuredEpisode(number=number, options=identity(options), continuations=played, rows=tuple(rows))


def identity(options: argparse.Namespace) -> str:
    """The options that determine an episode's measurement."""
    names = ("families", "policies", "samples", "explore", "level", "seed")
    return canonical_json({name: getattr(options, name) for name in names})


def episodes(options: argparse.Namespace) -> Iterator[MeasuredEpisode]:
    """Yields measured episodes, those on disk first, until they have enough turns."""
    count, number = 0, 0
    with (
        Journal(options.out / "episodes.jsonl", MeasuredEpisode, lambda item: (item.number, item.options)) as journal,
        tqdm(total=options.turns, unit=" turns", disable=not sys.stderr.isatty()) as bar,
    ):
        while count < options.turns:
            episode = journal.get((number, identity(options)))
            if episode is None:
                episode = asyncio.run(measure(number, options))
                journal.append(episode)
            yield episode
            count, number = count + len(episode.rows), number + 1
            bar.update(len(episode.rows))


def agreement(rows: Sequence[TurnRow], column: str) -> str:
    """Returns the correlation of a column with the gain, as text."""
    items = [
        RewardedAction(row.family, row.task, f"{row.episode}/{row.turn}", Truth((row.gain,)), getattr(row, column))
        for row in rows
    ]
    estimate = accuracies({(column, ""): items}, 1000, 0)[-1].correlation
    return "undefined" if estimate is None else f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


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
        help="names; smol is a model",
    )
    parser.add_argument("--samples", type=int, default=8, help="continuations of each state")
    parser.add_argument("--explore", type=float, default=0.5, help="share of turns at which another policy acts")
    parser.add_argument("--level", default="medium", choices=tasks.LEVELS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.families, options.policies = options.families.split(","), options.policies.split(",")
    if importlib.util.find_spec("pyarrow") is None:
        parser.error("parquet needs pyarrow: pip install pyarrow")
    options.out.mkdir(parents=True, exist_ok=True)
    write(options, list(episodes(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
