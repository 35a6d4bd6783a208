"""A scenario on three lines, for lists of which somebody chooses one: how it begins, who it is for, and what counts."""

from __future__ import annotations

from dataclasses import dataclass

from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.specification import AgreementRules, BallotRules, OutcomeSpec
from sotopia_env.world.scenario import Scenario

_ENDS = (". ", "! ", "? ", "。", "！", "？")
_SHORTEST, _LONGEST = 30, 220
"""Characters of a first sentence: a shorter one is an abbreviation or too little, and a longer one is cut at a word."""
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Synopsis:
    """The lines of a scenario in a list.

    Attributes:
        sentence: the first sentence of its context.
        seats: the number of its seats.
        counts: what decides its result, such as ``an agreement on price and date``.
    """

    sentence: str
    seats: int
    counts: str


def synopsis(scenario: Scenario) -> Synopsis:
    """Returns the synopsis of a scenario; it contains nothing that only one seat may know."""
    return Synopsis(first_sentence(scenario.context), len(scenario.seats), _counts(scenario))


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text on one line, cut at a word if it is too long for a list."""
    line = " ".join(text.split())
    ends = [line.find(end, _SHORTEST) + 1 for end in _ENDS]
    sentence = line[: min((end for end in ends if end > 0), default=len(line))]
    if len(sentence) <= _LONGEST:
        return sentence
    return sentence[:_LONGEST].rpartition(" ")[0] + " …"


def _counts(scenario: Scenario) -> str:
    formal = [] if scenario.outcome is None else [_of_outcome(scenario.outcome)]
    judged = [dimension.name for dimension in scenario.dimensions]
    own = [f"its own dimensions {_named(judged)}"] if judged else []
    return "; ".join([*formal, *own]) or "what a judge says about each seat's goals"


def _of_outcome(spec: OutcomeSpec) -> str:
    if isinstance(spec.protocol, AgreementRules):
        return f"an agreement on {_named([issue.name for issue in spec.issues])}"
    if isinstance(spec.protocol, BallotRules):
        return f"a vote for {_named(list(spec.protocol.options), 'or')}"
    if spec.protocol.kind == "roles":
        return f"the victory of {_named(list(spec.protocol.options), 'or')}"
    if spec.protocol.kind == "choices":
        most = "" if spec.protocol.ending is None else "up to "
        times = "one choice" if spec.protocol.rounds == 1 else f"{most}{spec.protocol.rounds} rounds of choices"
        return f"{times} of every seat"
    return f"the right answer, claimed by {'every seat' if spec.protocol.needs == 'all' else 'one seat'}"


def _named(names: list[str], word: str = "and") -> str:
    """A list of names, of which the first few are named."""
    rest = len(names) - _MOST_NAMES
    parts = names if rest <= 1 else [*names[:_MOST_NAMES], f"{rest} more"]
    return conjunction(parts) if word == "and" else f" {word} ".join([", ".join(parts[:-1]), parts[-1]])
