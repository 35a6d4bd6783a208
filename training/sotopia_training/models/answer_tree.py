"""Probabilities of whole answers to many prompts, from one pass over the tokens that they do not share.

Prompts that begin alike, and answers to one prompt, are the branches of a tree of tokens. A pass reads each node once:
it attends to its ancestors alone, and its position is its depth. So questions on every turn of a conversation cost the
conversation once and the tokens of the questions.

The probability of an answer is that of a model which must give one of the answers: at every node where they differ, the
probabilities of the tokens that continue any of them are divided by their sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sotopia_training.models.key_values import Prefixes, can_be_stored, common_tokens, fill, new_cache

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_Ids = tuple[int, ...]
_MOST_NODES = 4_096
"""The attention mask of a pass has a row and a column for each node."""


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """A prompt, and the answers of which one must follow.

    Attributes:
        prompt: token ids, at least one.
        answers: token ids of different answers, of which none is the beginning of another: each ends with an end token.
    """

    prompt: _Ids
    answers: tuple[_Ids, ...]

    def forks(self) -> Iterator[tuple[_Ids, tuple[int, ...]]]:
        """Yields the beginnings after which the answers differ, with the tokens that follow them there."""
        beginnings: dict[_Ids, dict[int, None]] = {}
        for answer in self.answers:
            for index, token in enumerate(answer):
                beginnings.setdefault(answer[:index], {})[token] = None
        for beginning, tokens in beginnings.items():
            if len(tokens) > 1:
                yield beginning, tuple(tokens)

    def probabilities(self, steps: Mapping[_Ids, Mapping[int, float]]) -> tuple[float, ...]:
        """Returns the probability of each answer; they sum to 1.

        Args:
            steps: for each of :meth:`forks`, the probability of each token after it.
        """
        return tuple(
            math.prod(step[answer[len(beginning)]] for beginning, step in steps.items() if _extends(answer, beginning))
            for answer in self.answers
        )


def _extends(answer: _Ids, beginning: _Ids) -> bool:
    return answer[: len(beginning)] == beginning


@dataclass(slots=True)
class _Tree:
    """The tokens to read, parents before children.

    Attributes:
        stored: the tokens whose keys and values are known: the upper part of one branch.
        tokens: the token of each node.
        parents: the index of each node's parent; -1 where the parent is stored.
        depths: the number of tokens before each node.
        joins: the number of stored tokens that each node attends to.
    """

    stored: _Ids
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)
    _children: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def add(self, ids: _Ids) -> int:
        """Adds a branch; returns the index of its last node."""
        # The last token is read in any case, because its logits are not stored.
        join = min(common_tokens(ids, self.stored), len(ids) - 1)
        node = -1
        for depth in range(join, len(ids)):
            key = (node, join, ids[depth])
            if key not in self._children:
                self._children[key] = len(self.tokens)
                self.tokens.append(ids[depth])
                self.parents.append(node)
                self.depths.append(depth)
                self.joins.append(join)
            node = self._children[key]
        return node

    def attention(self) -> Any:
        """Returns what each node attends to, as booleans (nodes, stored + nodes)."""
        import numpy as np

        size, width = len(self.tokens), len(self.stored)
        sight = np.zeros((size, width + size), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sight[node] = sight[parent]
            else:
                sight[node, : self.joins[node]] = True
            sight[node, width + node] = True
        return sight


def probabilities(
    model: PreTrainedModel, choices: Sequence[AnswerSet], prefixes: Prefixes, temperature: float
) -> list[tuple[float, ...]]:
    """Returns the probabilities of the answers of each choice.

    Args:
        model: a causal language model in evaluation mode. One whose layers do not have one key and one value per token
            reads every prompt on its own.
        choices: prompts with answers.
        prefixes: keys and values of earlier sequences, which stay stored.
        temperature: divides the logits; 0 counts as 1.
    """
    if not can_be_stored(model):
        return [choice.probabilities(_read_alone(model, choice, temperature)) for choice in choices]
    results: dict[int, tuple[float, ...]] = {}
    for group in _groups(choices):
        for number, steps in zip(
            group, _read(model, [choices[one] for one in group], prefixes, temperature), strict=True
        ):
            results[number] = choices[number].probabilities(steps)
    return [results[number] for number in range(len(choices))]


def _groups(choices: Sequence[AnswerSet]) -> list[list[int]]:
    """The numbers of choices that are read in one pass: their prompts have at least half of their tokens in common."""
    groups: list[list[int]] = []
    first: _Ids = ()
    room = 0
    for number in sorted(range(len(choices)), key=lambda number: choices[number].prompt):
        prompt = choices[number].prompt
        shared = common_tokens(prompt, first)
        nodes = len(prompt) - shared + sum(map(len, choices[number].answers))  # at most
        if groups and 2 * shared >= len(prompt) and nodes <= room:
            groups[-1].append(number)
            room -= nodes
        else:
            groups.append([number])
            first, room = prompt, _MOST_NODES - len(prompt)
    return groups


def _read(
    model: PreTrainedModel, choices: Sequence[AnswerSet], prefixes: Prefixes, temperature: float
) -> list[dict[_Ids, dict[int, float]]]:
    """The probabilities of tokens at the forks of each choice, from one pass."""
    import torch

    longest = max((choice.prompt for choice in choices), key=len)
    prefix = prefixes.longest(longest)
    tree = _Tree(longest[: prefix.tokens])
    forks = [[(tree.add((*one.prompt, *start)), start, tokens) for start, tokens in one.forks()] for one in choices]
    nodes = sorted({node for fork in forks for node, _, _ in fork})
    cache = new_cache(model, prefix.tokens + len(tree.tokens))
    fill(cache, [prefix], [prefix.tokens])
    sight = torch.from_numpy(tree.attention()).to(model.device)
    # A mask of numbers to add works with every implementation of attention; (1, 1, nodes, stored + nodes).
    mask = torch.zeros(sight.shape, dtype=model.dtype, device=model.device)
    mask = mask.masked_fill(~sight, torch.finfo(model.dtype).min)[None, None]
    output = model(
        input_ids=torch.tensor([tree.tokens], device=model.device),
        attention_mask=mask,
        position_ids=torch.tensor([tree.depths], device=model.device),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=torch.tensor(nodes, device=model.device),
    )
    logits = dict(zip(nodes, output.logits[0], strict=True))  # by node, (vocabulary,)
    return [{start: _step(logits[node], tokens, temperature) for node, start, tokens in fork} for fork in forks]


def _read_alone(model: PreTrainedModel, choice: AnswerSet, temperature: float) -> dict[_Ids, dict[int, float]]:
    """The probabilities of tokens at the forks of a choice, from one pass for each."""
    import torch

    steps = {}
    for start, tokens in choice.forks():
        ids = torch.tensor([(*choice.prompt, *start)], device=model.device)
        steps[start] = _step(model(input_ids=ids, logits_to_keep=1).logits[0, -1], tokens, temperature)
    return steps


def _step(logits: torch.Tensor, tokens: tuple[int, ...], temperature: float) -> dict[int, float]:
    """The probabilities of tokens if one of them must follow; logits are (vocabulary,)."""
    shares = (logits[list(tokens)].float() / (temperature or 1.0)).softmax(-1)
    return dict(zip(tokens, shares.tolist(), strict=True))
