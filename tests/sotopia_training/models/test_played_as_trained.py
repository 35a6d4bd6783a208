"""One rule for play and training: a model reads the same tokens in both, after unusable answers too."""

import asyncio
import shutil
from dataclasses import replace

import pytest
from sotopia_training.data.samples import RowMaker
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.generation import Sampled
from sotopia_training.models.loading import write_prompt_settings
from sotopia_training.models.policy import load
from sotopia_training.models.tokenizers import prompt_ids
from sotopia_training.stage.settings import PromptSettings

from sotopia_env import tasks
from sotopia_env.naming import make_policy
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.world import Rules
from sotopia_env.world.play.recorded import observations
from sotopia_env.world.play.table import Table

HELLO = '{"action_type": "speak", "argument": "How about $300?"}'
DEAR = '{"action_type": "speak", "argument": "This!", "move": {"propose": {"price": 9000}}}'
ANSWERS = [
    ("I would rather say hello.", True),
    (HELLO, True),
    ('{"action_type": "speak", "argument": "It goes on and', False),  # cut off at the limit of tokens
    (DEAR, True),
    ("", True),
    ('{"action_type": "none", "argument": ""}', True),
    (HELLO, False),
]
"""Texts, and whether the end token was sampled."""


def sampled(tokenizer, number):
    text, finished = ANSWERS[number]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id] if finished else ids


class Dictated:
    """Stands in for a batcher: gives the answers in turn, and remembers the prompts."""

    def __init__(self, policy):
        self.sampling, self._tokenizer, self.prompts = policy.model.batcher.sampling, policy.model.tokenizer, []

    async def sample(self, ids, seed, schema=None):
        answer = sampled(self._tokenizer, len(self.prompts))
        self.prompts.append(list(ids))
        return Sampled(tuple(answer), (-1.0,) * len(answer), answer[-1:] == [self._tokenizer.eos_token_id])


@pytest.fixture(params=["brief", "chat"])
def trained(request, tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path / "model")
    settings = PromptSettings(format=request.param, max_length=1_000_000, max_answer=64)
    write_prompt_settings(tmp_path / "model", settings)
    policy = load(tmp_path)  # longer than the model's context: nothing is left out
    return replace(
        policy, model=replace(policy.model, batcher=Dictated(policy), max_length=1_000_000), context_limit=1_000_000
    ), settings


def test_prompts_in_play_equal_training_prompts_token_by_token(trained):
    policy, settings = trained
    task = tasks.generate("bargaining", 1, 5, "easy")[0]
    rules, partner = Rules(max_turns=2 * len(ANSWERS), max_silent_turns=0), make_policy("stubborn:demand=1")
    focal, other = task.agents
    table = Table(task, rules, 7)
    asyncio.run(table.play({focal: policy, other: partner}))

    prompts = []

    def sample(batch):
        prompts.extend(batch)
        return [sampled(policy.model.tokenizer, len(prompts) - 1)], None

    player = TokenPlayer(policy.model.tokenizer, settings, None)
    (episode,) = player.play(
        [Situation(task, focal, dict.fromkeys({*task.agents} - {focal}, partner), 7, rules)], sample
    )
    assert len(prompts) == len(ANSWERS)
    assert prompts == policy.model.batcher.prompts
    assert table.state.turns == episode.table.state.turns

    for record in (table.episode(), episode.record):
        rendered = [
            prompt_ids(policy.model.tokenizer, AgentPrompt(settings.format).messages(observation))
            for observation, _ in observations(record, focal)
        ]
        assert rendered == prompts
        rows = {row.turn: row for row in RowMaker(settings).rows(record, focal)}
        assert sorted(rows) == [2, 12]  # silence and what was unusable are read, and never learnt
        assert all(prompt_ids(policy.model.tokenizer, row.prompt) == prompts[turn // 2] for turn, row in rows.items())


def test_unusable_answers_are_marked_and_only_the_models_own_actions_are_valid(trained):
    policy, settings = trained
    task = tasks.generate("bargaining", 1, 5, "easy")[0]
    situation = Situation(
        task,
        task.agents[0],
        dict.fromkeys(task.agents[1:], make_policy("silent")),
        7,
        Rules(max_turns=14, max_silent_turns=0),
    )
    calls = iter(range(len(ANSWERS)))
    player = TokenPlayer(policy.model.tokenizer, settings, None)
    (episode,) = player.play([situation], lambda batch: ([sampled(policy.model.tokenizer, next(calls))], None))
    messages = AgentPrompt(settings.format).messages(episode.observation)
    own = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    assert [messages[number]["content"] for number in own] == [text for text, _ in ANSWERS]
    after = [messages[number + 1]["content"] for number in own]
    for number, reason in {0: "no JSON object", 2: "the answer was cut off", 3: "in steps of $1", 4: "no JSON"}.items():
        assert reason in after[number]
    assert [bool(turn.failure) for turn in episode.focal] == [True, False, True, True, True, False, False]
    assert episode.valid == pytest.approx(3 / 7)
