"""Sampling with vLLM: arguments that reach TRL, what is refused, and log-probabilities of whole episodes."""

import importlib.util
import socket
from types import SimpleNamespace

import pytest
import torch
from sotopia_training.grpo import sampling
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import EpisodeRollout, prompt_rows
from sotopia_training.grpo.sampling import check_sampling, through_trl
from sotopia_training.grpo.settings import RewardSettings, trainer_arguments
from sotopia_training.grpo.situations import situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.tokenizers import answer_ids

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import make_evaluator
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT
from tests.sotopia_training.grpo.grpo_settings import (
    SITUATIONS,
    multi_turn_settings,
    reward_model_of,
    single_turn_settings,
)

OFFER = '{"action_type": "speak", "argument": "How about $70?"}'


@pytest.fixture
def installed(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(sampling, "find_spec", lambda name: find_spec("trl" if name == "vllm" else name))


def checked(trainer, **more):
    settings = multi_turn_settings(trainer={"use_vllm": True, **trainer}, **more)
    arguments = trainer_arguments(settings, SHORT)
    check_sampling(settings, arguments, SHORT)
    return arguments


@pytest.mark.parametrize(
    "trainer",
    [
        {"vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3, "vllm_enable_sleep_mode": True},
        {"vllm_max_model_length": 1024, "vllm_importance_sampling_mode": "token_truncate"},
    ],
)
def test_trl_is_given_its_own_arguments(trainer, installed):
    arguments = checked(trainer)
    assert {name: getattr(arguments, name) for name in trainer} == trainer
    assert arguments.vllm_importance_sampling_correction
    assert arguments.vllm_max_model_length == trainer.get("vllm_max_model_length", SHORT.max_length)


@pytest.mark.parametrize(
    ("trainer", "more", "fields"),
    [
        ({"use_vllm": False, "vllm_mode": "server"}, {}, {"field": "trainer.use_vllm"}),
        ({"use_vllm": False, "top_k": 5}, {}, {"field": "trainer.top_k"}),
        ({"use_vllm": False, "generation_kwargs": {"top_k": 5}}, {}, {"field": "trainer.generation_kwargs"}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {}, {"field": "trainer.chat_template_kwargs"}),
        ({}, {"quantization": "nf4"}, {"field": "quantization"}),
        ({"vllm_max_model_length": 100}, {}, {"field": "trainer.vllm_max_model_length", "got": 100}),
        ({"vllm_tensor_parallel_size": 2}, {}, {"field": "trainer.vllm_tensor_parallel_size", "got": 2}),
        ({"vllm_mode": "servr"}, {}, {"field": "trainer.vllm_mode", "got": "servr"}),
    ],
)
def test_models_that_cannot_sample_are_refused_in_one_sentence(trainer, more, fields, installed):
    with raises(InvalidValueError, **fields) as caught:
        checked(trainer, **more)
    assert "\n" not in str(caught.value)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_an_unreachable_server_is_reported_before_loading(cloned, tmp_path, monkeypatch, installed):
    monkeypatch.setattr(grpo, "load_for_training", lambda *_: pytest.fail("a model was loaded"))
    trainer = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": f"http://127.0.0.1:{free_port()}"}
    settings = multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), trainer=trainer)
    with raises(InvalidValueError, field="trainer.vllm_server_base_url"):
        grpo.run(settings)
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(cloned, expert_run, tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(sampling, "find_spec", lambda name: None if name == "vllm" else find_spec(name))
    scorer = reward_model_of(cloned, tmp_path / "rm")
    out = str(tmp_path / "out")
    for settings in (
        multi_turn_settings(start_from=str(cloned), output=out, trainer={"use_vllm": True}),
        single_turn_settings(cloned, scorer, expert_run, output=out, trainer={"use_vllm": True}),
    ):
        with raises(InvalidValueError, field="trainer.use_vllm"):
            grpo.run(settings)


class VLLM:
    """In place of TRL's sampler over vLLM: the same answer always, with log-probabilities of its own."""

    use_vllm = True
    temperature = 1.0

    def __init__(self, ids):
        self.ids, self.vllm_generation = ids, self
        self.accelerator = SimpleNamespace(unwrap_model=lambda model: model, num_processes=1, distributed_type=None)
        self.model = torch.nn.Linear(1, 1)

    def _generate_single_turn(self, prompts, images, fields, count):
        values = [-0.01 * (index + 1) for index in range(len(self.ids) - 1)]
        return [self.ids for _ in prompts], [[*values, None] for _ in prompts]


def test_log_probabilities_of_the_sampler_are_at_the_tokens_it_sampled(tokenizer):
    """One for each token of the sequence, as TRL's correction needs them: 0 on partners' tokens, which are masked."""
    ids = answer_ids(tokenizer, OFFER)
    trainer = VLLM(ids)
    assert through_trl(trainer)([[1]])[1] is not None
    situation_list = situations(SITUATIONS)
    rollout = EpisodeRollout(
        TokenPlayer(tokenizer, SHORT, make_evaluator("verified")), situation_list, RewardSettings()
    )
    output = rollout([row["prompt"] for row in prompt_rows(situation_list)], trainer)
    for completion, mask, values in zip(output["completion_ids"], output["env_mask"], output["logprobs"], strict=True):
        assert len(completion) == len(mask) == len(values)
        own = [value for value, trained in zip(values, mask, strict=True) if trained]
        assert own == [*(-0.01 * (index + 1) for index in range(len(ids) - 1)), None] * (len(own) // len(ids))
        assert {value for value, trained in zip(values, mask, strict=True) if not trained} <= {0.0}
