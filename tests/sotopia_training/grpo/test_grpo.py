"""GRPO: contradictions before anything is loaded, advantages by turn, and both modes for real."""

import json
import shutil
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.grpo import multi_turn
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import EpisodeRollout, prompt_rows, turn_advantages
from sotopia_training.grpo.sampling import trainer_sample
from sotopia_training.grpo.settings import DevSettings, RewardSettings, check, trainer_arguments
from sotopia_training.grpo.situations import SituationSettings, most_turns, situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.loading import find_model, load_causal_lm, write_prompt_settings
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.foundation import extras
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.extras import MissingExtraError
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks import generate, starter_tasks
from sotopia_env.world import Scalarisation
from sotopia_env.world.play.notes import with_notes
from sotopia_env.world.play.table import Table
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_training.conftest import SHORT as BRIEF
from tests.sotopia_training.conftest import StoppedError, killed_after
from tests.sotopia_training.grpo.grpo_settings import (
    SITUATIONS,
    multi_turn_settings,
    reward_model_of,
    single_turn_settings,
    situated,
)

BARE = SimpleNamespace(use_vllm=False)
GOAL = RewardSettings(scalarisation="goal")


SINGLE = {
    "mode": "single-turn",
    "situations": None,
    "data": (SourceSettings(run="r"),),
    "reward": RewardSettings(model="m"),
}


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({"situations": None}, {"field": "situations"}),
        ({"mode": "single-turn"}, {"field": "data, reward.model"}),
        ({"data": (SourceSettings(run="r"),)}, {"field": "data"}),
        ({"reward": RewardSettings(gate=False)}, {"field": "reward.gate"}),
        ({**SINGLE, "situations": SITUATIONS}, {"field": "situations"}),
        ({**SINGLE, "reward": RewardSettings(model="m", turns="acts")}, {"field": "reward.turns"}),
        ({"reward": RewardSettings(turns="act")}, {"nearest": "acts"}),
        ({"keep": "best"}, {"field": "keep"}),
        ({"reward": RewardSettings(scalarisation="overall", turns="acts")}, {"field": "reward.turns"}),
        ({"reward": RewardSettings(scalarisation="mean", turns="acts")}, {"field": "reward.turns"}),
        ({"reward": RewardSettings(scalarisation="relationship", evaluator="verified")}, {"field": "reward.evaluator"}),
        ({"reward": RewardSettings(scalarisation="overall", evaluator="verified")}, {"field": "reward.evaluator"}),
        (
            {"reward": RewardSettings(scalarisation="goal", evaluator="diligence")},
            {"field": "reward.evaluator", "file": "situations"},
        ),
        ({"trainer": {"num_generations": 3}}, {"field": "trainer.num_generations"}),
        ({"trainer": {"num_generations": 16}}, {"hint": "e.g. steps_per_generation: 2"}),
        ({"keep": 1, "trainer": {"max_steps": -1}}, {"field": "keep", "got": 1}),
    ],
)
def test_contradictions_are_refused_before_anything_is_loaded(more, fields):
    """R16: 6 × 4 answers and 16 generations, and their like."""
    with raises(InvalidValueError, **fields):
        check(multi_turn_settings(**more))


@pytest.mark.parametrize("more", [{"num_iterations": 2}, {"steps_per_generation": 8}])
def test_no_checkpoint_is_between_two_generations(more):
    """New answers every second step: TRL forgets the answers that it has not trained on yet."""
    batches = {"per_device_train_batch_size": 4, "num_generations": 4, "gradient_accumulation_steps": 4, **more}
    saved = {"save_strategy": "steps", "save_steps": 3}
    with raises(InvalidValueError, field="trainer.save_steps", got=3):
        trainer_arguments(multi_turn_settings(trainer=batches | saved))
    for fitting in ({"save_steps": 4}, {"save_strategy": "epoch"}):
        assert trainer_arguments(multi_turn_settings(trainer=batches | saved | fitting)).num_generations == 4


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (trainer_arguments, multi_turn_settings()),
        (
            behavior_cloning.trainer_arguments,
            behavior_cloning.BehaviorCloningSettings(
                model=ModelSettings(base="m"), output="y", data=(SourceSettings(run="r"),)
            ),
        ),
    ],
)
def test_another_release_of_trl_is_named_with_the_one_that_is_needed(arguments, settings, monkeypatch):
    versions = extras.package_versions
    monkeypatch.setattr(extras, "package_versions", lambda names: {**versions(names), "trl": "1.17.2"})
    with pytest.raises(MissingExtraError) as caught:
        arguments(settings)
    for part in ("1.17.2", "<1.17", extras.install_command("train")):
        assert part in str(caught.value)


@pytest.mark.parametrize(("reward", "field"), [("goal", "reward.evaluator"), ("share", "reward.scalarisation")])
def test_dev_episodes_need_what_the_reward_needs_too(reward, field, tmp_path):
    starter_tasks().save(tmp_path / "tasks.jsonl")  # without outcomes
    talks = SituationSettings(tasks=str(tmp_path / "tasks.jsonl"), partners=("random",))
    settings = multi_turn_settings(reward=RewardSettings(scalarisation=reward), dev=DevSettings(situations=talks))
    with raises(InvalidValueError, field=field, file="dev.situations"):
        check(settings)


def test_verified_tasks_are_rewarded_by_the_signed_share():
    assert Scalarisation.of(RewardSettings().scalarisation).share


def test_too_few_situations_for_a_step_are_refused(cloned, tmp_path):
    """TRL would end without a step, and the stage would be complete."""
    few = SITUATIONS.model_copy(update={"count": 1, "learners": ("agent_0",)})
    with raises(InvalidValueError, field="data", got=1):
        grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), situations=few))


@pytest.mark.parametrize(
    "partners",
    [
        {"partners": ("linear", "bulware")},
        {"partners": {"buyer": ["linear"], "other": ["self", "past", {"policy": "bulware", "share": 2}]}},
        {"self_play": {"scripts": {"share": 1, "policies": ["conceder", "linear", "bulware"]}}},
    ],
)
def test_an_unknown_partner_of_a_ladder_is_named_before_anything_is_read(partners):
    ladder = SituationSettings.model_validate({"families": ("bargaining",), **partners})
    with raises(UnknownNameError, nearest="boulware", field="situations.partners.policy"):
        check(multi_turn_settings(situations=ladder))
    with raises(UnknownNameError, nearest="boulware"):
        check(multi_turn_settings(dev=DevSettings(situations=situated(partners=["bulware"]))))


def test_a_misspelt_dimension_is_named():
    with raises(UnknownNameError, got="gaol", nearest="goal"):
        check(multi_turn_settings(reward=RewardSettings(scalarisation="gaol")))


def test_every_process_counts_for_the_groups(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    check(multi_turn_settings(trainer={"num_generations": 16}))


def test_single_prompts_are_accepted_if_no_whole_episode_is_played(tmp_path, tiny_model):
    """Mistral's: its chat template preserves no conversation, and single-turn GRPO needs none."""
    shutil.copytree(tiny_model, tmp_path / "bc" / "model")
    write_prompt_settings(tmp_path / "bc" / "model", PromptSettings(format="single", max_length=512, max_answer=24))
    more = {"start_from": str(tmp_path / "bc"), "output": str(tmp_path / "out"), "data": (SourceSettings(run="r"),)}
    single = multi_turn_settings(
        mode="single-turn", situations=None, reward=RewardSettings(model=str(tmp_path / "none")), **more
    )
    with raises(InvalidValueError, file="none"):
        grpo.run(single)


def test_an_answer_longer_than_the_prompt_allows_is_refused(cloned):
    with raises(InvalidValueError, field="max_answer", got=512):
        grpo.answer_settings(multi_turn_settings(start_from=str(cloned), max_answer=512))


# --- advantages --------------------------------------------------------------------------------------------------


def test_turns_of_a_group_are_compared_with_each_other():
    turns = [[(0, 2, 1.0), (3, 4, 3.0)], [(0, 1, 5.0)], [(0, 1, 7.0)], []]
    advantages = turn_advantages(turns, 2, 5, scale="none")
    assert advantages.tolist() == [[-2, -2, 0, 0, 0], [2, 0, 0, 0, 0], [0] * 5, [0] * 5]
    scaled = turn_advantages(turns, 2, 5, scale="group")  # of 1, 3, 5 the deviation is 2, of 1, 3, 5, 7 it is 2.58
    assert scaled[0, 3] == pytest.approx(0)
    assert scaled[1, 0] == pytest.approx(2 / 2.0001, rel=1e-3)
    assert turn_advantages(turns, 2, 5, scale="batch")[1, 0] == pytest.approx(2 / 2.5821, rel=1e-3)


def test_a_situation_shows_the_notes_of_a_task_file_to_their_own_seat_alone(tmp_path):
    (task,) = generate("bargaining", 1, seed=5)
    TaskSet([with_notes(task, {"agent_0": "They gave in at 80.", "agent_1": "She is in a hurry."})]).save(
        tmp_path / "t.jsonl"
    )
    both = situations(SituationSettings(tasks=str(tmp_path / "t.jsonl"), partners=("linear",)))
    first, second = [Table(one.task, one.rules, one.seed).observe(one.seat).text for one in both]
    assert "They gave in at 80." in first
    assert "She is in a hurry." in second
    assert "hurry" not in first
    assert "gave in" not in second


@pytest.mark.parametrize(
    ("rules", "own", "turns"),
    [
        ({"turn_order": "simultaneous", "max_turns": 7}, None, 4),
        ({"turn_order": "reactive", "max_turns": 7}, None, 7),
        ({"turn_order": "random", "max_rounds": 3}, None, 3),
        ({"turn_order": "random", "max_turns": 7}, 2, 1),
    ],
)
def test_the_rules_of_a_task_file_apply_to_situations(rules, own, turns, tmp_path):
    file = tmp_path / "tasks.yaml"
    records = [task.model_dump(mode="json") for task in generate("bargaining", 2, 0)]
    file.write_text(to_yaml({"tasks": records, "rules": rules}))
    settings = SituationSettings(tasks=str(file), partners=("linear",), max_turns=own)
    (read,) = {item.rules for item in situations(settings)}
    assert read.turn_order == rules["turn_order"]
    assert (read.max_turns, read.max_rounds) == (own or rules.get("max_turns"), rules.get("max_rounds"))
    assert most_turns(settings) == turns


def test_a_block_shares_task_seat_partner_and_seed(tokenizer, monkeypatch):
    """What TRL repeats num_generations times is one situation; only the policy's own sampling differs within it."""
    situation_list = situations(SITUATIONS)
    rows = prompt_rows(situation_list)
    assert [(row["task"], row["seat"], row["partner"]) for row in rows] == [
        (item.task.id, item.seat, item.partner) for item in situation_list
    ]
    played = []

    class Player(TokenPlayer):
        def play(self, items, sample, row_count=int):
            played.extend(items)
            raise InterruptedError

    monkeypatch.setattr(multi_turn, "trainer_sample", lambda trainer: None)
    rollout = EpisodeRollout(Player(tokenizer, BRIEF, None), situation_list, GOAL)
    with pytest.raises(InterruptedError):
        rollout([rows[3]["prompt"]] * 4, BARE)
    assert played == [situation_list[3]] * 4


def trainer_of(model, tokenizer, **more):
    """What a sampler reads of TRL's trainer."""
    accelerator = SimpleNamespace(distributed_type=None, unwrap_model=lambda wrapped: wrapped)
    sampling = {"max_completion_length": BRIEF.max_answer, "temperature": 1.0, "top_p": 1.0, "use_vllm": False}
    return SimpleNamespace(accelerator=accelerator, model=model, processing_class=tokenizer, **{**sampling, **more})


def test_answers_are_drawn_by_the_trainers_temperature_and_top_p(cloned, tokenizer):
    model = load_causal_lm(ModelSettings(base=str(find_model(cloned))))
    prompts = [tokenizer("Your move.")["input_ids"]] * 8

    def distinct_answers(**more):
        torch.manual_seed(0)
        answers, _ = trainer_sample(trainer_of(model, tokenizer, **more), reuse=False)(prompts)
        return {tuple(answer) for answer in answers}

    assert len(distinct_answers(temperature=5.0)) == 8
    assert (
        len(distinct_answers(temperature=5.0, top_p=1e-6)) == len(distinct_answers(temperature=1e-6)) == 1
    )  # nothing is drawn, not even between neighbours


def test_each_turn_of_an_episode_reads_only_what_is_new(cloned, tokenizer):
    model = load_causal_lm(ModelSettings(base=str(find_model(cloned))))
    trainer = trainer_of(model, tokenizer)
    read, turns = [], 0
    model.register_forward_pre_hook(lambda m, a, k: read.append(k["input_ids"].shape[1]), with_kwargs=True)
    torch.manual_seed(0)
    for situation in situations(SITUATIONS)[:4]:
        read.clear()
        sample = trainer_sample(trainer)
        (episode,) = TokenPlayer(tokenizer, BRIEF, None).play([situation], sample)
        turns += len(episode.focal)
        assert sum(read) < len(episode.prompt) + len(episode.completion)  # each token once, but for the last one
    assert turns > 4


# --- for real ----------------------------------------------------------------------------------------------------


def weights(directory):
    model = load_causal_lm(ModelSettings(base=str(find_model(directory))))
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def test_whole_episodes_train_and_are_logged_by_part(cloned, tmp_path, monkeypatch):
    settings = multi_turn_settings(
        start_from=str(cloned),
        output=str(tmp_path / "out"),
        dev=DevSettings(situations=SITUATIONS.model_copy(update={"task_seed": 9}), every=1),
        keep="best",
    )
    figures = grpo.run(settings)
    state = json.loads(next((tmp_path / "out/checkpoints/checkpoint-2").glob("trainer_state.json")).read_text())
    logged = set().union(*(entry for entry in state["log_history"]))
    assert {"rewards/episode_reward/mean", "scores/GOAL", "scores/FIN", "episodes/valid", "dev/reward"} <= logged
    assert {"episodes/score", "episodes/penalty"} <= logged
    assert [look["step"] for look in figures["dev"]] == [0, 1, 2]
    assert {"dev/FIN", "dev/GOAL"} <= logged
    assert not {"scores/REL", "dev/REL"} & logged  # nothing measured it
    rewards = [look["reward"] for look in figures["dev"]]
    best = max(range(3), key=lambda look: (rewards[look], look))  # of equals the latest
    folders = {0: cloned, 1: tmp_path / "out/checkpoints/checkpoint-1", 2: tmp_path / "out/checkpoints/checkpoint-2"}
    assert torch.equal(weights(tmp_path / "out"), weights(folders[best]))
    assert grpo.run(settings) == figures


def test_a_frozen_partner_on_a_server_is_checked_before_the_policy_is_loaded(cloned, tmp_path, monkeypatch):
    served = situated(partners=["local/tiny"], count=2)
    with LoopbackServer() as server:
        access = ModelOptions(api_base=server.api_base)
        dev = DevSettings(situations=served, every=2)
        settings = multi_turn_settings(
            start_from=str(cloned), output=str(tmp_path / "out"), situations=served, dev=dev, models=access
        )
        figures = grpo.run(settings)
        assert [look["unscored"] for look in figures["dev"]] == [0, 0]
        assert server.total > 2 * 8  # of two batches of eight episodes, and of two looks
        ledger = Ledger(tmp_path / "out")
        assert ledger.totals().answered == server.total
        ledger.close()
    monkeypatch.setattr(grpo, "load_for_training", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(InvalidValueError, match=r"127\.0\.0\.1"):
        grpo.run(settings.model_copy(update={"output": str(tmp_path / "nobody")}))


def losses(directory):
    """The log of a stage's training, times left out."""
    log = json.loads((directory / "done.json").read_text())["log"]
    return [{name: value for name, value in entry.items() if "time" not in name} for entry in log]


def trained_weights(directory):
    """All weights of a full model, or of an adapter."""
    from safetensors.torch import load_file

    (file,) = (directory / "model").glob("*.safetensors")
    return load_file(file)


@pytest.mark.parametrize("kind", ["multi-turn", "single-turn", "adapter with KL", "4 bit"])
def test_a_resumed_run_has_the_losses_and_the_weights_of_an_unbroken_one(
    kind, cloned, adapted, expert_run, tmp_path, monkeypatch
):
    output = str(tmp_path / "whole")
    if kind == "multi-turn":
        whole = multi_turn_settings(start_from=str(cloned), output=output, reward=RewardSettings(turns="acts"))
    elif kind == "4 bit":
        whole = multi_turn_settings(
            start_from=str(adapted), output=output, lora=LoraSettings(dropout=0), quantization="nf4"
        )
    elif kind == "single-turn":
        whole = single_turn_settings(cloned, reward_model_of(cloned, tmp_path / "rm"), expert_run, output=output)
    else:
        scored_by = reward_model_of(cloned, tmp_path / "rm")  # what this adapter says makes no difference to a verdict
        whole = single_turn_settings(
            adapted, scored_by, expert_run, output=output, lora=LoraSettings(), trainer={"beta": 0.1}
        )
    grpo.run(whole)
    broken = whole.model_copy(update={"output": str(tmp_path / "broken")})
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(StoppedError):
            grpo.run(broken)
    assert not (tmp_path / "broken/done.json").exists()
    grpo.run(broken)
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")
    one, other = trained_weights(tmp_path / "whole"), trained_weights(tmp_path / "broken")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    start = trained_weights(adapted if kind in ("adapter with KL", "4 bit") else cloned)
    assert not all(torch.equal(one[name], start[name]) for name in one)
    share = (
        1 if kind in ("multi-turn", "4 bit") else 0.5
    )  # four answers follow each prompt, which is read once for all of them
    for entry in losses(tmp_path / "whole"):
        assert entry["tokens/sampled"] < entry["tokens/read"] < share * entry["tokens/rows"]
    if kind == "adapter with KL":
        assert any(entry["kl"] > 0 for entry in losses(tmp_path / "whole"))


@pytest.mark.parametrize("killed", [4, 5])
def test_a_resumed_run_plays_the_situations_of_an_unbroken_one(killed, cloned, tmp_path, monkeypatch):
    """Three steps are an epoch: the run continues from its end, or from after the second epoch's first step."""
    played, play = [], EpisodeRollout.__call__

    def note(self, prompts, trainer):
        played.append([prompt[0][multi_turn.KEY] for prompt in prompts])
        return play(self, prompts, trainer)

    monkeypatch.setattr(EpisodeRollout, "__call__", note)
    six = SITUATIONS.model_copy(update={"count": 3, "max_turns": 2})
    whole = multi_turn_settings(
        start_from=str(cloned),
        output=str(tmp_path / "whole"),
        situations=six,
        reward=RewardSettings(evaluator="verified"),
        trainer={"max_steps": 6},
    )
    grpo.run(whole)
    assert {entry["episodes/unscored"] for entry in losses(tmp_path / "whole")} == {0}
    order = list(played)
    assert sorted(chain(*order[:3])) == sorted(chain(*order[3:]))
    assert order[:3] != order[3:]
    played.clear()
    broken = whole.model_copy(update={"output": str(tmp_path / "broken")})
    with monkeypatch.context() as patched:
        killed_after(patched, killed)
        with pytest.raises(StoppedError):
            grpo.run(broken)
    assert played == order[:killed]
    played.clear()
    grpo.run(broken)
    assert played == order[killed - 1 :]
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")


def test_bad_data_is_refused_before_loading_a_model(cloned, expert_run, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(grpo, "load_for_training", never)
    monkeypatch.setattr("sotopia_training.reward.scorer.RewardScorer.load", never)
    scored_by = reward_model_of(cloned, tmp_path / "rm")
    reserved = tmp_path / "kept.jsonl"
    TaskSet(list({episode.task.id: episode.task for episode in read_run(str(expert_run))}.values())).save(reserved)
    settings = single_turn_settings(
        cloned, scored_by, expert_run, output=str(tmp_path / "out"), evaluation_tasks=str(reserved)
    )
    with raises(InvalidValueError, field="episode", hint="training on it would make the evaluation worthless"):
        grpo.run(settings)
    with raises(InvalidValueError, file="nowhere"):
        grpo.run(single_turn_settings(cloned, tmp_path / "nowhere", expert_run, output=str(tmp_path / "out2")))


def test_a_cloned_adapter_of_a_four_bit_base_trains_on_that_base(cloned, expert_run, tmp_path, monkeypatch):
    """The way of the configurations for 7B models: QLoRA cloning, then GRPO from its adapter."""
    from trl import GRPOTrainer

    trainers, build = [], GRPOTrainer.__init__

    def note(self, *args, **kwargs):
        build(self, *args, **kwargs)
        trainers.append(self)

    monkeypatch.setattr(GRPOTrainer, "__init__", note)
    base = ModelSettings(base=str(find_model(cloned)), lora=LoraSettings(rank=4, dropout=0), quantization="nf4")
    brief = {"max_steps": 1, "per_device_train_batch_size": 4}
    behavior_cloning.run(
        behavior_cloning.BehaviorCloningSettings(
            model=base,
            prompt=BRIEF,
            data=(SourceSettings(run=str(expert_run)),),
            validation=0,
            output=str(tmp_path / "bc"),
            trainer=brief,
        )
    )
    settings = multi_turn_settings(
        start_from=str(tmp_path / "bc"),
        output=str(tmp_path / "out"),
        situations=SITUATIONS.model_copy(update={"count": 1}),
        quantization="nf4",
        lora=base.lora,
        trainer={**brief, "beta": 0.04},
    )
    grpo.run(settings)
    (trainer,) = trainers
    layers = [module for module in trainer.model.modules() if hasattr(module, "lora_A")]
    assert len(layers) == 14  # q, k, v, o, gate, up, down of two layers
    assert {type(layer.get_base_layer()).__name__ for layer in layers} == {"Linear4bit"}
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert len(trained) == 28
    assert all("lora_" in name and ".ref." not in name for name in trained)  # KL's reference stays
    start, end = trained_weights(tmp_path / "bc"), trained_weights(tmp_path / "out")
    assert start.keys() == end.keys()
    assert any(not torch.equal(start[name], end[name]) for name in start)
