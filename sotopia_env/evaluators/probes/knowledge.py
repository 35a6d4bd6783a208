"""Skill of beliefs: how much nearer to the truth they are than what a seat's briefing alone gives.

Source of the scores: Brier (1950); of the correction for shares of few answers: Ferro (2014), "fair" scores of
ensembles; of skill: Murphy (1973).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from sotopia_env.evaluators.probes.asking import SeatQuestions
from sotopia_env.outcomes.facts import Distribution, Values
from sotopia_env.world.answers import Belief

LEAST_LOG = -20.0
"""The least log score of an exact belief: that of a probability of e⁻²⁰, because that of 0 has no limit."""


def brier(probabilities: Distribution, truth: str, samples: int = 0) -> float:
    """Returns the Brier score, the sum of squared differences from the truth: 0 for certainty, at most 2.

    A uniform belief over K options gets 1 - 1/K. Shares of ``samples`` answers get the score that is expected of the
    probabilities behind them, not a worse one because they scatter.

    Args:
        probabilities: by option.
        truth: the true option.
        samples: the number of answers, at least 2; 0 for exact probabilities.
    """
    score = sum((share - (option == truth)) ** 2 for option, share in probabilities.items())
    if samples:
        score -= sum(share * (1 - share) for share in probabilities.values()) / (samples - 1)
    return max(0.0, score)  # rounding could leave -1e-17


def log_score(probabilities: Distribution, truth: str, samples: int = 0) -> float:
    """Returns the natural logarithm of the probability of the truth, at least :data:`LEAST_LOG`.

    A uniform belief over K options gets -ln K. To shares of ``samples`` answers, one answer per option is added.
    """
    share = probabilities[truth]
    if samples:
        share = (samples * share + 1) / (samples + len(probabilities))
    return max(LEAST_LOG, math.log(share)) if share else LEAST_LOG


@dataclass(frozen=True, slots=True)
class Skill:
    """The scores of a seat's answers.

    Attributes:
        questions: the number of questions.
        answers: the number that were answered; the other attributes are of these.
        brier: the mean Brier score.
        baseline: the mean Brier score of the belief that the briefing alone gives.
        log: the mean log score.
        missing: the reason of the first missing answer; empty if all questions were answered.
    """

    questions: int
    answers: int
    brier: float
    baseline: float
    log: float
    missing: str = ""

    @property
    def value(self) -> float:
        """1 - score/baseline: 1 for certain knowledge, 0 for the briefing's belief, negative for a worse one."""
        return 1 - self.brier / self.baseline

    def __str__(self) -> str:
        """The numbers that the skill is made of."""
        text = f"{self.answers} of {self.questions} questions answered"
        if self.answers:
            text += (
                f", Brier score {self.brier:.3f} (by the briefing alone {self.baseline:.3f}), log score {self.log:.3f}"
            )
        return f"{text}; {self.missing}" if self.missing else text


def skill(answers: Iterable[Belief], names: Iterable[str], questions: SeatQuestions, truth: Values) -> Skill | None:
    """Returns the skill of one seat's answers at one moment on the variables ``names``; ``None`` if there are none.

    Args:
        answers: the answers of one seat at one moment.
        names: names of variables that do not follow from its briefing.
        questions: the seat's questions, with its prior.
        truth: the values of all variables.
    """
    chosen = set(names)
    beliefs = [answer for answer in answers if answer.variable in chosen and not answer.control]
    if not beliefs:
        return None
    scores, priors, logs = [], [], []
    for belief in beliefs:
        if belief.probabilities is not None:
            value = truth[belief.variable]
            scores.append(brier(belief.probabilities, value, belief.samples))
            priors.append(brier(questions.prior[belief.variable], value))
            logs.append(log_score(belief.probabilities, value, belief.samples))
    missing = next((belief.reason for belief in beliefs if belief.probabilities is None), "")
    if not scores:
        return Skill(len(beliefs), 0, 0.0, 1.0, 0.0, missing)
    return Skill(len(beliefs), len(scores), fmean(scores), fmean(priors), fmean(logs), missing)
