"""A scripted speaker: states and shows what it knows, or lies, and chooses by what it believes.

It states what it knew at the start, or lies (:func:`~sotopia_env.policies.speakers.belief.pretences`), and repeats that
in every turn; where values can be proved, an honest speaker proves them instead. It votes when the ballot is open to it
and no later turn of its own is left, for the option of the highest expected worth under its belief. Of equally good
options it takes the people who are likeliest to know its own role.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import Menu, Move, MoveKind
from sotopia_env.outcomes.facts import PublicVariable, SeatFacts, Values
from sotopia_env.outcomes.worth import BallotWorth, FactsWorth
from sotopia_env.policies.choosers.chooser import choose as choose_option
from sotopia_env.policies.choosers.chooser import in_game
from sotopia_env.policies.interviews import RuledAnswers
from sotopia_env.policies.negotiators.concession import check
from sotopia_env.policies.small_talk import SILENCE, commit, leave, say, small_talk
from sotopia_env.policies.speakers.belief import Beliefs, assertions, knowledge, posterior, pretences
from sotopia_env.policies.speakers.targets import target_worths
from sotopia_env.policies.speakers.trust import reliances
from sotopia_env.tasks.phrases import phrase
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.answers import TRUST, BeliefReply, entrusting
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Speaker(RuledAnswers):
    """States what it knows, or lies, in every turn before its vote; votes by its belief.

    Attributes:
        name: the policy's name.
        lies: the probability with which it lies, from 0 to 1; ``None`` for a seat that states nothing.
        doubt: the probability with which it takes others to lie, from 0 to 1; ``None`` believes no statement.
        votes: ``belief``, or ``uniform``: for any open option, by lot.
        announces: whether it also states its own coming choice, where that is a variable of the task: it then chooses
            so if it is honest, and otherwise if it lies.
    """

    name: str = "honest"
    lies: float | None = 0.0
    doubt: float | None = None
    votes: Literal["belief", "uniform"] = "belief"
    announces: bool = False

    def __post_init__(self) -> None:
        for field in ("lies", "doubt"):
            if getattr(self, field) is not None:
                check(self.name, field, getattr(self, field), 0, 1)
        if self.votes not in ("belief", "uniform"):
            raise InvalidValueError(field=f"{self.name}.votes", got=self.votes, valid=("belief", "uniform"))

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next statement or vote."""
        return self.decide(observation, seed)

    def decide(self, observation: Observation, seed: int) -> Decision:
        """Returns the next statement or vote; small talk in a task without facts."""
        table, menu, facts = observation.table, observation.moves, observation.briefing.facts
        if in_game(observation):
            return self._play(observation, seed)
        if facts is None or table is None:
            return small_talk(observation, seed)
        if table.settled:
            return leave(observation)
        if menu is None:
            return SILENCE
        to, move = self.choose(observation, facts, menu, seed)
        words = phrase(observation, move, seed)
        if move is None:
            return say(observation, words)
        return Decision(Action(ActionType.SPEAK, words, to, move)) if to else commit(observation, words, move)

    def _play(self, observation: Observation, seed: int) -> Decision:
        """In a game of choices it promises to co-operate and does so; a liar does what pays most."""
        if self.votes == "uniform":
            return choose_option(observation, seed, "uniform", promises=False)
        lies = self.lies is not None and random.Random(seed).random() < self.lies
        return choose_option(observation, seed, "deviate" if lies else "cooperate", promises=self.lies is not None)

    def choose(
        self, observation: Observation, facts: SeatFacts, menu: Menu, seed: int
    ) -> tuple[tuple[str, ...], Move | None]:
        """Returns the recipients (none for everybody) and the move of this turn; ``None`` for words alone."""
        due = bool(menu.choose) or (bool(menu.vote) and not menu.unvote and observation.own_turns_left() <= 1)
        return (), self.vote(observation, menu, seed) if due else self.statement(observation, facts, menu, seed)

    def beliefs(self, observation: Observation) -> Beliefs:
        """Returns the seat's belief on every variable that it may know: probabilities by option, by variable."""
        return posterior(observation, self.doubt)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> list[BeliefReply]:
        """Returns the seat's exact beliefs, and what it would entrust to others by what it knows of their honesty."""
        if observation.briefing.facts is None:
            return [BeliefReply(reason="a scripted speaker has beliefs in tasks with facts only")] * len(variables)
        facts = [variable for variable in variables if variable.kind != TRUST]
        # A question about trust names no fact; a stranger has no agent id, and has stated nothing.
        trust = reliances(observation) if len(facts) < len(variables) else {}
        replies = {v.name: entrusting(trust[v.of]) for v in variables if v.kind == TRUST}
        replies |= posterior(observation, self.doubt, facts) if facts else {}
        for variable in facts:
            if variable.kind == "choice" and variable.of == observation.agent and not in_game(observation):
                options = self._likeliest(observation, self._free(observation, variable.options))
                replies[variable.name] = {one: (one in options) / len(options) for one in variable.options}
        return [BeliefReply(replies[variable.name]) for variable in variables]

    def statement(self, observation: Observation, facts: SeatFacts, menu: Menu, seed: int) -> Move | None:
        """Returns what the seat says about facts in this turn; ``None`` for nothing."""
        if self.lies is None:
            return None
        story = next((values for _, values in assertions(observation, own=True)), None)
        learns = observation.table is not None and observation.table.game is not None
        if story is not None and not (learns and not self.lies):  # it sticks to what it has said
            return Move(MoveKind.STATE, story)
        rng = random.Random(seed)
        lies = bool(self.lies) and rng.random() < (self.lies or 0)
        promise = self._promise(observation, facts, rng, lies) if self.announces else {}
        if lies:
            values = _pretended(observation, facts, rng)
        else:
            sure = knowledge(observation) if learns else facts.knowledge
            values = {name: value for name, value in sure.items() if facts.admits_all(name)}
            if values and all(name in menu.statements.show for name in values):
                names = list(values)
                proof = (MoveKind.SHOW, names if len(names) > 1 else names[0])
                return Move.of_parts([proof, *([(MoveKind.STATE, promise)] if promise else [])])
        values = {**values, **promise}
        return Move(MoveKind.STATE, values) if values else None

    def _promise(self, observation: Observation, facts: SeatFacts, rng: random.Random, lies: bool) -> Values:
        """The statement about the seat's own coming choice: what it would choose now, or a lie."""
        variable = _own_choice(observation, facts)
        if variable is None:
            return {}
        intention = self._choice(observation, variable.options, rng)
        others = [option for option in variable.options if option != intention]
        return {variable.name: rng.choice(others) if lies else intention}

    def vote(self, observation: Observation, menu: Menu, seed: int) -> Move:
        """Returns the seat's vote, or its target in a game of hidden roles."""
        rng = random.Random(seed)
        if menu.choose:
            return Move(MoveKind.CHOOSE, self._choice(observation, menu.choose, rng))
        return Move(MoveKind.VOTE, self._choice(observation, self._free(observation, menu.vote), rng))

    def _free(self, observation: Observation, options: tuple[str, ...]) -> tuple[str, ...]:
        """The options that its promise leaves open: that one, or, if it has lied, all others."""
        facts = observation.briefing.facts
        assert facts is not None
        variable = _own_choice(observation, facts) if self.announces else None
        for _, values in assertions(observation, own=True):
            if variable is not None and values.get(variable.name) in options:
                lies = any(values.get(name, value) != value for name, value in facts.knowledge.items())
                return tuple(option for option in options if (option == values[variable.name]) is not lies)
        return options

    def _choice(self, observation: Observation, options: tuple[str, ...], rng: random.Random) -> str:
        """The option that the seat votes for."""
        return rng.choice(self._likeliest(observation, options))

    def _likeliest(self, observation: Observation, options: tuple[str, ...]) -> tuple[str, ...]:
        """The options of which the seat would vote for one by lot, by its present belief."""
        if self.votes == "uniform":
            return options
        beliefs = self.beliefs(observation)
        options = _best(options, _worths(observation, options, beliefs))
        if len(options) > 1:
            options = _best(options, _witnesses(observation, options, beliefs))
        return options


def _own_choice(observation: Observation, facts: SeatFacts) -> PublicVariable | None:
    """The variable that is the seat's own coming choice, if the task has one."""
    own = (v for v in facts.variables.values() if v.kind == "choice" and v.of == observation.agent)
    return next(own, None)


def _pretended(observation: Observation, facts: SeatFacts, rng: random.Random) -> Values:
    """The statements of a liar: what it would know about a deal in another world, and any other option elsewhere."""
    values: dict[str, str] = {}
    dealt = {name for deal in facts.deals for name in deal.variables}
    for deal, ways in facts.worlds(knowledge(observation)):
        # Its own values are the same in all worlds that it holds for possible.
        values |= rng.choice(pretences(facts, deal, ways[0], observation.agent))
    for name, value in facts.knowledge.items():
        if name not in dealt and facts.admits_all(name):
            values[name] = rng.choice([option for option in facts.variables[name].options if option != value])
    return values


def _worths(observation: Observation, options: tuple[str, ...], beliefs: Beliefs) -> Mapping[str, float]:
    """The expected worth of every option to the seat."""
    if observation.table is not None and observation.table.game is not None:
        return target_worths(observation, options, beliefs)
    worth = observation.briefing.worth
    if isinstance(worth, FactsWorth):
        return {option: worth.gains(option, beliefs) for option in options}
    assert isinstance(worth, BallotWorth)
    return {option: worth.options[option] for option in options}


def _best(options: tuple[str, ...], values: Mapping[str, float]) -> tuple[str, ...]:
    top = max(values.values()) - _EQUAL
    return tuple(option for option in options if values[option] >= top)


def _witnesses(observation: Observation, options: tuple[str, ...], beliefs: Beliefs) -> Mapping[str, float]:
    """The probability that the person of a name was informed who has the seat's own role; 0 for other options."""
    facts, values = observation.briefing.facts, dict.fromkeys(options, 0.0)
    assert facts is not None
    agents = {partner.name: partner.agent for partner in observation.briefing.partners}
    for deal in facts.deals:
        own = {facts.knowledge[name] for name in deal.variables if facts.variables[name].of == observation.agent}
        for name in deal.variables:
            informed = [role for role, others in deal.informs.items() if own.intersection(others)]
            person = next((option for option in options if agents.get(option) == facts.variables[name].of), None)
            if person is not None:
                values[person] += sum(beliefs[name][role] for role in informed)
    return values
