"""A classifier of texts, made from nothing."""

from __future__ import annotations

import pytest

from studies.harm.settings import Classifier


@pytest.fixture(scope="session")
def classifier(tmp_path_factory, tiny_model) -> Classifier:
    """A classifier with random weights: what matters is that its numbers arrive unchanged."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("classifier")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    config.id2label, config.label2id = {0: "fine", 1: "toxic"}, {"fine": 0, "toxic": 1}
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.model_max_length, tokenizer.padding_side = 128, "right"  # positions count from the first token
    tokenizer.save_pretrained(folder)
    return Classifier(model=str(folder), label="toxic")
