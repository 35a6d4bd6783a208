"""Where rows come from: runs and files of episodes, mixed with weights, and what of them is refused."""

import json
import shutil

from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, read_selection, source_rows

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks.builtin import starter_tasks
from sotopia_env.world.episode import write_episodes
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF, play_run
from tests.sotopia_training.played import played


def rows_of(*sources, tasks=None):
    return list(source_rows([SourceSettings(**source) for source in sources], RowMaker(BRIEF), tasks))


def test_runs_are_mixed_with_weights_and_seats(expert_run, tmp_path):
    """A selection of five episodes' first seats, and a copy as an imported file."""
    run, few = str(expert_run), tmp_path / "selection.jsonl"
    keys = [episode.key for episode in read_run(expert_run)][:10:2]
    few.write_text("".join(json.dumps({"episode": key, "seat": "agent_0"}) + "\n" for key in keys))
    shutil.copy(expert_run / "episodes.jsonl", tmp_path / "imported.jsonl")
    assert len(rows_of({"run": run})) == 240
    assert (
        len(rows_of({"run": run, "selection": str(few)}, {"run": str(tmp_path / "imported.jsonl"), "weight": 2})) == 500
    )
    assert {row.seat for row in rows_of({"run": run, "seats": ["agent_1"]})} == {"agent_1"}
    linear = rows_of({"run": run, "seats": ["policy:linear"]})
    assert (len(linear), {row.partner for row in linear}) == (120, {"conceder"})


def test_a_selection_may_name_episodes_of_several_runs(expert_run, tmp_path):
    episodes, few = list(read_run(expert_run)), tmp_path / "selection.jsonl"
    runs = [{"run": str(tmp_path / f"{part}.jsonl"), "selection": str(few)} for part in (0, 1)]
    for part, run in enumerate(runs):
        write_episodes(run["run"], episodes[part::2])
    keys = [episode.key for episode in episodes[:5]]
    few.write_text("".join(json.dumps({"episode": key, "seat": "agent_1"}) + "\n" for key in keys))
    assert {row.episode for row in rows_of(*runs)} == set(keys)
    with raises(InvalidValueError, field="episode", file="selection.jsonl"):
        rows_of(runs[0])
    with few.open("a") as file:
        file.write('{"episode": "nowhere", "seat": "agent_1"}\n')
    with raises(InvalidValueError, field="episode", got="nowhere", file="selection.jsonl"):
        rows_of(*runs)


def test_unusable_sources_are_reported_in_one_sentence(expert_run, tmp_path):
    run = str(expert_run)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "strange.jsonl").write_text('{"episode": "e", "seat": "agent_0"}\n')
    (tmp_path / "damaged.jsonl").write_text('{"instruction": "e"}\n')
    unscored = str(play_run(tmp_path / "unscored", 1, evaluator=None))
    key = next(read_run(expert_run)).task
    TaskSet([key.model_copy(update={"id": "kept"})]).save(tmp_path / "kept.jsonl")
    table = [
        ({"run": str(tmp_path / "none")}, None, {"file": "none"}),
        ({"run": str(tmp_path / "empty.jsonl")}, None, {"file": "empty.jsonl"}),
        ({"run": unscored}, None, {"file": "unscored"}),
        ({"run": run, "selection": str(tmp_path / "empty.jsonl")}, None, {"file": "empty.jsonl"}),
        ({"run": run, "selection": str(tmp_path / "none.jsonl")}, None, {"file": "none.jsonl"}),
        ({"run": run, "selection": str(tmp_path / "strange.jsonl")}, None, {"field": "episode", "got": "e"}),
        ({"run": run, "seats": ["policy:nobody"]}, None, {"field": "seats", "got": "policy:nobody"}),
        ({"run": run, "seats": ["agent_0", "agnt_1"]}, None, {"field": "seats", "nearest": "agent_1"}),
        ({"run": run}, str(tmp_path / "kept.jsonl"), {"field": "episode"}),
    ]
    for source, tasks, fields in table:
        with raises(InvalidValueError, **fields) as caught:
            rows_of(source, tasks=tasks)
        assert "\n" not in str(caught.value)
    with raises(DamagedRecordError, file="damaged.jsonl"):
        read_selection(tmp_path / "damaged.jsonl")
    assert len(rows_of({"run": unscored, "scored": False})) == 16


def test_the_starter_tasks_can_be_kept_for_evaluation_by_name(expert_run, tmp_path):
    write_episodes(tmp_path / "played.jsonl", [played(starter_tasks()[0], "Hello.", "Good morning.", judge=None)])
    own = {"run": str(tmp_path / "played.jsonl"), "scored": False}
    assert len(rows_of(own)) == 2
    with raises(InvalidValueError, field="episode", got="aunts-piano/0.played"):
        rows_of(own, tasks="starter")
    assert rows_of({"run": str(expert_run)}, tasks="starter")
