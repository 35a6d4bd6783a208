"""A trained model in a seat: same records, same rules as any policy; who it is, what it is told, what goes wrong."""

import asyncio
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sotopia_training.models import trained_model
from sotopia_training.models.generation import BatchedGenerator, Sampled
from sotopia_training.models.loading import write_prompt_settings
from sotopia_training.models.policy import load
from sotopia_training.models.tokenizers import answer_text, prompt_ids
from sotopia_training.models.trained_model import TrainedModel, holds_causal_lm, identity
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import naming, tasks
from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError, PolicyError, UnknownNameError
from sotopia_env.policies import BestOfNPolicy, LLMPolicy
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.combined.best_of_n import OfferWorth
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import SeatView
from tests.errors import raises

GOOD = '{"action_type": "speak", "argument": "Would $40 do?"}'
SETTINGS = PromptSettings(format="brief", max_length=700, max_answer=24)


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory) -> Path:
    """The tiny model as a stage leaves it: ``model/`` with the prompt's settings beside the weights."""
    folder = tmp_path_factory.mktemp("stages") / "bc"
    shutil.copytree(tiny_model, folder / "model")
    write_prompt_settings(folder / "model", SETTINGS)
    return folder


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory) -> Path:
    """An adapter of the tiny model whose weights are not zero."""
    import torch
    from peft import get_peft_model
    from sotopia_training.models.loading import load_causal_lm, lora_config
    from sotopia_training.stage.settings import LoraSettings, ModelSettings

    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = get_peft_model(
            load_causal_lm(ModelSettings(base=str(tiny_model))), lora_config(LoraSettings(rank=4, dropout=0))
        )
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.3)
    folder = tmp_path_factory.mktemp("stages") / "sr" / "model"
    model.save_pretrained(str(folder))
    write_prompt_settings(folder, SETTINGS)
    return folder


def observation_after(turns=0, max_turns=40):
    """What a seat of a bargaining task sees after some turns of others and its own."""
    task = tasks.generate("bargaining", 1, seed=5)[0]
    state = initial_state(task, Rules(max_turns=max_turns), 0)
    splitter = naming.make_policy("boulware")
    for _ in range(turns):
        agent = state.waiting[0]
        decision = asyncio.run(splitter.act(SeatView(task, state.rules, agent).observe(state), 0))
        state = transition(state, decision.action)
    return SeatView(task, state.rules, state.waiting[0]).observe(state)


class Saying:
    """Stands in for a batcher: says the texts that it was given, and remembers what it was asked."""

    def __init__(self, policy: LLMPolicy, *texts: str) -> None:
        self.sampling = policy.model.batcher.sampling
        self.calls = []
        self._texts = list(texts)
        self._tokenizer = policy.model.tokenizer

    async def sample(self, ids, seed, schema=None):
        self.calls.append((list(ids), seed))
        text = self._texts.pop(0)
        cut = text.endswith("…")
        tokens = self._tokenizer(text.removesuffix("…"), add_special_tokens=False)["input_ids"]
        tokens += [] if cut else [self._tokenizer.eos_token_id]
        return Sampled(tuple(tokens), (-1.0,) * len(tokens), not cut)


def saying(path, *texts, **options):
    policy = load(path, **options)
    batcher = Saying(policy, *texts)
    return replace(policy, model=replace(policy.model, batcher=batcher)), batcher


def act(policy, observation, seed=1):
    return asyncio.run(policy.act(observation, seed))


def test_an_answer_becomes_an_action_with_its_tokens_and_reasons(trained):
    policy, batcher = saying(trained, GOOD, logprobs=True)
    observation = observation_after()
    decision = act(policy, observation, seed=11)
    assert (decision.action.action_type, decision.action.argument) == (ActionType.SPEAK, "Would $40 do?")
    generation = decision.generation
    assert generation.text == GOOD
    assert (generation.parse_failure, generation.reasks, generation.dropped_turns) == (None, 0, 0)
    assert generation.usage.prompt_tokens == len(batcher.calls[0][0])
    assert generation.usage.completion_tokens == len(generation.token_ids) == len(generation.logprobs)
    assert generation.token_ids[-1] == policy.model.tokenizer.eos_token_id
    assert generation.model == policy.name == "bc"
    assert batcher.calls[0][1] == 11


def test_the_prompt_is_the_one_of_training(trained):

    policy, batcher = saying(trained, GOOD)
    observation = observation_after(turns=2)
    act(policy, observation)
    assert batcher.calls[0][0] == prompt_ids(policy.model.tokenizer, AgentPrompt("brief").messages(observation))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I would rather not", "JSON"),
        ('{"action_type": "shout", "argument": "a"}', "shout"),
        ('{"action_type": "speak", "argum…', "cut off at its limit of tokens"),
        ('{"action_type": "speak", "argument": "psst", "to": ["agent_1"]}', "private"),
    ],
)
@pytest.mark.parametrize(("on_unusable", "action"), [("none", ActionType.NONE), ("forfeit", ActionType.LEAVE)])
def test_unusable_text_has_its_configured_consequence_and_is_recorded(trained, text, reason, on_unusable, action):
    policy, batcher = saying(trained, text, on_unusable=on_unusable)
    decision = act(policy, observation_after())
    assert decision.action.action_type is action
    assert reason in decision.generation.parse_failure
    assert len(batcher.calls) == 1


def test_asking_again_includes_the_complaint_and_samples_again(trained):
    policy, batcher = saying(trained, "no", "no", GOOD, reasks=3)
    decision = act(policy, observation_after(), seed=5)
    assert decision.action.action_type is ActionType.SPEAK
    assert decision.generation.reasks == 2
    assert decision.generation.usage.prompt_tokens == sum(len(ids) for ids, _ in batcher.calls)
    assert len({seed for _, seed in batcher.calls}) == 3
    first, again, last = (policy.model.tokenizer.decode(ids) for ids, _ in batcher.calls)
    assert again.startswith(first)
    assert again.count("JSON") > first.count("JSON")
    assert len(last) > len(again)


def test_long_prompts_keep_the_last_turns_and_the_instructions(trained, tmp_path):
    """Guards R10 and R12 at play: nothing is cut at a token's edge, and an answer always has room."""
    folder = tmp_path / "model"
    shutil.copytree(trained / "model", folder)
    observation = observation_after(turns=13)
    shortened = prompt_ids(saying(folder)[0].model.tokenizer, AgentPrompt("brief").messages(observation, 8))
    limit = len(shortened) + SETTINGS.max_answer
    write_prompt_settings(folder, SETTINGS.model_copy(update={"max_length": limit}))
    policy, batcher = saying(folder, GOOD)
    decision = act(policy, observation)
    dropped = decision.generation.dropped_turns
    assert 0 < dropped <= 13 - 4
    ids = batcher.calls[0][0]
    assert len(ids) + SETTINGS.max_answer <= limit
    assert ids == prompt_ids(policy.model.tokenizer, AgentPrompt("brief").messages(observation, dropped))
    longer = prompt_ids(policy.model.tokenizer, AgentPrompt("brief").messages(observation, max(0, dropped - 4)))
    assert len(longer) + SETTINGS.max_answer > limit
    write_prompt_settings(folder, SETTINGS.model_copy(update={"max_length": 60}))
    with pytest.raises(PolicyError, match="leaves no room for an answer of 24 tokens in 60"):
        act(saying(folder)[0], observation_after(turns=13))


def test_a_complaint_that_does_not_fit_is_omitted(trained, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(trained / "model", folder)
    policy, _ = saying(trained)
    room = policy.model.prompt_tokens(AgentPrompt("brief").messages(observation_after())) + SETTINGS.max_answer
    write_prompt_settings(folder, SETTINGS.model_copy(update={"max_length": room}))
    policy, batcher = saying(folder, "no", reasks=3)
    decision = act(policy, observation_after())
    assert len(batcher.calls) == 1
    assert decision.generation.reasks == 0
    assert decision.generation.parse_failure


@pytest.fixture
def _in_float64(monkeypatch):
    """Sums of another order, which batches of other shapes have, change no token in float64 on any processor."""
    load_model = TrainedModel.load
    monkeypatch.setattr(TrainedModel, "load", lambda self: load_model(self).double())


@pytest.mark.usefixtures("_in_float64")
def test_an_episode_does_not_depend_on_the_episodes_beside_it(trained):
    """Invariant 1 for sampled models: same task and seed, same turns, alone or among others."""
    task_set = tasks.generate("bargaining", 4, seed=2)
    policy = load(trained, reasks=1, max_tokens=12, dtype="float32")

    def played(selection):
        plans = plan_episodes(selection, [(policy, "linear")], rules=Rules(max_turns=4))
        result = asyncio.run(run_episodes(plans, progress=False))
        assert not result.failures
        return {e.key: [(t.turn.action, t.generation and t.generation.text) for t in e.turns] for e in result.episodes}

    together = played(task_set)
    assert len(together) == 8
    for task in task_set[:2]:
        alone = played([task])
        assert alone == {key: together[key] for key in alone}


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize(
    "options",
    [
        {"constrained": "off", "reasks": 2},
        {"constrained": "auto", "max_tokens": 60},
        {"constrained": "off", "max_length": 500, "reasks": 1},
    ],
    ids=str,
)
def test_with_keys_and_values_of_earlier_turns_the_answers_are_the_same(trained, options, monkeypatch):
    """Both seats of several episodes at once, some asked again, and some without room for their oldest turns."""
    task_set, rules = tasks.generate("bargaining", 3, seed=2), Rules(max_turns=12, max_silent_turns=0)

    def played():
        policy = load(trained, **{"dtype": "float32", "max_tokens": 16, "max_length": 5000, **options})
        result = asyncio.run(run_episodes(plan_episodes(task_set, [(policy, policy)], rules=rules), progress=False))
        assert not result.failures
        generations = {e.key: [t.generation for t in e.turns if t.generation] for e in result.episodes}
        return {key: [(g.text, g.reasks, g.dropped_turns) for g in row] for key, row in generations.items()}

    reads, read = [], BatchedGenerator._forward
    monkeypatch.setattr(
        BatchedGenerator, "_forward", lambda self, ids, *rest: reads.append(ids.numel()) or read(self, ids, *rest)
    )
    stored, tokens = played(), sum(reads)
    reads.clear()
    monkeypatch.setattr(trained_model, "storable_tokens", lambda model: 0)
    assert stored == played()
    assert tokens < sum(reads)
    answers = [answer for row in stored.values() for answer in row]
    assert any(reasks for _, reasks, _ in answers) == bool(options.get("reasks"))
    assert any(dropped for _, _, dropped in answers) == ("max_length" in options)


def test_a_run_is_resumed_with_a_model_that_moved_and_not_with_another(trained, adapter, tmp_path):
    task_set = tasks.generate("bargaining", 1, seed=2)

    def run(directory, **options):
        plans = plan_episodes(task_set, [(load(directory, **options), "linear")], rules=Rules(max_turns=2))
        return asyncio.run(run_episodes(plans, run_dir=tmp_path / "run", progress=False))

    assert run(trained).played == 2
    moved = tmp_path / "elsewhere" / "bc"
    shutil.copytree(trained, moved)
    assert run(moved).resumed == 2
    with raises(InvalidValueError, field="policies.bc.parameters.model_parameters.base", expected="null"):
        run(adapter, name="bc")
    with raises(InvalidValueError, field="policies.bc.parameters.model_parameters.temperature", got="0.5"):
        run(trained, temperature=0.5)


def test_a_complete_run_and_a_plan_load_no_weights(trained, monkeypatch):
    from sotopia_training.models.trained_model import TrainedModel

    def refuse(self):
        raise InvalidValueError("weights were loaded")

    monkeypatch.setattr(TrainedModel, "load", refuse)
    policy = load(trained, name="lazy", max_tokens=7, dtype="float16")
    assert policy.parameters["max_tokens"] == 7
    plans = plan_episodes(tasks.generate("bargaining", 1, seed=2), [(policy, "linear")])
    with pytest.raises(ModelRefusedError, match="weights were loaded"):  # ends the run, not 200 episodes one by one
        asyncio.run(run_episodes(plans, progress=False))


def test_an_adapter_plays_as_base_and_adapter_together(adapter, tiny_model):
    from sotopia_training.models.generation import Sampling
    from sotopia_training.models.loading import load_causal_lm
    from sotopia_training.stage.settings import ModelSettings

    policy = load(adapter, temperature=0, device="cpu", dtype="float32", constrained="off")
    assert policy.name == "sr"
    observation = observation_after(turns=1)
    text = act(policy, observation).generation.text
    ids = prompt_ids(policy.model.tokenizer, AgentPrompt("brief").messages(observation))
    answers = []
    for settings in (ModelSettings(base=str(tiny_model), adapter=str(adapter)), ModelSettings(base=str(tiny_model))):
        generator = BatchedGenerator(load_causal_lm(settings), policy.model.tokenizer, Sampling(24, 0.0))
        sampled = generator.generate([ids], [0])[0]
        answers.append(answer_text(policy.model.tokenizer, sampled.ids[:-1] if sampled.finished else sampled.ids))
    assert text == answers[0] != answers[1]


def test_policies_of_one_model_share_its_weights(trained, monkeypatch):
    from sotopia_training.models.trained_model import TrainedModel

    loads, original = [], TrainedModel.load
    monkeypatch.setattr(TrainedModel, "load", lambda self: loads.append(1) or original(self))
    policies = [load(trained, dtype="bfloat16"), load(trained, dtype="bfloat16", temperature=0.5)]
    for policy in policies:
        act(policy, observation_after())
    assert loads == [1]


def test_identity_is_the_content_and_not_the_place(trained, adapter, tmp_path):
    copied = tmp_path / "copy"
    shutil.copytree(trained / "model", copied)
    assert identity(copied) == identity(trained / "model") != identity(adapter)
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "_name_or_path": "/else/where"}))
    assert identity(copied) == identity(trained / "model")
    (copied / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert identity(copied) != identity(trained / "model")


def test_large_files_are_told_apart_by_samples(tmp_path, monkeypatch):
    monkeypatch.setattr("sotopia_training.models.trained_model._WHOLE", 1000)
    monkeypatch.setattr("sotopia_training.models.trained_model._SAMPLE", 10)
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(5000))
    before = identity(tmp_path)
    file.write_bytes(bytes(4999) + b"x")  # the last block is always among the samples
    assert identity(tmp_path) != before
    file.write_bytes(bytes(5001))
    assert identity(tmp_path) != before


def test_a_directory_names_the_policy(trained, monkeypatch):
    policy = naming.make_policy(f"{trained}/:temperature=0.5,reasks=1,name=cloned")
    assert isinstance(policy, LLMPolicy)
    assert (policy.name, policy.reasks, policy.parameters["temperature"]) == ("cloned", 1, 0.5)
    monkeypatch.chdir(trained.parent.parent)
    relative = f"{trained.parent.name}/bc"
    assert naming.make_policy(relative, manner={"temperature": 0.3}).parameters["temperature"] == 0.3
    best = naming.make_policy(f"best-of-3({trained} by offer-worth)")
    assert isinstance(best.policy, LLMPolicy)
    with raises(UnknownNameError, got="temprature", nearest="temperature"):
        naming.make_policy(f"{trained}/:temprature=1")


def test_best_of_n_asks_for_all_candidates_in_one_batch(trained):
    """The first candidate is the policy's own answer; the others are drawn with seeds of their own."""
    policy, batcher = saying(
        trained, GOOD, GOOD.replace("40", "90"), GOOD.replace("40", "60"), "nonsense", on_unusable="forfeit"
    )
    decision = act(BestOfNPolicy(policy, 4, OfferWorth()), observation_after(), seed=9)
    assert batcher.calls[0][1] == 9
    assert len({seed for _, seed in batcher.calls}) == 4
    assert decision.generation.candidates == 4
    assert decision.generation.text in (GOOD.replace("40", "90"), GOOD)  # the seller's best or the buyer's
    assert decision.generation.usage.completion_tokens > 4 * 5


@pytest.fixture(scope="module")
def reward_model(tiny_model, tmp_path_factory) -> Path:
    """A reward model of random weights, as its stage leaves it."""
    import torch
    from sotopia_training.models.tokenizers import load_tokenizer
    from sotopia_training.reward.scorer import load_classifier, write_note
    from sotopia_training.stage.settings import ModelSettings

    folder = tmp_path_factory.mktemp("stages") / "rm" / "model"
    settings = ModelSettings(base=str(tiny_model), lora=None)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = load_classifier(str(tiny_model), settings)
        torch.nn.init.normal_(model.score.weight)
    model.save_pretrained(str(folder))
    load_tokenizer(tiny_model).save_pretrained(str(folder))
    write_note(folder, settings, SETTINGS)
    return folder.parent


def test_best_of_n_with_a_trained_reward_model_takes_what_it_scores_highest(trained, reward_model):
    texts = [GOOD.replace("40", str(price)) for price in (40, 95, 12)]
    policy, _ = saying(trained, *texts)
    scorer = naming.make_policy(f"best-of-3({trained} by {reward_model})").scorer
    observation = observation_after()
    best = act(BestOfNPolicy(policy, 3, scorer), observation).generation.text
    from sotopia_training.reward.scorer import RewardScorer

    prompt = AgentPrompt("brief").messages(observation)
    scores = RewardScorer.load(reward_model).rate([(prompt, text) for text in texts])
    assert best == texts[scores.index(max(scores))]


def test_best_of_n_by_directories_plays_and_resumes_from_the_command_line(trained, reward_model, tmp_path):
    from typer.testing import CliRunner

    from sotopia_env.cli.app import app

    def rollout(policy, scorer):
        command = ["rollout", "--policy", f"best-of-2({policy}:max_tokens=8 by {scorer})", "--policy", "linear"]
        command += [
            "--tasks",
            "bargaining",
            "-n",
            "1",
            "--max-turns",
            "2",
            "--set",
            "self_play=false",
            "--out",
            str(tmp_path / "a"),
        ]
        return CliRunner().invoke(app, command)

    first = rollout(trained, reward_model)
    assert first.exit_code == 1, first.output  # eight tokens are too few for an action
    assert "2 of 2 turns were not an action" in first.output
    assert "2 played now, 0 before" in first.output
    moved = tmp_path / "moved" / "rm"
    shutil.copytree(reward_model, moved)
    assert "0 played now, 2 before" in rollout(trained, moved).output


def test_reward_models_and_policies_are_not_interchangeable(trained, reward_model):
    with raises(InvalidValueError, field="policy", got=f"{reward_model}/"):
        naming.make_policy(f"{reward_model}/")
    with raises(InvalidValueError, field="scorer", got=f"{trained}/"):
        naming.make_policy(f"best-of-2({trained} by {trained}/)")


@pytest.mark.parametrize(
    ("files", "opens"),
    [
        ({}, False),
        ({"config.json": {"architectures": ["LlamaForCausalLM"]}}, True),
        ({"model/config.json": {"architectures": ["Qwen2ForCausalLM"]}}, True),
        ({"config.json": {"architectures": ["LlamaForSequenceClassification"]}}, False),
        ({"adapter_config.json": {"task_type": "CAUSAL_LM", "base_model_name_or_path": "b"}}, True),
        ({"model/adapter_config.json": {"task_type": "SEQ_CLS", "base_model_name_or_path": "b"}}, False),
        ({"config.json": "not an object"}, False),
    ],
)
def test_only_directories_of_generative_models_are_opened(tmp_path, files, opens):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    assert holds_causal_lm(tmp_path) is opens


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"quantization": "int3"}, 'one of "none", "nf4"'),
        ({"dtype": "float64"}, 'one of "auto", "float32", "bfloat16", "float16"'),
        ({"device": "tpu"}, 'one of "auto", "cpu", "cuda"'),
        ({"on_unusable": "panic"}, 'one of "none", "forfeit"'),
        ({"reasks": -1}, "a whole number of at least 0"),
        ({"temperature": "hot"}, "a number from 0 to 10"),
        ({"max_tokens": 700}, ""),  # no room for a prompt
    ],
)
def test_invalid_options_are_refused(trained, options, expected):
    with raises(InvalidValueError, field=next(iter(options)), expected=expected):
        load(trained, **options)


def test_directories_without_a_model_are_refused_in_one_sentence(tmp_path, adapter):
    with raises(InvalidValueError, file=tmp_path.name):
        load(tmp_path)
    orphan = tmp_path / "orphan"
    shutil.copytree(adapter, orphan)
    config = json.loads((orphan / "adapter_config.json").read_text())
    (orphan / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "/gone"}))
    with raises(InvalidValueError, file="gone"):
        load(orphan)


def test_models_of_several_threads_are_loaded_one_after_the_other(monkeypatch):
    """Two at once would leave one of them without weights, on the meta device."""
    loading = threading.Lock()

    def load_causal_lm(settings):
        assert loading.acquire(blocking=False), "another model is being loaded"
        threading.Event().wait(0.05)
        loading.release()
        return SimpleNamespace(eval=lambda: "loaded")

    monkeypatch.setattr(trained_model, "load_causal_lm", load_causal_lm)
    models = [SimpleNamespace(settings=ModelSettings(base="", quantization="nf4"))] * 4
    assert list(ThreadPoolExecutor(4).map(TrainedModel.load, models)) == ["loaded"] * 4
