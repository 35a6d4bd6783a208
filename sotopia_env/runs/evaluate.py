"""Evaluation of a run on disk: interruptible, resumable, and without loss of scores when an evaluator fails.

Verdicts are appended to a side file of the run directory as they arrive, so that no verdict is paid for twice after an
interruption. A complete side file is merged into the episodes, whose file is replaced atomically, and then removed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.concurrency.workers import check_limits, work_through
from sotopia_env.evaluators.evaluator import members_of
from sotopia_env.foundation.errors import ModelRefusedError, check_members
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Record
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.storage.directory import RunDirectory, read_run
from sotopia_env.storage.journal import Journal
from sotopia_env.storage.manifest import Named, named
from sotopia_env.world.episode import Episode, Evaluation, Evaluator

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Counts of an evaluation of a run.

    Attributes:
        episodes: the number of episodes in the run.
        evaluated: the number of episodes evaluated in this call.
        kept: the number of episodes that already had a verdict of the same evaluator with the same parameters,
            including verdicts from before an interruption.
        unscored: the number of episodes that the evaluator failed to score.
        refused: the number of episodes that keep an earlier verdict of that name because the evaluator failed now.
        reason: why the first of the unscored and refused episodes was not scored.
        stopped: why the work ended before it was done; empty if it was done.
    """

    episodes: int
    evaluated: int
    kept: int
    unscored: int
    refused: int
    reason: str | None = None
    stopped: str = ""


class _StoredVerdict(Record):
    """An evaluation in the side file; ``content`` is the hash of the transcript, since a key alone may be reused."""

    key: str
    content: str
    evaluation: Evaluation


def _side_journal(folder: Path, judge: Named) -> Journal[_StoredVerdict]:
    """Returns the journal of verdicts of this evaluator with these parameters, and of a panel's judges."""
    identity = canonical_json([judge.name, judge.parameters])
    file = folder / f"evaluations-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsonl"
    return Journal(file, _StoredVerdict, lambda line: (line.key, line.content))


def is_pending(episode: Episode, judge: Named, force: bool) -> bool:
    """Whether an episode needs an evaluation: it lacks scores of this name and parameters, or ``force`` is set."""
    evaluation = episode.evaluation(judge.name)
    scored = evaluation is not None and evaluation.unscored is None and evaluation.parameters == judge.parameters
    return force or not scored


@dataclass(slots=True)
class _RunEvaluation:
    """The evaluation of one run."""

    directory: RunDirectory
    evaluator: Evaluator
    judge: Named
    side: Journal[_StoredVerdict]
    timeout: float | None
    force: bool
    progress: Progress
    evaluated: int = 0
    unscored: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)

    def pending(self) -> Iterator[Episode]:
        """Yields the episodes that still need a verdict."""
        for episode in read_run(self.directory.path):
            _, verdict = self._verdicts(episode)
            scored = verdict is not None and verdict.unscored is None
            if scored or not is_pending(episode, self.judge, self.force):
                self.progress.advance(1)
            else:
                yield episode

    def _verdicts(self, episode: Episode) -> tuple[Collection[Evaluation], Evaluation | None]:
        """Returns the evaluations by the judges of a panel, and the verdict, or ``None`` before the first one."""
        lines = self.side.records((episode.key, episode.turns_hash)) if self.side else []
        # Lines are in order of writing, so a later evaluation by the same judge replaces an earlier one.
        latest = {line.evaluation.evaluator: line.evaluation for line in lines}
        verdict = latest.pop(self.judge.name, None)
        return latest.values(), verdict

    async def work(self, episode: Episode) -> bool:
        """Evaluates an episode and stores the verdict; a failure of the evaluator is stored as an unscored verdict."""
        unfinished, append = self._with_stored(episode), partial(self._append, episode)
        append((await evaluate_episode(unfinished, self.evaluator, self.timeout, append)).evaluations[-1])
        self.evaluated += 1
        return True

    def _append(self, episode: Episode, evaluation: Evaluation) -> None:
        self.side.append(_StoredVerdict(key=episode.key, content=episode.turns_hash, evaluation=evaluation))

    def _with_stored(self, episode: Episode) -> Episode:
        """Returns the episode with the stored evaluations by the judges of a panel; with ``force``, only new ones."""
        judges, _ = self._verdicts(episode)
        if self.force:
            names = {member.name for member in members_of(self.evaluator)}
            # A member whose evaluation is in the episode is not called; ``force`` calls every member again.
            others = tuple(item for item in episode.evaluations if item.evaluator not in names)
            episode = episode.model_copy(update={"evaluations": others})
        return _with(episode, judges)

    def merge(self) -> None:
        """Adds the verdicts to the episodes, all or none."""
        self.directory.replace_episodes(self._merged(episode) for episode in read_run(self.directory.path))

    def _merged(self, episode: Episode) -> Episode:
        judges, verdict = self._verdicts(episode)
        if verdict is None:
            return episode
        earlier = episode.evaluation(self.judge.name)
        if verdict.unscored is None:
            return _with(episode, [*judges, verdict])
        self.reasons.append(verdict.unscored)
        if earlier is not None and earlier.unscored is None and not self.force:
            self.refused += 1
            return _with(episode, [*judges, earlier]) if judges else episode
        self.unscored += 1
        return _with(episode, [*judges, verdict])


def _with(episode: Episode, evaluations: Iterable[Evaluation]) -> Episode:
    for evaluation in evaluations:
        episode = episode.with_evaluation(evaluation)
    return episode


async def evaluate_run(
    run_dir: str | Path,
    evaluator: Evaluator,
    *,
    concurrency: int = 128,
    timeout: float | None = None,
    progress: bool | None = None,
    force: bool = False,
    stop: Stop | None = None,
    ledger: Ledger | None = None,
) -> EvaluationResult:
    """Adds an evaluation to every episode of a run; other evaluations are kept, one of the same name is replaced.

    An episode that this evaluator has scored with the same parameters is not evaluated again, so the same call
    continues an interrupted one, with the verdicts from before the interruption. A failure never replaces scores from
    an evaluator of this name. Turns, keys and the order of the episodes do not change. The file of episodes is
    replaced atomically once all episodes are evaluated; until then it is unchanged.

    Args:
        run_dir: the directory of the run.
        evaluator: scores each episode.
        concurrency: the number of concurrent evaluations, at least 1.
        timeout: seconds for one evaluation; ``None`` for no limit. It cannot stop an evaluator that never awaits.
        progress: whether to show a progress bar on stderr; by default if stderr is a terminal.
        force: whether to evaluate every episode again, and let failures replace scores.
        stop: ends the work early; verdicts so far are stored beside the episodes, for the next call.
        ledger: the ledger of the evaluator's models; the progress bar shows its sums, and the run records the models
            that answered.

    Raises:
        InvalidValueError: ``run_dir`` does not hold a run with episodes, or another process is writing to it.
        DamagedRecordError: a record cannot be read.
        ModelRefusedError: a model refuses every request; verdicts so far are stored for the next call.
    """
    check_limits(concurrency, timeout)
    check_members("evaluator", "an evaluator", evaluator, Evaluator)
    with RunDirectory(run_dir) as directory:
        bar = Progress(len(directory.done), 0, progress, "evaluations", ledger)
        return await evaluate_directory(
            directory, evaluator, bar, concurrency=concurrency, timeout=timeout, force=force, stop=stop, ledger=ledger
        )


async def evaluate_directory(
    directory: RunDirectory,
    evaluator: Evaluator,
    bar: Progress,
    *,
    concurrency: int,
    timeout: float | None = None,
    force: bool = False,
    stop: Stop | None = None,
    ledger: Ledger | None = None,
) -> EvaluationResult:
    """Does the same as :func:`evaluate_run`, for an open run directory; ``bar`` shows the progress."""
    judge, stop, merged = named(evaluator), stop or Stop(), False
    side = _side_journal(directory.path, judge)
    job = _RunEvaluation(directory, evaluator, judge, side, timeout, force, bar)
    try:
        await work_through(job.pending(), job.work, stop, bar, concurrency)
        if side and not stop.reason:
            job.merge()
        merged = not stop.reason
        directory.note_models(ledger.answered() if ledger else {})
    finally:
        # An empty side file is removed, too; one with verdicts is removed only when the episodes contain them.
        side.close(remove=merged or not side)
    if isinstance(stop.failure, ModelRefusedError):
        raise stop.failure
    total = len(directory.done)
    reason = job.reasons[0] if job.reasons else None
    kept = 0 if stop.reason else total - job.evaluated
    return EvaluationResult(total, job.evaluated, kept, job.unscored, job.refused, reason, stop.reason)
