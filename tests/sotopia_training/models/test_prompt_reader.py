"""Common beginnings are read once: the same log-probabilities and gradients, with fewer tokens."""

import random

import pytest
import torch
from sotopia_training.models.loading import load_causal_lm, lora_config
from sotopia_training.models.prompt_reader import PromptReader, common_columns
from sotopia_training.stage.settings import LoraSettings, ModelSettings


def fewest_tokens(rows):
    """By trying every column."""
    width = len(rows[0])
    return min(len({row[:column] for row in rows}) * column + len(rows) * (width - column) for column in range(width))


@pytest.mark.parametrize("seed", range(20))
def test_the_columns_minimise_the_tokens_that_are_read(seed):
    draw = random.Random(seed)
    beginnings = [[draw.randrange(3) for _ in range(6)] for _ in range(3)]
    rows = [(*draw.choice(beginnings), *(draw.randrange(3) for _ in range(3))) for _ in range(draw.randrange(1, 9))]
    column = common_columns(rows)
    assert 0 <= column < 9
    assert len({row[:column] for row in rows}) * column + len(rows) * (9 - column) == fewest_tokens(rows)


@pytest.fixture
def groups():
    """Three groups of four answers in any order, prompts padded on the left and answers on the right."""
    draw = random.Random(0)
    rows = []
    for length in (31, 40, 25):
        prompt = [draw.randrange(6, 300) for _ in range(length)]
        for _ in range(4):
            answer = [draw.randrange(6, 300) for _ in range(draw.randrange(1, 8))]
            blanks = (40 - length, 8 - len(answer))
            mask = [0] * blanks[0] + [1] * (length + len(answer)) + [0] * blanks[1]
            rows.append(([3] * blanks[0] + prompt + answer + [4] * blanks[1], mask))
    draw.shuffle(rows)
    ids, mask = zip(*rows, strict=True)
    return torch.tensor(ids), torch.tensor(mask)


@pytest.fixture(params=["all weights", "adapter", "dropout"])
def model(tiny_model, request):
    from peft import get_peft_model

    torch.manual_seed(0)
    model = load_causal_lm(ModelSettings(base=str(tiny_model), lora=None))
    if request.param == "all weights":
        return model
    model = get_peft_model(model, lora_config(LoraSettings(dropout=0.5 if request.param == "dropout" else 0)))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    return model


def loss_and_gradients(model, ids, mask):
    """As TRL's loss reads rows: log-probabilities of the answers' tokens, without a cache."""
    torch.manual_seed(1)  # of dropout
    model.zero_grad()
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    logps = logits.log_softmax(-1)[:, 39:-1].gather(2, ids[:, 40:, None])[..., 0] * mask[:, 40:]
    (logps * torch.linspace(-1, 1, len(ids))[:, None]).sum().backward()
    return logps.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("training", [True, False])
def test_log_probabilities_and_gradients_equal_those_of_separate_rows(model, groups, training, request):
    model.train(training)
    logps, gradients = loss_and_gradients(model, *groups)
    reader = PromptReader(getattr(model, "get_base_model", lambda: model)())
    again, others = loss_and_gradients(model, *groups)
    shares = not (training and "dropout" in request.node.name)
    assert (reader.tokens, reader.read) == (12 * 48, 3 * 40 + 12 * 8 if shares else 12 * 48)
    assert gradients.keys() == others.keys()
    torch.testing.assert_close(again, logps, rtol=1e-4, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()) + 1e-7)


def test_generation_is_as_before(tiny_model, groups):
    model = load_causal_lm(ModelSettings(base=str(tiny_model), lora=None)).eval()
    ids, mask = (part[:, :40] for part in groups)
    before = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    reader = PromptReader(model)
    assert torch.equal(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False), before)
    assert reader.tokens == 0
