"""Power and level of the tests for sensitivity to profiles, depending on the distance between the templates' means.

Values are normal. Of forty templates of five instances one varies within itself three times as much as the others; the
templates' own means spread by ``between``. The figures are shares of simulated sets, so their standard error is at most
0.5 / √2000 = 0.011.
"""

from __future__ import annotations

import random

from benchmarks.measure import Figure
from sotopia_env.interviews.sensitivity import variation_tests

TEMPLATES, INSTANCES = 40, 5
WITHIN, WILD = 0.1, 0.3
"""Standard deviation within a template, and within the one that varies too much."""
SETS = 2000


def rejections(between: float, sets: int = SETS, seed: int = 0) -> tuple[float, float, float, float]:
    """Returns how often each test rejects the template that varies too much, and how often an ordinary one.

    Args:
        between: the standard deviation of the templates' means.
        sets: the number of sets that are drawn.
        seed: the seed of the draws.

    Returns:
        The share of sets in which χ² finds the template, that in which F does, and the shares in which each of them
        rejects an ordinary template, in whichever direction.
    """
    rng = random.Random(seed)
    counts = [0, 0, 0, 0]
    for _ in range(sets):
        means = [rng.gauss(0, between) for _ in range(TEMPLATES)]
        deviations = [WILD, *[WITHIN] * (TEMPLATES - 1)]
        values = {
            str(number): [rng.gauss(mean, deviation) for _ in range(INSTANCES)]
            for number, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
        }
        # The first template is the wild one; of the ordinary ones, one per set keeps the sets independent.
        wild, ordinary, *_ = variation_tests(values)
        flags = (wild.is_rejected, wild.is_rejected_within, ordinary.p < 0.05, (ordinary.ratio_p or 0) < 0.05)
        counts = [count + flag for count, flag in zip(counts, flags, strict=True)]
    chi2, ratio, chi2_level, ratio_level = (count / sets for count in counts)
    return chi2, ratio, chi2_level, ratio_level


def figures() -> list[Figure]:
    """Power of both tests and rejections of ordinary templates, without and with a spread between templates."""
    lines = []
    for between in (0.0, 0.1, 0.25):
        chi2, ratio, chi2_level, ratio_level = rejections(between)
        where = f"templates' means with sd {between:g}"
        lines += [
            Figure(f"chi2 finds the template, {where}", chi2, "of sets", 0.8, at_most=False),
            Figure(f"F within finds it, {where}", ratio, "of sets", 0.8, at_most=False),
            Figure(f"chi2 rejects an ordinary one, {where}", chi2_level, "of sets", 0.06),
            Figure(f"F within rejects an ordinary one, {where}", ratio_level, "of sets", 0.06),
        ]
    return lines
