r"""Sensitivity of results to the characters' profiles: the PSI, and tests for templates that vary unusually much.

An instance of a template is a scenario with one set of people. With :math:`x_{tj}` the value of instance ``j`` of
template ``t``, and :math:`s_t` the sample standard deviation of the :math:`n_t` instances of ``t``,

.. math:: \mathrm{PSI} = \frac{1}{T} \sum_t s_t, \qquad \chi^2_t = \frac{(n_t - 1) s_t^2}{\sigma_0^2}

where :math:`\sigma_0^2` is the population variance of all instances (AgentSense §3.4, D.7). Under the hypothesis that
the instances of ``t`` vary like all instances, and if values are normal, :math:`\chi^2_t` has :math:`n_t - 1` degrees
of freedom. Shares of a few goals are not normal, so a rejection is only a reason to inspect a template. The test is
two-sided: it also rejects a template that varies *less*, and :attr:`Variation.more` distinguishes the two.

:math:`\sigma_0^2` also contains the variance between the templates' means, which does not depend on people. The larger
its share (:func:`between_templates`), the less power the test has to detect a template that varies too much, and the
more often it rejects ordinary ones as varying less. The second statistic is therefore the ratio within templates,

.. math:: F_t = \frac{s_t^2}{\sum_{u \ne t} (n_u - 1) s_u^2 / \sum_{u \ne t} (n_u - 1)}

which has an F distribution with :math:`n_t - 1` and :math:`\sum_{u \ne t} (n_u - 1)` degrees of freedom for any means,
if values are normal with equal variances. ``python -m benchmarks sensitivity`` measures the power of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.reports.intervals import adjusted

ALPHA = 0.05
"""The significance level of the tests (AgentSense D.7)."""
_NOTHING = 1e-12
"""A variance up to this value is a rounding error."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The tests of one template.

    Attributes:
        template: the id of the template.
        n: the number of instances.
        mean: the mean of the instances' values.
        variance: the sample variance of the values (divisor ``n - 1``).
        chi2: the statistic of the variance against that of all instances.
        p: the two-sided p-value of ``chi2``.
        bonferroni: ``p`` with Bonferroni's correction for the number of templates.
        q: ``p`` adjusted after Benjamini and Hochberg.
        more: whether the template varies more than all instances do.
        ratio: F, the variance divided by that within the other templates; ``None`` if those do not vary. Above 1, the
            template varies more than they do.
        ratio_p: the two-sided p-value of ``ratio``.
        ratio_q: ``ratio_p`` adjusted after Benjamini and Hochberg.
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
    ratio: float | None
    ratio_p: float | None
    ratio_q: float | None

    @property
    def is_rejected(self) -> bool:
        """Whether the template varies more than all instances do, at the level :data:`ALPHA`."""
        return self.more and self.p < ALPHA

    @property
    def is_rejected_within(self) -> bool:
        """Whether the template varies more than the other templates do within themselves, at level :data:`ALPHA`."""
        return self.ratio is not None and self.ratio_p is not None and self.ratio > 1 and self.ratio_p < ALPHA


def deviations(instances: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the sample standard deviation of each template with at least two instances; the PSI is their mean."""
    return {template: statistics.stdev(values) for template, values in instances.items() if len(values) > 1}


def between_templates(instances: Mapping[str, Sequence[float]]) -> float | None:
    """Returns the share of the variance of all instances that lies between templates, as adjusted R², at least 0.

    Without the adjustment for degrees of freedom, the share would grow with the number of templates even if their means
    were equal. ``None`` if the values do not vary, or no template has two instances.
    """
    everything = [value for values in instances.values() for value in values]
    freedom = len(everything) - len(instances)
    if not freedom or statistics.pvariance(everything) <= _NOTHING:
        return None
    within = sum((len(values) - 1) * variance for values, variance in _variances(instances)) / freedom
    return max(0.0, 1 - within / statistics.variance(everything))


def _variances(instances: Mapping[str, Sequence[float]]) -> list[tuple[Sequence[float], float]]:
    return [(values, statistics.variance(values)) for values in instances.values() if len(values) > 1]


def variation_tests(instances: Mapping[str, Sequence[float]]) -> tuple[Variation, ...]:
    """Returns the tests of all templates with at least two instances; empty if the values do not vary.

    Args:
        instances: the values of each template, one for each instance.
    """
    everything = [value for values in instances.values() for value in values]
    tested = {template: values for template, values in instances.items() if len(values) > 1}
    population = statistics.pvariance(everything) if tested else 0.0
    if population <= _NOTHING:
        return ()
    from scipy import stats

    numbers = {t: (len(v) - 1) * statistics.variance(v) / population for t, v in tested.items()}
    p = _two_sided(stats.chi2, {t: (number, len(tested[t]) - 1) for t, number in numbers.items()})
    q = _adjusted(p)
    ratios = _ratios(tested)
    ratio_p = _two_sided(stats.f, ratios)
    ratio_q = _adjusted(ratio_p)
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
            ratio=ratios[t][0] if t in ratios else None,
            ratio_p=ratio_p.get(t),
            ratio_q=ratio_q.get(t),
        )
        for t, values in tested.items()
    )


def _ratios(tested: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, int, int]]:
    """F of each template and its degrees of freedom, if the other templates vary within themselves."""
    freedom = {t: len(values) - 1 for t, values in tested.items()}
    squares = {t: freedom[t] * statistics.variance(values) for t, values in tested.items()}
    ratios = {}
    for t in tested:
        # Summed anew for each template: subtracting it from a total would leave rounding errors.
        others = [u for u in tested if u != t]
        rest, degrees = sum(squares[u] for u in others), sum(freedom[u] for u in others)
        if degrees and rest / degrees > _NOTHING:
            ratios[t] = (squares[t] / freedom[t] / (rest / degrees), freedom[t], degrees)
    return ratios


def _two_sided(distribution: Any, values: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
    """The two-sided p-value of each statistic.

    Args:
        distribution: a distribution of ``scipy.stats``.
        values: tuples of a statistic and its degrees of freedom.
    """
    # One call for all statistics, because scipy takes long for each call.
    columns = list(zip(*values.values(), strict=True))
    tails = zip(distribution.cdf(*columns), distribution.sf(*columns), strict=True) if columns else ()
    return {t: min(1.0, 2 * float(min(tail))) for t, tail in zip(values, tails, strict=True)}


def _adjusted(p: Mapping[str, float]) -> dict[str, float]:
    """The p-values adjusted after Benjamini and Hochberg."""
    return {name: q for name, q in zip(p, adjusted(list(p.values())), strict=True) if q is not None}
