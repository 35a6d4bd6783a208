"""``sotopia rows``: the rows of the supervised stages as files for other trainers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from datasets import load_dataset
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, prepare, tokenise
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.settings import PromptSettings
from typer.testing import CliRunner

from sotopia_env import tasks
from sotopia_env.cli.app import app
from sotopia_env.foundation.settings import settings_of
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.world.dynamics import Rules

# Long enough for most rows, and short enough that some lose their oldest turns or are left out.
PROMPT = PromptSettings(format="brief", max_length=420, max_answer=40)
PROMPT_FLAGS = [f"--prompt={name}={getattr(PROMPT, name)}" for name in ("format", "max_length", "max_answer")]


@pytest.fixture(scope="module")
def scored_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bargains with and without an agreement."""
    folder = tmp_path_factory.mktemp("scored") / "run"
    pairs = [(make_policy(name), make_policy("conceder")) for name in ("linear", "linear:floor=0.9")]
    plans = plan_episodes(tasks.generate("bargaining", 2, seed=1), pairs, rules=Rules(max_turns=14))
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=folder, progress=False))
    return folder


def rows(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["rows", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_they_are_the_rows_that_behaviour_cloning_trains_on(scored_run, tiny_model, tmp_path):
    seats = ["agent_1", "policy:linear"]
    settings = settings_of(
        {
            "model": {"base": str(tiny_model)},
            "prompt": PROMPT.model_dump(),
            "data": [{"run": str(scored_run), "seats": seats, "min_scores": {"goal": 1}}],
            "output": str(tmp_path / "bc"),
            "validation": 0,
        },
        BehaviorCloningSettings,
        "",
    )
    tokenizer = load_tokenizer(str(tiny_model), PROMPT)
    prepared = prepare(settings, tmp_path / "prepared", tokenizer)
    stage, _ = prepared.load()
    file = tmp_path / "rows.jsonl"
    chosen = ("--seat", "agent_1", "--policy", "linear", "--min-score", "goal=1")
    output = rows(scored_run, "-o", file, *chosen, *PROMPT_FLAGS, "--tokenizer", tiny_model)
    # Rows of prompts without their oldest turns, and rows left out, are among those compared.
    assert prepared.facts["counts"] in output
    written = read(file)
    assert any(row["dropped"] for row in written)
    tokens = [tokenise(tokenizer, row["prompt"], row["completion"][0]["content"], PROMPT.max_length) for row in written]
    assert [row.input_ids for row in tokens] == list(stage["input_ids"])
    assert [row.labels for row in tokens] == list(stage["labels"])


def test_a_minimum_of_a_score_leaves_out_seats(scored_run, tmp_path):
    scores = {
        (episode.key, score.agent): score.value
        for episode in read_run(scored_run)
        for score in episode.evaluation().scores
        if score.dimension == "goal"
    }
    low = sorted(scores.values())[len(scores) // 2]
    assert min(scores.values()) < low
    file = tmp_path / "rows.jsonl"
    rows(scored_run, "-o", file, "--min-score", f"goal={low}")
    assert {(row["episode"], row["seat"]) for row in read(file)} == {
        pair for pair, value in scores.items() if value >= low
    }


def test_messages_and_parquet_hold_the_same_rows(scored_run, tmp_path):
    for name in ("prompt-completion", "messages"):
        for suffix in ("jsonl", "parquet"):
            rows(scored_run, "-o", tmp_path / f"{name}.{suffix}", "--format", name, "--seat", "agent_0")
        lines = read(tmp_path / f"{name}.jsonl")
        table = load_dataset(
            "parquet", data_files=str(tmp_path / f"{name}.parquet"), cache_dir=str(tmp_path / "cache"), split="train"
        )
        assert table.to_list() == lines
        assert {row["seat"] for row in lines} == {"agent_0"}
    pairs = zip(read(tmp_path / "prompt-completion.jsonl"), read(tmp_path / "messages.jsonl"), strict=True)
    for pair, conversation in pairs:
        assert conversation["messages"] == pair["prompt"] + pair["completion"]
        assert conversation["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "liner"], ["policy:linear"]),
        (["--min-score", "gaol=3"], ["--min-score", "goal"]),
        (["--min-score", "goal=11"], ["no rows"]),
        (["--format", "sharegpt"], ["--format", "messages"]),
        (["--prompt", "format=long"], ["format", "brief"]),
        (["--out", "rows.csv"], ["--out", ".parquet"]),
    ],
)
def test_misuse_is_one_sentence_and_writes_nothing(scored_run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in arguments else ["--out", "rows.jsonl"]
    output = rows(scored_run, *arguments, *out, code=2)
    assert output.count("\n") == 1
    assert all(word in output for word in words), output
    assert list(tmp_path.iterdir()) == []


def test_the_run_itself_is_not_replaced(scored_run):
    file = scored_run / "episodes.jsonl"
    before = file.read_bytes()
    rows(file, "-o", file, code=2)
    assert file.read_bytes() == before
