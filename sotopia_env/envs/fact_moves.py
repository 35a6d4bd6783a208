"""The numeric forms of tasks with facts and of ballots: knowledge, statements and votes as numbers, moves by index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sotopia_env.envs.moves import NumericForm
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, Verbatim
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.outcomes.facts import Distribution, PublicVariable
from sotopia_env.outcomes.games.game import Game
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.menu import names_in
from sotopia_env.outcomes.space import OPTION
from sotopia_env.outcomes.specification import BallotRules
from sotopia_env.outcomes.table import TableView
from sotopia_env.outcomes.worth import BallotWorth, FactsWorth, Worth
from sotopia_env.policies.negotiators.bidding import ranking
from sotopia_env.tasks import phrase
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Task

WAIT, LEAVE, FIRST_MOVE = 0, 1, 2
"""Actions: say nothing, leave; from ``FIRST_MOVE`` on votes, then statements, proofs and questions."""


class NumericFacts:
    """The observations, actions and masks of one seat of a task with facts, as numbers.

    Variables are numbered in the order in which the seat reads them, options as each variable lists them.

    Observation, float32: the share of the seat's turns that is left; for each variable and option the probability given
    what the seat knows; for each the share of the partners who stated it last; for each variable the share of partners
    who asked for it; for each option of the ballot the share of votes that the seat sees, and then its expected utility
    given what the seat knows: 0 for no decision, 1 for the best that any option could be worth, and ``u / (1 - u)`` for
    a loss ``u``. What a task does not have is 0. Actions: :data:`WAIT`, :data:`LEAVE`, a vote for each option, a
    statement of each option of each variable, a proof and a question of each variable. Each goes to everybody.

    Args:
        variables: the maximum number of variables.
        values: the maximum number of options of a variable.
        options: the maximum number of options of a ballot.

    Attributes:
        actions: the number of actions.
        size: the length of an observation.
    """

    binding = MoveKind.VOTE
    """The kind of the moves for options."""

    def __init__(self, variables: int, values: int, options: int) -> None:
        self._limits = variables, values, options
        self.actions = FIRST_MOVE + options + variables * (values + 2)
        self.size = 1 + variables * (2 * values + 1) + 2 * options
        self._indices = self.action_space()

    def observation_space(self) -> spaces.Space[NDArray[np.float32]]:
        """Returns a new space of observations."""
        return spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def action_space(self) -> spaces.Space[Any]:
        """Returns a new space of actions."""
        return spaces.Discrete(self.actions)

    def check(self, task: Task) -> None:
        """Raises :class:`InvalidValueError` unless the task has facts that fit into the form."""
        if task.scenario.facts is None or game_rules(task) is not None:
            raise InvalidValueError(field="task", expected="tasks with facts, like the others", got=task.id)
        self._check_sizes(task)

    def _check_sizes(self, task: Task) -> None:
        if any(size > limit for size, limit in zip(_sizes(task), self._limits, strict=True)):
            expected = "at most {} variables of {} options, and {} options of a ballot".format(*self._limits)
            raise InvalidValueError(field="task", expected=expected, got=Verbatim(f"more in {task.id!r}"))

    def numbers(self, observation: Observation) -> NDArray[np.float32]:
        """Returns the observation as numbers."""
        variables, values, options = self._limits
        facts, table = observation.briefing.facts, observation.table
        assert table is not None
        beliefs = {} if facts is None else facts.beliefs(table.knowledge)
        chances, requests = np.zeros((variables, values)), np.zeros(variables)
        statements = np.zeros_like(chances)
        latest, questions = _statements(observation)
        for row, (name, variable) in enumerate(_variables(observation).items()):
            chances[row, : len(variable.options)] = [beliefs[name][option] for option in variable.options]
            for _, value in (pair for pair in latest.items() if pair[0][1] == name):
                statements[row, variable.options.index(value)] += 1
            requests[row] = sum(question == name for _, question in questions)
        seats, left = max(1, len(observation.briefing.partners)), observation.own_turns_left()
        votes, worths = np.zeros(options), np.zeros(options)
        for position, option in enumerate(_options(observation)):
            votes[position] = self._support(table, option)
            worths[position] = self._worth(observation, option, beliefs)
        time = [left / max(1, left + observation.own_turns)]
        parts = (
            time, chances.ravel(), statements.ravel() / seats, requests / seats, votes / (seats + 1), _bounded(worths)
        )  # fmt: skip
        return np.concatenate(parts).astype(np.float32)

    def _support(self, table: TableView, option: str) -> float:
        """The number of seats that the viewer sees to be for an option."""
        return sum(vote == option for vote in table.votes.options.values()) if table.votes else 0

    def _worth(self, observation: Observation, option: str, beliefs: Mapping[str, Distribution]) -> float:
        return _utility(observation.briefing.worth, option, _options(observation), beliefs)

    def mask(self, observation: Observation) -> NDArray[np.bool_]:
        """Returns which actions are open; bool, shape (actions,). Only ``WAIT`` when the seat is not to act."""
        mask = np.zeros((self.actions,), dtype=np.bool_)
        mask[WAIT] = True
        mask[LEAVE] = ActionType.LEAVE in observation.available
        menu = observation.moves
        if menu is not None:
            open_moves = {*menu._replace(propose=False, space=None).moves()}
            for index in range(FIRST_MOVE, self.actions):
                mask[index] = self._move(observation, index) in open_moves
        return mask

    def action(self, observation: Observation, index: Any) -> Action:
        """Returns the action of an index, with scripted words beside its move.

        Raises:
            InvalidActionError: ``index`` is not a whole number (of Python or NumPy) in the range.
        """
        if not self._indices.contains(index):
            raise InvalidActionError(field="action", expected=f"0 to {self.actions - 1}", got=index)
        if index == LEAVE:
            return Action(ActionType.LEAVE)
        move = None if index == WAIT else self._move(observation, int(index))
        return NO_ACTION if move is None else Action(argument=phrase(observation, move, observation.turn), move=move)

    def _move(self, observation: Observation, index: int) -> Move | None:
        """The move of an index; ``None`` if the task has none there."""
        _, values, options = self._limits
        variables = _variables(observation)
        index -= FIRST_MOVE
        if index < options:
            choices = _options(observation)
            return Move(self.binding, choices[index]) if index < len(choices) else None
        row, column = divmod(index - options, values + 2)
        if row >= len(variables):
            return None
        variable = [*variables.values()][row]
        if column < values:
            names = variable.options
            return Move(MoveKind.STATE, {variable.name: names[column]}) if column < len(names) else None
        return Move(MoveKind.SHOW if column == values else MoveKind.ASK, variable.name)


def _utility(worth: Worth | None, option: str, options: Iterable[str], beliefs: Mapping[str, Distribution]) -> float:
    """The expected utility of an option to a seat under its beliefs, which follow from what it knows alone.

    The scale is the same whatever the seat knows, so that it rises as the seat learns which option is good.
    """
    if isinstance(worth, BallotWorth):
        gain, best = worth.options[option], max(worth.options.values())
    elif isinstance(worth, FactsWorth):
        gain, best = worth.gains(option, beliefs), max(map(worth.most, options))
    else:
        return 0.0
    span = best - worth.no_decision
    return (gain - worth.no_decision) / (span if span > 0 else 1.0)


def _bounded(utilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Utilities of at most 1 as numbers from -1 to 1: a loss u is u / (1 - u)."""
    losses = np.maximum(-utilities, 0)
    return np.where(losses > 0, -1 + 1 / (1 + losses), utilities)


def _sizes(task: Task) -> tuple[int, int, int]:
    facts, spec, options = task.scenario.facts, task.scenario.outcome, 0
    if spec is not None and isinstance(spec.protocol, BallotRules):
        options = len(spec.protocol.options)
    elif spec is not None and isinstance(spec.protocol, ChoicesRules):
        options = max(len(spec.protocol.menu_of(agent)) for agent in task.agents)
    variables = () if facts is None else facts.variables
    return len(variables), max((len(variable.options) for variable in variables), default=0), options


def _variables(observation: Observation) -> Mapping[str, PublicVariable]:
    facts = observation.briefing.facts
    return {} if facts is None else facts.variables


def _options(observation: Observation) -> tuple[str, ...]:
    rules = observation.briefing.rules
    if isinstance(rules, ChoicesRules):
        return rules.menu_of(observation.agent)
    return rules.options if rules is not None and rules.kind == "ballot" else ()


def _statements(observation: Observation) -> tuple[dict[tuple[str, str], str], set[tuple[str, str]]]:
    """The latest value that each partner stated of each variable, and who asked for which variable."""
    values: dict[tuple[str, str], str] = {}
    questions: set[tuple[str, str]] = set()
    for turn in observation.turns:
        move = turn.action.move
        for kind, content in () if move is None or turn.actor == observation.agent else move.statements:
            if kind is MoveKind.STATE:
                values |= {(turn.actor, name): value for name, value in content.items()}
            elif kind is MoveKind.ASK:
                questions |= {(turn.actor, name) for name in names_in(content)}
    return values, questions


class NumericGame(NumericFacts):
    """The observations, actions and masks of one seat of a game of choices, as numbers.

    As :class:`NumericFacts`, with options in place of those of a ballot: the share of the seats that the viewer saw to
    choose each in the last round, and its mean payoff in a round if the others choose at random, 1 for the best payoff
    of a round. Then three numbers more: the share of the rounds that is left, the seat's payoff so far as a share of
    the best that so many rounds could bring, and the stock as a share of its capacity (or of its start).

    Where there are contracts, for each option the share of the seats with an open offer that each seat chooses its
    option of this number, and then the mean payoff of that to the seat, 1 for the best of a round. Last actions: such
    an offer for each option, and to accept the newest one. Other contracts, and to reject or withdraw, need words.
    """

    binding = MoveKind.CHOOSE

    def __init__(self, variables: int, values: int, options: int, contract: bool = False) -> None:
        super().__init__(variables, values, options)
        self._contract, self._first_contract = contract, self.actions
        self.size += 3 + 2 * options * contract
        self.actions += (options + 1) * contract
        self._indices = self.action_space()

    def check(self, task: Task) -> None:
        """Raises :class:`InvalidValueError` unless the task is a game that fits into the form."""
        rules = game_rules(task)
        if rules is None or rules.contract != self._contract:
            kind = "games of choices with contracts" if self._contract else "games of choices without contracts"
            raise InvalidValueError(field="task", expected=f"{kind}, like the others", got=task.id)
        self._check_sizes(task)

    def numbers(self, observation: Observation) -> NDArray[np.float32]:
        """Returns the observation as numbers."""
        game, table = observation.briefing.game, observation.table
        assert game is not None
        assert table is not None
        assert table.rounds is not None
        rounds, seat = table.rounds, game.agents.index(observation.agent)
        best, number, stock = game.best(seat), len(rounds.played), game.rules.stock
        paid = rounds.paid.get(observation.agent, 0.0) / (best * number) if best * number > 0 else 0.0
        level = 0.0 if stock is None else (rounds.stock or 0.0) / (stock.capacity or stock.start or 1.0)
        more = _bounded(np.array([1 - number / rounds.total, min(paid, 1.0), min(level, 1.0)]))
        offers = self._contract_numbers(observation, game, table) if self._contract else ()
        return np.concatenate((super().numbers(observation), more, *offers)).astype(np.float32)

    def _contract_numbers(
        self, observation: Observation, game: Game, table: TableView
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The share of the seats with an open offer of each contract, and what it brings to the seat."""
        options, seat = self._limits[2], game.agents.index(observation.agent)
        support, worths = np.zeros(options), np.zeros(options)
        for index in range(options):
            if (terms := self._terms(observation, index)) is not None:
                support[index] = sum(entry.offer.terms == terms for entry in table.offers) / len(game.agents)
                worths[index] = float(game.gain(seat, tuple(terms.values()))) / (game.best(seat) or 1.0)
        return support, _bounded(worths)

    def _terms(self, observation: Observation, index: int) -> dict[str, str] | None:
        """The contract in which each seat chooses its option number ``index``; ``None`` if one has fewer."""
        game, space = observation.briefing.game, observation.briefing.space
        assert game is not None
        if space is None or any(index >= len(own) for own in game.options):
            return None
        return {name: own[index] for name, own in zip(space.names.values(), game.options, strict=True)}

    def mask(self, observation: Observation) -> NDArray[np.bool_]:
        """See :meth:`NumericFacts.mask`."""
        mask, menu = super().mask(observation), observation.moves
        for index in range(self._first_contract, self.actions - 1):
            mask[index] = menu is not None and menu.propose and self._move(observation, index) is not None
        return mask

    def _move(self, observation: Observation, index: int) -> Move | None:
        if index < self._first_contract:
            return super()._move(observation, index)
        if index < self.actions - 1:
            terms = self._terms(observation, index - self._first_contract)
            return None if terms is None else Move(MoveKind.PROPOSE, terms)
        table = observation.table
        numbers = [entry.offer.number for entry in table.offers if entry.open] if table is not None else []
        return Move(MoveKind.ACCEPT, max(numbers)) if numbers else None

    def _support(self, table: TableView, option: str) -> float:
        assert table.rounds is not None
        if table.rounds.counts:
            return table.rounds.counts[-1].get(option, 0)
        return table.rounds.played[-1].count(option) if table.rounds.played else 0

    def _worth(self, observation: Observation, option: str, beliefs: Mapping[str, Distribution]) -> float:
        game = observation.briefing.game
        assert game is not None
        seat = game.agents.index(observation.agent)
        best = game.best(seat)
        # What a delegated choice brings depends on the others' delegations, so no number is given for it.
        return game.means(seat).get(option, 0.0) / best if best > 0 else 0.0


class NumericBallot(NumericFacts):
    """The observations, actions and masks of one seat of a ballot without facts, as numbers.

    Observation, float32: the share of the seat's turns that is left; for each option of the ballot the seat's utility
    (1 for its best, 0 for no decision; a loss ``u`` is ``u / (1 - u)``, and -1 where a task has fewer options), then
    the share of votes that the seat sees, then 1 for the seat's own vote. Actions: wait, leave, a vote for each option
    (from ``FIRST_MOVE`` on), and as the last one to take the vote back.

    Args:
        options: the maximum number of options.
    """

    def __init__(self, options: int) -> None:
        super().__init__(0, 0, options)
        self._options = options
        self.actions, self.size = self.actions + 1, 1 + 3 * options
        self._indices = self.action_space()

    def check(self, task: Task) -> None:
        """Raises :class:`InvalidValueError` unless the task is a ballot without facts that fits into the form."""
        rules = ballot_rules(task)
        if rules is None:
            raise InvalidValueError(field="task", expected="ballots without facts, like the others", got=task.id)
        if len(rules.options) > self._options:
            got = Verbatim(f"{len(rules.options)} in {task.id!r}")
            raise InvalidValueError(field="task", expected=f"ballots of at most {self._options} options", got=got)

    def numbers(self, observation: Observation) -> NDArray[np.float32]:
        """Returns the observation as numbers."""
        rules, table, utility = observation.briefing.rules, observation.table, ranking(observation.briefing).utility
        assert isinstance(rules, BallotRules)
        assert table is not None
        assert table.votes is not None
        cast, left = table.votes.options, observation.own_turns_left()
        utilities, votes, own = np.full(self._options, -np.inf), np.zeros(self._options), np.zeros(self._options)
        for position, option in enumerate(rules.options):
            utilities[position] = utility({OPTION: option})
            votes[position] = sum(vote == option for vote in cast.values()) / len(table.votes.agents)
            own[position] = cast.get(observation.agent) == option
        time = [left / max(1, left + observation.own_turns)]
        return np.concatenate((time, _bounded(utilities), votes, own)).astype(np.float32)

    def _move(self, observation: Observation, index: int) -> Move | None:
        if index == self.actions - 1:
            return Move(MoveKind.VOTE, None)
        rules = observation.briefing.rules
        assert isinstance(rules, BallotRules)
        number = index - FIRST_MOVE
        return Move(MoveKind.VOTE, rules.options[number]) if number < len(rules.options) else None


def ballot_rules(task: Task) -> BallotRules | None:
    """Returns the rules of a ballot without facts, and ``None`` for any other task."""
    spec = task.scenario.outcome
    if spec is None or task.scenario.facts is not None or not isinstance(spec.protocol, BallotRules):
        return None
    return spec.protocol


def game_rules(task: Task) -> ChoicesRules | None:
    """Returns the rules of a game of choices, and ``None`` for any other task."""
    spec = task.scenario.outcome
    return spec.protocol if spec is not None and isinstance(spec.protocol, ChoicesRules) else None


def numeric_form(tasks: Iterable[Task], offers: int) -> NumericForm | NumericFacts:
    """Returns the numeric form of tasks: that of the first task, whether it has facts, is a ballot or an agreement.

    Raises:
        InvalidValueError: a task does not fit the form of the others, or ``offers`` has an invalid value.
    """
    samples = list(tasks)
    first = samples[0]
    form: NumericForm | NumericFacts
    if game_rules(first) is not None:
        games = [task for task in samples if game_rules(task) is not None]
        rules = game_rules(first)
        variables, values, options = map(max, *map(_sizes, games), (0, 0, 0))
        form = NumericGame(variables, values, options, contract=rules is not None and rules.contract)
    elif first.scenario.facts is not None:
        with_facts = [task for task in samples if task.scenario.facts is not None]
        form = NumericFacts(*map(max, *map(_sizes, with_facts), (1, 2, 0)))
    elif ballot_rules(first) is not None:
        form = NumericBallot(max(len(rules.options) for rules in map(ballot_rules, samples) if rules is not None))
    else:
        form = NumericForm(offers)
    for task in samples:
        form.check(task)
    return form
