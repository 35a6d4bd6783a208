"""Nominal against measured: how often intervals cover the truth, and how often tests and ranks find what is not there.

Every figure calls the functions that reports call, on data whose truth is known. Figures are shares of ``sets``
simulated data sets; nominal is .95 for coverage and .05 for errors. ``python -m benchmarks.coverage`` exits with 1 if
a figure is beyond its bound.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from benchmarks.measure import Figure
from sotopia_env.arena.rating import rate
from sotopia_env.arena.rows import CardRow
from sotopia_env.people.between_annotators import annotator_agreement, bin_of, randolph_kappa
from sotopia_env.people.correlations import correlations, mean_with_interval
from sotopia_env.people.krippendorff import coincidences, ordinal_alpha
from sotopia_env.reports.agreement import Correlation, pearson, spearman
from sotopia_env.reports.differences import ComparedSeats, differences, metric_ranking, ranking, told_apart
from sotopia_env.reports.intervals import UNBOUNDED, contrast_estimate, difference_estimate, estimate
from sotopia_env.reports.seat_results import SeatResult
from sotopia_env.reports.seats.crossed import crossed_estimate
from sotopia_env.reports.seats.units import averaged, seat_mean

SETS = 1000
LEAST_COVERAGE, MOST_REJECTED, MOST_WRONG = 0.93, 0.065, 0.06
UNIT = (0.0, 1.0)


def rate_coverage(truth: float, scenarios: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often the interval of a rate covers it; one success or failure for each scenario."""
    generator, labels, covered = np.random.default_rng(seed), [str(i) for i in range(scenarios)], 0
    for _ in range(sets):
        values = (generator.random(scenarios) < truth).astype(float)
        result = estimate(values.tolist(), labels, UNIT)
        covered += result.low is not None and result.high is not None and result.low <= truth <= result.high
    return covered / sets


def lowest_rate_coverage(scenarios: int) -> float:
    """Returns the lowest coverage of a rate, over true rates from .5 to .9999; exact, by all possible outcomes."""
    labels = [str(i) for i in range(scenarios)]
    truths = np.concatenate([np.linspace(0.5, 0.99, 99), np.linspace(0.99, 0.9999, 100)])
    covered = np.zeros_like(truths)
    for failures in range(scenarios + 1):
        result = estimate([0.0] * failures + [1.0] * (scenarios - failures), labels, UNIT)
        ways = math.comb(scenarios, failures) * (1 - truths) ** failures * truths ** (scenarios - failures)
        covered += ways * ((result.low or 0.0) <= truths) * (truths <= (result.high or 0.0))
    return float(covered.min())


def end_coverage(share: float, scenarios: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often the interval of a mean from 0 to 10 covers it: 10 but in ``share`` of the scenarios."""
    generator, labels, covered = np.random.default_rng(seed), [str(i) for i in range(scenarios)], 0
    for _ in range(sets):
        uniform = generator.uniform(0, 10, scenarios)
        result = estimate(np.where(generator.random(scenarios) < share, uniform, 10.0).tolist(), labels, (0, 10))
        covered += result.low is not None and result.high is not None and result.low <= 10 - 5 * share <= result.high
    return covered / sets


def crossed_coverage(people: int, scenarios: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often the interval of a mean of people × scenarios covers it; both have effects of variance 1."""
    generator, covered = np.random.default_rng(seed), 0
    of_person, of_scenario = (index.ravel() for index in np.indices((people, scenarios)))
    labels = list(map(str, of_scenario)), [(str(person),) for person in of_person]
    for _ in range(sets):
        values = generator.normal(size=people)[of_person] + generator.normal(size=scenarios)[of_scenario]
        values += generator.normal(size=people * scenarios)
        result = crossed_estimate([(1.0, values.tolist(), *labels)])
        covered += result.low is not None and result.high is not None and result.low <= 0 <= result.high
    return covered / sets


def people_with_people_coverage(
    people: int, scenarios: int, each: int, sets: int = SETS, seed: int = 0, *, seats: int = 2, busy: float = 0.0
) -> float:
    """Returns how often the interval of a mean covers it, where people play ``each`` times with people at random.

    A person has the same effect, of variance 1, on all seats of an episode: as on an agreement or its efficiency. In a
    share of ``busy`` of the episodes, one person replaces another.
    """
    generator, covered = np.random.default_rng(seed), 0
    for _ in range(sets):
        effect, difficulty, rows = generator.normal(size=people), generator.normal(0, 0.5, scenarios), []
        for episode in range(each):
            for group in generator.permutation(people).reshape(-1, seats).tolist():
                if 0 not in group and generator.random() < busy:
                    group[0] = 0
                scenario, joint = int(generator.integers(scenarios)), generator.normal(0, 0.5)
                for seat in range(seats):
                    value = effect[group].sum() + difficulty[scenario] + joint + generator.normal(0, 0.5)
                    row = seat_result("human", scenario, episode, float(value), False)
                    codes = tuple(sorted(map(str, group)))
                    rows.append(replace(row, seat=seat, people=codes, participant=str(group[seat])))
        result = seat_mean(averaged(rows, "goal"), "goal", UNBOUNDED)
        covered += result.low is not None and result.high is not None and result.low <= 0 <= result.high
    return covered / sets


def lognormal_coverage(scenarios: int, sets: int = SETS, seed: int = 0) -> tuple[float, float]:
    """Returns how often intervals cover a mean, and the difference of two, of payoffs with lognormal scenario effects.

    The standard deviation of the logarithm is 1, and the effects of the two policies are independent.
    """
    generator, labels, covered = np.random.default_rng(seed), [str(i) for i in range(scenarios)], np.zeros(2)
    for _ in range(sets):
        one, other = generator.lognormal(size=(2, scenarios))
        results = estimate(one.tolist(), labels), difference_estimate((one - other).tolist(), labels)
        for index, (result, truth) in enumerate(zip(results, (math.exp(0.5), 0.0), strict=True)):
            covered[index] += result.low is not None and result.high is not None and result.low <= truth <= result.high
    return float(covered[0]) / sets, float(covered[1]) / sets


def rare_coverage(share: float, scenarios: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often the interval of a mean from 0 to 10 covers it: about 9, but 0 in ``share`` of the scenarios."""
    generator, labels, covered = np.random.default_rng(seed), [str(i) for i in range(scenarios)], 0
    for _ in range(sets):
        usual = np.clip(generator.normal(9, 0.3, scenarios), 0, 10)
        result = estimate(np.where(generator.random(scenarios) < share, 0.0, usual).tolist(), labels, (0, 10))
        covered += result.low is not None and result.high is not None and result.low <= 9 * (1 - share) <= result.high
    return covered / sets


def agreement_coverage(scenarios: int, sets: int = SETS, seed: int = 0) -> Mapping[str, float]:
    """Returns how often intervals of the agreement of two annotators, and of a judge with them, cover the truth.

    Three seats of a scenario resemble each other; the judge is one point more lenient. The truth is that of many
    scenarios, with other annotators of the same habits.
    """
    people, _, human, judge = _ratings(np.random.default_rng(99), 4000)
    scores, bins = list(people.values()), [[bin_of(value, (0, 10), 5) for value in own] for own in people.values()]
    truth = {
        "alpha": ordinal_alpha(coincidences(scores, range(11))),
        "kappa": randolph_kappa(bins, 5),
        "r": _value(pearson(judge, human)),
        "rho": _value(spearman(judge, human)),
        "judge - human": float(np.mean(judge) - np.mean(human)),
    }
    covered, generator = Counter[str](), np.random.default_rng(seed)
    for _ in range(sets):
        people, labels, human, judge = _ratings(generator, scenarios)
        seats = {(str(i), "agent_0"): {"goal": own} for i, own in people.items()}
        row = annotator_agreement(seats, {"goal": (0, 10)}, {str(i): label for i, label in enumerate(labels)})[0]
        r, rho = correlations(judge, human, labels)
        gaps = [one - other for one, other in zip(judge, human, strict=True)]
        gap = mean_with_interval(gaps, labels, (-10, 10), "")
        results = {"alpha": row.alpha, "kappa": row.at(5).kappa, "r": r, "rho": rho, "judge - human": gap}
        for name, item in results.items():
            # No interval claims nothing, as one that covers everything.
            covered[name] += item.low is None or item.high is None or item.low <= (truth[name] or 0.0) <= item.high
    return {name: covered[name] / sets for name in truth}


def _value(correlation: Correlation | None) -> float:
    return math.nan if correlation is None else correlation.value


def _ratings(
    generator: np.random.Generator, scenarios: int
) -> tuple[dict[int, list[float]], list[str], list[float], list[float]]:
    """The scores of two annotators by seat, the scenarios of seats, the annotators' means and a judge's scores."""
    scenario = np.repeat(np.arange(scenarios), 3)
    worth = 4 + generator.normal(size=scenarios)[scenario] + generator.normal(size=len(scenario))
    scores = np.clip(np.rint(worth + generator.normal(0, 1.5, (2, len(scenario)))), 0, 10)
    judge = np.clip(np.rint(worth + 1 + generator.normal(size=len(scenario))), 0, 10)
    people = dict(enumerate(scores.T.tolist()))
    return people, [str(i) for i in scenario], scores.mean(axis=0).tolist(), judge.tolist()


def permuted_tags(scenarios: int, tagged: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often a tag at random is found to matter, for shares of which many are 0 or 1."""
    generator, rejected = np.random.default_rng(seed), 0
    shares = generator.beta(0.6, 0.3, size=scenarios).round(1)
    for _ in range(sets):
        values = generator.permutation(shares).tolist()
        labels = [str(i) for i in range(scenarios)]
        groups = [(1.0, values[:tagged], labels[:tagged]), (-1.0, values[tagged:], labels[tagged:])]
        p = contrast_estimate(groups, UNIT).p
        rejected += p is not None and p < 0.05
    return rejected / sets


def wrong_ranks(policies: int, scenarios: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often any of several equal policies has a rank of its own."""
    generator, wrong = np.random.default_rng(seed), 0
    labels = [str(i) for i in range(scenarios)]
    for _ in range(sets):
        values = np.clip(5 + generator.normal(size=scenarios) + generator.normal(size=(policies, scenarios)), 0, 10)
        means = {str(i): estimate(own.tolist(), labels, (0, 10)) for i, own in enumerate(values)}
        gaps = {
            (str(i), str(j)): difference_estimate((values[i] - values[j]).tolist(), labels, (0, 10))
            for i, j in itertools.combinations(range(policies), 2)
        }
        wrong += any(len(rank.ties) < policies - 1 for rank in ranking(means, told_apart(gaps)))
    return wrong / sets


def wrong_ranks_beside_failures(share: float, repeats: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often any of three equal policies has a rank of its own, if one fails in its worst episodes.

    From the rows of 20 scenarios to the ranks, as in a report.

    Args:
        share: the share of its episodes in which the policy fails.
        repeats: the number of episodes of each seat.
        sets: the number of simulated comparisons.
        seed: the seed of the generator.
    """
    generator, wrong, names, size = np.random.default_rng(seed), 0, ("a", "b", "c"), (3, 20, repeats)
    for _ in range(sets):
        scenario, casting = generator.normal(0, 1.5, (1, 20, 1)), generator.normal(0, 0.5, (3, 20, 1))
        values = np.clip(5 + scenario + casting + generator.normal(0, 1.5, size), 0, 10)
        worst = np.quantile(values[0], share)
        rows = [
            seat_result(names[i], j, k, values[i, j, k], i == 0 and values[i, j, k] < worst)
            for i, j, k in np.ndindex(size)
        ]
        seats = ComparedSeats.of(rows, names, "goal", (0, 10))
        group = seats.description.policies
        means = {name: seat_mean(seats.compared(name), "goal", (0, 10)) for name in group}
        ranks = metric_ranking(means, differences([seats], names), "goal")
        wrong += any(len(rank.ties) < len(group) - 1 for rank in ranks)
    return wrong / sets


def arena_coverage(lacking: int, sets: int = SETS, seed: int = 0) -> float:
    """Returns how often the interval of an arena's mean payoff covers it, of a policy without ``lacking`` opponents.

    Three policies and three opponents in 8 tasks, in which policies and opponents differ; all are equal on average.
    """
    generator, covered, size = np.random.default_rng(seed), 0, (3, 3, 8)
    for _ in range(sets):
        opponents, tasks = generator.normal(0, 0.3, (1, 3, 1)), generator.normal(0, 0.3, (1, 1, 8))
        payoffs = tasks - opponents + generator.normal(0, 0.25, (3, 1, 8)) + generator.normal(0, 0.2, (1, 3, 8))
        payoffs = payoffs + generator.normal(0, 0.3, size)
        rows = [
            CardRow(key=f"{p}-{o}-{t}", task=f"t{t}", seat=0, first=True, seed=0, policy=f"p{p}", opponent=f"o{o}",
                    payoff=float(payoffs[p, o, t]), opponent_payoff=None)
            for p, o, t in np.ndindex(size) if p or o >= lacking
        ]  # fmt: skip
        mean = rate(rows).means["p0"]
        covered += mean.low is not None and mean.high is not None and mean.low <= -opponents.mean() <= mean.high
    return covered / sets


def seat_result(policy: str, scenario: int, repeat: int, value: float, failed: bool) -> SeatResult:
    """Returns the result of a policy in the first of two seats, beside a partner that all policies meet."""
    name = f"s{scenario}"
    return SeatResult(
        key=f"{policy} {name} {repeat}", policy=policy, partner="partner",
        task=name, content=name, rules="{}", scenario=name, vignette=name, seed=repeat,
        seat=0, seats=2, policies=((policy, "{}"), ("partner", "{}")), first=True, by_order=True, family=None,
        values={} if failed else {"goal": value}, unscored="failed" if failed else None, failed=failed,
    )  # fmt: skip


def figures(sets: int = SETS) -> Iterator[Figure]:
    """Yields the figures beside their bounds."""
    for truth, scenarios in itertools.product((0.5, 0.8, 0.95, 0.99), (4, 8, 20, 50)):
        covered = rate_coverage(truth, scenarios, sets)
        yield Figure(f"rate {truth} covered, {scenarios} scenarios", covered, "of .95", LEAST_COVERAGE, False)
    for scenarios in (4, 8, 12, 20, 30, 50, 100):
        lowest = lowest_rate_coverage(scenarios)
        yield Figure(f"rate covered where it is least, {scenarios} scenarios", lowest, "of .95", 0.94, False)
    for share, scenarios in itertools.product((0.01, 0.05, 0.2), (8, 20, 50)):
        covered = end_coverage(share, scenarios, sets)
        yield Figure(
            f"mean covered, {share:.0%} of {scenarios} below the end", covered, "of .95", LEAST_COVERAGE, False
        )
    for people, scenarios in ((5, 8), (8, 4), (20, 10)):
        covered = crossed_coverage(people, scenarios, sets)
        yield Figure(f"mean covered, {people} people × {scenarios}", covered, "of .95", LEAST_COVERAGE, False)
    for people, scenarios, each, seats, busy in (
        (20, 8, 3, 2, 0.0),
        (40, 20, 4, 2, 0.0),
        (40, 20, 4, 2, 0.5),
        (40, 20, 5, 5, 0.0),
    ):
        covered = people_with_people_coverage(people, scenarios, each, sets // 2, seats=seats, busy=busy)
        design = f"{people} people × {scenarios}, {seats} an episode, {each} each, one in {busy:.0%}"
        yield Figure(f"mean covered, {design}", covered, "of .95", LEAST_COVERAGE, False)
    for lacking in (0, 1, 2):
        covered = arena_coverage(lacking, sets // 2)
        yield Figure(f"mean payoff covered, without {lacking} of 3 opponents", covered, "of .95", LEAST_COVERAGE, False)
    # No interval can foresee what the scenarios do not contain; the page and every report name these figures.
    for share, scenarios, least in ((0.03, 20, 0.44), (0.1, 8, 0.5), (0.1, 50, 0.92)):
        covered = rare_coverage(share, scenarios, sets)
        yield Figure(f"mean covered, 0 in {share:.0%} of {scenarios}", covered, "of .95", least, False)
    for scenarios in (4, 8, 20, 50):
        mean, difference = lognormal_coverage(scenarios, sets)
        # The page and every report say that these means are covered in .83 to .90 of cases.
        yield Figure(f"lognormal mean covered, {scenarios} scenarios", mean, "of .95", 0.8, False)
        yield Figure(
            f"lognormal difference covered, {scenarios} scenarios", difference, "of .95", LEAST_COVERAGE, False
        )
    for scenarios in (6, 20):
        for name, covered in agreement_coverage(scenarios, sets // 4).items():
            yield Figure(f"{name} covered, {scenarios} scenarios", covered, "of .95", 0.9, False)
    for scenarios, tagged in ((40, 4), (40, 20), (200, 6)):
        rejected = permuted_tags(scenarios, tagged, sets)
        yield Figure(f"tag at random found, {tagged} of {scenarios} scenarios", rejected, "of .05", MOST_REJECTED)
    for policies in (3, 5, 8):
        wrong = wrong_ranks(policies, 20, sets // 2)
        yield Figure(f"wrong rank, {policies} equal policies", wrong, "of .05", MOST_WRONG)
    for share, repeats in itertools.product((0.04, 0.2), (1, 4)):
        wrong = wrong_ranks_beside_failures(share, repeats, sets // 2)
        yield Figure(f"wrong rank, worst {share:.0%} of one fail, {repeats} repeats", wrong, "of .05", MOST_WRONG)


def main() -> None:
    """Prints the figures, and exits with 1 if one is beyond its bound."""
    missed = 0
    for figure in figures():
        print(figure, flush=True)
        missed += not figure.is_met
    sys.exit(int(missed > 0))


if __name__ == "__main__":
    main()
