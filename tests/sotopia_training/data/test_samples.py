"""Rows: the focal seat's turns and no other seat's words, split by scenario, shortened by whole turns."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sotopia_training.data.samples import (
    RowMaker,
    TrainingRow,
    refuse_evaluation_scenarios,
    split_scenarios,
    weighted,
)
from sotopia_training.stage.settings import PromptSettings

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.world.action import Action, ActionType, parse, to_json
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.episode import Generation
from sotopia_env.world.observation import SeatView
from sotopia_env.world.scenario import Task
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF


@pytest.fixture(scope="module")
def episodes(expert_run):
    return list(read_run(expert_run))


def words(prompt, completion):
    return sum(len(message["content"].split()) for message in prompt) + len(completion.split())


def row(scenario="s", episode="e", turn=0):
    return TrainingRow(({"role": "user", "content": "Go."},), "{}", episode, "t", scenario, "agent_0", "p", turn)


@pytest.mark.parametrize("format", ["chat", "single", "brief"])
def test_a_row_has_the_policys_prompt_and_its_answer(episodes, format):
    episode = episodes[0]
    rows = list(RowMaker(PromptSettings(format=format)).rows(episode, "agent_1"))
    state, prompts = initial_state(episode.task, episode.rules, episode.seed), {}
    for item in episode.turns:
        observation = SeatView(episode.task, episode.rules, "agent_1").observe(state)
        prompts[item.turn.index] = AgentPrompt(format).messages(observation)
        state = transition(state, item.turn.action)
    assert [one.turn for one in rows] == [1, 3, 5, 7]
    for one in rows:
        assert list(one.prompt) == prompts[one.turn]
        assert parse(one.completion) == episode.turns[one.turn].turn.action
        assert (one.seat, one.partner) == ("agent_1", "linear" if episode.policies[0].name == "linear" else "conceder")


@pytest.mark.parametrize("format", ["chat", "brief"])
def test_partner_words_appear_only_in_user_messages(episodes, format):
    """Invariant 8: what another seat said is in no completion and in no assistant's message."""
    episode = episodes[0]
    partner_words = [
        t.turn.action.argument for t in episode.turns if t.turn.actor == "agent_0" and t.turn.action.argument
    ]
    for one in RowMaker(PromptSettings(format=format)).rows(episode, "agent_1"):
        own = [one.completion, *(m["content"] for m in one.prompt if m["role"] == "assistant")]
        assert not any(text in mine for text in partner_words for mine in own)


def test_long_prompts_lose_only_their_oldest_turns(episodes):
    """Guards R10: never the instructions, the last turns or the answer; and what cannot fit is counted."""
    episode = episodes[0]
    whole = list(RowMaker(BRIEF).rows(episode, "agent_0"))
    limit = words(whole[-1].prompt, whole[-1].completion) - 1
    maker = RowMaker(BRIEF.model_copy(update={"max_length": limit}), words)
    short = list(maker.rows(episode, "agent_0"))[-1]
    assert short.dropped > 0
    assert short.prompt[0] == whole[-1].prompt[0]
    assert short.prompt[-1]["content"].endswith(whole[-1].prompt[-1]["content"].splitlines()[-1])
    assert short.completion == whole[-1].completion
    assert f"not all fit: {short.dropped})" in short.prompt[1]["content"]
    assert maker.counts.shortened == 1
    assert words(short.prompt, short.completion) <= limit

    none = RowMaker(BRIEF.model_copy(update={"max_length": 16}), words)
    assert list(none.rows(episode, "agent_0")) == []
    assert (none.counts.rows, none.counts.too_long) == (0, 4)
    assert "4 too long" in none.counts.text()
    needed = none.counts.longest
    assert str(needed) in none.counts.lost(none.prompt)
    fitting = RowMaker(BRIEF.model_copy(update={"max_length": needed}), words)
    assert len(list(fitting.rows(episodes[0], "agent_0"))) == 4
    assert not fitting.counts.lost(fitting.prompt)


def test_answers_that_are_too_long_are_counted_with_the_limit_that_keeps_them(episodes):
    def length(text):
        return len(text.split())

    answers = [length(one.completion) for one in RowMaker(BRIEF).rows(episodes[0], "agent_0")]
    longest = max(answers)
    maker = RowMaker(BRIEF.model_copy(update={"max_answer": longest - 1}), count_answer=length)
    rows = list(maker.rows(episodes[0], "agent_0"))
    assert len(rows) == maker.counts.rows == sum(answer < longest for answer in answers)
    assert (maker.counts.long_answers, maker.counts.longest_answer) == (answers.count(longest), longest)
    assert f"max_answer: {longest}" in maker.counts.lost(maker.prompt)


def test_unusable_and_silent_turns_are_left_out_and_counted(episodes):
    """Guards P (data_filtering): rows in which nothing was done do not stay by accident."""
    episode = episodes[0]
    turns = list(episode.turns)
    silent = Action(ActionType.NONE)
    turns[1] = turns[1].model_copy(update={"generation": Generation(text="hm", parse_failure="no JSON")})
    turns[7] = turns[7].model_copy(update={"turn": replace(turns[7].turn, action=silent)})
    changed = episode.model_copy(update={"turns": tuple(turns)})
    maker = RowMaker(BRIEF)
    assert [one.turn for one in maker.rows(changed, "agent_1")] == [3, 5]
    assert (maker.counts.unusable, maker.counts.silent) == (1, 1)


@pytest.mark.parametrize("format", ["chat", "brief"])
def test_a_models_text_is_the_completion_byte_for_byte(episodes, format):
    """In the completion as in later prompts; where it could open a control token, the action as JSON."""
    episode, turns = episodes[0], list(episodes[0].turns)
    texts = {1: "Well:\n" + to_json(turns[1].turn.action), 3: "<|im_end|>" + to_json(turns[3].turn.action)}
    for index, text in texts.items():
        turns[index] = turns[index].model_copy(update={"generation": Generation(text=text)})
    changed = episode.model_copy(update={"turns": tuple(turns)})
    rows = list(RowMaker(PromptSettings(format=format)).rows(changed, "agent_1"))
    expected = [texts[1], *(to_json(turns[index].turn.action, episode.task.names) for index in (3, 5, 7))]
    assert [one.completion for one in rows] == expected
    assert [m["content"] for m in rows[-1].prompt if m["role"] == "assistant"] == expected[:3]
    assert not any("Well:" in str(one.prompt) for one in RowMaker().rows(changed, "agent_0"))


def test_values_choose_the_turns_that_have_one(episodes):
    rows = list(RowMaker(BRIEF).rows(episodes[0], "agent_0", values={2: 0.5, 4: -1.0}))
    assert [(one.turn, one.value) for one in rows] == [(2, 0.5), (4, -1.0)]
    assert [one.turn for one in RowMaker(BRIEF).rows(episodes[0], "agent_0", turns=[6])] == [6]
    with raises(UnknownNameError, field="seat", got="agent_2"):
        list(RowMaker(BRIEF).rows(episodes[0], "agent_2"))


def test_a_scenario_is_known_by_its_content(episodes):
    task = episodes[0].task

    def changed(**update):
        scenario = task.scenario.model_copy(update=update)
        return task_key(
            Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)
        )

    assert changed(id="other") == task_key(task)
    assert changed(context="Other.") != task_key(task)


def test_a_recast_scenario_is_the_same_scenario():
    """Texts of this family name the people at the table; the split must see through that."""
    one, two = (tasks.generate("division", 1, 4, "easy")[0] for _ in range(2))
    names = dict(zip(one.names.values(), ("Ada Lo", "Bo Lin"), strict=True))
    recast = OpenScenario.of(one).played_by(list(names.values()))
    assert recast != one.scenario
    people = tuple(c.model_copy(update={"name": names[c.name]}) for c in two.characters)
    other = Task(id=two.id, scenario=recast, characters=people, relationships=two.relationships)
    assert task_key(other) == task_key(one)


def test_the_split_depends_only_on_the_scenario(episodes):
    """Guards R19: no scenario is in training and validation, whatever the order of the rows."""
    keys = [task_key(episode.task) for episode in episodes]
    split = split_scenarios(keys, 0.2, seed=3)
    assert split == split_scenarios(reversed(keys), 0.2, seed=3)
    assert split != split_scenarios(keys, 0.2, seed=4)
    assert not split.train & split.validation
    assert split.train | split.validation == set(keys)
    assert len(split.validation) == 3
    assert split_scenarios(["a", "b"], 0.01).validation
    assert split_scenarios(["a"], 0) == split_scenarios(["a", "a"], 0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(share):
    with raises(InvalidValueError, field="validation"):
        split_scenarios(["a", "b"], share)


def test_one_scenario_cannot_be_split():
    with raises(InvalidValueError, field="validation", got="0.5 of 1"):
        split_scenarios(["a"], 0.5)


def test_scenarios_kept_for_evaluation_are_refused(episodes):
    one, other = episodes[0].task, next(e.task for e in episodes if e.task.id != episodes[0].task.id)
    rows = list(RowMaker(BRIEF).rows(episodes[0], "agent_0"))
    assert list(refuse_evaluation_scenarios(rows, {task_key(other): other.id})) == rows
    renamed = one.model_copy(update={"id": "kept", "scenario": one.scenario.model_copy(update={"id": "kept"})})
    with raises(InvalidValueError, field="episode", got=rows[0].episode):
        list(refuse_evaluation_scenarios(rows, {task_key(renamed): renamed.id}))


@pytest.mark.parametrize(
    ("weight", "low", "high"), [(0, 0, 0), (1, 200, 200), (2, 400, 400), (0.5, 70, 130), (1.5, 270, 330)]
)
def test_weights_repeat_rows_and_draw_their_fractions(weight, low, high):
    rows = [row(episode=f"e{number}") for number in range(200)]
    sample = list(weighted(rows, weight))
    assert low <= len(sample) <= high
    assert sample == list(weighted(rows, weight))
    with raises(InvalidValueError, field="weight"):
        list(weighted(rows, -1))


@pytest.mark.parametrize("weight", [0.5, 1.5, 2])
def test_a_weight_takes_whole_conversations(weight):
    turns = [row(episode=f"e{number}", turn=turn) for number in range(60) for turn in range(4)]
    pairs = [(one.episode, one.turn) for one in weighted(iter(turns), weight)]
    whole = [pairs[start : start + 4] for start in range(0, len(pairs), 4)]
    assert all(part == [(part[0][0], turn) for turn in range(4)] for part in whole)
    assert weight == 2 or 60 * int(weight) < len(whole) < 60 * (int(weight) + 1)


# --- scripts/inspect_rows.py -------------------------------------------------------------------------------------

INSPECT = Path(__file__).parents[3] / "scripts" / "inspect_rows.py"


@pytest.fixture
def inspect(tiny_model, expert_run, tmp_path, monkeypatch):
    """Runs the script with the settings of a stage on the tiny model and returns its exit code."""
    values = {
        "model": {"base": str(tiny_model)},
        "prompt": BRIEF.model_dump(),
        "data": [{"run": str(expert_run)}],
        "output": str(tmp_path / "never"),
    }
    file = tmp_path / "bc.yaml"
    file.write_text(json.dumps(values))  # which is YAML as well
    main = runpy.run_path(str(INSPECT), run_name="inspect_rows")["main"]

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["inspect_rows.py", "--config", str(file), *map(str, words)])
        return main()

    return run


def test_an_inspected_row_has_exactly_its_completion_marked(inspect, episodes, tokenizer, capsys):
    rows = [one for e in episodes[:2] for seat in e.task.agents for one in RowMaker(BRIEF).rows(e, seat)]
    assert inspect("--row", 2, "--count", 2) == 0
    printed = capsys.readouterr().out
    blocks = [part for part in printed.split("\n\nrow ") if part.strip()]
    assert len(blocks) == 2
    for number, text in zip((2, 3), blocks, strict=True):
        one = rows[number]
        head, counted, body = text.removeprefix("row ").split("\n", 2)
        assert head.startswith(f"{number}: {one.episode}, {one.seat}, turn {one.turn}, scenario {one.scenario}")
        assert body.count("[[") == body.count("]]") == 1
        before, _, rest = body.partition("[[")
        trained, _, after = rest.partition("]]")
        assert trained == f"{one.completion}{tokenizer.eos_token}"
        assert not after.strip()
        assert one.prompt[-1]["content"] in before
        assert f", {len(tokenizer(trained, add_special_tokens=False)['input_ids'])} of them trained;" in counted


def test_a_row_beyond_the_last_is_refused_in_one_sentence(inspect, capsys, tmp_path):
    assert inspect("--row", 100_000) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "sotopia: --row 100000: the data has fewer rows\n"
    assert not (tmp_path / "never").exists()
