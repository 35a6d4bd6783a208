"""Words for the moves of scripted policies, in the style of the task's family or in plain English.

The words fit the move and are read by the partners only: they have no effect on the outcome.
"""

from __future__ import annotations

from typing import Any

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.outcomes.menu import names_in
from sotopia_env.outcomes.space import Terms
from sotopia_env.tasks.families.family import Phrases
from sotopia_env.tasks.families.registry import family_named_in
from sotopia_env.tasks.wording import capitalise, pick
from sotopia_env.world.observation import Observation

GENERIC = Phrases()
"""Words for the moves of any scenario."""
_WITHOUT_TERMS = {
    MoveKind.ACCEPT: ("I accept.", "Agreed."),
    MoveKind.REJECT: ("No, I cannot agree to that.", "That will not do for me."),
    MoveKind.WITHDRAW: ("I take my offer back.", "My offer no longer stands."),
}


def phrase(observation: Observation, move: Move | None, seed: int) -> str:
    """Returns words that fit ``move``, the same for the same seed.

    Args:
        observation: observation of the seat that makes the move.
        move: a move of any kind; ``None`` for words that say nothing about the task. The terms of an offer must be
            complete; an answer to an offer that is not open gets words without terms.
        seed: any integer; selects the phrasing.

    Raises:
        InvalidMoveError: the outcome space does not contain the offered terms.
    """
    family = family_named_in(observation.briefing.shared_data)
    style = GENERIC if family is None else family.phrases
    if move is None:
        return pick(style.nothing, seed)
    binding = move.binding
    words = [] if binding is None else [_binding_words(observation, binding, style, seed)]
    words += [_statement_words(observation, kind, content, style, seed) for kind, content in move.statements]
    return " ".join(words)


def _binding_words(observation: Observation, move: Move, style: Phrases, seed: int) -> str:
    if move.kind is MoveKind.VOTE:
        return _vote_words(observation, move.content, style, seed)
    if move.kind is MoveKind.CLAIM:
        templates = style.confirm if _is_named(observation, move.content) else style.claim
        return pick(templates, seed).format(claim=move.content)
    if move.kind is MoveKind.CHOOSE:
        return pick(style.choose, seed)
    terms = _terms(observation, move)
    return (
        pick(_WITHOUT_TERMS[move.kind], seed) if terms is None else _offer_words(observation, move, terms, style, seed)
    )


def _statement_words(observation: Observation, kind: MoveKind, content: Any, style: Phrases, seed: int) -> str:
    """One sentence for each variable that a statement names."""
    facts = observation.briefing.facts
    assert facts is not None
    values = content if kind is MoveKind.STATE else dict.fromkeys(names_in(content), "")
    sentences = []
    for offset, (name, value) in enumerate(values.items()):
        variable = facts.variables.get(name) or PublicVariable(name, (), "fact", "", "", True)
        value = facts.knowledge.get(name, "") if kind is MoveKind.SHOW else value
        templates = _templates(observation, kind, variable, style)
        fields = {"text": variable.text or name, "value": value, "name": _owner(observation, variable)}
        sentences.append(capitalise(pick(templates, seed + offset).format(**fields)))
    return " ".join(sentences)


def _templates(observation: Observation, kind: MoveKind, variable: PublicVariable, style: Phrases) -> tuple[str, ...]:
    if kind is not MoveKind.STATE:
        return style.show if kind is MoveKind.SHOW else style.ask
    own = variable.of == observation.agent
    if variable.kind == "role":
        return style.own_role if own else style.role
    return style.promise if variable.kind == "choice" and own else style.state


def _owner(observation: Observation, variable: PublicVariable) -> str:
    """The name of the person whose role or choice a variable is; empty for a fact."""
    return next((p.name for p in observation.briefing.partners if p.agent == variable.of), "")


def share(observation: Observation, seed: int) -> str | None:
    """Returns words that tell the partners a relevant fact that this seat has not told yet.

    Returns ``None`` if the seat has told all facts, and in tasks without facts (all but ``mutual_friend``).
    """
    family = family_named_in(observation.briefing.shared_data)
    return None if family is None or family.share is None else family.share(observation, seed)


def _vote_words(observation: Observation, option: str | None, style: Phrases, seed: int) -> str:
    if option is None:
        return pick(style.unvote, seed)
    votes = observation.table.votes.options if observation.table and observation.table.votes else {}
    joins = any(vote == option for agent, vote in votes.items() if agent != observation.agent)
    return pick(style.join if joins else style.vote, seed).format(option=option)


def _is_named(observation: Observation, claim: str) -> bool:
    return any(claim in turn.action.argument for turn in observation.turns if turn.actor != observation.agent)


def _terms(observation: Observation, move: Move) -> Terms | None:
    """The terms, in normal form, that ``move`` refers to; ``None`` if the offer is not open."""
    space, table = observation.briefing.space, observation.table
    if space is None or table is None:
        return None
    if move.kind is MoveKind.PROPOSE:
        return space.normalise(move.content)
    offers = [standing.offer for standing in table.offers]
    if move.content is True:
        # ``True`` means the only open offer: of the seat itself for a withdrawal, of a partner for an answer.
        own = move.kind is MoveKind.WITHDRAW
        offers = [offer for offer in offers if (offer.proposer == observation.agent) is own]
        return offers[0].terms if len(offers) == 1 else None
    return next((offer.terms for offer in offers if offer.number == move.content), None)


def _offer_words(observation: Observation, move: Move, terms: Terms, style: Phrases, seed: int) -> str:
    briefing = observation.briefing
    assert briefing.space is not None
    fields = style.fields(briefing, terms)
    if fields is None:
        # The terms are not of the family's kind, because a user has edited the task: its templates do not fit.
        style, fields = GENERIC, {}
    templates: tuple[str, ...] = getattr(style, move.kind.value)
    return pick(templates, seed).format(terms=briefing.space.describe(terms), **fields)
