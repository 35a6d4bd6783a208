"""Makes a data set of turns with measured worth: ``python scripts/measure_turns.py --out data/turns``.

Policies play tasks of several families. For every turn of every seat, the data set has what the seat read, what it did,
the exact change of what it had secured, and the change of its expected reward by continuations, with a 95 % interval
(:mod:`sotopia_env.credit`). It is written as ``turns.parquet`` with a card, ``README.md``. The measurements are kept in
``episodes.jsonl``, so the same command continues after a stop, and a larger ``--turns`` adds to it.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from sotopia_env import naming, tasks
from sotopia_env.continuations import Continuations
from sotopia_env.credit import counterfactual_rewards, standing_rewards
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.files import write_text_atomically
from sotopia_env.json_text import decode_json
from sotopia_env.prompts import fill
from sotopia_env.records import Record, canonical_json, code_version
from sotopia_env.reports.intervals import critical_value
from sotopia_env.storage import Journal
from sotopia_env.table import Table, observations
from sotopia_env.world import Rules, to_json

MOST_TURNS = 16
CARD = """---
license: mit
configs: [{config_name: default, data_files: turns.parquet}]
---

# Turns with measured worth

{{rows}} turns of {{episodes}} episodes of at most {{most}} turns. Families: {{families}} ({{level}}).
Policies: {{policies}}.
`gain` is the mean over {{samples}} pairs of continuations, which share their random draws; {{played}} were played. For
{{certain}} turns, the 95 % interval of the gain does not contain 0.

| column | meaning |
| --- | --- |
| `text`, `action` | what the seat read before the turn, and the action it took, as JSON |
| `standing` | the exact change, until the seat's next turn, of the reward that its next move can obtain at once |
| `gain`, `low`, `high` | the seat's expected reward after the turn minus before it, and its 95 % interval |
| `reward` | the seat's reward at the end of the episode, in [0, 1] |

All people are invented. Made by `scripts/measure_turns.py` of sotopia-env {{version}}, seed {{seed}}.
"""


class TurnRow(Record):
    """One turn of one seat; ``low`` and ``high`` are the 95 % interval of ``gain``, ``None`` with one sample."""

    episode: str
    family: str
    task: str
    agent: str
    policy: str
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


async def measure(number: int, options: argparse.Namespace) -> MeasuredEpisode:
    """Plays episode ``number`` and measures all of its turns."""
    draw = random.Random(f"{options.seed}/{number}")
    family = options.families[number % len(options.families)]
    task = tasks.generate(family, 1, options.seed + number, options.level)[0]
    names = {agent: draw.choice(options.policies) for agent in task.agents}
    policies = {name: naming.make_policy(name) for name in names.values()}
    by_record = {policy.name: policy for policy in policies.values()}
    table = Table(task, Rules(max_turns=MOST_TURNS), options.seed + number, key=f"{family}-{options.seed + number}")
    await table.play({agent: policies[name] for agent, name in names.items()})
    evaluation = await table.evaluate(VerifiedOutcome())
    episode = table.episode()
    continuations = Continuations(lambda info: by_record[info.name], VerifiedOutcome(), options.seed)
    rows: list[TurnRow] = []
    played = 0
    for agent in task.agents:
        standing = standing_rewards(episode, agent)
        gains = await counterfactual_rewards(episode, agent, continuations, options.samples)
        played += gains.episodes
        partners = ",".join(names[other] for other in task.agents if other != agent)
        for observation, turn in observations(episode, agent):
            half = critical_value(0.05, options.samples - 1) * gains.errors[turn] if options.samples > 1 else None
            gain = gains.by_turn[turn]
            rows.append(
                TurnRow(
                    episode=episode.key, family=family, task=task.id, agent=agent, policy=names[agent],
                    partners=partners, turn=turn, turns=len(episode.turns), text=observation.text,
                    action=canonical_json(to_json(episode.turns[turn].turn.action)), standing=standing.by_turn[turn],
                    gain=gain, low=None if half is None else gain - half, high=None if half is None else gain + half,
                    reward=min(max(evaluation.outcome.shares[task.seat_of[agent]], 0.0), 1.0),
                )
            )  # fmt: skip
    return MeasuredEpisode(number=number, options=identity(options), continuations=played, rows=tuple(rows))


def identity(options: argparse.Namespace) -> str:
    """The options that determine an episode's measurement."""
    names = ("families", "policies", "samples", "level", "seed")
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


def write(options: argparse.Namespace, measured: list[MeasuredEpisode]) -> None:
    """Writes the table and its card."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [row for episode in measured for row in episode.rows]
    parquet.write_table(pa.Table.from_pylist([row.model_dump() for row in rows]), options.out / "turns.parquet")
    certain = [row for row in rows if row.low is not None and not row.low <= 0 <= row.high]
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
        "--policies", default="random-offers,random-walk,linear,conceder,boulware", help="names; smol is a model"
    )
    parser.add_argument("--samples", type=int, default=8, help="continuations of each state")
    parser.add_argument("--level", default="medium", choices=tasks.LEVELS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.families, options.policies = options.families.split(","), options.policies.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    write(options, list(episodes(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
