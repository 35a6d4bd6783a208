"""A small random base model, with which a whole pipeline runs in minutes on a CPU and without a download.

Its tokenizer is trained on the turns of scripted experts in generated tasks; its weights are random. Its directory can
replace that of a real model everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from sotopia_env import naming, tasks
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.waiting import wait
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from sotopia_training.data.samples import RowMaker
from sotopia_training.models.gguf_files import quiet_bars
from sotopia_training.models.loading import write_prompt_settings
from sotopia_training.models.tokenizers import CHATML
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_END, _PAD = "<|im_end|>", "<|endoftext|>"
_ROLES = "system\nuser\nassistant\n"
_WORDS = r"\n| ?[^\s$]+ \z| ?[^\s$]+|\s?\$|\s+"
"""Applied after digits were split off. A word at the end of a piece includes the blank before a number."""
_NUMBER, _DIGIT = r"(?<![_\d])\d+", r"(?<!_)\d"
"""Digits of agent ids are not split off: in the JSON of a division, the model infers from the id which number follows,
which it learns sooner from one token than from three."""
_OFTEN = 400
"""Repetitions of each number and role in the tokenizer's training text, so that each becomes one token."""
_EMBEDDING_SCALE = 3.0
"""Initial size of the embeddings, relative to other weights."""


class TinyBaseSettings(Settings):
    """Settings of the model's size and of its tokenizer's texts.

    Attributes:
        families: the verified families whose texts the tokenizer is trained on.
        experts: the policies whose turns are tokenised; one plays with itself, several play each other.
        count: the number of tasks per family.
        hidden: the width; a multiple of 64 can be quantised.
    """

    families: tuple[str, ...] = Field(default=("bargaining",), min_length=1)
    experts: tuple[str, ...] = Field(default=("linear",), min_length=1)
    count: int = Field(default=40, ge=1)
    hidden: int = Field(default=128, ge=16)


class TinyBaseStage(Settings):
    """Settings of the stage that creates the model.

    Attributes:
        base: the size of the model and the texts of its tokenizer.
        prompt: the format of the texts that the tokenizer is trained on.
        output: the directory of the stage; the model is in ``model/``.
    """

    base: TinyBaseSettings = TinyBaseSettings()
    prompt: PromptSettings = PromptSettings(format="brief", max_length=512, max_answer=64)
    output: str


def run(settings: TinyBaseStage) -> None:
    """Creates the model; does nothing if it exists.

    Raises:
        InvalidValueError: the directory holds another stage.
        UnknownNameError: a family or policy does not exist.
    """
    stage = StageDirectory(Path(settings.output), "tiny_base", settings)
    if stage.is_complete():
        return
    texts = _texts(settings)
    stage.open()
    base = settings.base
    tokenizer = make_tiny_tokenizer(texts)
    make_tiny_model(stage.model, tokenizer, hidden=base.hidden)
    write_prompt_settings(stage.model, settings.prompt)
    stage.finish({"texts": len(texts), "vocabulary": len(tokenizer)})


def _texts(settings: TinyBaseStage) -> list[str]:
    base = settings.base
    task_list = tasks.generate(list(base.families), base.count * len(base.families), seed=0)
    experts = [naming.make_policy(name) for name in base.experts]
    pairs = all_matchups(experts, self_play=len(experts) == 1)
    maker = RowMaker(settings.prompt)
    return [
        text
        for episode in wait(run_episodes(plan_episodes(task_list, pairs), progress=False)).episodes
        for seat in episode.task.agents
        for row in maker.rows(episode, seat)
        for text in (*(message["content"] for message in row.prompt), row.completion)
    ]


def make_tiny_tokenizer(texts: Iterable[str], vocabulary: int = 1024, numbers: int = 0) -> PreTrainedTokenizerBase:
    """Trains a byte-level BPE tokenizer on ``texts``; digits are single tokens, so that unseen numbers are spelt out.

    Words are split only at white space and before prices, so the JSON around every action and the roles of a
    conversation become a few tokens each. A conversation is a quarter shorter than with GPT-2's split.

    Args:
        texts: the training texts.
        vocabulary: the maximum size of the vocabulary.
        numbers: whole numbers below this become one token each, as far as the vocabulary reaches: a model this small
            learns to copy one token long before it learns to copy three.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_NUMBER if numbers else _DIGIT), "isolated"),
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[_PAD, "<|im_start|>", _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    counting = " . ".join(str(number) for number in range(numbers))
    # BPE merges frequent sequences first, so these become single tokens before the vocabulary is full.
    often = chain(repeat(counting, _OFTEN if numbers else 0), repeat(_ROLES, _OFTEN))
    tokenizer.train_from_iterator(chain(texts, often), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=_END, pad_token=_PAD, chat_template=CHATML, padding_side="left"
    )


def make_tiny_model(
    directory: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    context: int = 1024,
    seed: int = 0,
) -> Path:
    """Writes a randomly initialised decoder with its tokenizer and returns the directory.

    The model is a Llama, because transformers would replace the tokenizer's class for other types. Its initialisation
    differs from the library's in three ways:

    * Weights have the standard deviation 1/sqrt(hidden). With the library's 0.02, a model of this size learns the
      format and ignores its prompt.
    * The embeddings of numbers share a direction. To copy a number the model must recognise one, and would otherwise
      learn that separately for a thousand tokens (measured: share of correctly copied prices after 200 steps 0.61
      with it, 0.04 to 0.18 without).
    * Embeddings, which are also the output layer, are three times as large, because a copied token competes with a
      thousand similar ones (measured: probability of the right price 0.28 after 450,000 tokens with it, 0.20 after
      580,000 without; six times as large was worse).

    Args:
        directory: the directory of the model.
        tokenizer: a tokenizer of :func:`make_tiny_tokenizer`.
        hidden: the width; a multiple of 64 can be quantised.
        layers: the number of layers.
        heads: the number of attention heads.
        context: the longest input in tokens.
        seed: the seed of the weights.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,  # rounded up to a multiple of 64
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=True,
        initializer_range=hidden**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=context,
    )
    # transformers draws the weights from the global generator, which is restored afterwards.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        numbers = [index for index in range(len(tokenizer)) if str(tokenizer.decode([index])).strip().isdigit()]
        embeddings = model.get_input_embeddings().weight.data  # (vocabulary, hidden)
        embeddings[numbers] += torch.randn(hidden) * hidden**-0.5
        embeddings *= _EMBEDDING_SCALE
    quiet_bars()
    model.save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
    return Path(directory)
