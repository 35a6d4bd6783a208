"""The environment as TRL's tools, by the class in docs/training.md: moves bind, and no word of a partner trains."""

import asyncio
import functools
import json
import re
from pathlib import Path

import pytest

from sotopia_env.naming import make_evaluator
from sotopia_env.table import Table
from sotopia_env.world import Scalarisation
from training.grpo.situations import SituationSettings, situations
from training.models.loading import load_causal_lm
from training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from training.stage.settings import ModelSettings

DOCS = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
(SOURCE,) = re.findall(r"```python\n(class SeatTools:.*?)```", DOCS, re.DOTALL)
NAMES = {"Table": Table, "Scalarisation": Scalarisation, "asyncio": asyncio, "json": json}
exec(SOURCE, NAMES)
VERIFIED = make_evaluator("verified")


def tools_of(**values):
    wanted = situations(
        SituationSettings(families=("bargaining",), level="easy", count=1, **{"max_turns": 6, **values})
    )
    return wanted, functools.partial(NAMES["SeatTools"], wanted, VERIFIED)


def test_a_deal_made_with_tools_is_worth_what_the_evaluator_says():
    (one, _), factory = tools_of(partners=("conceder:horizon=2",))
    environment = factory()
    told = environment.reset(0)
    assert one.task.scenario.seats[0].private_info in told
    answer = environment.speak("Let me begin.", {"propose": {"price": int(one.task.scenario.outcome.issues[0].low)}})
    assert "price $" in answer
    assert environment.get_reward() == 0, "words bind nobody"
    number = max(environment._table.observe(one.seat).moves.accept)
    environment.speak("Deal!", {"accept": number})
    assert environment._table.stop.value == "settled"
    assert environment.speak("Wait!") == "The conversation is over."
    assert "not possible" not in told
    assert environment.reset(0) == told


CALL = '<tool_call>\n{"name": "speak", "arguments": {"text": "How about $70?"}}\n</tool_call>'


def taught(trainer, prompts):
    """Teaches a blank model to call a tool, whatever it is asked."""
    import torch

    tokenizer = trainer.processing_class
    answer = tokenizer.encode(f"{CALL}<|im_end|>", add_special_tokens=False)
    rows = []
    for prompt in prompts:
        ids = tokenizer.apply_chat_template(
            prompt, tools=trainer.tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        rows.append((torch.tensor([ids + answer]), torch.tensor([[-100] * len(ids) + answer])))
    optimizer = torch.optim.AdamW(trainer.model.parameters(), 4e-3)
    for _ in range(60):
        loss = sum(trainer.model(input_ids=ids, labels=labels).loss for ids, labels in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.02 * len(rows):
            return
    raise AssertionError(f"the model did not learn to call a tool: {float(loss)}")


@pytest.mark.timeout(300)
def test_trl_plays_an_episode_with_the_tools_and_trains_no_word_of_the_partner(tmp_path, monkeypatch):
    """The real trainer, its real reading of tool calls, and a model that makes them."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    wanted, factory = tools_of(partners=("linear:horizon=2",), max_turns=4)
    tokenizer = make_tiny_tokenizer([CALL] * 50 + [qwen3_chat_template], 600)
    tokenizer.chat_template = qwen3_chat_template
    blank = make_tiny_model(tmp_path / "blank", tokenizer, hidden=64, layers=2, heads=2, context=4096)
    task = [{"role": "user", "content": "Act in this situation with the tools you have, one call at a time."}]
    rows = [{"prompt": task, "situation": number} for number in range(len(wanted))]
    trainer = GRPOTrainer(
        load_causal_lm(ModelSettings(base=str(blank))),
        args=GRPOConfig(
            str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=500,
            max_steps=1,
            temperature=0.2,
            use_cpu=True,
            bf16=False,
            report_to=[],
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    told = [row["prompt"][0]["content"] + factory().reset(row["situation"]) for row in rows]
    taught(trainer, [[{"role": "user", "content": text}] for text in told])
    played = []
    play = trainer._tool_call_loop

    def watched(*args):
        played.append(play(*args))
        return played[-1]

    monkeypatch.setattr(trainer, "_tool_call_loop", watched)
    trainer.train()
    mask, completions, ids = played[0][:3]
    assert len(completions) == 4
    for marks, conversation, tokens in zip(mask, completions, ids, strict=True):
        heard = [message["content"] for message in conversation if message["role"] == "tool"]
        own = tokenizer.decode([token for token, mark in zip(tokens, marks, strict=True) if mark])
        other = tokenizer.decode([token for token, mark in zip(tokens, marks, strict=True) if not mark])
        assert heard
        assert all(text in other and text not in own for text in heard)
        assert "How about $70?" in own
    logged = trainer.state.log_history[0]
    assert logged["tools/call_frequency"] >= 1
    assert logged["tools/failure_frequency"] == 0
    rewards = [environment.get_reward() for environment in trainer.environments]
    assert logged["rewards/SeatTools/mean"] == pytest.approx(sum(rewards) / 4)
