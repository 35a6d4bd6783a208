"""Warnings about prompts and answers that do not fit into a model's limits, before any request is sent."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.action import Action, to_json
from sotopia_env.world.observation import Observation

# A sample is enough: offers differ by only a few tokens, depending on their numbers.
_OFFERS = 4
_WORDS = 64
"""Tokens to reserve for the words beside a move."""
_TURNS = 1_000
"""Tokens to reserve for the turns of a short episode."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The numbers of tokens that a turn needs, and the limits on them.

    Attributes:
        prompt: the tokens of the prompt, without the turns that may be left out.
        answer: the tokens of an answer with the longest open move and no words; 0 if no move is open.
        max_answer: the limit on an answer; ``None`` for no limit.
        limit: the limit on prompt and answer together; ``None`` for no limit.
    """

    prompt: int
    answer: int
    max_answer: int | None
    limit: int | None

    @property
    def cuts_answer(self) -> bool:
        """Whether the limit on an answer cuts off a move."""
        return self.max_answer is not None and self.answer > self.max_answer

    @property
    def leaves_no_room(self) -> bool:
        """Whether prompt and answer exceed the common limit."""
        return self.limit is not None and self.needed > self.limit

    @property
    def needed(self) -> int:
        """The tokens of prompt and answer together, with the largest answer that may be written."""
        return self.prompt + (self.max_answer or self.answer)


@runtime_checkable
class Measured(Protocol):
    """A policy that can count the tokens of its prompts and answers."""

    @property
    def name(self) -> str:
        """The policy's name."""
        ...

    def lengths(self, observation: Observation) -> Lengths | None:
        """Returns the lengths of a turn; ``None`` if they are unknown."""
        ...


def wordless_moves(observation: Observation) -> Iterator[str]:
    """Yields the texts of answers that consist of a move alone: a few random offers, and every other open move."""
    menu = observation.moves
    if menu is None:
        return
    moves = menu.moves()
    if menu.propose and menu.space is not None:
        moves += [Move(MoveKind.PROPOSE, menu.space.draw(random.Random(seed))) for seed in range(_OFFERS)]
    yield from (to_json(Action(move=move)) for move in moves)


def length_warnings(turns: Iterable[tuple[Measured, Observation]]) -> Iterator[str]:
    """Yields a warning for each policy and limit that first turns exceed: how many, and a limit that is sufficient.

    Args:
        turns: pairs of a policy and its first observation; each pair counts once.
    """
    by_policy: dict[str, list[Lengths]] = defaultdict(list)
    for policy, observation in turns:
        lengths = policy.lengths(observation)
        if lengths is not None:
            by_policy[policy.name].append(lengths)
    for name, every in by_policy.items():
        if cut := [one for one in every if one.cuts_answer]:
            longest = max(one.answer for one in cut)
            yield (
                f"policy {name!r}: in {len(cut)} of {len(every)} first turns a move without a word takes up to "
                f"{longest} tokens and is cut off by max_tokens {cut[0].max_answer}; give max_tokens={longest + _WORDS}"
            )
        if full := [one for one in every if one.leaves_no_room]:
            needed = max(one.needed for one in full)
            yield (
                f"policy {name!r}: {len(full)} of {len(every)} first turns take up to {needed} tokens with their "
                f"answer and do not fit into {full[0].limit}; give max_length={needed + _TURNS}, or another format"
            )
