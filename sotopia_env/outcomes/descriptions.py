"""Plain sentences about a verified task: its public rules, and one seat's own worth."""

from __future__ import annotations

from collections import Counter

from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.amounts import conjunction, json_number, read_amount
from sotopia_env.outcomes.facts import Deal, PublicVariable, SeatFacts
from sotopia_env.outcomes.games.payoffs import GameWorth
from sotopia_env.outcomes.issues import ChoiceIssue, ItemsIssue, NumberIssue, Seats
from sotopia_env.outcomes.space import OutcomeSpace
from sotopia_env.outcomes.specification import AgreementRules, BallotRules, ClaimsRules, OutcomeSpec, Quorum
from sotopia_env.outcomes.variants import protocol_variant
from sotopia_env.outcomes.worth import (
    AdditiveWorth,
    BallotWorth,
    ClaimsWorth,
    FactsWorth,
    TableWorth,
    Worth,
    WorthTable,
    rungs_text,
)

# Whole numbers below this are exact as floats.
_EXACT = 10**15
MOST_NAMES = 12
"""The maximum number of seats that a sentence names."""


def describe_space(spec: OutcomeSpec, names: Seats) -> str:
    """Returns the public part in plain sentences: the issues, the moves, and the rule that decides the outcome."""
    rules = spec.protocol
    # A variant of another package adds one sentence on how it differs from its kind.
    rule = protocol_variant(rules.variant, rules.kind).rule if rules.variant else ""
    if isinstance(rules, AgreementRules):
        text = f"{_issues_text(spec, names)} {_agreement_text(rules, names)}"
    elif rules.kind == "choices":
        from sotopia_env.outcomes.games.texts import rules_text

        text = rules_text(rules, names, spec.worth)
    elif rules.kind == "roles":
        from sotopia_env.outcomes.roles.texts import rules_text as roles_text

        text = roles_text(rules)
    else:
        text = _ballot_text(rules) if isinstance(rules, BallotRules) else _claims_text(rules)
    return f"{text} {rule}" if rule else text


def _issues_text(spec: OutcomeSpec, names: Seats) -> str:
    space = spec.space(names)
    issues = [f"{issue.name} ({_values_text(space, index)})" for index, issue in enumerate(space.issues)]
    every = " All pieces are divided among you." if any(issue.kind == "items" for issue in space.issues) else ""
    return f"To be agreed on: {'; '.join(issues)}.{every}"


def _values_text(space: OutcomeSpace, index: int) -> str:
    issue = space.issues[index]
    if not isinstance(issue, ItemsIssue):
        return space.values_text(index)
    return f"{issue.count} piece{'s' * (issue.count != 1)}"


def _agreement_text(rules: AgreementRules, names: Seats) -> str:
    latest = " Only the last offer can be accepted." if rules.standing == "latest" else ""
    return (
        "Words bind nobody, only moves do: propose complete terms, accept or reject an open offer by its number, "
        f"withdraw your own.{latest} An offer is agreed once {_needs_text(rules.needs, names)}, its proposer included."
    )


def _needs_text(needs: Quorum | str, names: Seats) -> str:
    if not isinstance(needs, Quorum):
        return "both of you have accepted it" if len(names) == 2 else f"all {len(names)} of you have accepted it"
    veto = conjunction([names[agent] for agent in needs.veto])
    return f"{needs.quorum} of {len(names)} have accepted it" + (f", among them {veto}" if veto else "")


_RULES = {
    "lot": "the option with the most votes wins and a lot decides a tie",
    "plurality": "the option with the most votes wins and a tie decides nothing",
    "majority": "an option needs the votes of more than half of all",
    "unanimity": "an option needs everybody's vote",
}


def _ballot_text(rules: BallotRules) -> str:
    options = ", ".join(map(quote, rules.options))
    secret = " Votes are secret until the end." if rules.secret else ""
    own = "" if rules.own else " You cannot vote for yourself."
    opens = f" You may vote from your turn {rules.opens + 1} on." if rules.opens else ""
    rule = _RULES["lot" if rules.ties == "lot" else rules.rule]
    return (
        f"To be voted on: {options}. Words bind nobody, only moves do: vote for an option, or take your vote back "
        f"with null, until everybody present has voted.{secret}{own}{opens} By {rules.rule}, {rule}."
    )


def _claims_text(rules: ClaimsRules) -> str:
    candidates = f" Candidates: {', '.join(map(quote, rules.candidates))}." if rules.shown else ""
    who = "everybody" if rules.needs == "all" else "somebody"
    tries = "one try" if rules.tries == 1 else f"{rules.tries} tries"
    return (
        f"The answer is to be claimed.{candidates} Words bind nobody, only the move claim does; each of you has "
        f"{tries}, and others do not see what you claim. It is solved once {who} has claimed the right answer."
    )


def describe_worth(spec: OutcomeSpec, seat: int, names: Seats, table: WorthTable | None = None) -> str:
    """Returns the worth of outcomes to ``seat`` in plain sentences, with exact numbers; for its owner only.

    Args:
        spec: the specification of the outcome.
        seat: the index of the seat.
        names: the characters' names by agent id.
        table: the seat's table of worths, whose values of numbers are then added.
    """
    worth = spec.worth[seat]
    if isinstance(worth, AdditiveWorth):
        text = _additive_text(spec, worth, table)
    elif isinstance(worth, TableWorth):
        space = spec.space(names)
        rows = ((space.describe(space.normalise(e.terms)), _number(e.value)) for e in worth.table)
        text = f"To you, {'; '.join(f'{terms} is worth {value}' for terms, value in rows)}."
        text += f" No agreement is worth {_number(worth.no_agreement)}."
    elif isinstance(worth, BallotWorth):
        assert spec.protocol.kind == "ballot" or spec.protocol.kind == "roles"
        # In the declared order, whatever the order of the worth's keys: equal tasks are described in equal words.
        values = ", ".join(f"{_number(worth.options[option])} for {quote(option)}" for option in spec.protocol.options)
        text = f"A decision is worth to you {values}. No decision is worth {_number(worth.no_decision)}."
    elif isinstance(worth, FactsWorth):
        text = _facts_worth_text(worth)
    elif isinstance(worth, GameWorth):
        from sotopia_env.outcomes.games.texts import worth_text

        text = f"You get {worth_text(worth, f'agent_{seat}', names)}"
    else:
        text = _claims_worth_text(worth)
    return text + (f" Every turn taken costs you {_number(worth.per_turn)}." if worth.per_turn else "")


def describe_facts(facts: SeatFacts, names: Seats) -> str:
    """Returns what a seat reads about facts: their options, how they were dealt, what it knows, and its duties."""
    lines = [f"{_variable_text(v, names)}: {' or '.join(map(quote, v.options))}." for v in facts.variables.values()]
    lines += [_deal_text(deal) for deal in facts.deals]
    lines += [f"You know: {'; '.join(f'{name} = {value}' for name, value in facts.knowledge.items())}."] * bool(
        facts.knowledge
    )
    lines += [f"You are to learn: {', '.join(facts.targets)}."] * bool(facts.targets)
    lines += [_duty_text(name, agents, channel, facts.agent, names) for name, (agents, channel) in facts.duties.items()]
    lines += [f"It is expected {norm}." for norm in facts.norms]
    lines.append(
        "Statements bind nobody: state asserts a value, true or not; show proves one that you know; ask asks for one."
    )
    return "\n".join(lines)


def _variable_text(variable: PublicVariable, names: Seats) -> str:
    notes = [variable.text] if variable.text else []
    notes += ["a choice still to be made"] if variable.kind == "choice" else []
    notes += [f"{names[variable.expert]} knows it"] if variable.expert else []
    notes += ["for private turns only"] if variable.channel == "private" else []
    notes += [] if variable.evidence or variable.kind == "choice" else ["cannot be shown"]
    return f"{variable.name} ({', '.join(notes)})" if notes else variable.name


def _deal_text(deal: Deal) -> str:
    counts = Counter(deal.values)
    values = conjunction([value if count == 1 else f"{count} times {value}" for value, count in counts.items()])
    informed = "".join(f" Who is {value} knows who is {conjunction(others)}." for value, others in deal.informs.items())
    return f"Dealt among {conjunction(deal.variables)}: {values}.{informed}"


def _duty_text(name: str, agents: tuple[str, ...], channel: str, own: str, names: Seats) -> str:
    others = [names[agent] for agent in agents if agent != own]
    whom = f"only to {conjunction(others)}" if others else "to nobody" if agents else "to everybody"
    private = channel == "private" and whom != "to nobody"
    return f"You may tell {name} {whom}{', and only in private' if private else ''}."


def outline(spec: OutcomeSpec, seat: int, names: Seats) -> str:
    """Returns the issues, options or candidates on one line, for small models that cannot follow sentences.

    ``price from $40 to $162 in steps of $1 (lower is better); start June 1 or June 15; food 3 pieces``. The direction
    is the seat's own, so the line is for its owner only. Empty where the candidates of claims are not public.
    """
    # A list of candidates that is not public must not appear in a prompt.
    if isinstance(spec.protocol, ClaimsRules):
        return f"claim {' or '.join(spec.protocol.candidates)}" if spec.protocol.shown else ""
    return "; ".join(issue_outline(issue, spec.worth[seat]) for issue in spec.space(names).issues)


def issue_outline(issue: NumberIssue | ChoiceIssue | ItemsIssue, worth: Worth | None, *, limits: bool = True) -> str:
    """Returns one issue of :func:`outline`.

    Args:
        issue: the issue.
        worth: the seat's worth, which gives a number its direction.
        limits: whether the limits of a number are named, and not its step alone.
    """
    if isinstance(issue, ChoiceIssue):
        return f"{issue.name} {' or '.join(issue.options)}"
    if isinstance(issue, ItemsIssue):
        return f"{issue.name} {issue.count} piece{'s' * (issue.count != 1)}"
    if not limits:
        return f"{issue.name} in steps of {issue.amount_text(issue.step)}"
    # A table of worths gives no direction per issue.
    gain = worth.issues[issue.name]["per_unit"] if isinstance(worth, AdditiveWorth) else 0
    better = f" ({'higher' if gain > 0 else 'lower'} is better)" if gain else ""
    return f"{issue.name} {issue.limits_text()}{better}"


def _additive_text(spec: OutcomeSpec, worth: AdditiveWorth, table: WorthTable | None) -> str:
    numbers = {issue.name: issue for issue in spec.issues if table is not None and isinstance(issue, NumberIssue)}
    rungs = {} if table is None else {name: table.rungs[name] for name in numbers}
    ladders = {
        name: f"{name}: {rungs_text(numbers[name], steps)}"
        for name, steps in rungs.items()
        if len(steps) > 1 or len(spec.issues) == 1
    }
    parts, constant = [_gain_text(issue, worth.issues[issue.name]) for issue in spec.issues], worth.constant
    if table is not None and len(spec.issues) > 1:
        # In place of "for each $": a sum with numbers from their zero has another constant than the table's. A number
        # of which every value is worth as much has one rung, which names one value of them.
        texts = zip(spec.issues, parts, strict=True)
        parts = [ladders.pop(issue.name, "") or text for issue, text in texts]
        constant = table.constant
    if constant:
        parts.insert(0, _number(constant))
    text = f"An agreement is worth to you, in sum: {'; '.join(parts)}. No agreement: {_number(worth.no_agreement)}."
    return text + "".join(f" {ladder}." for ladder in ladders.values())


def _gain_text(issue: NumberIssue | ChoiceIssue | ItemsIssue, gains: dict[str, float]) -> str:
    if isinstance(issue, ChoiceIssue):
        values = ", ".join(f"{_number(gains[option])} for {quote(option)}" for option in issue.options)
        return f"{issue.name}: {values}"
    if isinstance(issue, ItemsIssue):
        return f"{_number(gains['each'])} for each piece of {issue.name} you get"
    # The worth is per unit of the number, not per step, whatever the grid.
    return f"{_number(gains['per_unit'])} for each {issue.unit_text()}"


def _facts_worth_text(worth: FactsWorth) -> str:
    gains = [
        f"{_number(gain)} for {quote(option)} if {name} = {value}"
        for name, by_value in worth.facts.items()
        for value, by_option in by_value.items()
        for option, gain in by_option.items()
    ]
    no_decision = f" No decision is worth {_number(worth.no_decision)}."
    return f"A decision is worth to you, in sum: {'; '.join(gains)}; anything else is worth 0.{no_decision}"


def _claims_worth_text(worth: ClaimsWorth) -> str:
    wrong = f" Each of your wrong claims costs you {_number(-worth.wrong)}." if worth.wrong else ""
    return f"The right answer is worth {_number(worth.right)} to you, no answer {_number(worth.none)}.{wrong}"


def _number(value: float) -> str:
    if value % 1 == 0 and abs(value) < _EXACT:
        return str(int(value))
    amount = read_amount(value)
    assert amount is not None
    return str(json_number(amount))
