r"""Turns, refusals and the table as lines of text.

Other agents' text is data. Wherever it is shown, it is inside a JSON string literal on a single line, with the
characters that end lines, reorder text or open a chat template's control tokens written as ``\uXXXX``. So no
argument can begin a line, close its quotes or imitate a turn, and ``json.loads`` of the literal gives back
the exact argument. The effect of a move follows the quotes, after `` · ``, in the protocol's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sotopia_env.foundation.quoting import escape, escape_line, quote
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn


def render_turn(turn: Turn, names: Mapping[str, str], by_round: bool = False) -> str:
    """Returns one turn as one line: number, who, privately to whom, what; ``by_round`` numbers by round."""
    return _line(turn, turn.effect, names, by_round)


def extend_lines(lines: list[str], turns: Sequence[Turn], names: Mapping[str, str], by_round: bool = False) -> None:
    """Appends the lines of those ``turns`` that have none yet, each as the seats that did not act may see it."""
    for turn in turns[len(lines) :]:
        # All seats share these lines; the actor of a secret move gets a line of its own (SeatView).
        lines.append(_line(turn, turn.effect if turn.hidden is None else turn.hidden, names, by_round))


def _line(turn: Turn, effect: str | None, names: Mapping[str, str], by_round: bool) -> str:
    number = (turn.round if by_round else turn.index) + 1
    seen = "" if turn.seen is None else f"[seen by {', '.join([names[agent] for agent in turn.seen])} only] "
    return f"Turn #{number} | {seen}{render_action(turn.actor, turn.action, names, effect)}\n"


def refusal(turn: Turn, failure: str = "") -> str:
    """Returns the line that tells a seat why its own turn, or the move in it, did not count; empty where it did.

    Args:
        turn: a turn of the seat.
        failure: why the seat's text was not an action; empty if it was one.
    """
    if failure:
        counted = "leaving" if turn.action.action_type is ActionType.LEAVE else "doing nothing"
        # The reason may repeat the model's own text, so it is quoted like other agents' text.
        return f"Your answer could not be used and counted as {counted}: {quote(failure)}\n"
    if turn.violation is None:
        return ""
    # ``none`` has replaced the whole action; otherwise only the move was refused.
    if turn.action.action_type is ActionType.NONE:
        problem = "Your action was not possible"
    else:
        subject = "Your words were heard, but your" if turn.action.argument.strip() else "Your"
        problem = f"{subject} move did not count"
    return f"{problem}: {quote(turn.violation)}\n"


def indented(text: str) -> str:
    """Returns lines that hold authors' names and terms, two blanks before each and every control token escaped."""
    return escape("  " + "\n  ".join(text.splitlines())) if text else ""


def render_action(actor: str, action: Action, names: Mapping[str, str], effect: str | None = None) -> str:
    """Returns who did what, without the turn's number.

    The argument is quoted (:func:`~sotopia_env.foundation.quoting.quote`); the effect of a move follows the closing
    quote, where no argument can forge it.
    """
    # A move without words is rendered by its effect alone: empty quotes would look like a silent turn.
    silent = (effect is not None or action.move is not None) and not action.argument.strip()
    words = f"{names[actor]}{_aside(action, names)}" if silent else _render_words(names[actor], action, names)
    return words if effect is None else f"{words} · {escape_line(effect)}"


def _render_words(name: str, action: Action, names: Mapping[str, str]) -> str:
    kind, aside = action.action_type, _aside(action, names)
    if kind is ActionType.SPEAK:
        return f"{name}{aside} said: {quote(action.argument)}"
    if kind is ActionType.NONE:
        return f"{name}{aside} did nothing"
    if kind is ActionType.LEAVE:
        words = f" said: {quote(action.argument)} and" if action.argument.strip() else ""
        return f"{name}{aside}{words} left"
    return f"{name}{aside} [{kind.value}]: {quote(action.argument)}"


def _aside(action: Action, names: Mapping[str, str]) -> str:
    return f" [privately to {', '.join([names[agent] for agent in action.to])}]" if action.to else ""
