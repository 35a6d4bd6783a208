"""Episodes as columns: files beyond a reader's block that mix what has a value with what has none."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.columns import arrow_schema, features
from sotopia_env.world.episode import (
    Episode,
    EpisodeError,
    Evaluation,
    Generation,
    Score,
    Usage,
    write_episodes,
)
from sotopia_env.world.reward import CustomDimension
from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task

BLOCK = 10 << 20
"""What ``datasets`` reads at a time, and takes the types of columns from."""
PADDING = 100_000


def scripted() -> Episode:
    """Everything that can be empty is."""
    task = make_task()
    scenario = task.scenario.model_copy(update={"context": "Two people wait. " + "x" * PADDING})
    task = task.model_copy(update={"scenario": scenario})
    (episode,) = asyncio.run(run_episodes([EpisodePlan(task, (Speaker("a"), Speaker("b")))])).episodes
    turns = tuple(item.model_copy(update={"generation": None}) for item in episode.turns)
    return episode.model_copy(update={"turns": turns})


def sampled() -> Episode:
    """Nothing is empty that a model's episode may have."""
    (episode,) = asyncio.run(run_episodes([EpisodePlan(make_task(), (Speaker("m"), Speaker("b")))])).episodes
    generation = Generation(
        text="I agree.", usage=Usage(cost=0.5), token_ids=(1, 2), logprobs=(-0.5, -1.0), parse_failure="no JSON"
    )
    turns = tuple(item.model_copy(update={"generation": generation}) for item in episode.turns)
    own = CustomDimension(name="politeness", low=1, high=5, instruction="How polite?")
    evaluation = Evaluation(
        evaluator="ensemble",
        members=("j1", "j2"),
        dimensions=(own,),
        scores=(Score(agent="agent_0", dimension="politeness", value=4, spread=1.0),),
        outcome=OutcomeResult(agreed=True, reason="r", payoffs=(1.0, 2.0), shares=(0.5, 1.0), efficiency=1.0),
    )
    errors = (EpisodeError(kind="server", message="502", turn=0),)
    return episode.model_copy(update={"key": "sampled", "turns": turns, "errors": errors, "evaluations": (evaluation,)})


ROWS = BLOCK // PADDING + 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("columns") / "episodes.jsonl"
    first = scripted()
    write_episodes(file, [*(first.model_copy(update={"key": f"e{i}"}) for i in range(ROWS - 1)), sampled()])
    assert file.stat().st_size > BLOCK
    return file


def with_datasets(path: Path, schema: bool = True) -> Any:
    datasets = pytest.importorskip("datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        types = {"features": features()} if schema else {}
        cache = str(path.parent / "cache" / str(schema))
        return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache, **types)


def with_polars(path: Path) -> list[dict[str, Any]]:
    polars = pytest.importorskip("polars")
    columns = polars.from_arrow(arrow_schema().empty_table()).schema
    rows: list[dict[str, Any]] = polars.read_ndjson(path, schema=columns).to_dicts()
    return rows


def with_pandas(path: Path) -> Iterator[dict[str, Any]]:
    pandas = pytest.importorskip("pandas")
    frame = pandas.concat(pandas.read_json(path, lines=True, chunksize=50))
    yield from frame.to_dict("records")


def with_arrow(path: Path) -> list[dict[str, Any]]:
    json = pytest.importorskip("pyarrow.json")
    options = json.ParseOptions(explicit_schema=arrow_schema())
    rows: list[dict[str, Any]] = json.read_json(io.BytesIO(path.read_bytes()), parse_options=options).to_pylist()
    return rows


@pytest.mark.parametrize("read", [with_datasets, with_polars, with_pandas, with_arrow])
def test_a_long_run_of_scripts_and_models_is_a_table(path: Path, read: Any) -> None:
    rows = list(read(path))
    assert len(rows) == ROWS
    first, last = rows[0], rows[-1]
    assert (first["key"], first["turns"][0]["generation"], list(first["evaluations"])) == ("e0", None, [])
    generation = last["turns"][0]["generation"]
    assert (generation["text"], generation["usage"]["cost"], generation["token_ids"]) == ("I agree.", 0.5, [1, 2])
    (evaluation,) = last["evaluations"]
    assert (evaluation["members"], evaluation["outcome"]["shares"]) == (["j1", "j2"], [0.5, 1.0])
    assert (evaluation["scores"][0]["value"], evaluation["scores"][0]["spread"]) == (4.0, 1.0)
    assert last["errors"] == [{"kind": "server", "message": "502", "turn": 0}]


def test_without_the_schema_the_types_of_the_first_block_do_not_fit(path: Path) -> None:
    """Why the schema is there; when this no longer fails it can go."""
    with pytest.raises(Exception, match="error occurred while generating"):
        with_datasets(path, schema=False)


def test_every_field_of_an_episode_is_a_column() -> None:
    pytest.importorskip("pyarrow")
    assert arrow_schema().names == list(Episode.model_fields)
