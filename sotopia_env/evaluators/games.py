"""Measures of what seats did in games of choices: co-operation, best replies, risk, the stock, and broken promises.

Welfare over the best and equality are ``efficiency`` and ``fairness`` of the verified outcome; SOC and REL of games are
those of the evaluator ``facts`` (broken promises; what the others would entrust to a seat).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import fmean
from typing import Any

from sotopia_env.evaluators.evaluator import Basis, ComputedEvaluator, NothingMeasuredError
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.outcomes import InvalidMoveError, MoveKind
from sotopia_env.outcomes.games.game import Game, game_of
from sotopia_env.outcomes.games.payoffs import amount_of
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.protocols.choices import GameState
from sotopia_env.outcomes.protocols.statements import FactsState
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table, folded

KINDS = ("win_win", "selfish", "altruistic", "sabotaging")
"""The kinds of broken promises, by what breaking them changed for the seat and for all together (arXiv 2604.04782)."""
_TEXTS: Mapping[str, str] = {
    "cooperation": "Share of the seat's choices that were its part of the choices which are best for all together.",
    "best_reply_gap": "Mean payoff that a best reply to the others' choices would have added, as a share of its range.",
    "exploitability": "Mean loss of the worst case of its choices against its safest option, as a share of its range.",
    "survival": "Share of the rounds after which there was still something of the stock.",
    **{f"broken_{kind}": f"Share of its announcements that were broken, {kind.replace('_', '-')}." for kind in KINDS},
}
DIMENSIONS = {name: CustomDimension(name=name, low=0, high=1, instruction=text) for name, text in _TEXTS.items()}


def broken_kind(game: Game, seat: int, row: Sequence[str], promise: str) -> str:
    """Returns the kind of a broken promise, by the payoffs of its round with the choice and with the promised option.

    ``win_win``: the seat gains and so does the sum of all payoffs; ``selfish``: it gains and the sum does not;
    ``altruistic``: it loses and the others gain at least as much; ``sabotaging``: the sum falls and the seat gains
    nothing. Without any change it is ``win_win``. With a stock, the sum falls if more is taken and rises if less is.

    Args:
        game: with the payoffs of all seats.
        seat: the number of the seat.
        row: what all chose.
        promise: the option that the seat had announced.
    """
    own, welfare = _change(game, seat, row, (*row[:seat], promise, *row[seat + 1 :]))
    if own > 0:
        return "win_win" if welfare > 0 else "selfish"
    if welfare < 0:
        return "sabotaging"
    return "altruistic" if own < 0 else "win_win"


def _change(game: Game, seat: int, row: Sequence[str], kept: Sequence[str]) -> tuple[Fraction, Fraction]:
    """What the seat, and all together, got more by what was done than by what had been announced."""
    stock = game.rules.stock
    own = game.gain(seat, row) - game.gain(seat, kept)
    if stock is not None:
        more = amount_of(row[seat]) - amount_of(kept[seat])
        return own, more if stock.flow == "give" else -more
    seats = range(len(game.agents))
    return own, sum((game.gain(other, row) - game.gain(other, kept) for other in seats), Fraction(0))


class GameMeasures(ComputedEvaluator):
    """Scores the choices and broken promises of every seat in a game of choices; :data:`DIMENSIONS` names the measures.

    ``best_reply_gap`` and ``exploitability`` are about single rounds and are left out where a stock connects them,
    ``survival`` is left out without a stock, and what is about promises where a seat announced nothing. Of
    several announcements of a seat in a round the last one counts.
    """

    name = "games"
    custom = tuple(DIMENSIONS.values())

    def applies(self, episode: Episode) -> bool:
        """Whether the task is a game of choices."""
        return _rules(episode.task) is not None

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """None of the seven."""
        return {}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the measures of every seat.

        Raises:
            NothingMeasuredError: no round was played.
            EvaluationError: the task is not a game of choices, or the turns contradict its rules.
        """
        rules, spec = _rules(episode.task), episode.task.scenario.outcome
        if rules is None or spec is None:
            raise EvaluationError(
                f"{self.name}: task {episode.task.id!r} is not a game of choices; play one, such as family:dilemma"
            )
        game: Game = episode.task.memo.setdefault("game", game_of(rules, spec.worth))
        try:
            end = _game_state(final_table(episode.task, episode.plain_turns)[0])
            promises = list(_promises(episode, end))
        except InvalidMoveError as error:
            raise EvaluationError(f"{self.name}: {error}") from error
        values = [
            (agent, name, value)
            for seat, agent in enumerate(game.agents)
            for name, value in (*_of_choices(game, seat, end), *_of_promises(game, seat, end, promises))
        ]
        scores = tuple(Score(agent=a, dimension=name, value=value, source=self.name) for a, name, value in values)
        if not scores:
            raise NothingMeasuredError(f"{self.name}: no round was played")
        return Evaluation(evaluator=self.name, parameters={}, dimensions=self.custom, scores=scores)


def _rules(task: Task) -> ChoicesRules | None:
    spec = task.scenario.outcome
    return spec.protocol if spec is not None and isinstance(spec.protocol, ChoicesRules) else None


def _game_state(table: Any) -> GameState:
    state = table.inner if isinstance(table, FactsState) else table
    assert isinstance(state, GameState)
    return state


def _promises(episode: Episode, end: GameState) -> Iterator[tuple[int, int, str]]:
    """Seat, round and option of the last announcement of every seat in every round that was played."""
    facts, task = episode.task.scenario.facts, episode.task
    last: dict[tuple[int, int], str] = {}
    for item in folded(task, episode.plain_turns) if facts is not None else ():
        move, actor = item.turn.action.move, item.turn.actor
        for kind, content in () if move is None else move.statements:
            for name, value in content.items() if kind is MoveKind.STATE else ():
                variable = facts.by_name[name] if facts is not None else None
                if variable is not None and variable.kind == "choice" and variable.of == actor:
                    last[task.seat_of[actor], len(_game_state(item.basis).played)] = value
    yield from ((seat, number, value) for (seat, number), value in last.items() if number < len(end.played))


def _of_choices(game: Game, seat: int, end: GameState) -> Iterator[tuple[str, float]]:
    if not end.played:
        return
    best = game.cooperation[seat]
    yield "cooperation", fmean(row[seat] == best for row in end.played)
    if game.rules.stock is not None:
        lost = 0 if end.stock else game.rules.rounds - len(end.played) + 1
        yield "survival", 1 - lost / game.rules.rounds
        return
    span = float(game.best(seat) - game.worst(seat))
    if span > 0:
        yield "best_reply_gap", fmean(game.gap(seat, row) for row in end.played) / span
        security = max(game.floor(seat, option) for option in game.options[seat])
        yield "exploitability", fmean(security - game.floor(seat, row[seat]) for row in end.played) / span


def _of_promises(
    game: Game, seat: int, end: GameState, promises: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[str, float]]:
    own = [(end.chosen[number], option) for agent, number, option in promises if agent == seat]
    if not own:
        return
    broken = Counter(broken_kind(game, seat, row, option) for row, option in own if row[seat] != option)
    yield from ((f"broken_{kind}", broken[kind] / len(own)) for kind in KINDS)
