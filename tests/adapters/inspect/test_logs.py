"""Runs exported as logs, read back by Inspect's own reader."""

import math
from statistics import mean

import pytest

from tests.adapters.libraries import need

need("inspect_ai")

from inspect_ai.log import list_eval_logs, read_eval_log

from sotopia_env.adapters.inspect_logs import export_logs
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.seat_results import seat_results
from sotopia_env.storage import read_run
from sotopia_env.world import Dimension
from sotopia_env.world.episode import write_episodes
from tests.sotopia_env.cli.test_cli import sotopia
from tests.test_docs import ROOT


def logs_of(run, folder):
    sotopia("export", run, "--format", "inspect", "-o", folder)
    logs = [read_eval_log(info) for info in list_eval_logs(str(folder))]
    return {log.eval.model: log for log in logs}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    sotopia("rollout", "--policy", "boulware,conceder", "--tasks", "bargaining,hiring", "-n", 3, "--out", folder)
    return folder


def test_every_seat_is_a_sample_with_its_messages_scores_and_transcript(run, tmp_path):
    logs = logs_of(run, tmp_path / "logs")
    assert set(logs) == {"boulware", "conceder"}
    episodes = {episode.key: episode for episode in read_run(run)}
    samples = [(log.eval.model, sample) for log in logs.values() for sample in log.samples]
    assert len(samples) == 2 * len(episodes)
    for policy, sample in samples:
        key, _, agent = sample.id.rpartition("/")
        episode = episodes[key]
        assert sample.metadata["policies"][agent] == policy
        scores = episode.evaluation().by_agent[agent]
        assert sample.scores["dimensions"].value == {str(name): score.value for name, score in scores.items()}
        own = [item for item in episode.turns if item.turn.actor == agent]
        assert sum(message.role == "assistant" for message in sample.messages) == len(own)
        assert episode.task.scenario.context in sample.scores["dimensions"].explanation.replace("\n  ", "\n")


def test_means_are_those_of_our_reports_and_errors_are_clustered(run, tmp_path):
    logs = logs_of(run, tmp_path / "logs")
    rows = seat_results(read_run(run))
    for policy, log in logs.items():
        (goal,) = [score for score in log.results.scores if score.name == "goal"]
        own = [row.values[Dimension.GOAL] for row in rows if row.policy == policy]
        assert goal.metrics["mean"].value == pytest.approx(mean(own))
        assert goal.metrics["stderr"].params == {"cluster": "cluster"}
        assert len({sample.metadata["cluster"] for sample in log.samples}) == 3


def test_an_unscored_episode_has_a_sample_that_the_means_leave_out(tmp_path):
    run = tmp_path / "run"
    sotopia("rollout", "--policy", "silent", "--tasks", "bargaining", "-n", 2, "--evaluator", "none", "--out", run)
    (log,) = logs_of(run, tmp_path / "logs").values()
    assert all(math.isnan(value) for sample in log.samples for value in sample.scores["dimensions"].value.values())
    assert {sample.scores["dimensions"].reason for sample in log.samples} == {"not evaluated"}
    assert {score.unscored_samples for score in log.results.scores} == {4}


def test_imported_episodes_and_such_without_policies_are_exported(tmp_path):
    imported = tmp_path / "imported"
    sotopia("import", ROOT / "docs" / "samples" / "sotopia" / "episodes.jsonl", "-o", imported)
    episodes = list(read_run(imported))
    logs = logs_of(imported, tmp_path / "logs")
    assert sum(len(log.samples) for log in logs.values()) == sum(len(episode.task.agents) for episode in episodes)
    nameless = [episode.model_copy(update={"policies": ()}) for episode in episodes]
    write_episodes(tmp_path / "nameless.jsonl", nameless)
    (log,) = logs_of(tmp_path / "nameless.jsonl", tmp_path / "others").values()
    assert log.eval.model == "unknown"


def test_logs_of_the_same_run_replace_each_other(run, tmp_path):
    first, second = (export_logs(run, tmp_path) for _ in range(2))
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_without_episodes_is_refused(tmp_path):
    (tmp_path / "episodes.jsonl").touch()
    with pytest.raises(InvalidValueError):
        export_logs(tmp_path / "episodes.jsonl", tmp_path / "logs")
