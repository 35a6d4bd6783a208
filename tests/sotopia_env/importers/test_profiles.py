"""SOTOPIA's profiles and combinations as records of ours, and back."""

import json

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.exporting import export_records
from sotopia_env.importers.foreign import ProductKind
from sotopia_env.importers.importing import import_files
from sotopia_env.importers.registry import formats
from sotopia_env.tasks import starter_tasks
from sotopia_env.world import TaskSet
from sotopia_env.world.dynamics import Rules, initial_state
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import Cast
from tests.errors import raises
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import convert, plain, write

FILES = {
    "sotopia-agents": [records.AGENT, records.AGENT_LINE, records.AGENT_UNKNOWN],
    "sotopia-environments": [records.ENVIRONMENT, records.ENVIRONMENT_LINE],
    "sotopia-relationships": [records.RELATIONSHIP, records.RELATIONSHIP_LINE],
    "sotopia-combos": [records.COMBINATION, records.COMBINATION_LINE],
    "sotopia-lists": [records.LIST],
}


def of_kind(products, kind):
    return [product.value for product in products if product.kind is kind]


def test_what_a_profile_does_not_say_is_unknown(tmp_path):
    products, _ = convert(tmp_path, *FILES.values())
    tova, ilan, uma = of_kind(products, ProductKind.CHARACTER)
    assert (tova.name, tova.age, tova.decision_style, tova.big_five.openness) == (
        records.TOVA,
        37,
        "analytical",
        "high",
    )
    assert (tova.moral_foundations, tova.schwartz_values) == (("care", "fairness"), ("security", "self-direction"))
    assert tova.personality == "Calm and curious."
    assert (ilan.age, ilan.big_five, ilan.decision_style, ilan.moral_foundations) == (52, None, None, ("loyalty",))
    assert uma.age is None


def test_markup_and_constraints_become_fields(tmp_path):
    products, _ = convert(tmp_path, *FILES.values())
    umbrella, stage = of_kind(products, ProductKind.SCENARIO)
    assert umbrella.context == "Two colleagues share one umbrella.\nIt rains."
    keep, borrow = umbrella.seats
    assert (keep.goals, keep.private_info, keep.hints) == (("Keep the umbrella",), "You have a cold", ("Cough",))
    assert (borrow.private_info, borrow.hints) == ("Your bus goes at six.", ("For an hour",))
    assert umbrella.constraints.ages == ((18, 70), (18, 70))
    assert umbrella.constraints.occupations == ()
    assert (stage.constraints.ages, stage.constraints.occupations) == (((20, 60),) * 2, (("actor",),) * 2)
    assert stage.constraints.relationships == (RelationshipKind.FRIEND,)


def test_combinations_become_tasks_with_the_relationship_of_the_environment(tmp_path):
    products, _ = convert(tmp_path, *FILES.values())
    first, second = of_kind(products, ProductKind.TASK)
    assert (first.id, first.relationships[0].kind) == ("C1", RelationshipKind.ACQUAINTANCE)
    assert first.relationships[0].backstory == "They met at a chess club."
    assert (second.id, second.relationships[0].kind) == ("C2", RelationshipKind.FRIEND)  # the pair's profile: stranger
    assert second.relationships[0].backstory == ""


def test_seats_do_not_see_texts_for_evaluators(tmp_path):
    products, _ = convert(tmp_path, *FILES.values())
    task = of_kind(products, ProductKind.TASK)[0]
    texts = [observe(initial_state(task, Rules(), 0), agent).text for agent in task.agents]
    assert not any("The bus is late" in text or "ISTJ" in text for text in texts)
    assert ["Your bus goes at six" in text for text in texts] == [False, True]


def test_profiles_are_the_same_records_when_they_are_written_and_read_again(tmp_path):
    paths = [write(tmp_path / f"{name}.json", entries) for name, entries in FILES.items()]
    report = import_files(paths[::-1], tmp_path / "out")
    assert report.written == {
        "scenarios.jsonl": 2, "tasks.jsonl": 2, "lists.jsonl": 1, "cast.json": 3, "import.json": 1
    }  # fmt: skip
    cast = Cast.model_validate_json((tmp_path / "out" / "cast.json").read_text())
    assert [pair.seats for pair in cast.relationships] == [(0, 1), (1, 2)]
    assert len(TaskSet.load(tmp_path / "out" / "tasks.jsonl")) == 2
    products, _ = convert(tmp_path, *FILES.values())
    for name in ("sotopia-agents", "sotopia-environments"):
        assert records.again(tmp_path, name) == [plain(one) for one in of_kind(products, formats()[name].kind)]
    export_records(tmp_path / "out", tmp_path / "combos.json", format="sotopia-combos")
    export = json.loads((tmp_path / "combos.json").read_text())
    seatings = [records.COMBINATION["agent_ids"], ["A2", "A3"]]
    assert [(entry["pk"], entry["agent_ids"]) for entry in export] == list(zip(["C1", "C2"], seatings, strict=True))
    files = {name: tmp_path / f"{name}.json" for name in FILES}
    for name, back in files.items():
        export_records(tmp_path / "out", back, format=name)
    import_files(list(files.values()), tmp_path / "again")
    assert (tmp_path / "again" / "tasks.jsonl").read_bytes() == (tmp_path / "out" / "tasks.jsonl").read_bytes()


def test_records_by_key_are_records(tmp_path):
    agents = {record["pk"]: {k: v for k, v in record.items() if k != "pk"} for record in (records.AGENT,)}
    path = tmp_path / "agents.json"
    path.write_text(json.dumps(agents, indent=2))
    import_files([path], tmp_path / "out")
    cast = Cast.model_validate_json((tmp_path / "out" / "cast.json").read_text())
    assert [character.name for character in cast.characters] == [records.TOVA]


def test_an_edited_field_is_exported_as_it_is_now(tmp_path):
    import_files([write(tmp_path / "a.json", [records.AGENT])], tmp_path / "out")
    cast = Cast.model_validate_json((tmp_path / "out" / "cast.json").read_text())
    edited = cast.characters[0].model_copy(update={"personality": "Restless."})
    (tmp_path / "cast.json").write_text(Cast(characters=(edited,)).model_dump_json())
    export_records(tmp_path / "cast.json", tmp_path / "back.json", format="sotopia-agents")
    (entry,) = json.loads((tmp_path / "back.json").read_text())
    assert (entry["pk"], entry["personality_and_values"]) == (records.AGENT["pk"], "Restless.")


def test_tasks_are_exported_as_their_people_and_scenarios(tmp_path):
    tasks, path = starter_tasks(), tmp_path / "tasks.jsonl"
    tasks.save(path)
    people = {person.name for task in tasks for person in task.characters}
    assert export_records(path, tmp_path / "agents.jsonl", format="sotopia-agents") == len(people)
    scenarios = {task.scenario.id for task in tasks}
    assert export_records(path, tmp_path / "scenarios.jsonl", format="sotopia-environments") == len(scenarios)
    import_files([tmp_path / "agents.jsonl", tmp_path / "scenarios.jsonl"], tmp_path / "back")
    cast = Cast.model_validate_json((tmp_path / "back" / "cast.json").read_text())
    assert {person.name for person in cast.characters} == people
    assert len((tmp_path / "back" / "scenarios.jsonl").read_text().splitlines()) == len(scenarios)


BAD = [
    ([{**records.AGENT, "age": "old"}], {"field": "age"}),
    ([{**records.AGENT, "age": 200}], {"field": "age"}),
    ([{k: v for k, v in records.AGENT.items() if k != "secret"} | {"secrt": "x"}],
     {"field": "secrt", "nearest": "secret"}),
    ([{**records.AGENT, "first_name": 'Tova "T"'}], {"field": "first_name"}),
    ([{**records.ENVIRONMENT, "relationship": 7}], {"field": "relationship"}),
    ([{**records.ENVIRONMENT, "relationship": "close"}], {"field": "relationship"}),
    ([{**records.ENVIRONMENT_LINE, "agent_goals": ["One."]}], {"field": "occupation_constraint"}),
    ([{**records.ENVIRONMENT, "agent_goals": ["", "x"]}], {"field": "goals"}),
    ([{**records.ENVIRONMENT, "age_constraint": "[(70, 18), (18, 70)]"}], {"field": "ages"}),
    ([{**records.ENVIRONMENT, "age_constraint": "[(1, 2), (1, 2), (1, 2)]"}], {"field": "age_constraint"}),
    ([{**records.ENVIRONMENT, "age_constraint": "__import__('os').getcwd()"}], {"field": "age_constraint"}),
    ([{**records.ENVIRONMENT, "occupation_constraint": [None]}], {"field": "occupation_constraint"}),
    ([{**records.AGENT, "secret": "\ud800"}], {"field": ""}),
    ([{}], {"field": ""}),
    ([{**records.LIST, "agent_index": ["0"]}], {"field": "agent_index"}),
    ([{"a": 1}], {"field": ""}),
    (["nonsense"], {"field": ""}),
    ([records.COMBINATION], {"field": "env_id"}),
    ([records.RELATIONSHIP], {"field": "agent_1_id"}),
    ([records.AGENT, {**records.AGENT, "age": 40}], {"field": "pk"}),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "fields"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_record_is_one_sentence(tmp_path, entries, fields):
    path = write(tmp_path / "0.jsonl", entries)
    with raises(DamagedRecordError, **fields):
        import_files([path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_character_of_a_relationship_is_named(tmp_path):
    dangling = {**records.RELATIONSHIP, "agent_2_id": "A33"}
    with raises(DamagedRecordError, field="agent_2_id", got="A33", nearest="A3"):
        convert(tmp_path, FILES["sotopia-agents"], [dangling])
    with raises(DamagedRecordError, field="agent_1_id, agent_2_id"):
        convert(tmp_path, FILES["sotopia-agents"], [{**records.RELATIONSHIP, "agent_2_id": "A2"}])
