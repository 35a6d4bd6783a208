"""Every configuration is one its script understands; those of accelerate are parsed and dry-run by accelerate."""

import re
import shlex
from pathlib import Path

import pytest
import torch
import yaml
from sotopia_training.commands import STAGES, run_stage
from sotopia_training.fitting import behavior_cloning, loop
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings
from sotopia_training.grpo import settings as grpo_settings
from sotopia_training.grpo.settings import GRPOSettings, check
from sotopia_training.reward import model as reward_model
from sotopia_training.stage.script import run_script

from sotopia_env.foundation.settings import read_settings

ROOT = Path(__file__).parents[2]
STAGE_FILES = sorted((ROOT / "configs").glob("*.yaml"))
TRAINING = [path for path in STAGE_FILES if re.match("(bc|sr|rm|grpo)_", path.stem)]
ARGUMENTS = {
    "bc": behavior_cloning.trainer_arguments,
    "sr": behavior_cloning.trainer_arguments,
    "rm": reward_model.trainer_arguments,
    "grpo": grpo_settings.trainer_arguments,
}
ACCELERATE = sorted((ROOT / "configs" / "accelerate").glob("*.yaml"))
COMMAND = re.compile(r"# (?:[A-Z_]+=\S+ )?sotopia train ([\w-]+) --config (\w+)")


def stage_of(script):
    """The stage that a script runs."""
    return re.search(r'run_stage\("([\w-]+)"', (ROOT / script).read_text())[1]


def named_in(path):
    """The stage and the configuration in the command of a file's first line."""
    match = COMMAND.match(path.read_text().splitlines()[0])
    assert match, f"{path.name}: begin with a comment with the command that runs it"
    return match.groups()


@pytest.mark.parametrize("path", STAGE_FILES, ids=lambda path: path.stem)
def test_a_stage_understands_its_configuration_and_names_what_makes_its_input(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name, own = named_in(path)
    assert own == path.stem
    stage = STAGES[name]()
    read_settings(path, stage.settings)
    code = run_script("Checked.", stage.settings, pytest.fail, ["--config", own, "--check"])
    assert code == 0 or missing_input_of(capsys.readouterr().err) in STAGE_FILES


def missing_input_of(sentence):
    """The configuration whose command makes the missing input that a stage has refused."""
    match = re.search(r"^sotopia: .* got \"runs/.*`.*sotopia train \w+ --config (\w+)` makes it$", sentence)
    assert match, sentence
    return ROOT / "configs" / f"{match[1]}.yaml"


@pytest.mark.parametrize(
    ("stage", "own", "maker"),
    [
        ("bc", "bc_tiny", "run_pi_tiny"),
        ("sr", "sr_tiny", "run_pi_tiny"),
        ("attribute", "attribute_offline", "run_pi_tiny"),
        ("rewards", "design_rewards_tiny", "attribute_offline"),
        ("rm", "rm_tiny", "run_pi_tiny"),
        ("grpo", "grpo_tiny", "run_pi_tiny"),
        ("filter", "filter_bc", "collect_expert"),
    ],
)
def test_in_an_empty_folder_a_stage_says_what_is_missing(stage, own, maker, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for option in ([], ["--check"]):
        assert run_stage(stage, ["--config", own, *option]) == 2
        assert missing_input_of(capsys.readouterr().err).stem == maker
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_exists_or_that_no_stage_makes_is_left_to_the_stage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    base = ["--config", "bc_tiny", "--check", "--set", "evaluation_tasks=null"]
    own = [*base, "--set", "model.base=models/mine", "--set", "data=[{run: runs/mine}]"]
    assert run_stage("bc", own) == 0
    Path("runs/pi-tiny/base/model").mkdir(parents=True)
    assert run_stage("bc", base) == 2
    assert "data.0.run: " in capsys.readouterr().err


def test_there_is_a_configuration_for_every_size():
    names = {path.stem for path in STAGE_FILES}
    assert {f"{stage}_tiny" for stage in ("bc", "sr", "rm")} <= names
    assert {f"{stage}_{model}_7b" for stage in ("bc", "sr", "rm", "grpo") for model in ("qwen", "mistral")} <= names
    assert {"grpo_tiny", "grpo_single_tiny", "grpo_multi_turn_qwen_7b"} <= names


@pytest.mark.parametrize("model", ["qwen", "mistral"])
def test_the_papers_settings_are_exact(model):
    """SOTOPIA-π, B.5 and B.6; SOTOPIA-RL, C.1."""
    bc, sr, rl = (
        read_settings(ROOT / "configs" / f"{name}.yaml", BehaviorCloningSettings)
        for name in (f"bc_{model}_7b", f"sr_{model}_7b", f"bc_{model}_7b_rl")
    )
    for one in (bc, sr, rl):
        lora = one.model.lora
        assert (lora.rank, lora.alpha, lora.dropout, one.model.quantization) == (8, 16, 0.05, "nf4")
        assert one.prompt.max_length == 4096
    for one, keep in ((bc, "last"), (sr, 5)):
        names = ("learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs")
        assert [one.trainer[name] for name in names] == [5e-5, "cosine", 0.03, 20]
        assert (one.trainer["per_device_train_batch_size"], one.keep) == (4, keep)
    assert sr.start_from == bc.output
    assert (rl.trainer["learning_rate"], rl.trainer["per_device_train_batch_size"]) == (1e-4, 2)


@pytest.mark.parametrize("path", [path for path in STAGE_FILES if "grpo" in path.stem], ids=lambda path: path.stem)
@pytest.mark.parametrize("processes", [1, 8])
def test_grpo_can_start_as_configured(path, processes, monkeypatch):
    """R16: whole groups, on one GPU and on eight."""
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    check(read_settings(path, GRPOSettings))


@pytest.mark.parametrize("model", ["qwen", "mistral"])
def test_grpo_has_the_papers_settings(model):
    """SOTOPIA-RL, C.1; KL is measured against the cloned policy (R15)."""
    one = read_settings(ROOT / "configs" / f"grpo_{model}_7b.yaml", GRPOSettings)
    cloned = read_settings(ROOT / "configs" / f"bc_{model}_7b_rl.yaml", BehaviorCloningSettings)
    assert one.lora is not None
    assert (one.lora.rank, one.lora.alpha, one.lora.dropout, one.quantization) == (8, 16, 0.05, "nf4")
    names = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "num_generations")
    assert [one.trainer[name] for name in names] == [5e-6, 2, 4, 16]
    assert [one.trainer[name] for name in ("loss_type", "scale_rewards", "beta")] == ["grpo", "group", 0.04]
    assert (one.mode, one.reference, one.start_from) == ("single-turn", "start", cloned.output)
    assert cloned.prompt.max_length == 4096


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_the_first_step_of_a_configuration_has_a_learning_rate(path):
    """That of transformers has none, with any warm-up."""
    from transformers import TrainerControl, TrainerState, get_scheduler

    name, _ = named_in(path)
    settings = read_settings(path, STAGES[name]().settings)
    arguments = ARGUMENTS[name](settings)
    for steps in (10, 1000):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=arguments.learning_rate)
        warmup = arguments.get_warmup_steps(steps)
        schedule = get_scheduler(arguments.lr_scheduler_type, optimizer, warmup, steps)
        for callback in loop._callbacks(settings):
            state = TrainerState(max_steps=steps)
            callback.on_train_begin(arguments, state, TrainerControl(), optimizer=optimizer, lr_scheduler=schedule)
        # Of a warm-up of n steps, the first has an n-th of the rate.
        assert optimizer.param_groups[0]["lr"] == pytest.approx(arguments.learning_rate / max(1, warmup))


@pytest.mark.parametrize("path", [path for path in STAGE_FILES if "grpo" in path.stem], ids=lambda path: path.stem)
def test_rewards_of_whole_episodes_are_not_divided_by_their_spread(path):
    """Single-turn GRPO is the papers', which divides them; docs/training-grpo.md says both."""
    settings = read_settings(path, GRPOSettings)
    assert settings.trainer["scale_rewards"] == ("group" if settings.mode == "single-turn" else "none")


@pytest.mark.parametrize("path", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_would_launch_a_stage(path, monkeypatch, capsys):
    """Up to the moment at which processes would be started; whether it trains can only be seen on GPUs."""
    from accelerate.commands import launch

    first_line = path.read_text().splitlines()[0]
    match = re.fullmatch(r"# accelerate launch --config_file (\S+) (scripts/\S+) --config (\S+)(.*)", first_line)
    config, script, stage, overrides = match.groups()
    assert ROOT / config == path
    checked = ["--config", str(ROOT / stage), "--check", *shlex.split(overrides)]
    code = run_script("Checked.", STAGES[stage_of(script)]().settings, pytest.fail, checked)
    assert code == 0 or missing_input_of(capsys.readouterr().err) in STAGE_FILES
    monkeypatch.delenv("ACCELERATE_CONFIG_FILE", raising=False)
    words = ["--config_file", str(path), str(ROOT / script), "--config", str(ROOT / stage)]
    arguments, defaults, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    declared = yaml.safe_load(path.read_text())
    expected = (2, "no") if declared["use_cpu"] else (8, "bf16")
    assert (arguments.num_processes, arguments.mixed_precision) == expected
    kind = declared["distributed_type"]
    assert {
        "MULTI_GPU": (True, False, False),
        "FSDP": (False, True, False),
        "DEEPSPEED": (False, False, True),
    }[kind] == (bool(arguments.multi_gpu), bool(arguments.use_fsdp), bool(arguments.use_deepspeed))
    if kind == "DEEPSPEED":  # what launch_command does before it starts processes
        arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
    environment = (
        launch.prepare_deepspeed_cmd_env(arguments)[1]
        if kind == "DEEPSPEED"
        else launch.prepare_multi_gpu_env(arguments)
    )
    for name, value in declared.get("fsdp_config", {}).items():
        assert environment[name.upper()].lower() == str(value).lower()
    if kind == "DEEPSPEED":
        assert environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"


def test_no_stage_checkpoints_activations_twice():
    """FSDP does it by its own configuration, whose comment switches the stage's off."""
    fsdp = (ROOT / "configs" / "accelerate" / "fsdp2.yaml").read_text()
    assert yaml.safe_load(fsdp)["fsdp_config"]["fsdp_activation_checkpointing"]
    assert "--set trainer.gradient_checkpointing=false" in fsdp
