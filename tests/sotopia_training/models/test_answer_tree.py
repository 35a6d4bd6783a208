"""Probabilities of answers from one pass over a tree of tokens: those of a pass for each prompt and answer alone."""

from __future__ import annotations

import itertools
import random

import pytest
from sotopia_training.models import answer_tree
from sotopia_training.models.answer_tree import AnswerSet, probabilities
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.key_values import Prefixes

from tests.sotopia_training.models.test_generation import model  # noqa: F401  # a fixture

ANSWERS = ((7, 8, 20, 5), (7, 8, 21, 30, 5), (7, 8, 21, 31, 5), (9, 5))
END = 5


def alone(model, choice: AnswerSet, temperature: float = 1.0) -> list[float]:  # noqa: F811
    """The same from the definition: a walk that may take at every step what continues one of the answers."""
    import torch

    values = []
    for answer in choice.answers:
        value, left = 1.0, [*choice.answers]
        for index, token in enumerate(answer):
            follow = sorted({other[index] for other in left})
            logits = model(input_ids=torch.tensor([[*choice.prompt, *answer[:index]]])).logits[0, -1] / temperature
            value *= logits[follow].softmax(-1)[follow.index(token)].item()
            left = [other for other in left if other[index] == token]
        values.append(value)
    return values


def choices() -> list[AnswerSet]:
    """Questions on several turns of two conversations, one of them with other answers."""
    draw = random.Random(3)
    first, second = ([draw.randrange(6, 300) for _ in range(40)] for _ in range(2))
    ends = [tuple(draw.randrange(6, 300) for _ in range(4)) for _ in range(3)]
    prompts = [(*ids[:length], *end) for ids, length, end in itertools.product((first, second), (20, 33, 40), ends)]
    return [AnswerSet(prompt, ANSWERS if number % 3 else ((11, 5), (12, 5))) for number, prompt in enumerate(prompts)]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_one_pass_over_the_tree_gives_the_probabilities_of_passes_over_each_branch(model, temperature):  # noqa: F811
    asked = choices()
    shares = probabilities(model, asked, Prefixes(0), temperature)
    for choice, values in zip(asked, shares, strict=True):
        assert sum(values) == pytest.approx(1)
        assert values == pytest.approx(alone(model, choice, temperature), abs=1e-6)


def test_stored_conversations_are_not_read_again_and_stay_stored(model, tokenizer):  # noqa: F811
    asked, stored = choices(), Prefixes(100_000)
    generator = BatchedGenerator(model, tokenizer, Sampling(max_new_tokens=4), (END,), stored)
    generator.generate([one.prompt[:-4] for one in asked if len(one.prompt) == 44], [0] * 6)
    before, read = stored.tokens, []
    forward = model.forward
    model.forward = lambda **fields: (read.append(fields["input_ids"].numel()), forward(**fields))[1]
    try:
        shares = generator.shares(asked)
    finally:
        del model.forward
    assert stored.tokens == before
    # Two conversations of 40 tokens are stored: only questions and answers are left.
    assert sum(read) <= len(asked) * (4 + 3) + 2
    for choice, values in zip(asked, shares, strict=True):
        assert values == pytest.approx(alone(model, choice), abs=1e-6)


def test_large_trees_are_read_in_parts(model, monkeypatch):  # noqa: F811
    asked = choices()
    whole = probabilities(model, asked, Prefixes(0), 1.0)
    monkeypatch.setattr(answer_tree, "_MOST_NODES", 60)
    for values, part in zip(whole, probabilities(model, asked, Prefixes(0), 1.0), strict=True):
        assert part == pytest.approx(values, abs=1e-6)


def test_a_model_whose_layers_keep_no_plain_keys_and_values_reads_every_prompt(model, monkeypatch):  # noqa: F811
    asked = choices()[:4]
    monkeypatch.setattr(answer_tree, "can_be_stored", lambda model: False)
    for choice, values in zip(asked, probabilities(model, asked, Prefixes(0), 1.0), strict=True):
        assert values == pytest.approx(alone(model, choice), abs=1e-6)
