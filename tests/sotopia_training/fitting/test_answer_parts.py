"""Which tokens of an answer are its move and which are words, and training without most of the words."""

import pytest
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, source_rows
from sotopia_training.fitting.answer_parts import move_tokens, word_tokens
from sotopia_training.fitting.behavior_cloning import IGNORED, BehaviorCloningSettings, training_rows
from sotopia_training.models.tokenizers import answer_ids, answer_text
from sotopia_training.stage.settings import ModelSettings

from tests.sotopia_training.conftest import SHORT

OFFER = '{"propose": {"price": 4}}'


@pytest.mark.parametrize(
    ("completion", "move", "words"),
    [
        (f'{{"action_type": "speak", "move": {OFFER}, "argument": "I say 4."}}', OFFER, "I say 4."),
        (f'{{"action_type": "speak", "argument": "I say 4.", "move": {OFFER}}}', OFFER, "I say 4."),
        (
            '{"action_type": "speak", "move": {"accept": 1}, "argument": "the \\"move\\": 1", "to": []}',
            '{"accept": 1}',
            'the \\"move\\": 1',
        ),
        ('{"action_type": "speak", "argument": "move"}', "", ""),  # nothing but words
        ('{"action_type": "speak", "move": null, "argument": "move"}', "", ""),
        (f'{{"action_type": "speak", "move": {OFFER}, "argument": ""}}', OFFER, ""),
        ("no JSON", "", ""),
        ("[1]", "", ""),
        ('{"move": 1', "", ""),
        ("", "", ""),
    ],
)
def test_the_tokens_of_a_move_are_told_from_those_of_words(tokenizer, completion, move, words):
    ids = answer_ids(tokenizer, completion)
    moves, spoken = move_tokens(tokenizer, completion), word_tokens(tokenizer, completion)
    assert len(moves) == len(spoken) == len(ids)
    assert not moves[-1]  # the end token
    assert not spoken[-1]
    assert not any(map(all, zip(moves, spoken, strict=True)))
    # A token may begin before the move, with its key, and one that holds a quotation mark is not counted as words.
    assert move.strip("{}") in (text := text_of(tokenizer, ids, moves))
    assert "I say" not in text
    assert text_of(tokenizer, ids, spoken) in words
    assert len(text_of(tokenizer, ids, spoken)) >= len(words) - 8


def text_of(tokenizer, ids, flags):
    return answer_text(tokenizer, [token for token, flag in zip(ids, flags, strict=True) if flag])


@pytest.mark.parametrize("rows", ["turns", "conversations"])
def test_a_share_of_the_answers_is_trained_with_its_words(expert_run, tokenizer, rows):
    sources = [SourceSettings(run=str(expert_run))]
    moves = sum("move" in row.completion for row in source_rows(sources, RowMaker(SHORT)))

    def trained(share):
        settings = BehaviorCloningSettings(
            model=ModelSettings(base="x"), prompt=SHORT, data=sources, rows=rows, word_share=share, output="x"
        )
        pairs = list(training_rows(settings, tokenizer)[1])
        return [tokens.input_ids for _, tokens in pairs], [tokens.labels for _, tokens in pairs]

    ids, everything = trained(1.0)
    for share in (0.0, 0.5):
        same, labels = trained(share)
        assert same == ids  # the words are still read, by the later turns
        left = sum(row.count(IGNORED) for row in labels) - sum(row.count(IGNORED) for row in everything)
        assert 2 * moves * (1 - share) < left < 20 * moves * (1 - share)
        flat = [pair for whole, part in zip(everything, labels, strict=True) for pair in zip(whole, part, strict=True)]
        assert all(part in (IGNORED, whole) for whole, part in flat)
    assert trained(0.5) == trained(0.5)
