"""The task under Inspect's own evaluation, with its mock model and with a model on a socket."""

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.libraries import need

need("inspect_ai")

from inspect_ai import eval as evaluate
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from sotopia_env.adapters.inspect_tasks import sotopia
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.errors import UnknownNameError
from tests.adapters import beliefs, failing
from tests.adapters.model_server import bargain, bargaining_model, calling
from tests.test_docs import ROOT

# Without it, Inspect downloads a tokenizer to count.
DRAFT = 'I could say {"action_type": "speak", "argument": "Well?"}'
USAGE = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)


def bargainer(answer=bargain):
    def output(messages, tools, tool_choice, config):
        texts = [{"role": message.role, "content": message.text} for message in messages]
        written = ModelOutput.from_content("mockllm/model", answer(texts))
        written.usage = USAGE
        return written

    return get_model("mockllm/model", custom_outputs=output)


def run(folder, **options):
    (log,) = evaluate(sotopia(n=2, partner="conceder"), bargainer(), log_dir=str(folder), display="none", **options)
    return log


def test_an_evaluation_scores_every_seat_as_the_seat_itself_does(tmp_path):
    log = run(tmp_path)
    assert log.status == "success"
    assert len(log.samples) == 4
    for sample in log.samples:
        seat = TextSeat.against(**{name: sample.metadata[name] for name in ("task", "partner", "focal", "seed")})
        assert sample.scores["reward"].value == pytest.approx(replayed(seat, sample))
        assert sample.scores["dimensions"].value["goal"] == pytest.approx(10 * seat.reward)
        assert sample.scores["reward"].metadata["turn_rewards"] == pytest.approx(seat.turn_rewards)
    metrics = {score.name: score.metrics for score in log.results.scores}
    assert metrics["reward"]["mean"].value == pytest.approx(
        sum(sample.scores["reward"].value for sample in log.samples) / 4
    )
    assert {metrics[name]["stderr"].params["cluster"] for name in ("reward", "goal")} == {"cluster"}


def replayed(seat, sample):
    async def play():
        await seat.begin()
        for message in sample.messages:
            if message.role == "assistant":
                await seat.say(message.text)
        return seat.reward

    return asyncio.run(play())


def test_an_evaluation_that_measures_goal_alone_reports_no_other_dimension(tmp_path):
    task = sotopia(n=2, partner="conceder", evaluator="tests.goal_alone:GoalAlone")
    (log,) = evaluate(task, bargainer(), log_dir=str(tmp_path), display="none")
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means == {"goal": 4.0, "reward": pytest.approx(0.4)}
    assert all(sample.scores["dimensions"].value == {"goal": 4.0} for sample in log.samples)


def test_a_limit_of_inspects_leaves_the_sample_unscored(tmp_path):
    log = run(tmp_path, message_limit=5)
    assert {sample.limit.type for sample in log.samples} == {"message"}
    assert all(math.isnan(sample.scores["reward"].value) for sample in log.samples)


def test_the_command_finds_the_task_and_asks_a_model_on_a_socket(tmp_path):
    with bargaining_model() as (address, requests):
        command = [Path(sys.executable).parent / "inspect", "eval", "sotopia_env/sotopia", "-T", "n=2"]
        options = ["--model", "openai-api/local/bargainer", "--log-dir", tmp_path, "--display", "none"]
        keys = {"LOCAL_API_KEY": "none", "LOCAL_BASE_URL": address}
        done = subprocess.run(
            [*command, *options], env={**os.environ, **keys}, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = [read_eval_log(info) for info in list_eval_logs(str(tmp_path))]
    assert log.status == "success"
    assert len(log.samples) == 4
    assert len(requests) == sum(message.role == "assistant" for sample in log.samples for message in sample.messages)
    assert log.stats.model_usage["openai-api/local/bargainer"].total_tokens == 15 * len(requests)


@pytest.mark.parametrize(
    ("function", "arguments", "failed"), [("say", {"words": "Well?"}, 0), ("search", {"query": "price"}, 10)]
)
def test_a_model_that_calls_functions_is_offered_none_and_asked_a_bounded_number_of_times(
    tmp_path, monkeypatch, function, arguments, failed
):
    with bargaining_model(answer=calling(function, **arguments)) as (address, requests):
        monkeypatch.setenv("LOCAL_API_KEY", "none")
        monkeypatch.setenv("LOCAL_BASE_URL", address)
        task = sotopia(n=1, partner="boulware")
        # Inspect keeps a model, with its address, under its name.
        (log,) = evaluate(task, f"openai-api/local/{function}", log_dir=str(tmp_path), display="none", limit=1)
    assert log.status == "success"
    (sample,) = log.samples
    facts = sample.scores["reward"].metadata
    assert (facts["turns"], facts["own_turns"], facts["failed_turns"]) == (20, 10, failed)
    assert len(requests) == 10 + 2 * failed, "every turn is asked for once, or with two reasons"
    for request in requests:
        assert not request.get("tools")
        assert not any(message.get("tool_calls") for message in request["messages"]), "no call without its result"


@pytest.mark.parametrize(("stop_reason", "is_taken"), [("stop", True), ("unknown", True), ("max_tokens", False)])
def test_nothing_is_taken_from_a_draft_in_an_answer_that_was_cut_off(tmp_path, stop_reason, is_taken):
    def output(messages, tools, tool_choice, config):
        written = ModelOutput.from_content("mockllm/model", DRAFT, stop_reason=stop_reason)
        written.usage = USAGE
        return written

    task = sotopia(n=1, partner="conceder")
    (log,) = evaluate(
        task, get_model("mockllm/model", custom_outputs=output), log_dir=str(tmp_path), display="none", limit=1
    )
    facts = log.samples[0].scores["reward"].metadata
    assert facts["failed_turns"] == (0 if is_taken else facts["own_turns"])


def test_a_failing_partner_is_survived_or_leaves_the_sample_without_a_score(tmp_path):
    def play(partner):
        task = sotopia(n=1, seed=failing.SEED, partner=partner)
        (log,) = evaluate(
            task, bargainer(failing.answer_to), log_dir=str(tmp_path), display="none", limit=1, fail_on_error=False
        )
        (sample,) = log.samples
        if sample.error is not None:
            assert "the model is down" in sample.error.message
            assert not sample.scores
            assert log.results is None, "no mean is computed of it"
            return None, None
        return [(message.role, message.text) for message in sample.messages], sample.scores["reward"].value

    failing.check_failing_partners(play, repeats=False)


@pytest.mark.parametrize(
    "arguments", [{"partner": "boulwar"}, {"tasks": "bargainin"}, {"evaluator": "verifed"}, {"partnr": "boulware"}]
)
def test_a_misspelt_name_is_an_error_of_the_task_and_not_of_every_sample(arguments):
    with pytest.raises(UnknownNameError):
        sotopia(**arguments)


def test_the_command_ends_with_an_error_for_a_misspelt_argument(tmp_path):
    command = [Path(sys.executable).parent / "inspect", "eval", "sotopia_env/sotopia", "-T", "partnr=conceder"]
    options = ["--model", "mockllm/model", "--log-dir", tmp_path, "--display", "none"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert 'did you mean "partner"?' in done.stderr
    assert not list_eval_logs(str(tmp_path))


def test_turns_are_paid_for_what_the_others_believe(tmp_path):
    def answer(messages):
        return beliefs.statement(sum(message["role"] == "assistant" for message in messages))

    played = sotopia(tasks="mini_mafia", n=1, partner="mute", evaluator=beliefs.EVALUATOR, turns="belief")
    (log,) = evaluate(played, bargainer(answer), log_dir=str(tmp_path), display="none")
    sample = next(sample for sample in log.samples if sample.metadata["focal"] == beliefs.DETECTIVE)
    rewards = sample.scores["reward"].metadata["turn_rewards"]
    assert rewards == pytest.approx(asyncio.run(beliefs.expected()))
