"""Episodes of the real verifiers, with a model on a socket behind its interception server."""

import asyncio
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.adapters.libraries import need, run_page, serving

need("verifiers")

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from sotopia_env.foundation.json_text import decode_json
from sotopia_env.naming.seats import role_of
from tests.adapters import beliefs, failing
from tests.adapters.model_server import bargaining_model, calling, cut_off
from tests.test_docs import PAGES, ROOT, blocks


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    with bargaining_model() as (address, requests):
        yield address, requests


def play(model, count=1, **settings):
    """The episodes of the first rows, all at once."""
    taskset = {"id": "sotopia-verifiers", **settings.pop("taskset", {"n": 2})}
    env = load_environment(resolve_env_config({"taskset": taskset, **settings}))
    client = EvalClientConfig(base_url=model[0], api_key_var="NO_KEY")

    async def episodes():
        context = ModelContext(model="bargainer", client=client, sampling=vf.SamplingConfig())
        rows = list(env.taskset)[:count]
        async with env.serving():
            return await asyncio.gather(*(env.run_episode(row, context) for row in rows))

    return asyncio.run(episodes())


def test_turns_are_paid_for_what_the_others_believe(monkeypatch):
    def answer(messages):
        return beliefs.statement(sum(message["role"] == "assistant" for message in messages))

    monkeypatch.setenv("NO_KEY", "none")
    with bargaining_model(answer=answer) as served:
        settings = {"evaluator": beliefs.EVALUATOR, "turns": "belief", "partner": "mute"}
        episodes = play(served, 3, taskset={"n": 1, "tasks": "mini_mafia"}, **settings)
    rewards = [trace.info["turn_rewards"] for episode in episodes for trace in episode.traces]
    assert asyncio.run(beliefs.expected()) in [pytest.approx(row) for row in rewards]


def test_one_seat_against_a_policy_has_a_trace_with_rewards_of_its_turns(model):
    (episode,) = play(model, partner="conceder")
    (trace,) = episode.traces
    assert episode.ok, episode.errors
    assert trace.agent.name == "agent_0"
    assert trace.info["stop"] == "settled"
    rewards = trace.info["turn_rewards"]
    assert len(rewards) == trace.num_turns == len(model[1])
    assert rewards[0] is None  # the model's first text is not an action
    assert sum(reward for reward in rewards if reward is not None) == pytest.approx(trace.reward)
    assert trace.metrics["goal"] == pytest.approx(10 * trace.reward, abs=1e-5)
    assert trace.metrics["unusable"] == 1


def test_nothing_is_taken_from_a_draft_in_an_answer_that_was_cut_off(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    with bargaining_model(answer=cut_off) as model:
        (episode,) = play(model, partner="conceder", max_turns=4)
    (trace,) = episode.traces
    assert episode.ok, episode.errors
    assert trace.metrics["unusable"] == 2 * 2, "each of two turns is asked for again twice"
    assert trace.num_turns == 6


def test_metrics_are_of_what_was_measured_and_no_other_dimension(model):
    (episode,) = play(model, partner="conceder", evaluator="tests.goal_alone:GoalAlone")
    (trace,) = episode.traces
    assert episode.ok, episode.errors
    assert trace.metrics.keys() == {"goal", "turns", "unusable"}
    assert (trace.metrics["goal"], trace.reward) == (4.0, pytest.approx(0.4))


def test_rows_are_every_seat_of_every_task(model):
    episodes = play(model, count=4, partner="conceder")
    assert [trace.agent.name for episode in episodes for trace in episode.traces] == ["agent_0", "agent_1"] * 2


def test_self_play_has_both_traces_and_no_partner(model):
    (episode,) = play(model, self_play=True, taskset={"n": 1, "focal": 0})
    traces = {trace.agent.name: trace for trace in episode.traces}
    assert episode.ok, episode.errors
    assert set(traces) == {"agent_0", "agent_1"}
    assert all(len(trace.info["turn_rewards"]) == trace.num_turns for trace in traces.values())
    assert traces["agent_0"].reward + traces["agent_1"].reward > 0
    assert len({trace.nodes[0].message.content for trace in traces.values()}) == 2, "each seat has its own briefing"


def mafia(monkeypatch, **settings):
    """The traces, by role, of an episode of Mini-Mafia with a model that votes for the mafioso."""
    hidden = next(name for agent, name in beliefs.GAME.names.items() if role_of(beliefs.GAME, agent) == "hidden")

    def answer(messages):
        turn = sum(message["role"] == "assistant" for message in messages)
        vote = {"move": {"vote": hidden}} if turn == 2 else {}
        return json.dumps({"action_type": "speak", "argument": "Well.", **vote})

    monkeypatch.setenv("NO_KEY", "none")
    taskset = {"n": 1, "tasks": "mini_mafia", "focal": settings.pop("focal", 0)}
    with bargaining_model(answer=answer) as served:
        (episode,) = play(served, taskset=taskset, **settings)
    assert episode.ok, episode.errors
    return {role_of(beliefs.GAME, trace.agent.name): trace for trace in episode.traces}


def test_self_play_has_a_trace_for_each_of_three_seats(monkeypatch):
    traces = mafia(monkeypatch, self_play=True)
    assert {role: trace.reward for role, trace in traces.items()} == {"hidden": 0, "informed": 1, "plain": 1}
    assert all(trace.num_turns == 3 for trace in traces.values())


def test_the_page_of_self_play_makes_the_environment():
    names = {}
    code = blocks(PAGES["training-self-play.md"], "python")[0].code
    exec(compile(code.replace('"n": 100', '"n": 2'), "page", "exec"), names)
    assert names["env"].config.self_play
    assert [row.data.focal for row in names["env"].taskset] == [0, 0]


def test_a_team_learns_together_against_a_policy(monkeypatch):
    game = beliefs.GAME
    villager = next(seat for seat, agent in enumerate(game.agents) if role_of(game, agent) == "plain")
    traces = mafia(monkeypatch, focal=villager, partner={"ally": "self", "opponent": "deceiver"})
    assert {*traces} == {"informed", "plain"}


def test_a_limit_of_verifiers_ends_the_episode_with_what_was_agreed(model):
    (episode,) = play(model, partner="conceder", agent_0={"max_turns": 2})
    (trace,) = episode.traces
    assert trace.num_turns == 2
    assert trace.info["stop"] is None
    assert trace.reward == 0.0
    assert len(trace.info["turn_rewards"]) == 2


def test_many_episodes_at_once(model):
    episodes = play(model, count=32, partner="conceder", taskset={"n": 16})
    assert all(episode.ok for episode in episodes)
    assert len({trace.reward for episode in episodes for trace in episode.traces}) > 10


def test_an_episode_whose_model_fails_is_not_ok_and_has_no_reward(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    (episode,) = play(("http://127.0.0.1:9/v1", []), partner="conceder")
    assert not episode.ok
    assert [trace.rewards for trace in episode.traces] == [{}]


def test_the_command_evaluates_by_id(model, tmp_path):
    command = [Path(sys.executable).parent / "vf-eval", "sotopia-verifiers", "-m", "bargainer", "-o", tmp_path]
    options = [
        "--client.base-url", model[0], "--client.api-key-var", "NO_KEY", "--no-push",
        "--env.taskset.n", "2", "--env.partner", "conceder",
    ]  # fmt: skip
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.rglob("traces.jsonl")
    traces = [decode_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(traces) == 4


@pytest.mark.parametrize("taskset", [{"tasks": "bargainin"}, {"level": "hardest"}, {"focal": 2}, {"n": 0}, {"m": 1}])
def test_misspelt_and_wrong_settings_of_the_taskset_are_refused_before_an_episode(taskset):
    with pytest.raises(ValueError, match=next(iter(taskset))):
        list(load_environment(resolve_env_config({"taskset": {"id": "sotopia-verifiers", **taskset}})).taskset)


@pytest.mark.parametrize(
    "setting",
    [
        {"partner": "boulwar"},
        {"partner": {"other": "boulwar"}},
        {"partner": {"byer": "boulware", "other": "self"}},
        {"evaluator": "verifed"},
        {"scalarisation": "shares"},
        {"max_turns": 0},
        {"reasks": -1},
        {"partnr": "boulware"},
    ],
)
def test_misspelt_and_wrong_settings_of_the_environment_are_refused_before_an_episode(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        load_environment(resolve_env_config({"taskset": {"id": "sotopia-verifiers"}, **setting}))


@pytest.mark.parametrize("setting", [("partner", "boulwar"), ("taskset.tasks", "bargainin")])
def test_the_command_ends_with_an_error_for_a_misspelt_name(setting, tmp_path):
    name, value = setting
    command = [Path(sys.executable).parent / "vf-eval", "sotopia-verifiers", "-m", "bargainer", "-o", tmp_path]
    options = ["--client.base-url", "http://127.0.0.1:9/v1", "--no-push", f"--env.{name}", value]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert value in done.stdout + done.stderr
    assert not [file for file in tmp_path.rglob("traces.jsonl") if file.stat().st_size]


def test_a_model_that_calls_functions_is_asked_a_bounded_number_of_times(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    with bargaining_model(answer=calling("search", query="price")) as model:
        (episode,) = play(model, partner="boulware", taskset={"n": 1, "focal": 0})
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert (trace.metrics["turns"], trace.metrics["unusable"], len(model[1])) == (20, 20, 30)
    assert trace.reward == 0, "measured: nothing was agreed"
    assert not any(request.get("tools") for request in model[1])


def test_a_failing_partner_is_survived_or_leaves_the_episode_without_a_reward(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")

    def play_with(partner):
        with bargaining_model(answer=failing.answer_to) as model:
            (episode,) = play(model, partner=partner, taskset={"n": 1, "seed": failing.SEED})
        if not episode.ok:
            assert "the model is down" in str(episode.errors)
            assert [trace.rewards for trace in episode.traces] in ([{}], [])
            return None, None
        (trace,) = episode.traces
        return [node.message.content for node in trace.nodes], trace.reward

    failing.check_failing_partners(play_with, repeats=False)


@pytest.mark.parametrize("name", ["partner", "self_play"])
def test_the_files_for_prime_rl_configure_the_environment(name):
    settings = tomllib.loads((ROOT / "examples" / "prime_rl" / f"{name}.toml").read_text(encoding="utf-8"))
    for group in ("train", "eval"):
        for source in settings["orchestrator"].get(group, {}).get("source", ()):
            env = load_environment(resolve_env_config(source["env"]))
            assert env.config.self_play == (name == "self_play")
            assert next(iter(env.taskset)).data.focal == 0


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("verifiers")


SERVER = ROOT / ".venvs" / "openenv" / "bin" / "python"


@pytest.mark.skipif(not SERVER.exists(), reason="make adapters makes the server's environment")
def test_verifiers_own_openenv_taskset_plays_on_our_server(monkeypatch):
    """Its client is of an older OpenEnv than the server. A text that is not JSON would be an error of the taskset."""
    monkeypatch.setenv("NO_KEY", "none")
    app = ("-m", "uvicorn", "sotopia_env.adapters.openenv_server:app", "--log-level", "warning", "--port")
    with bargaining_model(hesitates=False) as model, serving(*app, python=SERVER) as address:
        taskset = {"id": "openenv", "base_url": address, "resets": [{"seed": 1, "partner": "conceder", "focal": 1}]}
        player = {"harness": {"id": "sotopia-verifiers"}, "runtime": {"type": "subprocess"}}
        (episode,) = play(model, taskset=taskset, player=player)
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.reward > 0
