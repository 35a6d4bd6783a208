r"""Sensitivity to profiles.

With :math:`x_{tj}` the value of instance ``j`` of template ``t`` (another set of people), and :math:`s_t` the sample
standard deviation of the :math:`n_t` instances of ``t``,

.. math:: \mathrm{PSI} = \frac{1}{T} \sum_t s_t, \qquad \chi^2_t = \frac{(n_t - 1) s_t^2}{\sigma_0^2}

where :math:`\sigma_0^2` is the population variance of all instances (AgentSense §3.4, D.7). Under the hypothesis that
the instances of ``t`` vary as all do, :math:`\chi^2_t` has :math:`n_t - 1` degrees of freedom, if values are normal;
shares of a few goals are not, so a rejection is a reason to look at a template and no more. The hypothesis is
two-sided: a template is also rejected that varies *less*, and :attr:`Variation.more` tells the two apart.

:math:`\sigma_0^2` also holds how far the templates' means lie apart, which says nothing about people. The more of it
lies there (:func:`between_templates`), the less the test sees a template that varies too much, and the more it rejects
ordinary ones as varying less. Beside it stands the ratio within templates,

.. math:: F_t = \frac{s_t^2}{\sum_{u \ne t} (n_u - 1) s_u^2 / \sum_{u \ne t} (n_u - 1)}

which has an F distribution with :math:`n_t - 1` and :math:`\sum_{u \ne t} (n_u - 1)` degrees of freedom whatever the
means are, if values are normal and vary alike. ``python -m benchmarks sensitivity`` measures what both find.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.reports.intervals import adjusted

ALPHA = 0.05
"""Level of the tests (AgentSense D.7)."""
_NOTHING = 1e-12
"""A variance up to this is rounding."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The tests of one template.

    Attributes:
        template: its id.
        n: instances.
        mean: of their values.
        variance: of their values, with the divisor ``n - 1``.
        chi2: the statistic of the variance against that of all instances.
        p: of ``chi2``, two-sided.
        bonferroni: ``p`` for as many tests as there are templates.
        q: ``p`` adjusted after Benjamini and Hochberg.
        more: whether the template varies more than all instances do.
        ratio: F, the variance over that within the other templates; ``None`` where they do not vary. Above 1 the
            template varies more than they do.
        ratio_p: of ``ratio``, two-sided.
        ratio_q: ``ratio_p`` adjusted as ``q``.
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
        """Whether it varies more than the other templates do within themselves, at the level :data:`ALPHA`."""
        return self.ratio is not None and self.ratio_p is not None and self.ratio > 1 and self.ratio_p < ALPHA


def deviations(instances: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the sample standard deviation of each template with two instances or more; the PSI is their mean."""
    return {template: statistics.stdev(values) for template, values in instances.items() if len(values) > 1}


def between_templates(instances: Mapping[str, Sequence[float]]) -> float | None:
    """Returns the share of the variance of all instances that lies between templates, corrected for its degrees.

    Uncorrected it would grow with the number of templates even if their means were equal (adjusted R²; a correction
    below 0 is 0). ``None`` where nothing varies, or no template has two instances.
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
    """Returns the tests of all templates with two instances or more; none where nothing varies at all.

    Args:
        instances: template to one value for each of its instances.
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
    """F of each template and its degrees of freedom, where the other templates vary within themselves."""
    freedom = {t: len(values) - 1 for t, values in tested.items()}
    squares = {t: freedom[t] * statistics.variance(values) for t, values in tested.items()}
    ratios = {}
    for t in tested:
        others = [u for u in tested if u != t]  # summed afresh: a difference of sums would leave rounding errors
        rest, degrees = sum(squares[u] for u in others), sum(freedom[u] for u in others)
        if degrees and rest / degrees > _NOTHING:
            ratios[t] = (squares[t] / freedom[t] / (rest / degrees), freedom[t], degrees)
    return ratios


def _two_sided(distribution: Any, values: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
    """The two-sided p-value of each statistic, which stands before its degrees of freedom; in one call for speed."""
    columns = list(zip(*values.values(), strict=True))
    tails = zip(distribution.cdf(*columns), distribution.sf(*columns), strict=True) if columns else ()
    return {t: min(1.0, 2 * float(min(tail))) for t, tail in zip(values, tails, strict=True)}


def _adjusted(p: Mapping[str, float]) -> dict[str, float]:
    """The p-values after Benjamini and Hochberg."""
    return {name: q for name, q in zip(p, adjusted(list(p.values())), strict=True) if q is not None}
