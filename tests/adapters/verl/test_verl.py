"""A seat in verl's own agent loop, with its real handling of tokens; only the model's server is replaced."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from sotopia_env import naming
from sotopia_env.adapters import rows
from sotopia_env.foundation.errors import PolicyError
from tests.adapters import beliefs, failing

# Not `need`: verl installs a package `scripts`, which hides ours from the tests of the documentation.
pytest.importorskip("verl", reason="verl is not installed")

from omegaconf import OmegaConf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import DictConfigWrap

from sotopia_env.adapters.verl import SeatAgentLoop

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with a chat template, made from nothing."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", chat_template=CHATML)


class Server:
    """Answers as a model would that speaks eight times and then accepts an offer."""

    def __init__(self, reader: PreTrainedTokenizerFast) -> None:
        self.reader = reader
        self.prompts: list[str] = []

    async def generate(self, *, prompt_ids, **_):
        self.prompts.append(self.reader.decode(prompt_ids))
        move = ', "move": {"accept": true}' if len(self.prompts) > 8 else ""
        ids = self.reader.encode(f'{{"action_type": "speak", "argument": "Well?"{move}}}<|im_end|>')
        return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids))


def run(reader, server, rollout, partner, row=None):
    """The loop's output for the episode of one row."""
    loop = SeatAgentLoop(
        DictConfigWrap(OmegaConf.create(rollout)), server, reader, None, None, DictConfigWrap(OmegaConf.create({}))
    )
    row = row or next(rows(naming.task_set("bargaining", 1, 5, "medium"), partner, seed=5))

    async def work():
        loop.loop = asyncio.get_running_loop()
        return await loop.run({"temperature": 1.0}, **row, raw_prompt=[])

    return asyncio.run(work())


def test_turn_scores_are_the_change_of_what_the_others_believe():
    class Speaker(Server):
        async def generate(self, *, prompt_ids, **_):
            self.prompts.append(self.reader.decode(prompt_ids))
            ids = self.reader.encode(f"{beliefs.statement(len(self.prompts) - 1)}<|im_end|>")
            return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids))

    reader = tokenizer()
    rollout = {"actor_rollout_ref": {"rollout": {"prompt_length": 100_000, "response_length": 100_000}}}
    output = run(reader, Speaker(reader), rollout, "mute", beliefs.row())
    assert output.extra_fields["turn_scores"] == pytest.approx(asyncio.run(beliefs.expected()))


def test_a_failing_partner_is_survived_or_raised():
    """A row without a score would leave the scores of its whole batch to verl's reward function."""
    reader = tokenizer()
    rollout = {"actor_rollout_ref": {"rollout": {"prompt_length": 100_000, "response_length": 100_000}}}

    def play(partner: str):
        try:
            output = run(reader, Server(reader), rollout, partner)
        except PolicyError:
            return None, None
        return (output.response_ids, output.response_mask), output.reward_score

    failing.check_failing_partners(play, repeats=False)


@pytest.mark.parametrize("length", [100_000, 2000])
def test_an_output_is_one_seat_with_its_own_tokens_in_the_mask(length):
    reader = tokenizer()
    rollout = {"actor_rollout_ref": {"rollout": {"prompt_length": 100_000, "response_length": length}}}
    server = Server(reader)
    output = run(reader, server, rollout, "conceder")
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs) <= length
    own = reader.decode([i for i, mark in zip(output.response_ids, output.response_mask, strict=True) if mark])
    other = reader.decode([i for i, mark in zip(output.response_ids, output.response_mask, strict=True) if not mark])
    assert '"Well?"' in own
    assert "<|im_start|>user" in other
    assert "<|im_start|>user" not in own
    turns = len(server.prompts)
    assert len(output.extra_fields["turn_scores"]) == turns
    assert sum(output.extra_fields["turn_scores"]) == pytest.approx(output.reward_score)
    assert (output.reward_score > 0) == (length > 2000), "what does not fit ends the episode"
    # The model read what the tokens say: its own earlier text is in the next prompt, byte for byte.
    assert (
        json.loads(server.prompts[1].split("<|im_start|>assistant\n")[1].split("<|im_end|>")[0])["argument"] == "Well?"
    )
