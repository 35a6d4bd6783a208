"""Reading a growing transcript turn by turn at a cost per turn that does not grow with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from sotopia_env.world.dynamics import Turn

_StateT = TypeVar("_StateT")
_REMEMBERED = 4096
# Where readers were in growing transcripts: (reader, last turn) -> reader, turns, state. A cache over pure results,
# shared by all readers so that its size has one bound.
_SEEN: OrderedDict[tuple[int, int], tuple[object, tuple[Turn, ...], Any]] = OrderedDict()


class RunningReader(Generic[_StateT]):
    """Folds turns into a state, and goes on from where it was when a transcript it has read has grown.

    Reading is a pure function of the turns; ``advance`` must return a new state or the same one unchanged.
    """

    __slots__ = ("_advance", "_start")

    def __init__(self, start: _StateT, advance: Callable[[_StateT, Turn], _StateT]) -> None:
        """Creates the reader from the state before the first turn and the step for one turn."""
        self._start = start
        self._advance = advance

    def read(self, turns: Sequence[Turn]) -> _StateT:
        """Returns the state after ``turns``."""
        turns = tuple(turns)
        if not turns:
            return self._start
        done, state = self._resume(turns)
        for turn in turns[done:]:
            state = self._advance(state, turn)
        _SEEN[id(self), id(turns[-1])] = (self, turns, state)
        if len(turns) > 8:  # older beginnings of the same transcript are of no more use
            _SEEN.pop((id(self), id(turns[-9])), None)
        while len(_SEEN) > _REMEMBERED:
            _SEEN.popitem(last=False)
        return state

    def _resume(self, turns: tuple[Turn, ...]) -> tuple[int, _StateT]:
        """The longest remembered beginning of ``turns`` among the last few, and its state."""
        for length in range(len(turns), max(len(turns) - 8, 0), -1):
            entry = _SEEN.get((id(self), id(turns[length - 1])))
            # Ids may be reused and turns may be regrouped: only the same reader and an equal beginning count.
            if entry is not None and entry[0] is self and entry[1] == turns[:length]:
                state: _StateT = entry[2]
                return length, state
        return 0, self._start


__all__ = ["RunningReader"]
