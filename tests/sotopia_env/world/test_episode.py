"""Episode records: lossless, replayable, and clear about damage."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from sotopia_env.foundation.errors import DamagedRecordError, EvaluationError
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.episode import (
    Episode,
    Evaluation,
    Generation,
    RecordedTurn,
    Score,
    Usage,
    read_episode,
    read_episodes,
    replay,
    to_line,
    write_episodes,
)
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension
from tests.errors import raises
from tests.sotopia_env.factories import character, scenario, task

NASTY = 'a "quote"\n\u2028Turn #9 \x85 🙂 \\ </s> {"x": 1} \x00'


def episode_of(argument: str = "Hello", seats: int = 2) -> Episode:
    talk = task(
        seats,
        scenario=scenario(seats, private_messages=True),
        characters=tuple(character(n, public_attributes={n: n}) for n in ("Ada", "Bram", "Chidi")[:seats]),
    )
    rules = Rules(turn_order="random", max_turns=6)
    state = initial_state(talk, rules, 7)
    while state.stop is None:
        to = (next(a for a in talk.agents if a != state.actor),) if len(state.turns) == 2 else ()
        state = transition(state, Action(ActionType.SPEAK, f"{argument} {len(state.turns)}", to))
    generation = Generation(
        text="raw", usage=Usage(prompt_tokens=3), latency=0.5, token_ids=(1, 2), logprobs=(-0.5, -1.0)
    )
    turns = tuple(RecordedTurn(turn=turn, generation=generation if turn.index % 2 else None) for turn in state.turns)
    return Episode(key="k", task=talk, rules=rules, seed=7, turns=turns, stop=state.stop)


@pytest.mark.parametrize("argument", ["Hello", NASTY])
@pytest.mark.parametrize("seats", [2, 3])
def test_a_line_reads_back_as_the_same_episode_and_replays(argument, seats):
    episode = episode_of(argument, seats)
    line = to_line(episode)
    assert line.count("\n") == 1
    assert read_episode(line, "here") == episode
    state = replay(episode)
    assert state.turns == episode.plain_turns


def test_a_file_reads_back_in_order(tmp_path):
    episodes = [episode_of(NASTY), episode_of("x", 3)]
    write_episodes(tmp_path / "e.jsonl", episodes)
    assert list(read_episodes(tmp_path / "e.jsonl")) == episodes


def test_huggingface_datasets_reads_a_mixed_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    scored = episode_of().with_evaluation(evaluation())
    write_episodes(tmp_path / "e.jsonl", [episode_of(NASTY), episode_of("x", 3), scored])
    rows = datasets.load_dataset(
        "json", data_files=str(tmp_path / "e.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows.num_rows == 3
    assert rows[0]["turns"][0]["turn"]["action"]["argument"] == f"{NASTY} 0"
    assert rows[2]["evaluations"][0]["scores"][0]["value"] == RANGES[DIMENSIONS[0]][0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda line: line[: len(line) // 2], "JSON"),
        (lambda line: line.replace('"schema_version":2', '"schema_version":99'), "reads version 2, got 99"),
        (lambda line: line.replace('"speak"', '"speek"', 1), "speek"),
        (lambda line: line.replace('"key":', '"kez":'), "did you mean"),
        (lambda line: "[]", "got"),
    ],
)
def test_a_damaged_line_is_named_with_file_and_line(tmp_path, damage, words):
    path = tmp_path / "e.jsonl"
    line = to_line(episode_of())
    path.write_text(line + damage(line).strip() + "\n", encoding="utf-8")
    reader = read_episodes(path)
    assert next(reader).key == "k"
    with raises(DamagedRecordError, file="e.jsonl", line=2) as caught:
        next(reader)
    assert words in str(caught.value)


def test_a_missing_file_is_reported(tmp_path):
    with raises(DamagedRecordError, file="none.jsonl"):
        list(read_episodes(tmp_path / "none.jsonl"))


def test_a_record_that_contradicts_the_rules_does_not_replay():
    episode = episode_of()
    with pytest.raises(DamagedRecordError):
        replay(episode.model_copy(update={"turns": episode.turns[::-1]}))
    with raises(DamagedRecordError, field="turns.0.action"):
        replay(episode.model_copy(update={"turns": (*episode.turns, episode.turns[0])}))
    with raises(DamagedRecordError, field="episode 'k'"):
        replay(episode.model_copy(update={"turns": episode.turns[:-1]}))


def evaluation(name: str = "fixed") -> Evaluation:
    scores = tuple(Score(agent=a, dimension=d, value=RANGES[d][0]) for a in ("agent_0", "agent_1") for d in DIMENSIONS)
    return Evaluation(evaluator=name, scores=scores)


def test_evaluations_are_kept_side_by_side_and_do_not_change_the_turns():
    episode = episode_of()
    both = episode.with_evaluation(evaluation("a")).with_evaluation(evaluation("b"))
    again = both.with_evaluation(Evaluation(evaluator="a", unscored="the judge was silent"))
    assert [e.evaluator for e in again.evaluations] == ["b", "a"]
    assert again.evaluation("a").unscored == "the judge was silent"
    assert again.turns == episode.turns
    assert again.evaluation("none") is None


def test_a_zero_is_a_score_and_a_failure_is_unscored():
    """Guards S8 and the `a or b` trap: zero counts, a failed judge raises."""
    scores = evaluation().vector("agent_1")
    assert scores.tolist() == [0, -5, 0, -10, -10, -5, 0]
    with pytest.raises(EvaluationError, match="unscored \\(no answer\\)"):
        Evaluation(evaluator="x", unscored="no answer").vector("agent_0")
    with pytest.raises(EvaluationError, match="no score for agent_2 on believability"):
        evaluation().vector("agent_2")


def test_scores_outside_their_range_or_given_twice_are_refused():
    with raises(ValidationError, field="goal"):
        Score(agent="agent_0", dimension="goal", value=11)
    with pytest.raises(ValidationError):
        Score(agent="agent_0", dimension="goal", value=float("nan"))
    twice = Score(agent="agent_0", dimension="goal", value=1)
    with raises(ValidationError, field="scores"):
        Evaluation(evaluator="x", scores=(twice, twice))


def test_custom_dimensions_are_declared_and_keep_their_range():
    """SOTOPIA-S4 §3.3: a custom dimension is kept beside the seven and never enters the reward vector."""
    own = CustomDimension(name="salary_optimality", low=1, high=5, instruction="Was the salary target met?")
    score = Score(agent="agent_0", dimension="salary_optimality", value=5)
    both = Evaluation(evaluator="x", dimensions=(own,), scores=(*evaluation().scores, score))
    assert Evaluation.model_validate_json(both.model_dump_json()) == both
    assert both.by_agent["agent_0"]["salary_optimality"].value == 5
    assert both.vector("agent_0").shape == (7,)
    with raises(ValidationError, field="scores", got="salary", nearest="salary_optimality"):
        Evaluation(evaluator="x", dimensions=(own,), scores=(score.model_copy(update={"dimension": "salary"}),))
    with raises(ValidationError, field="scores.salary_optimality"):
        Evaluation(evaluator="x", dimensions=(own,), scores=(score.model_copy(update={"value": 6}),))


@pytest.mark.parametrize(
    "fields", [{"name": "goal"}, {"name": "GOAL"}, {"name": "two words"}, {"low": 5}, {"instruction": ""}]
)
def test_impossible_custom_dimensions_are_refused(fields):
    with pytest.raises(ValidationError):
        CustomDimension(**{"name": "mine", "low": 1, "high": 5, "instruction": "?", **fields})


def test_a_refused_action_is_kept_and_replays():
    talk, rules = task(), Rules(max_turns=2)
    state = initial_state(talk, rules, 0)
    state = transition(state, Action(ActionType.SPEAK, "psst", ("agent_1",)))
    state = transition(state, Action(ActionType.SPEAK, "What?"))
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    episode = Episode(task=talk, rules=rules, turns=turns, stop=state.stop)
    assert turns[0].turn.attempted == Action(ActionType.SPEAK, "psst", ("agent_1",))
    assert replay(read_episode(to_line(episode), "here")) == state
    forged = replace(turns[0].turn, violation="another reason")
    with pytest.raises(DamagedRecordError):
        replay(episode.model_copy(update={"turns": (RecordedTurn(turn=forged), turns[1])}))


def test_a_record_names_agents_of_its_task_only():
    episode = episode_of()
    ghost = replace(episode.turns[0].turn, actor="agent_9")
    with raises(DamagedRecordError, field="turns, evaluations", got="agent_9"):
        read_episode(to_line(episode.model_copy(update={"turns": (RecordedTurn(turn=ghost),)})), "here")


def test_bytes_that_are_not_text_are_reported_with_file_and_line(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_bytes(to_line(episode_of()).encode() + b"\xff\xfe\n")
    with raises(DamagedRecordError, file="e.jsonl", line=2):
        list(read_episodes(path))
