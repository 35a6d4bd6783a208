"""Batched sampling: the same tokens as transformers in any batch; end tokens, shrinking batches, waiting callers."""

import asyncio
import random
from contextlib import contextmanager

import pytest
from sotopia_training.models.batching import Batcher
from sotopia_training.models.generation import BatchedGenerator, Sampled, Sampling, uniforms
from sotopia_training.models.key_values import Prefixes

from sotopia_env.foundation.errors import InvalidValueError
from tests.errors import raises

END = 5  # an ordinary token of the vocabulary, so that a random model ends now and then


@pytest.fixture(scope="module")
def model(tiny_model):
    """The tiny model in float64.

    Products of matrices of other shapes sum in another order, which differs between processors. In float32 that
    moves a cumulative distribution by some 1e-7, and of a thousand tokens one now and then falls between the two
    values. In float64 the shift is 1e-16: tokens are the same on any processor.
    """
    from sotopia_training.models.loading import load_causal_lm
    from sotopia_training.stage.settings import ModelSettings

    return load_causal_lm(ModelSettings(base=str(tiny_model), lora=None)).double().eval()


def prompts(count: int, seed: int = 0, longest: int = 60) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(6, 300) for _ in range(draw.randrange(3, longest))] for _ in range(count)]


def generator(model, tokenizer, end_ids=None, reuse=False, **sampling) -> BatchedGenerator:
    limits = Sampling(**{"max_new_tokens": 12, **sampling})
    return BatchedGenerator(model, tokenizer, limits, end_ids, Prefixes(limits.max_tokens) if reuse else None)


def test_greedy_tokens_are_those_of_transformers(model, tokenizer):
    import torch

    batch = prompts(5)
    ours = generator(model, tokenizer, temperature=0.0).generate(batch, [0] * 5)
    for ids, answer in zip(batch, ours, strict=True):
        theirs = model.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
        )
        assert list(answer.ids) == theirs[0, len(ids) :].tolist()


def test_logprobs_are_those_of_the_model_at_the_sampling_temperature(model, tokenizer):
    import torch

    (ids,) = prompts(1)
    (answer,) = generator(model, tokenizer, temperature=0.5, top_p=0.9).generate([ids], [3])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*ids, *answer.ids]])).logits[0]
    expected = (logits / 0.5).log_softmax(-1)[len(ids) - 1 : -1].gather(1, torch.tensor(answer.ids)[:, None]).squeeze(1)
    assert answer.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("max_batch", [1, 3, 64])
def test_a_row_depends_on_its_prompt_and_seed_not_on_its_batch(model, tokenizer, max_batch):
    batch, seeds = prompts(12), list(range(100, 112))
    alone = [
        generator(model, tokenizer, [END]).generate([ids], [seed])[0] for ids, seed in zip(batch, seeds, strict=True)
    ]
    order = random.Random(1).sample(range(12), 12)
    shared = generator(model, tokenizer, [END], max_batch=max_batch)
    answers = shared.generate([batch[i] for i in order], [seeds[i] for i in order])
    assert [f.ids for f in answers] == [alone[i].ids for i in order]
    # Sums in another order differ in the last digits of float32, which has seven.
    assert answers[0].logprobs == pytest.approx(alone[order[0]].logprobs, rel=1e-5, abs=1e-5)


def test_seeds_make_the_difference_and_equal_prompts_are_read_once(model, tokenizer):
    (ids,) = prompts(1)
    sizes = []
    handle = model.register_forward_pre_hook(
        lambda m, a, k: sizes.append(tuple(k["input_ids"].shape)), with_kwargs=True
    )
    try:
        answers = generator(model, tokenizer).generate([ids] * 6, [1, 2, 3, 1, 2, 3])
    finally:
        handle.remove()
    assert sizes[0] == (1, len(ids))
    assert sizes[1] == (6, 1)
    assert [f.ids for f in answers[:3]] == [f.ids for f in answers[3:]]
    assert len({f.ids for f in answers}) == 3
    assert answers[0].ids == generator(model, tokenizer).generate([ids], [1])[0].ids


def test_global_randomness_plays_no_part(model, tokenizer):
    import torch

    batch = prompts(3)
    torch.manual_seed(1)
    first = generator(model, tokenizer).generate(batch, [7, 8, 9])
    state = torch.manual_seed(2).get_state()
    assert generator(model, tokenizer).generate(batch, [7, 8, 9]) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_answers_end_at_the_first_end_token_or_at_the_limit(model, tokenizer):
    batch = prompts(40, seed=2)
    ends = list(range(5, 60))
    answers = generator(model, tokenizer, ends, max_new_tokens=10).generate(batch, list(range(40)))
    for sampled in answers:
        assert len(sampled.ids) == len(sampled.logprobs) <= 10
        assert not set(sampled.ids[:-1]) & set(ends)
        assert sampled.finished == (sampled.ids[-1] in ends)
    assert {f.finished for f in answers} == {True, False}
    assert len({len(f.ids) for f in answers}) > 3


def test_rows_that_have_ended_leave_the_batch(model, tokenizer):
    rows = []
    handle = model.register_forward_pre_hook(
        lambda m, a, k: rows.append(k["input_ids"].shape[0]) if k["input_ids"].shape[1] == 1 else None, with_kwargs=True
    )
    try:
        answers = generator(model, tokenizer, list(range(5, 150)), max_new_tokens=20).generate(
            prompts(40), list(range(40))
        )
    finally:
        handle.remove()
    assert rows == sorted(rows, reverse=True)
    going = [sum(len(f.ids) > step + 1 for f in answers) for step in range(len(rows))]
    assert rows[-1] < 20
    assert all(batch * 0.75 < alive < batch or batch == alive for alive, batch in zip(going, rows, strict=True))


@pytest.mark.parametrize(
    ("sampling", "sizes"),
    [
        (Sampling(max_new_tokens=10, max_batch=3), [3, 3, 1]),
        (Sampling(max_new_tokens=10, max_tokens=120), [2, 3, 2]),  # 2 × (50 + 10), then 3 × (30 + 10)
        (Sampling(max_new_tokens=10, max_tokens=1), [1] * 7),
    ],
)
def test_batches_are_of_like_length_and_bounded(sampling, sizes):
    lengths = [30, 5, 50, 20, 30, 10, 40]
    batches = sampling.batches(lengths)
    assert [len(batch) for batch in batches] == sizes
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(7))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"max_new_tokens": 0}, "a whole number of at least 1"),
        ({"max_batch": True}, "a whole number of at least 1"),
        ({"temperature": -1}, "a number from 0 to 10"),
        ({"top_p": 0}, "a number above 0, at most 1"),
    ],
)
def test_invalid_sampling_is_refused(wrong, expected):
    ((field, value),) = wrong.items()
    with raises(InvalidValueError, field=field, expected=expected, got=value):
        Sampling(**wrong)


def test_prompts_and_seeds_must_match(model, tokenizer):
    with raises(InvalidValueError, field="seeds", expected="one for each of 1 prompts", got=2):
        generator(model, tokenizer).generate([[7]], [1, 2])
    with raises(InvalidValueError, field="prompt_ids", got="[]"):
        generator(model, tokenizer).generate([[]], [1])
    assert generator(model, tokenizer).generate([], []) == []


def test_noise_is_uniform_and_differs_between_seeds_and_steps():
    noise = uniforms(range(2000), 50)
    assert noise.shape == (2000, 50)
    assert 0 < noise.min() < noise.max() < 1
    assert abs(noise.mean() - 0.5) < 0.005
    assert abs((noise[:-1] * noise[1:]).mean() - 0.25) < 0.005  # neighbouring seeds
    assert abs((noise[:, :-1] * noise[:, 1:]).mean() - 0.25) < 0.005  # neighbouring steps
    assert len(set(noise[:, 0].tolist())) > 1990
    assert (uniforms([2**63 - 1, -1], 2) == uniforms([2**63 - 1, 2**64 - 1], 2)).all()


def test_tokens_are_drawn_from_the_models_distribution(model, tokenizer):
    import torch

    (ids,) = prompts(1, seed=4)
    count = 4000
    answers = generator(model, tokenizer, max_new_tokens=1, temperature=0.7, max_batch=count).generate(
        [ids] * count, list(range(count))
    )
    with torch.no_grad():
        chances = (model(input_ids=torch.tensor([ids])).logits[0, -1] / 0.7).softmax(-1)
    counts = torch.bincount(torch.tensor([f.ids[0] for f in answers]), minlength=len(chances))
    likely = chances.topk(20).indices
    spread = (chances[likely] * (1 - chances[likely]) / count).sqrt()
    assert ((counts[likely] / count - chances[likely]).abs() < 4.5 * spread).all()


def test_top_p_samples_the_smallest_set_that_reaches_it(model, tokenizer):
    import torch

    (ids,) = prompts(1, seed=4)
    with torch.no_grad():
        chances, order = model(input_ids=torch.tensor([ids])).logits[0, -1].softmax(-1).sort(descending=True)
    allowed = set(order[: int((chances.cumsum(0) < 0.8).sum()) + 1].tolist())
    answers = generator(model, tokenizer, max_new_tokens=1, top_p=0.8, max_batch=500).generate([ids] * 500, range(500))
    assert {f.ids[0] for f in answers} <= allowed
    assert len({f.ids[0] for f in answers}) > 1


def test_the_model_keeps_its_mode_and_can_be_trained_afterwards(model, tokenizer):
    model.train()
    try:
        generator(model, tokenizer).generate(prompts(2), [1, 2])
        assert model.training
        import torch

        model(input_ids=torch.tensor([[7, 8, 9]]), labels=torch.tensor([[7, 8, 9]])).loss.backward()
    finally:
        model.zero_grad()
        model.eval()


def test_without_memory_for_all_halves_are_answered(model, tokenizer, monkeypatch, caplog):
    import torch

    batch, seeds = prompts(5), list(range(5))
    expected = generator(model, tokenizer).generate(batch, seeds)
    small, decode = generator(model, tokenizer), BatchedGenerator._decode

    def narrow(self, rows, numbers, matchers):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, rows, numbers, matchers)

    monkeypatch.setattr(BatchedGenerator, "_decode", narrow)
    assert [f.ids for f in small.generate(batch, seeds)] == [f.ids for f in expected]
    assert "no memory to answer 5 prompts at once" in caplog.text


@contextmanager
def shapes_read(model):
    """The shape of each batch of tokens that the model reads, (rows, columns)."""
    shapes = []
    handle = model.register_forward_pre_hook(
        lambda m, a, k: shapes.append(tuple(k["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield shapes
    finally:
        handle.remove()


def turns(generators, first, number=4, seed=0):
    """Prompts of several turns, each with the answers of all generators; episodes end at different turns."""
    draw, prompts_now = random.Random(seed), [[*ids] for ids in first]
    for turn in range(number):
        seeds = [1000 * turn + row for row in range(len(prompts_now))]
        answers = [generator.generate(prompts_now, seeds) for generator in generators]
        yield prompts_now, answers
        prompts_now = [
            [*ids, *answer.ids, *(draw.randrange(6, 300) for _ in range(draw.randrange(1, 30)))]
            for ids, answer in zip(prompts_now, answers[0], strict=True)
            if draw.random() < 0.8
        ]
        prompts_now += prompts(2, seed=100 + turn)  # nothing of these is stored


@pytest.mark.parametrize(
    ("limits", "trains"),
    [
        ({}, False),
        ({}, True),
        ({"max_batch": 3}, False),
        ({"max_tokens": 900}, False),
        ({"max_tokens": 300, "max_batch": 4}, False),
        ({"max_tokens": 1}, False),
    ],
    ids=str,
)
def test_answers_are_the_same_with_and_without_reuse(model, tokenizer, limits, trains):
    ends = list(range(5, 40))  # rows finish at different steps
    group = [prompts(1, seed=7)[0]] * 8
    plain = generator(model, tokenizer, ends, **limits)
    reusing = generator(model, tokenizer, ends, reuse=True, **limits)
    model.train(trains)
    try:
        for _, (expected, answers) in turns([plain, reusing], [*group, *prompts(6)]):
            assert [answer.ids for answer in answers] == [answer.ids for answer in expected]
            assert [answer.finished for answer in answers] == [answer.finished for answer in expected]
            for answer, other in zip(answers, expected, strict=True):  # reported in float32
                assert answer.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    finally:
        model.eval()


def test_with_reuse_only_what_is_new_is_read(model, tokenizer):
    first = [[7] * 40, [8] * 50]
    reusing = generator(model, tokenizer, [END], reuse=True, max_new_tokens=4)
    answers = reusing.generate(first, [1, 2])
    later = [[*ids, *answer.ids, 9, 10, 11] for ids, answer in zip(first, answers, strict=True)]
    other = [[12] * 90]
    with shapes_read(model) as shapes:
        answers = reusing.generate([*later, *other], [3, 4, 5])
    assert [shape for shape in shapes if shape[1] > 1] == [(1, 90), (2, 4)]  # the last sampled token, and three
    expected = generator(model, tokenizer, [END], max_new_tokens=4).generate([*later, *other], [3, 4, 5])
    assert [answer.ids for answer in answers] == [answer.ids for answer in expected]


def changed(ids: list[int], draw: random.Random) -> list[int]:
    """A later prompt: the answer's text has other tokens, the oldest turns are left out, or an episode begins."""
    first, news = min(20, len(ids)), [draw.randrange(6, 300) for _ in range(draw.randrange(1, 20))]
    kind = draw.randrange(4)
    if kind == 0:
        return [*ids[:-2], *news]
    if kind == 1:
        return [*ids[:first], *ids[first + 10 :], *news]
    return ids[:first] + news if kind == 2 else [*ids, *news]


@pytest.mark.parametrize("max_tokens", [1 << 17, 800, 200])
def test_prompts_with_a_short_common_prefix_are_answered_as_without_reuse(model, tokenizer, max_tokens):
    """Seats act in turn, some are asked twice and episodes come and go: what is stored is found where it fits."""
    draw, ends = random.Random(5), list(range(5, 40))
    stored = Prefixes(max_tokens)
    limits = [Sampling(12), Sampling(6, 0.5)]  # generators of one model share what is stored
    reusing = [BatchedGenerator(model, tokenizer, sampling, ends, stored) for sampling in limits]
    seats = prompts(9, longest=40)
    for turn in range(12):
        acting = draw.sample(range(9), draw.randrange(1, 9))
        seeds = [100 * turn + row for row in range(len(acting))]
        batch = [seats[seat] for seat in acting]
        kind = turn % 2
        answers = reusing[kind].generate(batch, seeds)
        expected = BatchedGenerator(model, tokenizer, limits[kind], ends).generate(batch, seeds)
        assert [answer.ids for answer in answers] == [answer.ids for answer in expected]
        assert stored.tokens <= max_tokens
        for seat, answer in zip(acting, answers, strict=True):
            seats[seat] = changed([*seats[seat], *answer.ids], draw)


def test_stored_tokens_count_against_the_limit(model, tokenizer, monkeypatch):
    small = generator(model, tokenizer, [END], reuse=True, max_tokens=500, max_new_tokens=8)
    withdraw, totals = Prefixes.withdraw, []

    def counted(self, rows, reserved):
        prefixes = withdraw(self, rows, reserved)
        totals.append((self.tokens, reserved))
        return prefixes

    monkeypatch.setattr(Prefixes, "withdraw", counted)
    for _ in turns([small], prompts(8)):
        assert 0 < small._prefixes.tokens <= 500
    assert all(stored + reserved <= 500 for stored, reserved in totals if stored)
    assert any(stored for stored, _ in totals)


def test_without_memory_what_is_stored_is_dropped_first(model, tokenizer, monkeypatch, caplog):
    import torch

    first, decode = prompts(4), BatchedGenerator._decode
    plain, reusing = generator(model, tokenizer, [END]), generator(model, tokenizer, [END], reuse=True)
    answers = reusing.generate(first, range(4))
    later = [[*ids, *answer.ids, 9] for ids, answer in zip(first, answers, strict=True)]
    expected = [answer.ids for answer in plain.generate(later, range(4))]

    def narrow(self, rows, numbers, matchers):
        if self._prefixes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, rows, numbers, matchers)

    monkeypatch.setattr(BatchedGenerator, "_decode", narrow)
    assert [answer.ids for answer in reusing.generate(later, range(4))] == expected
    assert "dropping the stored ones" in caplog.text
    assert "half" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Mistral", {"sliding_window": 16}),
        ("Lfm2", {"layer_types": ["conv", "full_attention"], "block_ff_dim": 32}),
    ],
)
def test_models_that_do_not_store_all_keys_read_the_whole_prompt_again(tokenizer, kind, more):
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(vocab_size=300, num_key_value_heads=2, **sizes, **more)
    other = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    plain, reusing = generator(other, tokenizer, [END]), generator(other, tokenizer, [END], reuse=True)
    prompt = [7] * 40
    (answer,) = reusing.generate([prompt], [1])
    assert [answer] == plain.generate([prompt], [1])
    assert len(reusing._prefixes) == 0
    later = [[*prompt, *answer.ids, 9, 10]]
    assert reusing.generate(later, [2]) == plain.generate(later, [2])


class Counting:
    """Stands in for a generator: answers a prompt with its own tokens, and remembers its batches."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.batches: list[int] = []

    def generate(self, ids, seeds, schemas):
        self.batches.append(len(ids))
        if [13] in list(ids):
            raise ValueError("unlucky")
        return [Sampled(tuple(prompt), (0.0,) * len(prompt), True) for prompt in ids]


def batcher(**sampling):
    counting = Counting(Sampling(**sampling))
    return Batcher(lambda: counting, counting.sampling), counting


def test_waiting_prompts_are_answered_in_one_batch():
    gathered, fake = batcher()

    async def episode(number):
        for turn in range(3):
            for _ in range(number % 3):  # some need a few passes of the loop before they ask
                await asyncio.sleep(0)
            answer = await gathered.sample([100 + number, turn], 0)
            assert answer.ids == (100 + number, turn)

    async def play():
        await asyncio.gather(*(episode(number) for number in range(20)))

    asyncio.run(play())
    assert fake.batches == [20, 20, 20]


def test_batches_are_answered_one_by_one_and_a_failure_stays_in_its_batch():
    gathered, fake = batcher(max_batch=2)

    async def play():
        return await asyncio.gather(*(gathered.sample([n], 0) for n in range(10, 15)), return_exceptions=True)

    results = asyncio.run(play())
    assert fake.batches == [2, 2, 1]
    assert [str(f) if isinstance(f, Exception) else f.ids for f in results] == [
        (10,),
        (11,),
        "unlucky",
        "unlucky",
        (14,),
    ]


def test_a_cancelled_caller_gets_no_answer_and_another_loop_works():
    gathered, fake = batcher()

    async def given_up():
        future = asyncio.ensure_future(gathered.sample([1], 0))
        await asyncio.sleep(0)
        future.cancel()
        assert (await gathered.sample([2], 0)).ids == (2,)

    async def left_behind():
        asyncio.ensure_future(gathered.sample([3], 0))  # noqa: RUF006
        await asyncio.sleep(0)

    async def later():
        return await asyncio.wait_for(gathered.sample([4], 0), 240)

    asyncio.run(given_up())
    asyncio.run(left_behind())
    assert asyncio.run(later()).ids == (4,)
    assert fake.batches == [1, 1]
