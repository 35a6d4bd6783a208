"""Writes the page of each task family, docs/families/NAME.md, and their index, from the code and a played episode.

    python -m studies.family_pages          # writes them
    python -m studies.family_pages --check  # exit code 1 if a page differs from the code

A page has the family's docstring, the spaces of its environment, its moves, the payoffs of one task at its reference
points, what a seat reads first, and the transcript of that task played by scripts.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gymnasium import Space
from gymnasium.spaces import MultiBinary, Text

from scripts.docstrings import markdown, table_rows
from sotopia_env import Rules, Table, Task, TurnOrder, sotopia_v0, tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.waiting import wait
from sotopia_env.outcomes import AgreementRules, OutcomeSpec
from sotopia_env.outcomes.descriptions import describe_space
from sotopia_env.reports.transcript import to_text
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.tasks import FAMILIES
from sotopia_env.world.outcome import references

FOLDER = Path(__file__).parent.parent / "docs" / "families"
SEED = 7
KEYS = {
    "text": "the seat's complete observation, as one prompt",
    "history": "the turns that it has witnessed",
    "table": "the offers, votes or claims that it can see",
    "moves": "the moves that are open to it now",
    "turn": "the number of the coming turn",
    "available_action_types": "the action types that it may use",
    "action_type": "`none`, `speak`, `non-verbal communication`, `action`, `leave`; the name works too",
    "argument": "the words, gesture or deed",
    "to": "the seats that notice; all zeros: every seat",
    "move": "a move as JSON, or empty",
}
MOVES = {
    "propose": ('{"propose": {…}}', "always: complete terms, which their proposer has accepted"),
    "accept": ('{"accept": 3}', "an offer of another seat is open: its number"),
    "reject": ('{"reject": 3}', "the same"),
    "withdraw": ('{"withdraw": 2}', "one of its own offers is open"),
    "vote": ('{"vote": "…"}', "until every seat present has voted; `null` takes the vote back"),
    "claim": ('{"claim": "…"}', "while tries are left"),
    "choose": ('{"choose": "…"}', "once in each round: final, and hidden until all have chosen"),
    "state": ('{"state": {"…": "…"}}', "always: values of variables, true or not; alone or beside another move"),
    "show": ('{"show": "…"}', "it knows the value of a variable that can be proved; or a list of variables"),
    "ask": ('{"ask": "…"}', "it does not know the value of a variable; or a list of variables"),
}


def page(name: str) -> str:
    """Returns the page of a family."""
    task = tasks.generate(name, 1, seed=SEED)[0]
    return "\n".join([*_about(name, task), *_spaces(name), *_moves(task), *_rewards(task), *_played(task)]) + "\n"


def _about(name: str, task: Task) -> Iterator[str]:
    about = _docstring(name)
    yield f"<!-- written by studies/family_pages.py -->\n# {name}\n"
    yield markdown(about[0].upper() + about[1:])
    yield f'\n```python\nfrom sotopia_env import sotopia_v0\n\nenv = sotopia_v0.env(task="{name}:level=hard")\n```\n'
    yield from table_rows([["", ""], *([key, value] for key, value in _facts(name, task))])


def _docstring(name: str) -> str:
    if FAMILIES[name].about:
        return FAMILIES[name].about
    text = inspect.getdoc(importlib.import_module(f"sotopia_env.tasks.families.{name}"))
    return (text or "").partition(": ")[2]


def _spec(task: Task) -> OutcomeSpec:
    assert task.scenario.outcome is not None, "every family has an outcome"
    return task.scenario.outcome


def _facts(name: str, task: Task) -> Iterator[tuple[str, str]]:
    seats = sorted({len(tasks.generate(name, 1, seed=SEED, level=level)[0].agents) for level in tasks.LEVELS})
    by_level = f", by level {seats[0]} to {seats[-1]} seats" if len(seats) > 1 else ""
    yield "agents", f"`agent_0` to `agent_{seats[-1] - 1}`{by_level}"
    yield "levels", ", ".join(f"`{level}`" for level in tasks.LEVELS)
    yield "protocol", _spec(task).protocol.kind
    yield "private messages", "yes" if task.scenario.private_messages else "no"
    yield "turn limit", str(task.scenario.max_turns or Rules().turn_limit(task))
    simultaneous = sotopia_v0.raw_env(task=task, turn_order=TurnOrder.SIMULTANEOUS)
    yield "`aec_to_parallel`", "in simultaneous order" if simultaneous.metadata["is_parallelizable"] else "no"


def _spaces(name: str) -> Iterator[str]:
    env = sotopia_v0.env(task=name)
    for title, space in (("Observation", env.observation_space("agent_0")), ("Action", env.action_space("agent_0"))):
        yield f"\n## {title}\n"
        rows = [[f"`{key}`", _space(part), KEYS[key]] for key, part in space.items()]
        yield from table_rows([["key", "space", "holds"], *rows])


def _space(space: Space[Any]) -> str:
    if isinstance(space, Text):
        return f"text, at most {space.max_length:,} characters"
    return f"`MultiBinary({space.n})`" if isinstance(space, MultiBinary) else f"`{type(space).__name__}`, {space.dtype}"


_KINDS = {
    "agreement": ["propose", "accept", "reject", "withdraw"],
    "ballot": ["vote"],
    "claims": ["claim"],
    "choices": ["choose"],
}


def _moves(task: Task) -> Iterator[str]:
    spec = _spec(task)
    kinds = _KINDS[spec.protocol.kind]
    kinds = kinds + ([] if task.scenario.facts is None else ["state", "show", "ask"])
    yield "\n## Moves\n"
    rows = [[kind, f"`{MOVES[kind][0]}`", MOVES[kind][1]] for kind in kinds]
    yield from table_rows([["move", "as", "open when"], *rows])
    yield f"\nAs the seats of the task below read it:\n\n> {describe_space(spec, task.names)}"


def _rewards(task: Task) -> Iterator[str]:
    points = references(task)
    rows = {
        "no outcome": points.disagreement,
        "best for each seat, one at a time": points.best,
        "Nash": points.nash,
        "egalitarian": points.egalitarian,
        "greatest sum": points.best_joint,
    }
    yield "\n## Reward\n"
    yield "Payoffs in the task below. GOAL is the share of what a seat could gain over no outcome, from 0 to 10; the"
    yield "default reward is GOAL / 10, so a loss pays 0: [the reward](../rewards.md).\n"
    yield from table_rows([["", *task.agents], *([name, *map(_number, payoffs)] for name, payoffs in rows.items())])
    yield f"\nThere are {points.size:,} outcomes; the Pareto frontier has {len(points.frontier):,} different payoffs."


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _played(task: Task) -> Iterator[str]:
    first, others = _players(task)
    (plan,) = plan_episodes([task], [(first, others)], seed=SEED, both_seats=False)
    (episode,) = wait(run_episodes([plan], evaluator=VerifiedOutcome(), progress=False)).episodes
    # The first paragraph is the episode's key, which changes with the records of policies.
    transcript = to_text(episode).partition("\n\n")[2].rstrip()
    briefing = Table(task, seed=SEED).observe("agent_0").text
    yield f"\n## What a seat reads\n\n`agent_0`, before the first turn:\n\n```text\n{briefing}\n```"
    yield f"\n## An episode\n\n`{first}` in the first seat, `{others}` in all others:\n\n```text\n{transcript}\n```"


def _players(task: Task) -> tuple[str, str]:
    """The scripts of the first seat and of all others."""
    facts = task.scenario.facts
    if _spec(task).protocol.kind == "choices":
        return "promiser", "cheater"
    if facts is not None:
        return ("deceiver", "bayesian") if facts.deals else ("oracle", "oracle")
    return ("boulware", "conceder") if isinstance(_spec(task).protocol, AgreementRules) else ("sharer", "sharer")


def index() -> str:
    """Returns the index of the families."""
    rows = [["family", "task", "protocol"]]
    for name in FAMILIES:
        kind = _spec(tasks.generate(name, 1, seed=SEED)[0]).protocol.kind
        rows.append([f"[`{name}`]({name}.md)", _docstring(name).partition("\n")[0].rstrip("."), kind])
    return "\n".join(["<!-- written by studies/family_pages.py -->", INTRODUCTION, *table_rows(rows), SETS])


INTRODUCTION = """# Task families

A family generates any number of tasks from a seed, at three levels. Each has an exact outcome, so its rewards are
verified. A page has the spaces, moves and payoffs of its family, what a seat reads, and a played transcript.
"""
SETS = """
`task="bargaining,division:level=hard"` mixes families, `task="all"` takes all of them, and every `reset` draws a new
task. The shipped sets are files: `everyday` has 450 tasks in 90 scenarios (50 with an outcome),
`everyday-groups` has 200 tasks of 3 to 5 people (16 of 40 situations with an outcome), and `starter` has 24 tasks
without an outcome, which need a judge. A scenario of your own: [tasks](../tasks.md).
"""


def pages() -> dict[Path, str]:
    """Returns the text of every page by its path."""
    return {FOLDER / "index.md": index()} | {FOLDER / f"{name}.md": page(name) for name in FAMILIES}


def stale(texts: dict[Path, str]) -> list[str]:
    """Returns the names of the pages whose files differ from ``texts``."""
    return [path.name for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    texts = pages()
    if parser.parse_args(arguments).check:
        names = stale(texts)
        for name in names:
            sys.stdout.write(f"docs/families/{name} is out of date: run python -m studies.family_pages\n")
        return bool(names)
    FOLDER.mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
