"""Games of choices played many times by scripts, beside their closed forms.

    python -m studies.game_forms            # 100,000 games each: half an hour of one core, most of it for the commons
    python -m studies.game_forms --n 2000
    python -m studies.game_forms --only volunteers

Volunteers in their symmetric mixed equilibrium volunteer with the probability 1 − ½^(1/(n − 1)), and so nobody does
with ½^(n/(n − 1)). Seats that choose at random get the mean payoff over all combinations of choices. Co-operators and
cheaters get what public goods and the commons pay to all, to nobody and to one who gives nothing. A row is right if the
mean is within three standard errors of the closed form, which all nine rows that vary are by chance in 98 of 100 runs;
where nothing varies, it has to be equal.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, pstdev

from sotopia_env import Rules, Table, Task
from sotopia_env.naming.policies import make_policy
from sotopia_env.tasks.families.registry import FAMILIES
from sotopia_env.world.tables import final_table

Measure = Callable[[Task, Sequence[tuple[str, ...]], Sequence[float]], float]


def volunteered(task: Task, rows: Sequence[tuple[str, ...]], payoffs: Sequence[float]) -> float:
    """Returns the share of volunteers in the first round."""
    first = task.scenario.outcome.protocol.options[0]  # type: ignore[union-attr]
    return fmean(option == first for option in rows[0])


def nobody(task: Task, rows: Sequence[tuple[str, ...]], payoffs: Sequence[float]) -> float:
    """Returns whether nobody volunteered in the first round."""
    return float(not volunteered(task, rows, payoffs))


def mean_payoff(task: Task, rows: Sequence[tuple[str, ...]], payoffs: Sequence[float]) -> float:
    """Returns the mean payoff of a round."""
    return fmean(payoffs) / len(rows)


def enumerated_mean(task: Task) -> float:
    """Returns the mean payoff of a round over all combinations of choices."""
    from sotopia_env.outcomes.games.game import game_of

    spec = task.scenario.outcome
    game = game_of(spec.protocol, spec.worth)  # type: ignore[union-attr, arg-type]
    rows = [
        [float(game.gain(seat, row)) for seat in range(len(game.agents))] for row in itertools.product(*game.options)
    ]
    return fmean(map(fmean, rows))


def first_payoff(task: Task, rows: Sequence[tuple[str, ...]], payoffs: Sequence[float]) -> float:
    """Returns the payoff of the first seat in all rounds."""
    return payoffs[0]


def sampled(task: Task, policy: str, measures: Sequence[Measure], n: int, first: str = "") -> list[list[float]]:
    """Returns the values of every measure in ``n`` episodes of one policy in all seats, or all but the first."""
    values: list[list[float]] = [[] for _ in measures]
    script = make_policy(policy)
    seats = dict.fromkeys(task.agents, script) | ({task.agents[0]: make_policy(first)} if first else {})
    for seed in range(n):
        table = Table(task, Rules(), seed=seed)
        asyncio.run(table.play(seats))
        end = final_table(task, table.state.turns)[0].inner
        payoffs = [float(paid) for paid in end.paid]
        for measure, column in zip(measures, values, strict=True):
            column.append(measure(task, end.played, payoffs))
    return values


def at_once(name: str, seats: int = 0) -> Task:
    """Returns a task of one round without announcements, of a level with so many seats."""
    tasks = [FAMILIES[name].generate(0, 0, level) for level in ("easy", "medium", "hard")]
    task = next(one for one in tasks if seats in (0, len(one.agents)))
    spec = task.scenario.outcome
    assert spec is not None
    rules = spec.protocol.model_copy(update={"rounds": 1, "talks": 0})
    scenario = task.scenario.model_copy(update={"outcome": spec.model_copy(update={"protocol": rules})})
    return task.model_copy(update={"scenario": scenario})


_FIXED = (
    ("public goods: nobody gives", "public_goods", "cheater", "", 20),
    ("public goods: all give", "public_goods", "cooperator", "", 32),
    ("public goods: free rider", "public_goods", "cooperator", "cheater", 44),
    ("commons: sustained", "commons", "cooperator", "", 120),
    ("commons: taken at once", "commons", "cheater", "", 20),
)
"""Name, family, policy, that of the first seat if it is another, and what the first seat gets."""


def rows_of(n: int, only: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Yields the name, closed form, mean and standard error of every row whose name begins with ``only``."""
    for seats in (3, 4, 5):
        forms = {"volunteers": 1 - 0.5 ** (1 / (seats - 1)), "nobody": 0.5 ** (seats / (seats - 1))}
        if "volunteers".startswith(only):
            columns = sampled(at_once("volunteer", seats), "equilibrium", (volunteered, nobody), n)
            for (name, form), column in zip(forms.items(), columns, strict=True):
                yield f"{name} of {seats}", form, *_mean(column)
    for name in ("dilemma", "traveller", "public_goods") if "random".startswith(only) else ():
        task = at_once(name)
        yield f"random {name}", enumerated_mean(task), *_mean(sampled(task, "uniform", (mean_payoff,), n)[0])
    for name, family, policy, first, form in _FIXED:
        if name.startswith(only):
            task = FAMILIES[family].generate(0, 0, "hard") if family == "commons" else at_once(family)
            yield name, form, *_mean(sampled(task, policy, (first_payoff,), n, first)[0])


def _mean(column: Sequence[float]) -> tuple[float, float]:
    return fmean(column), pstdev(column) / math.sqrt(len(column))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--only", default="", help="the beginning of the names of rows")
    options = parser.parse_args()
    for name, form, mean, error in rows_of(options.n, options.only):
        verdict = "" if abs(mean - form) <= 3 * error else "  outside"
        sys.stdout.write(f"{name:26} closed form {form:8.4f}  mean {mean:8.4f} ± {error:.4f}{verdict}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
