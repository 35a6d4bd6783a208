"""The environment as TRL's tools and as its rollout function: moves bind, and no word of a partner trains."""

from itertools import count
from types import SimpleNamespace

import pytest
from sotopia_training.grpo import seats
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import TokenPlayer, columns
from sotopia_training.models.loading import load_causal_lm
from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from sotopia_training.models.tokenizers import answer_ids, load_tokenizer
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import naming
from sotopia_env.adapters import rows
from sotopia_env.adapters.trl_tools import SeatTools
from tests.adapters import failing
from tests.test_docs import PAGES, blocks

TASKS = naming.task_set("bargaining", 1, 0, "easy")


def test_a_deal_made_with_tools_has_the_evaluators_reward():
    row = next(rows(TASKS, "conceder:horizon=2"))
    environment = SeatTools()
    opening = environment.reset(**row, prompt="unused")
    assert TASKS[0].scenario.seats[0].private_info in opening
    answer = environment.speak("Let me begin.", {"propose": {"price": int(TASKS[0].scenario.outcome.issues[0].low)}})
    assert "price $" in answer
    assert environment.get_reward() == 0, "words do not bind"
    number = max(environment._seat.table.observe("agent_0").moves.accept)
    assert environment.speak("Deal!", {"accept": number}) == "The conversation is over."
    assert environment._seat.table.stop.value == "settled"
    assert environment.get_reward() == environment._seat.reward
    assert environment.speak("Wait!") == "The conversation is over."
    assert environment.reset(**row) == opening


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

    tokenizer = make_tiny_tokenizer([CALL] * 50 + [qwen3_chat_template], 600)
    tokenizer.chat_template = qwen3_chat_template
    blank = make_tiny_model(tmp_path / "blank", tokenizer, hidden=64, layers=2, heads=2, context=4096)
    task = [{"role": "user", "content": "Act in this situation with the tools you have, one call at a time."}]
    table = [{"prompt": task, **row} for row in rows(TASKS, "linear:horizon=2")]
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
        train_dataset=Dataset.from_list(table),
        processing_class=tokenizer,
        environment_factory=SeatTools,
    )
    prompts = [row["prompt"][0]["content"] + SeatTools().reset(**row) for row in table]
    taught(trainer, [[{"role": "user", "content": text}] for text in prompts])
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
        tool_messages = [message["content"] for message in conversation if message["role"] == "tool"]
        own = tokenizer.decode([token for token, mark in zip(tokens, marks, strict=True) if mark])
        other = tokenizer.decode([token for token, mark in zip(tokens, marks, strict=True) if not mark])
        assert tool_messages
        assert all(text in other and text not in own for text in tool_messages)
        assert "How about $70?" in own
    logged = trainer.state.log_history[0]
    assert logged["tools/call_frequency"] >= 1
    assert logged["tools/failure_frequency"] == 0
    rewards = [environment.get_reward() for environment in trainer.environments]
    assert logged["rewards/SeatTools/mean"] == pytest.approx(sum(rewards) / 4)


CONVERSATION = (
    '{"action_type": "speak", "argument": "How about $70?"}',
    '{"argument": "Odd  blanks. ",  "action_type": "speak"} and more',
    '{"action_type": "speak", "argument": "I am interru',
    "",
    '{"action_type": "leave"}',
)


def test_a_rollout_function_and_the_stage_play_the_same_tokens(tokenizer, monkeypatch):
    """Written badly, cut off or empty: one class makes the tokens of both."""

    def sample(prompts):
        turn = next(calls)
        answers = [answer_ids(tokenizer, CONVERSATION[turn]) for _ in prompts]
        return [ids[:-1] if turn in (2, 3) else ids for ids in answers], [[-1.0] * len(ids) for ids in answers]

    task, trainer = TASKS[0], SimpleNamespace(processing_class=tokenizer, use_vllm=True)
    trainer.args, trainer.accelerator = SimpleNamespace(max_completion_length=40), SimpleNamespace(num_processes=1)
    monkeypatch.setattr(seats, "trainer_sample", lambda trainer: sample)
    calls = iter(range(5))
    row = next(rows([task], "linear", seed=3))
    output = seats.rollout([seats.prompt_row(row)["prompt"]], trainer)
    calls = iter(range(5))
    player = TokenPlayer(tokenizer, PromptSettings(max_length=4096, max_answer=40))
    (seat,) = player.play([Situation(task, "agent_0", {"agent_1": naming.make_policy("linear")}, 3)], sample)
    assert len(seat.focal) == len(CONVERSATION)
    for name, values in columns([seat], logprobs=True).items():
        assert output[name] == values
    assert output["reward"] == [seat.reward]


def test_a_rollout_with_a_failing_partner_goes_on_or_has_no_reward(tokenizer, monkeypatch):
    trainer = SimpleNamespace(processing_class=tokenizer, use_vllm=True)
    trainer.args, trainer.accelerator = SimpleNamespace(max_completion_length=80), SimpleNamespace(num_processes=1)

    def play(partner):
        calls = count()

        def sample(prompts):
            offers = tokenizer.decode(prompts[0]).split('{"accept": ')[1:]
            text = failing.answer(next(calls), [int(part.split("}")[0]) for part in offers])
            return [answer_ids(tokenizer, text)], [None]

        monkeypatch.setattr(seats, "trainer_sample", lambda trainer: sample)
        row = {"task": "bargaining", "partner": partner, "focal": 0, "seed": failing.SEED}
        output = seats.rollout([seats.prompt_row(row)["prompt"]], trainer, longest=100_000)
        (reward,), (ids,) = output["reward"], output["completion_ids"]
        return None if reward is None else ids, reward

    failing.check_failing_partners(play, repeats=False)


def test_trl_plays_seats_by_its_rollout_function(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    played = []

    def rollout(prompts, trainer):
        played.append(seats.rollout(prompts, trainer))
        return played[-1]

    prompts = [seats.prompt_row(row) for row in rows(TASKS, "linear")]
    tokenizer = load_tokenizer(tiny_model)
    trainer = GRPOTrainer(
        load_causal_lm(ModelSettings(base=str(tiny_model))),
        reward_funcs=[seats.episode_reward],
        args=GRPOConfig(
            str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=24,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer,
        rollout_func=rollout,
    )
    trainer.train()
    output = played[0]
    assert len(output["reward"]) == 4
    for ids, mask, ends, rewards in zip(
        output["completion_ids"], output["env_mask"], output["turn_ends"], output["turn_rewards"], strict=True
    ):
        assert len(ids) == len(mask)
        assert len(ends) == len(rewards)
        assert all(mask[end - 1] for end in ends), "a turn ends with a token of the model"
        assert 0 in mask, "the partner's words are in the sequence and do not train"
    longest = max(map(len, output["prompt_ids"])) + 300
    short = seats.rollout([row["prompt"] for row in prompts], trainer, longest=longest)
    for prompt, ids, mask in zip(short["prompt_ids"], short["completion_ids"], short["env_mask"], strict=True):
        assert 0 < len(ids) <= longest - len(prompt)
        assert mask[-1]
    assert list(map(len, short["turn_rewards"])) == list(map(len, short["turn_ends"])), "to leave is not a turn"
    assert short["reward"] == [0, 0], "an episode that is too long ends, and nothing was agreed"


def test_the_page_trains_all_seats_of_an_episode_by_a_rollout_function(tmp_path, tokenizer, monkeypatch):
    """Its model, number of tasks and steps are smaller here."""
    make_tiny_model(tmp_path / "tiny", tokenizer, context=4096)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.chdir(tmp_path)
    code = blocks(PAGES["training-self-play.md"], "python")[-1].code
    changes = {
        '"Qwen/Qwen2.5-1.5B-Instruct"': f'"{tmp_path}/tiny"',
        "200": "2",
        "num_generations=8, per_device_train_batch_size=24": "num_generations=2, per_device_train_batch_size=6",
        "max_completion_length=192": "max_completion_length=16, max_steps=1, use_cpu=True, bf16=False, report_to=[]",
    }
    for text, other in changes.items():
        assert text in code
        code = code.replace(text, other)
    played, play = [], seats.rollout

    def rollout(prompts, trainer):
        played.append((prompts, play(prompts, trainer)))
        return played[-1][1]

    episodes = []
    make = seats.seats_of_rows
    monkeypatch.setattr(seats, "seats_of_rows", lambda *arguments: episodes.append(make(*arguments)) or episodes[-1])
    monkeypatch.setattr(seats, "rollout", rollout)
    exec(compile(code, "page", "exec"), {})
    assert len(played) == 1
    for rows_of_batch, (_, output) in zip(episodes, played, strict=True):
        assert [row.agent for row in rows_of_batch] == ["agent_0"] * 2 + ["agent_1"] * 2 + ["agent_2"] * 2
        assert len({id(row.table) for row in rows_of_batch}) == 2
        sampled = [sum(turn.end - turn.start for turn in row.focal) for row in rows_of_batch]
        assert list(map(sum, output["env_mask"])) == sampled
        assert sum(sampled)
