"""The cost of our rows, masks and reward scoring over a bare TRL or Trainer loop with the same model and data.

Everything runs on the CPU with a tiny, untrained model; only the ratios mean something. Both sides of a ratio
are measured in turn in one process, in CPU seconds of one thread.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sotopia_training.data.samples import RowMaker, TrainingRow
from sotopia_training.stage.settings import PromptSettings

from benchmarks.measure import Figure
from sotopia_env import tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.settings import settings_of
from sotopia_env.foundation.yaml_text import read_yaml, to_yaml
from sotopia_env.naming import make_policy as make
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.world.dynamics import Rules

ROOT = Path(__file__).parents[1]
PROMPT = PromptSettings(format="brief", max_length=768, max_answer=64)
# One pass over 192 rows.
STEPS, BATCH, ROUNDS = 24, 8, 3
ANSWER = 32


def scripted_run(folder: Path) -> tuple[Path, list[TrainingRow]]:
    """A run of 24 scripted episodes, evaluated, and its rows."""
    plans = plan_episodes(
        tasks.generate("bargaining", 12, seed=5), [(make("linear"), make("conceder"))], rules=Rules(max_turns=8)
    )
    asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), run_dir=folder / "run", progress=False))
    maker = RowMaker(PROMPT)
    rows = [
        row for episode in read_run(folder / "run") for seat in episode.task.agents for row in maker.rows(episode, seat)
    ]
    return folder / "run", rows


def tiny(folder: Path, rows: list[TrainingRow]) -> Path:
    """Writes a model of two layers of width 128."""
    from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer

    texts = [message["content"] for row in rows for message in row.prompt] + [row.completion for row in rows]
    return make_tiny_model(folder / "tiny", make_tiny_tokenizer(texts))


def ratio(ours: Callable[[], float], bare: Callable[[], float]) -> tuple[float, float]:
    """The median over rounds of ours / bare, each in turn first, and the seconds of the bare one."""
    # The first call of each pays for imports and compiled kernels.
    ours(), bare()
    ratios, seconds = [], []
    for number in range(ROUNDS):
        pair = (ours(), bare()) if number % 2 else (bare(), ours())[::-1]
        ratios.append(pair[0] / pair[1])
        seconds.append(pair[1])
    return statistics.median(ratios), statistics.median(seconds)


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


# --- behaviour cloning --------------------------------------------------------------------------------------------


def cloning(folder: Path, run: Path, model: Path, rows: list[TrainingRow]) -> tuple[float, float]:
    """Our stage from episodes to model, over TRL's trainer on rows that are already cut."""
    from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings
    from sotopia_training.fitting.behavior_cloning import run as train

    count = iter(range(10_000))

    def ours() -> float:
        values = _fit_values(model, folder / f"bc{next(count)}") | {"data": [{"run": str(run)}]}
        return cpu_seconds(lambda: train(settings_of(values, BehaviorCloningSettings, "benchmark")))

    def bare() -> float:
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import SFTConfig, SFTTrainer

        output = str(folder / f"sft{next(count)}")

        def work() -> None:
            pairs = [
                {"prompt": list(row.prompt), "completion": [{"role": "assistant", "content": row.completion}]}
                for row in rows
            ]
            arguments = SFTConfig(output_dir=output, **_bare_arguments(), max_length=None)
            data = Dataset.from_list(pairs)
            tokenizer = AutoTokenizer.from_pretrained(model)
            trainer = SFTTrainer(
                AutoModelForCausalLM.from_pretrained(model), arguments, train_dataset=data, processing_class=tokenizer
            )
            trainer.train()
            trainer.save_model(output)

        return cpu_seconds(work)

    return ratio(ours, bare)


STEPPING = {"max_steps": STEPS, "per_device_train_batch_size": BATCH, "save_steps": STEPS}


def _fit_values(model: Path, output: Path) -> dict[str, Any]:
    """The settings that our stages share: all but their data."""
    return {
        "model": {"base": str(model), "lora": None},
        "prompt": PROMPT.model_dump(),
        "validation": 0,
        "output": str(output),
        "trainer": {**STEPPING, "learning_rate": 1e-3},
    }


def _bare_arguments() -> dict[str, Any]:
    # The values that our stages use by default, so that both sides take the same steps.
    return {
        "max_steps": STEPS,
        "per_device_train_batch_size": BATCH,
        "save_steps": STEPS,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "logging_steps": 10,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }


# --- reward model -------------------------------------------------------------------------------------------------


def regression(folder: Path, model: Path, rows: list[TrainingRow]) -> tuple[float, float]:
    """Our stage from rows to model, over transformers' trainer with its own padding collator."""
    import json

    from sotopia_training.reward.model import RewardModelSettings
    from sotopia_training.reward.model import run as train

    lines = [
        {"prompt": row.prompt, "completion": row.completion, "value": row.turn / 8, "scenario": row.scenario}
        for row in rows
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    count = iter(range(10_000))

    def ours() -> float:
        values = _fit_values(model, folder / f"rm{next(count)}") | {"rows": [str(folder / "rows.jsonl")]}
        return cpu_seconds(lambda: train(settings_of(values, RewardModelSettings, "benchmark")))

    def bare() -> float:
        from datasets import Dataset
        from transformers import (
            AutoModelForSequenceClassification,
            AutoTokenizer,
            DataCollatorWithPadding,
            Trainer,
            TrainingArguments,
        )

        output = str(folder / f"bare{next(count)}")

        def work() -> None:
            tokenizer = AutoTokenizer.from_pretrained(model, padding_side="right")
            texts = [
                tokenizer.apply_chat_template(
                    [*line["prompt"], {"role": "assistant", "content": line["completion"]}], tokenize=False
                )
                for line in lines
            ]
            values = [line["value"] for line in lines]
            ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
            data = Dataset.from_dict({"input_ids": ids, "labels": values})
            classifier = AutoModelForSequenceClassification.from_pretrained(
                model, num_labels=1, problem_type="regression", pad_token_id=tokenizer.pad_token_id
            )
            trainer = Trainer(
                classifier,
                TrainingArguments(output, **_bare_arguments()),
                train_dataset=data,
                processing_class=tokenizer,
                data_collator=DataCollatorWithPadding(tokenizer),
            )
            trainer.train()
            trainer.save_model(output)

        return cpu_seconds(work)

    return ratio(ours, bare)


def scoring(folder: Path, rows: list[TrainingRow]) -> tuple[float, float]:
    """Our scorer, over a bare loop that tokenises and scores batches of the same size in the given order."""
    import torch
    from sotopia_training.reward.scorer import RewardScorer
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    # Any of the reward models that ``regression`` trained: weights do not matter for the cost.
    path = next(folder.glob("rm*")) / "model"
    scorer = RewardScorer.load(path, batch_size=16)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right")
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    prompts = [list(row.prompt) for row in rows]
    completions = [[{"role": "assistant", "content": row.completion}] for row in rows]

    def bare() -> None:
        texts = [
            tokenizer.apply_chat_template(p + c, tokenize=False) for p, c in zip(prompts, completions, strict=True)
        ]
        with torch.inference_mode():
            for start in range(0, len(texts), 16):
                batch = tokenizer(
                    texts[start : start + 16], padding=True, add_special_tokens=False, return_tensors="pt"
                )
                model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, 0].tolist()

    return ratio(lambda: cpu_seconds(lambda: scorer(prompts, completions)), lambda: cpu_seconds(bare))


# --- GRPO ---------------------------------------------------------------------------------------------------------


def optimisation(folder: Path, run: Path, model: Path, rows: list[TrainingRow]) -> tuple[float, float]:
    """Our stage of single-turn GRPO from episodes to model, over TRL's trainer with a bare reward function.

    Both begin with an untrained model, so that nearly every answer reaches the maximum length.
    """
    import shutil

    from sotopia_training.grpo.settings import GRPOSettings
    from sotopia_training.grpo.stage import run as train
    from sotopia_training.models.loading import write_prompt_settings

    start = folder / "start"
    shutil.copytree(model, start)
    write_prompt_settings(start, PROMPT.model_copy(update={"max_answer": ANSWER}))
    reward_model = next(folder.glob("rm*"))
    count = iter(range(10_000))

    def ours() -> float:
        values = {
            "mode": "single-turn",
            "start_from": str(start),
            "lora": None,
            "data": [{"run": str(run)}],
            # Without the gate: an untrained model's answers are unreadable, so a gate would leave nothing to score.
            "reward": {"model": str(reward_model), "gate": False, "invalid": 0.0},
            "output": str(folder / f"grpo{next(count)}"),
            "trainer": {**STEPPING, "learning_rate": 1e-5, "num_generations": BATCH, "beta": 0.0},
        }
        return cpu_seconds(lambda: train(settings_of(values, GRPOSettings, "benchmark")))

    def bare() -> float:
        output = str(folder / f"bare_grpo{next(count)}")
        return cpu_seconds(lambda: _bare_grpo(start, reward_model / "model", rows, output))

    return ratio(ours, bare)


def _bare_grpo(start: Path, reward_model: Path, rows: list[TrainingRow], output: str) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(start),
        reward_funcs=[_bare_reward(reward_model)],
        args=GRPOConfig(
            output,
            **{**_bare_arguments(), "learning_rate": 1e-5},
            num_generations=BATCH,
            max_completion_length=ANSWER,
            beta=0.0,
            log_completions=False,
        ),
        train_dataset=Dataset.from_list([{"prompt": list(row.prompt)} for row in rows]),
        processing_class=AutoTokenizer.from_pretrained(start, padding_side="left"),
    )
    trainer.train()
    trainer.save_model(output)


def _bare_reward(reward_model: Path) -> Callable[..., list[float]]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(reward_model, padding_side="right")
    model = AutoModelForSequenceClassification.from_pretrained(reward_model).eval()

    def reward(prompts: Any, completions: Any, **_: Any) -> list[float]:
        texts = [
            tokenizer.apply_chat_template(p + c, tokenize=False) for p, c in zip(prompts, completions, strict=True)
        ]
        batch = tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        values: list[float] = scores[:, 0].tolist()
        return values

    return reward


# --- start --------------------------------------------------------------------------------------------------------


def first_lines(folder: Path, script: str, values: dict[str, Any], trains: bool = True) -> tuple[float, float]:
    """Seconds from the start of a script to its first log line, and to the first training loss.

    A script that does not train is stopped after its first line.
    """
    config = folder / f"{script}.yaml"
    config.write_text(to_yaml(values), encoding="utf-8")
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "scripts" / f"{script}.py"), "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first = loss = 0.0
    assert process.stderr is not None
    for line in process.stderr:
        first = first or (time.perf_counter() - start if " training." in line else 0.0)
        loss = loss or (time.perf_counter() - start if "loss" in line else 0.0)
        if first and not trains:
            process.terminate()
    if not first or (trains and (process.wait() or not loss)):
        raise RuntimeError(f"{script} did not begin")
    process.wait()
    return first, loss


def starts(folder: Path, run: Path, model: Path) -> Iterator[Figure]:
    """Seconds until each script's first log line."""
    common = {
        "model": {"base": str(model), "lora": None},
        "prompt": PROMPT.model_dump(mode="json"),
        "validation": 0,
        "trainer": {"max_steps": 1, "per_device_train_batch_size": 2},
    }
    clone = {**common, "data": [{"run": str(run)}]}
    play = {"families": ["bargaining"], "count": 2, "partners": ["linear"], "max_turns": 4}
    settings: dict[str, dict[str, Any]] = {
        "train_bc": clone,
        "train_sr": clone,
        "train_rm": {**common, "rows": [str(folder / "rows.jsonl")]},
        "train_grpo": {
            "mode": "multi-turn",
            "start_from": str(model),
            "lora": None,
            "situations": play,
            "reward": {"scalarisation": "goal"},
            "trainer": {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2},
        },
    }
    for script, values in settings.items():
        first, loss = first_lines(folder, script, {**values, "output": str(folder / f"start_{script}")})
        yield Figure(f"{script}: start to first log line", first, "s", 25, note=f"first loss {loss:.1f} s")
    for script, values in _other_scripts(folder, run).items():
        first, _ = first_lines(folder, script, {**values, "output": str(folder / f"start_{script}")}, trains=False)
        yield Figure(f"{script}: start to first log line", first, "s", 25)


def _other_scripts(folder: Path, run: Path) -> dict[str, dict[str, Any]]:
    """The settings of the scripts that train no model; ``judge_attacks`` and ``inspect_rows`` only print."""
    from sotopia_training.attribution.settings import AttributionSettings
    from sotopia_training.attribution.stage import run as attribute

    generation = {"scenarios": 2, "pairs": 1, "families": {"names": ["bargaining"]}}
    attribution = {"runs": [str(run)], "attributors": ["silence"], "dimensions": ["relationship"]}
    values = {
        name: read_yaml(ROOT / "configs" / f"{config}.yaml")
        for name, config in (("evaluate", "evaluate_verified"), ("run_pi", "run_pi_tiny"))
    }
    values |= {
        "generate_tasks": generation,
        "collect": {"agent": "linear", "tasks": generation, "play": {"max_turns": 4}},
        "rate": {"run": str(run), "evaluator": "verified"},
        "filter_episodes": {"runs": [str(run)], "filter": {"kind": "sr"}},
        "attribute": attribution,
    }
    attribute(settings_of({**attribution, "output": str(folder / "shares")}, AttributionSettings, "shares"))
    return values | {"design_rewards": {"attributions": str(folder / "shares"), "runs": [str(run)]}}


def figures() -> list[Figure]:
    """Overheads and start times."""
    import torch
    from sotopia_training.fitting.loop import quiet

    torch.set_num_threads(1)
    quiet()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, rows = scripted_run(folder)
        model = tiny(folder, rows)
        sft, sft_seconds = cloning(folder, run, model, rows)
        rm, rm_seconds = regression(folder, model, rows)
        score, score_seconds = scoring(folder, rows)
        grpo, grpo_seconds = optimisation(folder, run, model, rows)
        start_figures = list(starts(folder, run, model))
    note = f"{len(rows)} rows, {STEPS} steps of {BATCH}; bare"
    return [
        Figure(
            "behaviour cloning, episodes to model / bare SFTTrainer", sft, "", 1.05, note=f"{note} {sft_seconds:.1f} s"
        ),
        Figure("reward model, rows to model / bare Trainer", rm, "", 1.05, note=f"{note} {rm_seconds:.1f} s"),
        Figure("reward scoring / bare loop", score, "", 1.05, note=f"{len(rows)} answers; bare {score_seconds:.2f} s"),
        Figure(
            "single-turn GRPO, episodes to model / bare GRPOTrainer",
            *(grpo, "", 1.05),
            note=f"{STEPS} steps of {BATCH} answers of {ANSWER} tokens; bare {grpo_seconds:.1f} s",
        ),
        *start_figures,
    ]
