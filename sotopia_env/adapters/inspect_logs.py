"""Export of recorded episodes as logs of Inspect, which ``inspect view`` opens and ``inspect_ai.analysis`` reads."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.extras import extra
from sotopia_env.reports.transcript import to_text
from sotopia_env.storage import read_run
from sotopia_env.storage.manifest import RUN, read_manifest
from sotopia_env.world.episode import Episode, Usage
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import DIMENSIONS, Dimension

with extra("inspect"):
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalSample,
        EvalSpec,
        EvalStats,
        recompute_metrics,
        write_eval_log,
    )
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ModelOutput,
        ModelUsage,
    )
    from inspect_ai.scorer import Score

SCORER, CLUSTER = "dimensions", "cluster"
"""The name of the scorer, and the key of a sample's metadata by which its errors are clustered."""
UNKNOWN = "unknown"
"""The name of the model in a log of seats whose policies the record does not name."""
_ROLES: Mapping[object, Any] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def export_logs(source: str | Path, folder: str | Path) -> list[Path]:
    """Writes one ``.eval`` file per policy, with a sample for every seat that it had, and returns the paths.

    A sample holds the messages that the seat exchanged, its scores by dimension and the episode's transcript. An
    unscored episode has a sample without scores, which the means leave out.

    Args:
        source: a run directory or a file of episodes.
        folder: the folder of the logs; existing logs of the same policies are replaced.

    Raises:
        InvalidValueError: ``source`` has no episodes.
        DamagedRecordError: an episode cannot be read.
    """
    source, folder = Path(source), Path(folder)
    episodes = list(read_run(source))
    if not episodes:
        raise InvalidValueError(expected="episodes to export", where=source)
    several = len({episode.task.scenario.id for episode in episodes}) > 1
    samples: dict[str, list[EvalSample]] = {}
    for episode in episodes:
        cluster = episode.task.scenario.id if several else episode.task.id
        names = {policy.agent: policy.name for policy in episode.policies}
        for agent in episode.task.agents:
            name = names.get(agent, UNKNOWN)
            samples.setdefault(name, []).append(_sample(episode, agent, name, cluster))
    folder.mkdir(parents=True, exist_ok=True)
    times = _times(source)
    return [_write(_log(name, own, times), folder, name) for name, own in samples.items()]


def chat_messages(messages: Iterable[Mapping[str, object]], model: str | None = None) -> list[ChatMessage]:
    """Returns a conversation as Inspect's messages; ``model`` is the writer of the seat's own messages."""
    own = {} if model is None else {"model": model}
    return [_ROLES[m["role"]](content=m["content"], **(own if m["role"] == "assistant" else {})) for m in messages]


def _sample(episode: Episode, agent: str, policy: str, cluster: str) -> EvalSample:
    messages = chat_messages(Table.resume(episode).observe(agent).messages, policy)
    own = [item.generation for item in episode.turns if item.turn.actor == agent and item.generation is not None]
    usage = sum((generation.usage for generation in own), Usage())
    answers = [message for message in messages if message.role == "assistant"]
    return EvalSample(
        id=f"{episode.key or episode.turns_hash}/{agent}",
        epoch=1,
        input=episode.task.scenario.context,
        target="",
        messages=messages,
        output=ModelOutput.from_message(answers[-1]) if answers else ModelOutput(model=policy),
        scores={SCORER: _score(episode, agent)},
        metadata={
            CLUSTER: cluster,
            "task": episode.task.id,
            "scenario": episode.task.scenario.id,
            "seat": agent,
            "policies": {info.agent: info.name for info in episode.policies},
            "seed": episode.seed,
            "stop": None if episode.stop is None else episode.stop.value,
            "turns": len(episode.turns),
            "unusable": sum(generation.parse_failure is not None for generation in own),
        },
        model_usage={policy: _usage(usage)} if usage.tokens else {},
        total_time=episode.duration,
    )


def _score(episode: Episode, agent: str) -> Score:
    evaluation, transcript = episode.evaluation(), to_text(episode)
    scores = {} if evaluation is None else evaluation.by_agent.get(agent, {})
    if evaluation is None or not scores:
        reason = "not evaluated" if evaluation is None else evaluation.unscored or f"no scores for {agent}"
        return Score(value={}, reason=reason, explanation=transcript)
    details = {
        "evaluator": evaluation.evaluator,
        "reasoning": {str(dimension): score.reasoning for dimension, score in scores.items() if score.reasoning},
    }
    return Score(
        value={str(dimension): score.value for dimension, score in scores.items()},
        explanation=transcript,
        metadata=details,
    )


def _usage(usage: Usage) -> ModelUsage:
    read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written, total_cost=usage.cost)


def _log(policy: str, samples: list[EvalSample], times: tuple[str, str]) -> EvalLog:
    scored = {name: None for sample in samples for name in sample.scores[SCORER].value}
    names = [d.value for d in DIMENSIONS if d.value in scored]
    names += [name for name in scored if name not in names]
    # A sample needs a name even if nothing was scored; a dimension without any score is not named.
    names = names or [Dimension.GOAL.value]
    for sample in samples:  # a missing score is unscored: Inspect requires the same names in every sample
        score = sample.scores[SCORER]
        score.value = {name: score.value.get(name, math.nan) for name in names}
    metrics = [{"name": "inspect_ai/mean"}, {"name": "inspect_ai/stderr", "options": {"cluster": CLUSTER}}]
    spec = EvalSpec(
        eval_id=_digest(policy),
        run_id=_digest(times[0]),
        created=times[0],
        task="sotopia",
        dataset=EvalDataset(name="sotopia", samples=len(samples), sample_ids=[sample.id for sample in samples]),
        model=policy,
        config=EvalConfig(epochs=1),
        scorers=[{"name": SCORER, "metrics": {"*": metrics}}],
    )
    stats = EvalStats(started_at=times[0], completed_at=times[1])
    log = EvalLog(status="success", eval=spec, samples=samples, stats=stats)
    recompute_metrics(log)
    return log


def _times(source: Path) -> tuple[str, str]:
    """When the run began and ended; for a file of episodes, and for imported ones, when the file was written."""
    written = datetime.fromtimestamp(source.stat().st_mtime, UTC).isoformat(timespec="seconds")
    manifest = read_manifest(source) if (source / RUN).exists() else None
    started = manifest.started if manifest is not None and manifest.started else written
    return started, (manifest.finished if manifest is not None else "") or started


def _write(log: EvalLog, folder: Path, policy: str) -> Path:
    # The digest tells apart policies whose names differ only in characters that file names cannot have.
    file = folder / f"sotopia_{re.sub(r'[^A-Za-z0-9.]+', '-', policy).strip('-')[:60]}_{_digest(policy)}.eval"
    write_eval_log(log, str(file))
    return file


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
