"""The published files of SOTOPIA in the shapes of their mirrors, with all their debris; the contents are invented."""

import json

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import ProductKind
from sotopia_env.importers.importing import import_files
from sotopia_env.tasks.selection import read_selection
from sotopia_env.world import Rules
from sotopia_env.world.dynamics import initial_state
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import Cast
from tests.errors import raises
from tests.sotopia_env.cli.test_cli import sotopia
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import convert

HARD = [entry.scenario for entry in read_selection("published-hard").entries]
NAMES = ("Tova", "Ilan", "Uma", "Rut", "Ole", "Ada")
# A database writes lists as pieces of their text.
AGENTS = {
    f"A{n}": {
        **{key: value for key, value in records.AGENT.items() if key != "tag"},
        "pk": f"A{n}",
        "first_name": name,
        "last_name": "Brandt",
        "age": 30 + n,
        "moral_values": ["['Care'", " ' In-group Loyalty']"],
        "schwartz_personal_values": ["['Self-Direction']"],
        "model_id": "nan",
    }
    for n, name in enumerate(NAMES)
}
FRIENDS = (
    " You know the following friends: \n Bo: Hobby: Go  Company: Moss \n Cy: Company: Lund, Inc. \n Di: Hobby: Go \n"
)


def environment(pk, **changes):
    """An environment with the markup of the published ones."""
    return {
        "pk": pk,
        "codename": f"case_{pk}",
        "source": "hand-craft",
        "scenario": "Two people share one umbrella.",
        "agent_goals": [
            "Keep it (<extra_info>Extra information: you have a cold"
            "<strategy_hint>Hint: cough</strategy_hint></extra_info>)",
            f"Find a mutual friend.\n<extra_info>{FRIENDS}</extra_info>",
        ],
        "relationship": 3,
        "age_constraint": "[(18, 70), (18, 70)]",
        "occupation_constraint": "nan",
        "agent_constraint": None,
        **changes,
    }


ENVIRONMENTS = {pk: environment(pk) for pk in (*HARD, "E-easy")}
ENVIRONMENTS[HARD[0]]["occupation_constraint"] = "[actor, actor]"
ENVIRONMENTS[HARD[1]] |= {"relationship": 4, "occupation_constraint": "[['nan'], ['any']]"}
ENVIRONMENTS[HARD[2]]["relationship"] = 0
PAIRS = [("A0", "A1"), ("A1", "A2"), ("A2", "A3"), ("A3", "A4"), ("A4", "A5")]
COMBOS = [
    {"pk": f"C{number}-{pk[-4:]}", "env_id": pk, "agent_ids": list(pair)}
    for pk in ENVIRONMENTS
    for number, pair in enumerate(PAIRS)
]


def tie(pk, pair, kind, story):
    return {
        "pk": pk, "agent_1_id": pair[0], "agent_2_id": pair[1], "relationship": kind, "background_story": story
    }  # fmt: skip


TIES = [
    tie("R1", ("A0", "A1"), 3, "They met at a club."),
    tie("R2", ("A1", "A0"), 4, "They met in a class."),
    *(tie(f"R{n}", pair, 3, "They are neighbours.") for n, pair in enumerate(PAIRS[1:], start=3)),
]
USED = {"sotopia_env": list(ENVIRONMENTS), "SFT-round-1": ["E-other", "E-easy"], "sotopia_hard_env": HARD}


def save(path, value, indent=None):
    path.write_text(json.dumps(value, indent=indent))
    return path


def mirror(folder, indent):
    """The files of a mirror: agents and environments by key; compact in one, pretty-printed in the other."""
    return [
        save(folder / "envs.json", ENVIRONMENTS, indent),
        save(folder / "env_agent_combos.json", COMBOS, indent),
        save(folder / "agents.json", AGENTS, indent),
        save(folder / "relationships.json", TIES, indent),
        save(folder / "used_env.json", USED, indent),
    ]


@pytest.fixture(params=(None, 4), ids=("compact", "pretty"))
def imported(request, tmp_path):
    report = import_files(mirror(tmp_path, request.param), tmp_path / "out")
    return report, {task.id: task for task in tasks.load(tmp_path / "out" / "tasks.jsonl")}


def test_the_published_set_is_imported_whole_and_can_be_loaded(imported):
    report, collection = imported
    assert report.refused == 0
    assert len(collection) == len(COMBOS)


def test_what_contradicts_itself_is_played_as_the_reference_plays_it_and_noted(imported):
    report, collection = imported
    casting, couple, strangers = (collection[f"C0-{pk[-4:]}"] for pk in HARD[:3])
    assert casting.scenario.constraints.occupations == ()
    assert "contradicts: constraints" in casting.scenario.tags
    # Of a pair with two profiles, that which says what the environment says; where neither does, no story.
    assert (couple.relationships[0].kind, couple.relationships[0].backstory) == ("romantic", "They met in a class.")
    assert not any(tag.startswith("contradicts") for tag in couple.scenario.tags)
    assert (strangers.relationships[0].kind, strangers.relationships[0].backstory) == (RelationshipKind.STRANGER, "")
    assert "contradicts: relationship" in strangers.scenario.tags
    assert collection["C0-easy"].relationships[0].backstory == "They met at a club."
    notes = {field: len(notes) for (_, field), notes in report.notes().items()}
    # Four pairs are friends only, whom one environment calls romantic; all five are no strangers.
    assert notes == {"agent_1_id, agent_2_id": 1, "agent_ids": 5, "relationship": 9, "environments": 1}
    files = json.loads((report.folder / "import.json").read_text())["files"]
    assert [len(file["notes"]) for file in files if file["format"] == "sotopia-combos"] == [14]


def test_a_cast_has_the_first_profile_of_a_pair(imported):
    report, _ = imported
    cast = Cast.model_validate_json((report.folder / "cast.json").read_text())
    assert [pair.kind for pair in cast.relationships if pair.seats == (0, 1)] == ["friend"]
    assert cast.characters[0].moral_foundations == ("care", "loyalty")
    assert cast.characters[0].schwartz_values == ("self-direction",)


def test_no_debris_reaches_a_seat(imported):
    _, collection = imported
    task = collection["C0-easy"]
    keep, find = task.scenario.seats
    assert keep.goals == ("Keep it",)
    assert (keep.private_info, keep.hints) == ("Extra information: you have a cold", ("Hint: cough",))
    assert find.private_info == (
        "You know the following friends: Bo: Hobby: Go  Company: Moss; Cy: Company: Lund, Inc.; Di: Hobby: Go"
    )
    for own in collection.values():
        text = "".join(observe(initial_state(own, Rules(), 0), agent).text for agent in own.agents)
        assert not any(debris in text for debris in ("<extra", "_hint>", "()", "( )", "nan"))
    assert collection[f"C0-{HARD[1][-4:]}"].scenario.constraints.occupations == ()


def test_lists_of_environments_by_name_are_lists(imported):
    report, _ = imported
    lists = [json.loads(line) for line in (report.folder / "lists.jsonl").read_text().splitlines()]
    assert {entry["name"]: len(entry["entries"]) for entry in lists} == {name: len(ids) for name, ids in USED.items()}


def test_the_published_hard_set_is_seventy_tasks_and_plays(tmp_path):
    folder, hard = tmp_path / "out", tmp_path / "hard.jsonl"
    text = sotopia("import", *mirror(tmp_path, None), "-o", folder).output
    assert all(words in text for words in ("14 with a note", "note: ", "4 more on agent_ids"))
    text = sotopia("tasks", "sample", folder / "tasks.jsonl", "--only", "published-hard", "--out", hard).output
    assert "70 tasks, 14 scenarios" in text
    sotopia("rollout", "--tasks", hard, "-n", 2, "--policy", "random", "--evaluator", "none", "--out", tmp_path / "run")


def test_the_dump_of_a_database_is_one_file_of_all_kinds(tmp_path):
    prefix = ":sotopia.database"
    dump = {
        **{f"{prefix}.EnvAgentComboStorage:{record['pk']}": record for record in COMBOS},
        **{f"{prefix}.RelationshipProfile:{record['pk']}": record for record in TIES},
        **{f"{prefix}.EnvironmentProfile:{pk}": record for pk, record in ENVIRONMENTS.items()},
        **{f"{prefix}.AgentProfile:{pk}": record for pk, record in AGENTS.items()},
    }
    file = save(tmp_path / "dump.json", dump)
    report = import_files([file], tmp_path / "out")
    assert report.counts[0].format == "sotopia-agents, sotopia-environments, sotopia-relationships, sotopia-combos"
    assert len(tasks.load(tmp_path / "out" / "tasks.jsonl")) == len(COMBOS)
    save(file, {**dump, ":__main__.Person:1": {"pk": "1", "name": "Bo"}})
    with raises(DamagedRecordError, file="dump.json"):
        import_files([file], tmp_path / "out")
    assert import_files([file], tmp_path / "out", keep_going=True).refused == 1


VINTAGES = [
    ("relationship", "friend", "relationship"),
    ("agent_goals", {"A0": "Keep it."}, "agent_goals"),
    ("age_constraint", "18 to 70", "age_constraint"),
    ("scenario", None, "scenario"),
]


@pytest.mark.parametrize(("field", "value", "message"), VINTAGES, ids=[entry[0] for entry in VINTAGES])
def test_a_file_of_another_vintage_is_one_sentence_or_goes_without_its_bad_records(tmp_path, field, value, message):
    file = save(tmp_path / "envs.json", {"E1": environment("E1", **{field: value}), "E2": environment("E2")})
    with raises(DamagedRecordError, field=message):
        import_files([file], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    text = sotopia("import", file, "-o", tmp_path / "out", "--keep-going", code=1).output
    assert "2 read, 1 converted, 1 refused" in text
    assert field in text


def test_a_couple_of_whom_one_is_a_child_is_refused_and_not_written(tmp_path):
    agents = [{**AGENTS["A0"], "age": 12}, AGENTS["A1"]]
    files = [
        save(tmp_path / "a.json", agents),
        save(tmp_path / "e.json", [environment("E1", relationship=4), environment("E2")]),
        save(tmp_path / "c.json", [{"pk": f"C{n}", "env_id": f"E{n}", "agent_ids": ["A0", "A1"]} for n in (1, 2)]),
    ]
    with raises(DamagedRecordError, file="c.json", line=1, field="relationships.0.kind"):
        import_files(files, tmp_path / "out")
    import_files(files, tmp_path / "out", keep_going=True)
    (task,) = tasks.load(tmp_path / "out" / "tasks.jsonl")
    assert (task.id, task.scenario.constraints.ages) == ("C2", ())


def test_hints_inside_of_information_and_unclosed_tags_leave_nothing_behind(tmp_path):
    goals = [
        "Keep it (<extra_info>A<clarification_hint>B</clarification_hint>C</extra_info>)"
        "(<strategy_hint>D</strategy_hint>)",
        "Call Bo <extra_info>never closed",
    ]
    products, _ = convert(tmp_path, [environment("E1", agent_goals=goals)])
    (scenario,) = [product.value for product in products if product.kind is ProductKind.SCENARIO]
    keep, call = scenario.seats
    assert (keep.goals, keep.private_info, keep.hints) == (("Keep it",), "A C", ("B", "D"))
    assert call.goals == ("Call Bo  never closed",)
    products, _ = convert(tmp_path, [environment("E2", agent_goals=["Call f().", "Answer."])])
    assert products[0].value.seats[0].goals == ("Call f().",)  # a text without markup is left as it is


def test_bad_records_are_left_out_on_request(tmp_path):
    import_files(mirror(tmp_path, None), tmp_path / "out")
    lines = (tmp_path / "out" / "tasks.jsonl").read_text().splitlines()
    bad = json.loads(lines[0]) | {"id": "bad", "characters": []}
    file, out = tmp_path / "tasks.jsonl", tmp_path / "sample.jsonl"
    file.write_text("\n".join([*lines[:3], "{no json", json.dumps(bad), lines[2]]))
    assert "line 4" in sotopia("tasks", "sample", file, "--out", out, code=2).output
    for command in (("sample", file, "--out", out), ("list", file), ("stats", file)):
        text = sotopia("tasks", *command, "--keep-going", code=1).output
        assert all(words in text for words in ("line 4", "line 5", "line 6", "3 records left out"))
    assert len(tasks.load(out)) == 3
