"""The environment as TRL's tools: schemas that can be made, the same rules, and an end that cannot be talked past."""

import functools

import pytest
from transformers.utils import get_json_schema

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, ModelRefusedError, PolicyError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies.policy import Decision
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.dynamics import Rules
from training.grpo.settings import RewardSettings
from training.grpo.situations import Situation, SituationSettings, situations
from training.grpo.tools import SocialEnvironment, tool_rows
from training.models.loading import load_causal_lm
from training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from training.stage.settings import ModelSettings


@pytest.fixture
def wanted():
    return situations(
        SituationSettings(
            families=("bargaining",), level="easy", count=2, partners=("conceder:horizon=2",), max_turns=6
        )
    )


def tools(environment):
    """What TRL takes for tools: every public method but reset and get_reward."""
    names = [name for name in dir(environment) if not name.startswith("_") and name not in ("reset", "get_reward")]
    return [getattr(environment, name) for name in names]


def test_every_public_method_is_a_tool_with_a_schema(wanted):
    found = [get_json_schema(tool)["function"] for tool in tools(SocialEnvironment(wanted))]
    assert [tool["name"] for tool in found] == ["do", "gesture", "leave", "speak"]
    assert all(tool["description"] for tool in found)
    assert found[3]["parameters"]["properties"]["to"]["nullable"]


def test_a_deal_made_with_tools_is_worth_what_the_evaluator_says(wanted):
    environment = functools.partial(SocialEnvironment, wanted, RewardSettings(scalarisation="goal"))()
    row = tool_rows(wanted)[0]
    told = environment.reset(**row)
    task = wanted[0].task
    assert task.scenario.seats[0].private_info in told
    low = task.scenario.outcome.issues[0].low
    answer = environment.speak("Let me begin.", move={"propose": {"price": int(low)}})
    assert "offers (#2): price $" in answer
    assert '{"accept": 2}' in answer
    assert "I accept, in words" not in environment.speak("I accept, in words.")
    assert environment.get_reward() == 0, "words bind nobody"
    assert "not possible" in environment.speak("Deal!", move={"accept": 99})
    number = max(environment._table.observe("agent_0").moves.accept)
    environment.speak("Deal!", move={"accept": number})
    assert environment._table.state.stop.value == "settled"


def test_the_end_is_final_and_a_new_episode_begins_afresh(wanted):
    environment = SocialEnvironment(wanted, RewardSettings(scalarisation="goal"))
    first = environment.reset(situation=0)
    assert "over" in environment.leave()
    assert environment.speak("Wait!") == "The conversation is over."
    assert environment.get_reward() == 0
    assert environment.reset(situation=0) == first


def test_what_no_policy_could_do_no_tool_can(wanted):
    environment = SocialEnvironment(wanted, RewardSettings(scalarisation="goal", invalid=-1.0))
    environment.reset(situation=0)
    assert "not possible" in environment.speak("psst", to=["Bo"])
    assert environment.get_reward() == -1


class Failing:
    """A partner whose model cannot be asked the first time."""

    name, parameters = "failing", {}

    def __init__(self, error):
        self.errors = [error]

    async def act(self, observation, seed):
        if self.errors:
            raise self.errors.pop()
        return Decision(NO_ACTION)


def beside(partner, seat=0):
    """An environment with a partner of one's own."""
    task = tasks.generate("bargaining", 1, 0, "easy")[0]
    wanted = [Situation(task, task.agents[seat], partner, 0, Rules(max_turns=6))]
    return SocialEnvironment(wanted, RewardSettings(scalarisation="goal"))


@pytest.mark.parametrize("seat", [0, 1], ids=["in a tool", "in reset"])
def test_an_episode_whose_partner_failed_has_no_reward_and_the_next_one_may(seat):
    environment = beside(Failing(PolicyError("no answer")), seat)
    environment.reset(situation=0)
    assert "over" in environment.speak("How about $54?")
    assert environment.speak("Are you there?") == "The conversation is over."
    assert environment.get_reward() is None
    environment.reset(situation=0)
    environment.leave()
    assert environment.get_reward() == 0


def test_what_would_end_every_episode_ends_training():
    environment = beside(Failing(ModelRefusedError("no such key", kind="auth")))
    environment.reset(situation=0)
    environment.speak("How about $54?")
    with pytest.raises(ModelRefusedError):
        environment.get_reward()


def test_an_episode_that_cannot_be_scored_has_no_reward():
    task = tasks.starter_tasks()[0]
    wanted = [Situation(task, task.agents[0], make("silent"), 0, Rules(max_turns=6))]
    environment = SocialEnvironment(wanted, RewardSettings(evaluator="verified", scalarisation="goal"))
    environment.reset(situation=0)
    environment.leave()
    assert environment.get_reward() is None


def test_calls_after_the_end_do_not_dilute_the_penalty():
    environment = beside(make("silent"))
    environment.reset(situation=0)
    environment.speak("psst", to=["Nobody"])
    environment.leave()
    for _ in range(8):
        environment.speak("more")
    assert environment.get_reward() == -0.5


@pytest.mark.parametrize("reward", [RewardSettings(model="rm"), RewardSettings(credit="acts")])
def test_rewards_it_cannot_give_are_refused(wanted, reward):
    with pytest.raises(InvalidValueError, match="model and credit"):
        SocialEnvironment(wanted, reward)


def test_partners_who_begin_have_spoken_before_the_first_call(wanted):
    environment = SocialEnvironment(wanted)
    assert "said:" not in environment.reset(situation=0)
    assert "said:" in environment.reset(situation=1)


def test_a_private_word_reaches_only_its_hearers():
    task = tasks.generate("group_decision", 1, 3, "easy")[0]
    assert task.scenario.private_messages
    environment = SocialEnvironment([Situation(task, task.agents[0], make("silent"), 0, Rules(max_turns=6))])
    environment.reset(situation=0)
    environment.speak("Between us.", to=[task.characters[1].name])
    turn = next(turn for turn in environment._table.state.turns if turn.actor == task.agents[0])
    assert turn.action.to == (task.agents[1],)


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

    wanted = situations(
        SituationSettings(families=("bargaining",), level="easy", count=1, partners=("linear:horizon=2",), max_turns=4)
    )
    weights = {"goal": 1.0, "financial_and_material_benefits": 1.0}
    factory = functools.partial(SocialEnvironment, wanted, RewardSettings(scalarisation=weights))
    tokenizer = make_tiny_tokenizer([CALL] * 50 + [qwen3_chat_template], 600)
    tokenizer.chat_template = qwen3_chat_template
    blank = make_tiny_model(tmp_path / "blank", tokenizer, hidden=64, layers=2, heads=2, context=4096)
    rows = tool_rows(wanted)
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
    assert logged["rewards/SocialEnvironment/mean"] == pytest.approx(sum(rewards) / 4)
    assert any(rewards)
