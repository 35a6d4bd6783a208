"""Relabelling: a script's moves in the states that another seat came to, as rows of cloning."""

import json

import pytest
from sotopia_training.collect import relabelling
from sotopia_training.collect.relabelling import LABELS, RelabellingSettings, make_teacher, run
from sotopia_training.data.agreement import move_match
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, source_rows

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, UnknownNameError
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import BestOfNPolicy, LLMPolicy
from sotopia_env.policies.combined.best_of_n import OfferWorth
from sotopia_env.tasks import FAMILIES, generate, starter_tasks
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import Generation, write_episodes
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF
from tests.sotopia_training.played import haggling, offer, played


def relabelled(run_, teacher, folder, **source):
    """The figures of the stage, and the source of its rows."""
    data = SourceSettings(run=str(run_), scored=False, **source)
    run(RelabellingSettings(data=(data,), teacher=teacher, output=str(folder)))
    labels = str(folder / LABELS)
    return json.loads((folder / "done.json").read_text()), data.model_copy(update={"labels": labels})


def test_a_script_agrees_with_itself_and_less_with_another(expert_run, tmp_path):
    own = {"seats": ("policy:linear",)}
    figures, source = relabelled(expert_run, "linear:floor=0.67", tmp_path / "own", **own)
    assert figures == {"states": 120, "labels": 120, "silent": 0, "agreement": {"kind": 1.0, "value": 1.0}}
    rows = list(source_rows([source], RowMaker(BRIEF)))
    recorded = list(source_rows([source.model_copy(update={"labels": None})], RowMaker(BRIEF)))
    assert [(row.prompt, row.completion) for row in rows] == [(row.prompt, row.completion) for row in recorded]
    other, source = relabelled(expert_run, "conceder", tmp_path / "other", **own)
    assert other["agreement"]["value"] < 0.5
    rows = list(source_rows([source], RowMaker(BRIEF)))
    assert [row.prompt for row in rows] == [row.prompt for row in recorded]  # the student's states
    assert [row.completion for row in rows] != [row.completion for row in recorded]


def test_states_of_unusable_answers_are_labelled_too(tmp_path):
    """The turn itself is no row of cloning, but its state is one that the student came to."""
    episode = played(haggling(), offer(60), ActionType.NONE, offer(61), Action(ActionType.SPEAK, "Well."))
    failure = Generation(text="hm", parse_failure="not JSON")
    turns = (*episode.turns[:1], episode.turns[1].model_copy(update={"generation": failure}), *episode.turns[2:])
    write_episodes(tmp_path / "run.jsonl", [episode.model_copy(update={"turns": turns})])
    figures, source = relabelled(tmp_path / "run.jsonl", "linear", tmp_path / "out", seats=("agent_1",))
    assert (figures["states"], figures["agreement"]["kind"]) == (2, 0.0)
    rows = list(source_rows([source], RowMaker(BRIEF)))
    assert [row.turn for row in rows] == [1, 3]
    assert all("move" in json.loads(row.completion) for row in rows)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_a_script_that_relabels_it(family, tmp_path):
    (task,) = generate(family, 1, seed=3)
    waiting = [Action(ActionType.SPEAK, "Let me think.")] * (2 * len(task.agents))
    write_episodes(tmp_path / "run.jsonl", [played(task, *waiting, judge=None)])
    teacher = "linear" if task.scenario.facts is None else "honest"
    figures, _ = relabelled(tmp_path / "run.jsonl", teacher, tmp_path / "out")
    assert figures["labels"] > 0


@pytest.mark.parametrize(
    ("teacher", "failure", "fields"),
    [
        ("silent", InvalidValueError, {"field": "teacher"}),
        ("human", InvalidValueError, {"field": "teacher", "got": "human"}),
        ("openai/gpt-4o", InvalidValueError, {"field": "teacher", "got": "openai/gpt-4o"}),
        ("lineer", UnknownNameError, {"nearest": "linear"}),
    ],
)
def test_a_teacher_that_cannot_label_is_refused_before_a_file_is_written(
    teacher, failure, fields, expert_run, tmp_path
):
    with raises(failure, **fields) as caught:
        relabelled(expert_run, teacher, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("combined", [lambda policy: policy, lambda policy: BestOfNPolicy(policy, 2, OfferWorth())])
def test_a_model_of_a_plug_in_is_no_teacher(combined, monkeypatch):
    """Its name has no slash, as `smol`."""
    model = LLMPolicy(ScriptedChatModel([]))
    monkeypatch.setattr(relabelling, "make_policy", lambda spec: combined(model))
    with raises(InvalidValueError, field="teacher", got="smol"):
        make_teacher("smol")


@pytest.mark.parametrize(
    ("family", "teacher"),
    [("bargaining", "honest"), ("hiring", "reciprocator"), ("division", "honest"), ("mini_mafia", "linear")],
)
def test_small_talk_of_a_script_for_other_families_is_no_label(family, teacher, tmp_path):
    (task,) = generate(family, 1, seed=3)
    waiting = [Action(ActionType.SPEAK, "Let me think.")] * (2 * len(task.agents))
    write_episodes(tmp_path / "run.jsonl", [played(task, *waiting, judge=None)])
    with raises(InvalidValueError, field="teacher", hint="choose another script, or leave these tasks out"):
        relabelled(tmp_path / "run.jsonl", teacher, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tasks_without_a_script_are_refused_in_one_sentence(tmp_path):
    talk = played(
        starter_tasks()[0], Action(ActionType.SPEAK, "Hello."), Action(ActionType.SPEAK, "Hello."), judge=None
    )
    write_episodes(tmp_path / "talk.jsonl", [talk])
    with raises(InvalidValueError, field="teacher") as caught:
        relabelled(tmp_path / "talk.jsonl", "linear", tmp_path / "out")
    assert talk.task.id in str(caught.value)


def test_sources_share_the_labels_of_all_their_runs(expert_run, tmp_path):
    write_episodes(tmp_path / "other.jsonl", [played(haggling(), offer(60), judge=None)])
    sources = tuple(SourceSettings(run=str(run_), scored=False) for run_ in (expert_run, tmp_path / "other.jsonl"))
    run(RelabellingSettings(data=sources, teacher="linear", output=str(tmp_path / "labels")))
    labels = str(tmp_path / "labels" / LABELS)
    sources = [source.model_copy(update={"labels": labels}) for source in sources]
    alone = [relabelled(source.run, "linear", tmp_path / str(number))[1] for number, source in enumerate(sources)]
    parts = [len(list(source_rows([source], RowMaker(BRIEF)))) for source in alone]
    assert min(parts) > 0
    assert len(list(source_rows(sources, RowMaker(BRIEF)))) == sum(parts)
    with raises(InvalidValueError, field="episode", file=LABELS):
        list(source_rows(sources[:1], RowMaker(BRIEF)))


def test_labels_of_another_run_and_damaged_labels_are_refused(expert_run, tmp_path):
    write_episodes(tmp_path / "other.jsonl", [played(haggling(), offer(60), judge=None)])
    _, source = relabelled(expert_run, "linear", tmp_path / "labels")
    with raises(InvalidValueError, field="episode", file=LABELS):
        list(source_rows([source.model_copy(update={"run": str(tmp_path / "other.jsonl")})], RowMaker(BRIEF)))
    for text, failure in [("", InvalidValueError), ("{}\n", DamagedRecordError)]:
        (tmp_path / "damaged.jsonl").write_text(text)
        damaged = source.model_copy(update={"labels": str(tmp_path / "damaged.jsonl")})
        with raises(failure, file="damaged.jsonl"):
            list(source_rows([damaged], RowMaker(BRIEF)))


@pytest.mark.parametrize(
    ("action", "kind", "value"),
    [
        (offer(60), True, True),
        (offer(61), True, True),
        (offer(62), True, False),
        (Action(ActionType.SPEAK, "", move=Move(MoveKind.ACCEPT, 1)), False, False),
        (Action(ActionType.SPEAK, "60?"), False, False),
        (None, False, False),
    ],
)
def test_agreement_is_in_kind_and_within_one_step(action, kind, value):
    result = move_match(action, offer(60), haggling().protocol.space)
    assert (result.kind, result.value) == (kind, value)


def test_without_a_move_only_the_kind_counts():
    leave, space = Action(ActionType.LEAVE), haggling().protocol.space
    assert move_match(leave, leave, space).kind
    assert move_match(leave, leave, space).value is None
    assert not move_match(offer(60), leave, space).kind
