r"""Sensitivity to profiles, and agreement of yes and no with the truth.

With :math:`x_{tj}` the value of instance ``j`` of template ``t`` (another set of people), and :math:`s_t` the sample
standard deviation of the :math:`n_t` instances of ``t``,

.. math:: \mathrm{PSI} = \frac{1}{T} \sum_t s_t, \qquad \chi^2_t = \frac{(n_t - 1) s_t^2}{\sigma_0^2}

where :math:`\sigma_0^2` is the population variance of all instances (AgentSense §3.4, D.7). Under the hypothesis that
the instances of ``t`` vary as all do, :math:`\chi^2_t` has :math:`n_t - 1` degrees of freedom, if values are normal;
shares of a few goals are not, so a rejection is a reason to look at a template and no more. The hypothesis is
two-sided: a template is also rejected that varies *less*, and :attr:`Variation.more` tells the two apart. Cohen's
:math:`\kappa = (p_o - p_e) / (1 - p_e)` is the agreement of two raters beyond that of their marginals.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALPHA = 0.05
"""Level of the tests (AgentSense D.7)."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The χ² test of one template.

    Attributes:
        template: its id.
        n: instances.
        mean: of their values.
        variance: of their values, with the divisor ``n - 1``.
        chi2: the statistic.
        p: two-sided.
        bonferroni: ``p`` for as many tests as there are templates.
        q: ``p`` adjusted after Benjamini and Hochberg.
        more: whether the template varies more than all instances do.
    """

    template: str
    n: int
    mean: float
    variance: float
    chi2: float
    p: float
    bonferroni: float
    q: float
    more: bool


def deviations(instances: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the sample standard deviation of each template with two instances or more; the PSI is their mean."""
    return {template: statistics.stdev(values) for template, values in instances.items() if len(values) > 1}


def variation_tests(instances: Mapping[str, Sequence[float]]) -> tuple[Variation, ...]:
    """Returns the tests of all templates with two instances or more; none where nothing varies at all.

    Args:
        instances: template to one value for each of its instances.
    """
    everything = [value for values in instances.values() for value in values]
    tested = {template: values for template, values in instances.items() if len(values) > 1}
    population = statistics.pvariance(everything) if tested else 0.0
    if population <= 1e-12:  # no variation beyond rounding
        return ()
    from scipy import stats

    numbers = {t: (len(v) - 1) * statistics.variance(v) / population for t, v in tested.items()}
    tails = {t: float(stats.chi2.cdf(number, len(tested[t]) - 1)) for t, number in numbers.items()}
    p = {t: min(1.0, 2 * min(tail, 1 - tail)) for t, tail in tails.items()}
    q = dict(zip(p, stats.false_discovery_control(list(p.values()), method="bh").tolist(), strict=True))
    return tuple(
        Variation(
            template=t,
            n=len(values),
            mean=statistics.fmean(values),
            variance=statistics.variance(values),
            chi2=numbers[t],
            p=p[t],
            bonferroni=min(1.0, p[t] * len(p)),
            q=q[t],
            more=statistics.variance(values) > population,
        )
        for t, values in tested.items()
    )


def cohens_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Returns κ of two raters; ``None`` without pairs, or where both always say the same one thing."""
    if not pairs:
        return None
    observed = sum(first == second for first, second in pairs) / len(pairs)
    yes = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
    expected = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return None if expected == 1 else (observed - expected) / (1 - expected)
