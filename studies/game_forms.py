"""Games of choices played many times by scripts, beside their closed forms.

    python -m studies.game_forms            # 100,000 games each: about seven minutes of one core
    python -m studies.game_forms --n 2000

Volunteers in their symmetric mixed equilibrium volunteer with the probability 1 − ½^(1/(n − 1)), and so nobody does
with ½^(n/(n − 1)). Seats that choose at random get the mean payoff over all combinations of choices. A row is right if
the mean is within two standard errors of the closed form.
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


def sampled(task: Task, policy: str, measures: Sequence[Measure], n: int) -> list[list[float]]:
    """Returns the values of every measure in ``n`` episodes of one policy in all seats."""
    values: list[list[float]] = [[] for _ in measures]
    script = make_policy(policy)
    for seed in range(n):
        table = Table(task, Rules(), seed=seed)
        asyncio.run(table.play(script))
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


def rows_of(n: int) -> Iterator[tuple[str, float, float, float]]:
    """Yields the name, closed form, mean and standard error of every row."""
    for seats in (3, 4, 5):
        forms = {"volunteers": 1 - 0.5 ** (1 / (seats - 1)), "nobody": 0.5 ** (seats / (seats - 1))}
        columns = sampled(at_once("volunteer", seats), "equilibrium", (volunteered, nobody), n)
        for (name, form), column in zip(forms.items(), columns, strict=True):
            yield f"{name} of {seats}", form, *_mean(column)
        if seats == 3:
            for name in ("dilemma", "traveller", "public_goods"):
                task = at_once(name)
                column = sampled(task, "uniform", (mean_payoff,), n)[0]
                yield f"random {name}", enumerated_mean(task), *_mean(column)


def _mean(column: Sequence[float]) -> tuple[float, float]:
    return fmean(column), pstdev(column) / math.sqrt(len(column))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100_000)
    for name, form, mean, error in rows_of(parser.parse_args().n):
        verdict = "" if abs(mean - form) <= 2 * error else "  outside"
        sys.stdout.write(f"{name:20} closed form {form:8.4f}  mean {mean:8.4f} ± {error:.4f}{verdict}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
