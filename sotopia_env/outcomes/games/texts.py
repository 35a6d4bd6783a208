"""Sentences about a game of choices: its rules, and what it pays to one seat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.games.payoffs import AmountsWorth, CountsWorth, GameWorth, PayoffsWorth
from sotopia_env.outcomes.games.rules import ChoicesRules, Stock

_MOST_OPTIONS = 12
_HISTORY = {
    "partners": "Everybody sees who chose what.",
    "strangers": "Afterwards everybody sees how many chose what, but not who.",
    "none": "Nobody sees afterwards what the others chose.",
}


def rules_text(rules: ChoicesRules, names: Mapping[str, str], worths: Sequence[object]) -> str:
    """Returns the public rules of a game, with everybody's payoffs where they are open."""
    sentences = [
        _options_text(rules, names),
        "Words bind nobody, only moves do: choose one of your options. A choice is final and hidden until all have "
        "chosen.",
        f"{_length_text(rules)} {_HISTORY[rules.history]}" if rules.rounds > 1 else "",
        _order_text(rules, names),
        f"In each round you may choose from your turn {rules.talks + 1} on." if rules.talks else "",
        _contract_text(rules),
        _mediator_text(rules),
        _stock_text(rules.stock),
        _leaving_text(rules, len(names)),
        *[f"Earlier, with others, {names[agent]} chose {', '.join(past)}." for agent, past in rules.records.items()],
        _payoffs_text(rules, names, worths),
    ]
    return " ".join(filter(None, sentences))


def _length_text(rules: ChoicesRules) -> str:
    if rules.ending is None:
        return f"There are {rules.rounds} rounds."
    chance = f"{100 * rules.ending.continues:g} percent"
    return f"After each round there is another one with a probability of {chance}; there are at most {rules.rounds}."


def _leaving_text(rules: ChoicesRules, seats: int) -> str:
    # With two seats the episode ends when one leaves, so nobody is left to choose against.
    if rules.absent and seats > 2:
        return f"Whoever leaves chooses {quote(rules.absent)} from then on."
    return "If anybody leaves, the game is over." if rules.rounds > 1 else ""


def _listed(options: Sequence[str]) -> str:
    if len(options) > _MOST_OPTIONS:
        return f"{options[0]}, {options[1]} and so on up to {options[-1]}"
    return " or ".join(map(quote, options))


def _options_text(rules: ChoicesRules, names: Mapping[str, str]) -> str:
    if not rules.own_options:
        unit = f" ({rules.amounts.unit})" if rules.amounts is not None and rules.amounts.unit else ""
        return f"Each of you chooses {_listed(rules.shared)}{unit}."
    return " ".join(f"{name} chooses {_listed(rules.options_of(agent))}." for agent, name in names.items())


def _order_text(rules: ChoicesRules, names: Mapping[str, str]) -> str:
    if not rules.stages:
        return ""
    stages = [conjunction([names[agent] for agent in stage]) for stage in rules.stages]
    return f"First {', then, having seen that, '.join(stages)}."


def _contract_text(rules: ChoicesRules) -> str:
    if not rules.contract:
        return ""
    return (
        "Before anybody has chosen in a round you can agree on a contract: propose a choice for everybody, accept or "
        "reject an open offer by its number, withdraw your own. Once all have accepted it, it is carried out in all "
        "rounds that are left."
    )


def _mediator_text(rules: ChoicesRules) -> str:
    rule = rules.mediator
    if rule is None:
        return ""
    return (
        f"You may choose {quote(rule.name)}: if everybody does, {quote(rule.together)} is chosen for all of you, "
        f"otherwise {quote(rule.otherwise)} for those who did."
    )


def _stock_text(stock: Stock | None) -> str:
    if stock is None:
        return ""
    capacity = "" if stock.capacity is None else f", up to {stock.capacity:g}"
    what = "is left" if stock.flow == "take" else "is in it"
    parts = [f"There is {'a common stock' if stock.flow == 'take' else 'a common pot'} of {stock.start:g}."]
    parts += [f"After each round what {what} is multiplied by {stock.growth:g}{capacity}."] if stock.growth != 1 else []
    parts += [f"If less than {stock.collapse:g} is left, it is used up for good."] if stock.collapse else []
    parts += ["If you want more than there is, all get a part in proportion."] if stock.flow == "take" else []
    if stock.goal is not None:
        parts.append(f"If it has at least {stock.goal:g} in the end, each of you gets {stock.prize:g}.")
    return " ".join(parts)


def _payoffs_text(rules: ChoicesRules, names: Mapping[str, str], worths: Sequence[object]) -> str:
    games = [worth for worth in worths if isinstance(worth, GameWorth)]
    if rules.payoffs == "own":
        return "What the others get for what you all choose is not known to you."
    if all(worth == games[0] for worth in games):
        return "All of you are paid in the same way."
    texts = [
        f"{name}: {worth_text(worth, agent, names)}" for (agent, name), worth in zip(names.items(), games, strict=True)
    ]
    return " ".join(["What each of you gets:", *texts])


def worth_text(worth: GameWorth, agent: str, names: Mapping[str, str]) -> str:
    """Returns what a round pays to a seat, without a subject: ``in each round 3 for …``."""
    if isinstance(worth, PayoffsWorth):
        others = [name for other, name in names.items() if other != agent]
        text = "; ".join(_row(own, inner, others) for own, inner in worth.payoffs.items())
    elif isinstance(worth, CountsWorth):
        text = "; ".join(
            f"for {quote(own)} {', '.join(f'{value:g} if {number}' for number, value in enumerate(row))}"
            for own, row in worth.counts.items()
        )
        text = f"by the number of others who choose {quote(worth.of)}: {text}"
    else:
        assert isinstance(worth, AmountsWorth)
        constant = [f"{worth.constant:g}"] if worth.constant else []
        text = " plus ".join([*constant, *(_FEATURES[name].format(f"{value:g}") for name, value in worth.per.items())])
    default = f"; {worth.no_choice:g} if not everybody chooses" if worth.no_choice else ""
    return f"in each round {text}{default}."


_FEATURES = {
    "own": "{} times the own amount",
    "others": "{} times the sum of the others' amounts",
    "total": "{} times the sum of all amounts",
    "lowest": "{} times the lowest amount",
    "highest": "{} times the highest amount",
    "below": "{} if the own amount is below every other",
    "above": "{} if the own amount is above every other",
}


def _row(own: str, inner: Any, others: Sequence[str]) -> str:
    """What an own option pays, by the others' choices."""
    if len(others) == 1:
        verb = [f"{others[0]} chooses ", *[""] * len(inner)]
        cells = [f"{v:g} if {name}{quote(option)}" for name, (option, v) in zip(verb, inner.items(), strict=False)]
        return f"for {quote(own)} {', '.join(cells)}"
    return f"for {quote(own)} {', '.join(f'{value}{text}' for text, value in _cells(inner, others, ''))}"


def _cells(table: Any, others: Sequence[str], context: str) -> list[tuple[str, str]]:
    """The others' choices in words, and the value, for every cell."""
    if not others:
        return [(context, f"{table:g}")]
    link = " and " if context else " if "
    return [
        cell
        for option, inner in table.items()
        for cell in _cells(inner, others[1:], f"{context}{link}{others[0]} chooses {quote(option)}")
    ]
