"""The stage that combines attributed rewards into the reward model's training data, ``rows.jsonl``.

The scenarios are split here, because the design is fitted on the training part only. Each row names its part, and
``design.json`` beside the rows contains the design.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.files import replacement
from sotopia_env.foundation.settings import Settings
from sotopia_env.storage import read_run
from sotopia_training.attribution.methods import Method, Rewards, TurnKey, read_rewards
from sotopia_training.data.held_out import check_not_reserved, evaluation_scenarios
from sotopia_training.data.samples import CountTokens, RowMaker, Split, TrainingRow, split_scenarios
from sotopia_training.reward.design import RewardDesign, fit_design
from sotopia_training.reward.text import ROWS
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import PromptSettings

logger = logging.getLogger(__name__)
DESIGN = "design.json"


class RewardRowSettings(Settings):
    """Settings of the stage that combines rewards.

    Attributes:
        attributions: the output of the attribution stage, or an ``attributions.jsonl``.
        runs: the attributed runs.
        method: the method of the rewards.
        attributor: the attributor of the rewards, or one per dimension; not needed if each dimension has only one.
        weights: γ by dimension; ``None`` combines all dimensions with 1.
        validation: the share of the scenarios that is held out.
        seed: the seed of the split.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; the rows must not contain its scenarios.
        prompt: the format and limits of the reward model's prompts.
        tokenizer: the directory or hub name of a tokenizer; rows longer than ``prompt.max_length`` lose their oldest
            turns. ``None`` keeps all rows at full length.
        output: the directory of the stage.
    """

    attributions: str
    runs: tuple[str, ...] = Field(min_length=1)
    method: Method = "direct"
    attributor: str | dict[str, str] | None = None
    weights: dict[str, float] | None = None
    validation: float = Field(default=0.1, ge=0, lt=1)
    seed: int = 0
    evaluation_tasks: str | None = None
    prompt: PromptSettings = PromptSettings()
    tokenizer: str | None = None
    output: str


def run(settings: RewardRowSettings) -> None:
    """Combines the rewards and writes the rows; does nothing if the stage is complete.

    Raises:
        InvalidValueError: all rewards are equal, the split leaves no training scenario, a scenario is reserved for
            evaluation, or the runs are not the attributed ones.
        UnknownNameError: the attributions have no such method, attributor or dimension.
        DamagedRecordError: a record cannot be read.
    """
    stage = StageDirectory(Path(settings.output), "reward_rows", settings)
    if stage.figures is not None:
        stage.open()
        logger.info("%s: complete", stage.path)
        return
    dimensions = None if settings.weights is None else tuple(settings.weights)
    rewards = read_rewards(settings.attributions, settings.method, settings.attributor, dimensions)
    split = split_scenarios(rewards.scenarios.values(), settings.validation, settings.seed)
    design = fit_design(rewards, split.train, settings.weights)
    _check(settings, rewards)
    stage.open()
    figures = _write(settings, stage.path, rewards, design, split)
    design.save(stage.path / DESIGN)
    stage.finish(figures)
    logger.info("%s: %s", stage.path, figures["counts"])


def _check(settings: RewardRowSettings, rewards: Rewards) -> None:
    """Checks, before anything is written, that the runs are the attributed ones and contain no reserved scenario."""
    missing = set(rewards.scenarios)
    for path in settings.runs:
        for episode in read_run(path):
            missing.discard(episode.key)
            content = rewards.contents.get(episode.key)
            if content is not None and content != episode.turns_hash:
                raise InvalidValueError(
                    "another episode with this key was attributed",
                    field="episode",
                    got=episode.key,
                    hint="give the runs that were attributed",
                    where=path,
                )
    if missing:
        raise InvalidValueError(
            field="runs",
            expected=f"all that were attributed, with episode {min(missing)!r}",
            got=Verbatim(", ".join(map(str, settings.runs))),
        )
    reserved = evaluation_scenarios(settings.evaluation_tasks)
    for key, scenario in rewards.scenarios.items():
        check_not_reserved(scenario, reserved, got=key)


def _write(
    settings: RewardRowSettings, folder: Path, rewards: Rewards, design: RewardDesign, split: Split
) -> dict[str, object]:
    values = design.values(rewards)
    maker = RowMaker(settings.prompt, _counter(settings.tokenizer, settings.prompt))
    columns = {"format": settings.prompt.format}
    parts: Counter[str] = Counter()
    with replacement(folder / ROWS) as stream:
        for row in _rows(settings, maker, values):
            part = "train" if row.scenario in split.train else "validation"
            parts[part] += 1
            line = json.dumps({**row.columns(), **columns, "split": part}, ensure_ascii=False)
            stream.write(f"{line}\n".encode())
    counts = {"turns": len(rewards.by_turn), "without_a_dimension": len(rewards.by_turn) - len(values)}
    return {"rows": dict(parts), **counts, "counts": maker.counts.text()}


def _rows(settings: RewardRowSettings, maker: RowMaker, values: dict[TurnKey, float]) -> Iterator[TrainingRow]:
    by_seat: dict[tuple[str, str], dict[int, float]] = {}
    for (key, seat, turn), value in values.items():
        by_seat.setdefault((key, seat), {})[turn] = value
    for path in settings.runs:
        for episode in read_run(path):
            for seat in episode.task.agents:
                turns = by_seat.pop((episode.key, seat), None)  # an episode may occur in several runs
                if turns is not None:
                    yield from maker.rows(episode, seat, turns)


def _counter(tokenizer: str | None, prompt: PromptSettings) -> CountTokens | None:
    if tokenizer is None:
        return None
    from sotopia_training.models.loading import located
    from sotopia_training.models.tokenizers import TokenCounter, load_tokenizer

    return TokenCounter(load_tokenizer(located(tokenizer), prompt))
