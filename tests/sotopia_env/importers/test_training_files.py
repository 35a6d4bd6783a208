"""SOTOPIA-RL's, AMPO's and AgentSense's files; everything in them is invented."""

import json

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.exporting import export_records
from sotopia_env.importers.foreign import ProductKind
from sotopia_env.importers.importing import import_files
from sotopia_env.world import TaskSet
from sotopia_env.world.episode import Episode, replay, to_line
from sotopia_env.world.interview import Role
from tests.errors import raises
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import ILAN, TOVA, convert, write
from tests.sotopia_env.importers.test_profiles import FILES

ANNOTATED = {
    "episode_id": "E-1",
    "scenario": "A shared umbrella.",
    "agent": TOVA,
    "goal": "Keep it. <extra_info>You have a cold</extra_info>",
    "attributed_utterances": {
        f"Utterance 0 by {ILAN}": ['said: "It is pouring."', 0],
        f"Utterance 0 by {TOVA}": ['said: "Yes.\n\nIt is."', {"reward": 2.67, "attribution": 2}],
        f"Utterance 1 by {ILAN}": ["[action] takes it", 0],
        f"Utterance 1 by {TOVA}": ["[non-verbal communication] sighs", 0],
        f"Utterance 2 by {ILAN}": ['said: "Well?"', 0],
        f"Utterance 2 by {TOVA}": ['said: "No."', {"reward": -1.0, "attribution": -1, "scale": "3"}],
        f"Utterance 3 by {ILAN}": ['said: "Hm."', 0],
        f"Utterance 3 by {TOVA}": ['said: "Fine."', 0.0],
        f"Utterance 4 by {ILAN}": ["left the conversation", 0],
    },
    "is_first_speaker": False,
    "goal_score": 4,
}
PROMPT = "Imagine you are Tova.\nScenario: A shared umbrella.\nYour available action types are none, speak."
OUTPUT = '{"action_type": "speak", "argument": "It is pouring."}'
ROWS = {
    "sotopia-rl-rows": [
        {"input": PROMPT, "output": OUTPUT, "value": 2.67},
        {"input": PROMPT, "output": OUTPUT, "value": 0},
        {"input": PROMPT, "output": OUTPUT, "value": {"reward": 1.5, "attribution": 3}},
        {"input": PROMPT, "output": OUTPUT},
    ],
    "alpaca-rows": [
        {"instruction": PROMPT, "input": "", "output": OUTPUT},
        {"instruction": "", "input": PROMPT, "output": OUTPUT},
        {"instruction": PROMPT, "input": "", "output": OUTPUT, "value": 3.0, "system": "Act.", "history": [["a", "b"]]},
    ],
    "sotopia-rl-prompts": [
        {"model": "m", "env_id": "e", "prompt": PROMPT, "result": OUTPUT, "history": "", "episode_id": "x"}
    ],
}  # fmt: skip
AMPO_ROW = {
    "dialog": ["Tova: It is pouring.", f"{ILAN}: [action] takes the umbrella", f"{TOVA} left the conversation"],
    "env_id": 0,
    "turn": 1,
    "instruction": "Here is what you know.\nScenario: A shared umbrella.\nConversation Starts:\n",
    "agent1_name": TOVA,
    "agent2_name": ILAN,
    "agent1_goal": "Keep it.",
    "agent2_goal": "Borrow it.",
    "rollout": 0,
    "state": {"agent1": {"score": 3}, "agent2": {"score": 5}, "step": 1},
    "agent1_goal_score": 4,
    "agent2_goal_score": 6,
    "agent1_avg_score": 2.1,
    "agent2_avg_score": 2.9,
}
AMPO_RESULT = {
    "env_id": 7,
    "complete_intro": "Scenario: A shared umbrella.",
    "dialog": ["Tova: Hello."],
    "agent1_name": TOVA,
    "agent2_name": ILAN,
    "agent1_goal": "Keep it.",
    "agent2_goal": "Borrow it.",
    "agent1_scores": {"goal": ["partly", 4], "believability": ["fine", 9]},
    "agent2_scores": {"goal": ["no", 0]},
    "hard": True,
    "fullout": None,
}
SCENE = {
    "sample_idx": 7,
    "template_idx": 2,
    "background": "A bakery at closing time.",
    "description": "Two clerks talk.",
    "characters": [
        {
            "name": "Rut",
            "profile": "Clerk, 30.",
            "goals": [{"goal": "Get Saturday off", "eval_questions": {"judge": [{"question": "Did Rut get it?"}]}}],
            "private_info": "Rut has an exam.",
            "info_reason_questions": [],
        },
        {
            "name": "Ole",
            "profile": "Clerk,\n45.",
            "goals": [{"goal": "Avoid extra shifts", "eval_questions": {}}, {"goal": "Stay on good terms"}],
            "private_info": None,
            "info_reason_questions": [
                {"question": "Why Saturday?", "options": ["Exam", "Trip", "Illness"], "answer_label": "0"}
            ],
        },
    ],
    "roles": {"Rut": "sender", "Ole": "receiver"},
}


def of_kind(products, kind):
    return [product.value for product in products if product.kind is kind]


def test_annotated_episodes_become_episodes_and_rows(tmp_path):
    products, conversion = convert(tmp_path, [ANNOTATED])
    (episode,) = of_kind(products, ProductKind.EPISODE)
    restored = Episode.model_validate_json(to_line(episode))
    replay(restored)
    assert episode.evaluation().by_agent["agent_1"]["goal"].value == 4
    rows = of_kind(products, ProductKind.ROW)
    assert [(row["turn"], row["value"]) for row in rows] == [(1, 2.67), (7, 0.0)]
    assert json.loads(rows[0]["completion"][0]["content"])["argument"] == "Yes.\n\nIt is."
    assert "It is pouring." in rows[0]["prompt"][-1]["content"]
    assert "Yes." not in json.dumps(rows[0]["prompt"])
    assert conversion.counts[0].converted == 1


def test_the_value_of_an_idle_turn_stays_with_it_where_another_seat_acts_twice(tmp_path):
    utterances = {
        f"Utterance 0 by {TOVA}": ["did nothing", 0.1],
        f"Utterance 0 by {ILAN}": ['said: "It is pouring."', 0],
        f"Utterance 1 by {ILAN}": ['said: "Well?"', 0],
        f"Utterance 1 by {TOVA}": ['said: "Yes."', 2.0],
    }
    record = {**ANNOTATED, "attributed_utterances": utterances, "is_first_speaker": True}
    rows = of_kind(convert(tmp_path, [record])[0], ProductKind.ROW)
    assert [(row["turn"], row["value"]) for row in rows] == [(0, 0.1), (4, 2.0)]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_the_same_when_they_are_written_and_read_again(tmp_path, name):
    path = write(tmp_path / "rows.json", ROWS[name])
    import_files([path], tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert records.again(tmp_path, name) == rows


def test_a_missing_value_is_null(tmp_path):
    products, _ = convert(tmp_path, ROWS["sotopia-rl-rows"])
    assert [product.value["value"] for product in products] == [2.67, 0.0, 1.5, None]
    assert len({product.value["scenario"] for product in products}) == 1


@pytest.mark.parametrize("record", [AMPO_ROW, AMPO_RESULT], ids=["row", "result"])
def test_ampo_dialogues_become_episodes(tmp_path, record):
    products, _ = convert(tmp_path, [record])
    (episode,) = [Episode.model_validate_json(to_line(product.value)) for product in products]
    replay(episode)
    assert episode.task.scenario.context == "A shared umbrella."
    assert episode.evaluation().by_agent["agent_0"]["goal"].value == 4


def test_ampo_counts_combinations(tmp_path):
    profiles = [FILES[name] for name in ("sotopia-agents", "sotopia-environments", "sotopia-combos")]
    hard = tmp_path / "hard.json"
    hard.write_text("[1, 0]")
    paths = [write(tmp_path / f"{number}.json", entries) for number, entries in enumerate([*profiles, [AMPO_ROW]])]
    import_files([hard, *paths], tmp_path / "out")
    lists = [json.loads(line) for line in (tmp_path / "out" / "lists.jsonl").read_text().splitlines()]
    assert [entry["entries"][0]["task"] for entry in lists] == ["C2", "C1"]
    episode = Episode.model_validate_json((tmp_path / "out" / "episodes.jsonl").read_text())
    assert episode.task.scenario.id == records.ENVIRONMENT["pk"]
    hard.write_text("[450]")
    with raises(DamagedRecordError, field="index", got=450):
        import_files([hard, *paths], tmp_path / "out2")


def test_scenes_become_tasks_and_are_the_same_when_they_are_written_and_read_again(tmp_path):
    import_files([write(tmp_path / "final_data.jsonl", [SCENE, {**SCENE, "sample_idx": 8}])], tmp_path / "out")
    tasks = TaskSet.load(tmp_path / "out" / "tasks.jsonl")
    task = tasks.get("2/7")
    assert [seat.goals for seat in task.scenario.seats] == [
        ("Get Saturday off",),
        ("Avoid extra shifts", "Stay on good terms"),
    ]
    assert task.scenario.seats[0].private_info == "Rut has an exam."
    interview = task.scenario.interview
    assert (interview.template, interview.domain, interview.goal_type(1, 0)) == ("2", None, None)
    assert interview.roles == (Role.SENDER, Role.RECEIVER)
    (question,) = interview.questions
    assert (question.about, question.asked, question.answer, question.wrong) == (0, (1,), "Exam", ("Trip", "Illness"))
    export_records(tmp_path / "out", tmp_path / "back.jsonl")
    import_files([tmp_path / "back.jsonl"], tmp_path / "again")
    back = TaskSet.load(tmp_path / "again" / "tasks.jsonl").get("2/7")
    (other,) = back.scenario.interview.questions
    assert (other.about, other.asked, other.answer, set(other.wrong)) == (0, (1,), "Exam", {"Trip", "Illness"})
    same = other.model_copy(update={"wrong": question.wrong})
    again = back.scenario.interview.model_copy(update={"questions": (same,)})
    assert back.model_copy(update={"scenario": back.scenario.model_copy(update={"interview": again})}) == task


THIRD = {"name": "Una", "goals": [{"goal": "Go home."}], "private_info": "Una is tired."}


@pytest.mark.parametrize(
    ("changes", "questions", "roles"),
    [
        ({"roles": {"Rut": "sender"}}, 1, 0),
        ({"roles": {"Rut": "sender", "Ole": "both"}}, 1, 0),
        ({"characters": [*SCENE["characters"], THIRD], "roles": None}, 0, 0),  # about Rut or about Una
    ],
)
def test_what_a_scene_does_not_say_is_unknown(tmp_path, changes, questions, roles):
    scene = {**SCENE, **changes}
    products, _ = convert(tmp_path, [scene])
    (task,) = of_kind(products, ProductKind.TASK)
    interview = task.scenario.interview
    assert (len(interview.questions), len(interview.roles)) == (questions, roles)


def scene_with(number, **changes):
    characters = [dict(character) for character in SCENE["characters"]]
    characters[number] |= changes
    return {**SCENE, "characters": characters}


QUESTION = {"question": "Why?", "options": ["a", "b"], "answer_label": 2}
BAD = [
    ({**ANNOTATED, "attributed_utterances": {"Utterance by Tova": ["said: \"x\"", 0]}},
     {"field": "attributed_utterances"}),
    ({**ANNOTATED, "attributed_utterances": {f"Utterance 0 by {TOVA}": ["sings", 0]}},
     {"field": "attributed_utterances.Utterance 0 by Tova O'Brandt"}),
    ({**ANNOTATED, "attributed_utterances": {f"Utterance 0 by {TOVA}": ['said: "x"', "2"]}},
     {"field": "attributed_utterances.Utterance 0 by Tova O'Brandt"}),
    ({"input": PROMPT, "output": OUTPUT, "value": "high"}, {"field": "value"}),
    ({"instruction": "", "input": "", "output": OUTPUT}, {"field": "instruction, input"}),
    ({**AMPO_ROW, "dialog": ["Nobody: hi"]}, {"field": "dialog.0"}),
    ({**AMPO_RESULT, "agent1_name": "a\nb"}, {"field": "dialog.0"}),
    ({"input": PROMPT, "output": "\ud800", "value": 1}, {"field": ""}),
    (scene_with(1, info_reason_questions=[QUESTION]),
     {"field": "characters.1.info_reason_questions.0.answer_label"}),
    ({**SCENE, "roles": {"Olle": "sender"}}, {"field": "roles", "nearest": "Ole"}),
    (scene_with(1, name="Rut"), {"field": "participants"}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "fields"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_one_sentence(tmp_path, record, fields):
    with raises(DamagedRecordError, **fields):
        convert(tmp_path, [record])
