"""The spaces of actions and observations: texts, numbers, masks, and the moves that are open now."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

from sotopia_env.outcomes import InvalidMoveError, Menu
from sotopia_env.world.action import ACTION_TYPES, MAX_ARGUMENT_LENGTH, WORDLESS, move_json, optional_move
from sotopia_env.world.turn_order import TurnOrder

MAX_TEXT_LENGTH = 2**20
"""Bound of the text spaces of observations and states: 20 turns of the longest utterances fit, each character escaped.

It bounds the space, not the text: nothing is cut off.
"""

MenuSource = Callable[[], Menu | None]


class UtteranceSpace(spaces.Text):
    """All Unicode texts up to ``max_length`` characters (no lone surrogates).

    Gymnasium's ``Text`` tests membership against its character set, which real sentences violate with the first curly
    quote; here membership depends on type and length only. The character set is used by ``sample`` to draw short texts;
    it includes spaces, quotes, newlines, letters beyond ASCII and an emoji.
    """

    ALPHABET = "abcdefghij ABC 012 .,?!'\"“”\n éßж中🙂{}<>#:"
    SAMPLE_LENGTH = 48

    def __init__(self, max_length: int = MAX_ARGUMENT_LENGTH, seed: int | None = None) -> None:
        """Creates the space; ``max_length`` counts characters."""
        super().__init__(max_length, min_length=0, charset=self.ALPHABET, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no fixed-size array form."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draws a text of 0 to ``SAMPLE_LENGTH`` characters; masks do not apply to texts."""
        length = int(self.np_random.integers(0, min(self.SAMPLE_LENGTH, self.max_length) + 1))
        return "".join(self.np_random.choice(list(self.ALPHABET), size=length).tolist())

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text of admissible length without lone surrogates."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        if x.isascii():
            return True
        try:
            x.encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UtteranceSpace) and (type(other), other.max_length) == (type(self), self.max_length)

    def __hash__(self) -> int:
        return hash((type(self), self.max_length))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_length})"


# Gymnasium flattens a Text to a number for each possible character, of its character set only; ours stay texts.
spaces.flatten_space.register(UtteranceSpace, lambda space: space)
spaces.flatten.register(UtteranceSpace, lambda space, text: text)
spaces.unflatten.register(UtteranceSpace, lambda space, text: text)


@create_shared_memory.register
def _refuse_shared_memory(space: UtteranceSpace, n: int = 1, ctx: Any = None) -> NoReturn:
    raise CustomSpaceError(f"{space} has no array form; pass shared_memory=False")


class MoveSpace(UtteranceSpace):
    """Moves as JSON text, such as ``{"accept": 2}``; empty for no move.

    ``contains`` says whether a text can be read as a move at all. ``sample`` draws one that its agent may make now,
    from the menu of the environment to which the space belongs; it is empty if no move is open. A copy of the space (a
    vector environment makes copies) belongs to no environment, and samples no moves.
    """

    def __init__(self, menu: MenuSource | None = None, seed: int | None = None) -> None:
        """Creates the space; ``menu`` returns the moves open to the agent at the time it is called."""
        self.menu = menu
        super().__init__(seed=seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draws an open move; masks do not apply, because the menu already is a mask."""
        menu = None if self.menu is None else self.menu()
        if not menu:
            return ""
        move = menu.sample(random.Random(int(self.np_random.integers(2**63))))
        return "" if move is None else move_json(move)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is empty or the JSON text of a move."""
        if not isinstance(x, str):
            return False
        try:
            optional_move(x)
        except InvalidMoveError:
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the space must not copy its environment; the environment binds its own spaces again.
        return {**self.__dict__, "menu": None}


class ActionSpace(spaces.Dict):
    """The parts of an action (:func:`action_space`); ``sample`` draws a move only if the other parts allow it."""

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> dict[str, Any]:
        """Draws each part; a move is drawn only with a type that has words, and is then public."""
        action = super().sample(mask, probability)
        if ACTION_TYPES[action["action_type"]] in WORDLESS:
            action["move"] = ""
        elif action["move"]:
            # A private offer must reach every seat whose assent it needs.
            action["to"][:] = 0
        return action

    def bind(self, menu: MenuSource) -> None:
        """Makes ``menu`` the source of moves; a copied space has no menu."""
        cast(MoveSpace, self["move"]).menu = menu


def action_space(seats: int, menu: MenuSource, order: TurnOrder = TurnOrder.ROUND_ROBIN) -> ActionSpace:
    """Returns the space of actions at a table of ``seats`` (see :func:`~sotopia_env.envs.actions.read_action`).

    In reactive order an action has a ``wait``, where 0 leaves the time of the next turn to the order. The space ends at
    the order's own longest time; ``step`` also takes longer waits.
    """
    parts: dict[str, spaces.Space[Any]] = {
        "action_type": spaces.Discrete(len(ACTION_TYPES)),
        "argument": UtteranceSpace(),
        "to": spaces.MultiBinary(seats),
        "move": MoveSpace(menu),
    }
    if order is TurnOrder.REACTIVE:
        parts["wait"] = spaces.Discrete(2 * seats + 1)
    return ActionSpace(parts)


def observation_space() -> spaces.Dict:
    """Returns the space of :data:`~sotopia_env.envs.base.ObservationDict`."""
    return spaces.Dict(
        {
            "text": UtteranceSpace(MAX_TEXT_LENGTH),
            "history": UtteranceSpace(MAX_TEXT_LENGTH),
            "table": UtteranceSpace(MAX_TEXT_LENGTH),
            "moves": UtteranceSpace(MAX_TEXT_LENGTH),
            "turn": turn_space(),
            "available_action_types": spaces.MultiBinary(len(ACTION_TYPES)),
        }
    )


def state_space() -> spaces.Dict:
    """Returns the space of :meth:`sotopia_env.envs.base.EpisodeEnv.state`."""
    text = UtteranceSpace(MAX_TEXT_LENGTH)
    return spaces.Dict({"task": text, "history": text, "table": text, "turn": turn_space()})


def turn_space() -> spaces.Box:
    """Returns the space of turn numbers, from 1."""
    return spaces.Box(1, 2**31 - 1, shape=(), dtype=np.int64)
