"""The lint: every kind of fault is named with place, record, field, value and mend; the built-in sets have none."""

import copy
import json
import random
import re

import pytest

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.tasks import everyday_templates, instantiate, starter_cast
from sotopia_env.tasks.lint.material import BUILT_IN, read_material
from sotopia_env.tasks.lint.report import lint
from sotopia_env.tasks.lint.texts import content_words, gendered_words, leak, near_duplicates
from sotopia_env.world.scenario import Relationship, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast, seat_characters
from tests.errors import raises

SCENE = {
    "id": "borrowed-tent",
    "context": "Two friends meet at the tram stop before a long weekend, each with a rucksack and a timetable.",
    "seats": [
        {"goals": ["Get the green tent back before the journey to the coast begins."]},
        {"goals": ["Keep the tent until Monday, since a cousin counts on it."], "private_info": "A pole is broken."},
    ],
    "constraints": {"relationships": ["friend"]},
}
RENT = {
    "protocol": {"kind": "agreement"},
    "issues": [{"name": "rent", "kind": "number", "low": 0, "high": 40}],
    "worth": [{"issues": {"rent": {"per_unit": 1}}}, {"constant": 30, "issues": {"rent": {"per_unit": -1}}}],
}
TEMPLATE = next(t for t in everyday_templates() if t.questions and t.goal_tests)


def scene(**fields):
    return copy.deepcopy(SCENE) | fields


def seats(*goals):
    return [{"goals": [goal]} for goal in goals]


def problems(*records, against=()):
    return [str(p) for p in lint([("f.json", r) for r in records], [("g.json", r) for r in against])]


def scenario_problems(fields):
    return problems(Scenario.model_validate(fields))


LEAKED = "Get the green tent back before the journey to the coast begins, and say nothing of the broken pole."
FAULTS = [
    (
        scene(context="Ana and her mother wait for the tram. The gentlemen beside them do not."),
        r"context: .* any gender, got 'her', 'mother', 'gentlemen'; write 'they'",
    ),
    (scene(seats=seats("Ask him for it.", "Keep it.")), "seats.0.goals.0: .* got 'him'; write"),
    (
        scene(
            context=f"At the tram stop one of two friends wants to get the green tent back before the journey. {LEAKED}"
        ),
        r"seats.0.goals.0: .*less than 0.85 of it in context, .* got 5 of its 5 content words "
        r"\(green, tent, journey, coast, begins\), 1.00 of them;",
    ),
    (
        scene(
            context="Two meet. Somebody wants to ask for a day off in May or at the very least in June.",
            seats=seats("Ask for a day off in May.", "Give none."),
        ),
        r"seats.0.goals.0: .*less than 0.35 of it in context, .* got 5 of its 5 phrases of three words \(a day ",
    ),
    (scene(outcome=RENT, seats=seats("Get 25.", "Pay at most 30.")), r"seats.0.goals.0: 25 .* outcome.worth.0 "),
    (
        scene(constraints={"relationships": ["stranger"], "facts": {"home": "shared"}}),
        "scenario 'borrowed-tent': constraints.facts: .* together with its cast",
    ),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS)
def test_a_fault_is_named_with_its_field_its_words_and_its_mend(fields, message):
    assert scenario_problems(scene()) == []
    warnings = scenario_problems(fields)
    assert len(warnings) == 1
    assert warnings[0].startswith("f.json: warning: scenario 'borrowed-tent': ")
    assert re.search(message, warnings[0]), warnings[0]


def test_an_outcome_without_gains_and_constraints_without_people_are_errors():
    poor = {**RENT, "worth": [{**worth, "no_agreement": 99} for worth in RENT["worth"]]}
    [problem] = scenario_problems(scene(outcome=poor))
    assert problem.startswith("f.json: scenario 'borrowed-tent': outcome.worth: ")
    [problem] = problems(starter_cast(), Scenario.model_validate(scene(constraints={"ages": [[0, 3], [0, 150]]})))
    assert problem.startswith("f.json: scenario 'borrowed-tent': constraints: ")
    assert "which none of 12 do; widen them" in problem
    assert problems(starter_cast(), Scenario.model_validate(scene())) == []


ENGAGED = {
    "id": "wedding",
    "context": "Two people who are engaged sit at the table of their flat and plan the day of their wedding.",
    "seats": seats("Invite your whole family.", "Keep the party small."),
}


def test_a_scenario_whose_castings_differ_in_their_relationship_is_named_with_two_of_them():
    [problem] = scenario_problems(ENGAGED)
    kinds = [kind.value for kind in RelationshipKind if f"({kind.value})" in problem]
    assert "constraints.relationships" in problem
    assert len(kinds) == 2
    assert scenario_problems({**ENGAGED, "constraints": {"relationships": ["romantic"]}}) == []


def test_a_cast_of_one_relationship_needs_no_constraints():
    scenario, people = Scenario.model_validate(ENGAGED), starter_cast().characters[:3]
    couple = Relationship(seats=(0, 1), kind=RelationshipKind.ROMANTIC)
    assert problems(Cast(characters=people[:2], relationships=(couple,)), scenario) == []
    [problem] = problems(Cast(characters=people, relationships=(couple,)), scenario)  # the third is a stranger
    assert "(romantic)" in problem
    assert "(stranger)" in problem


def test_fields_of_tasks_and_templates_are_named_as_in_the_file():
    raw = TEMPLATE.model_dump(mode="json")
    raw["seats"][0]["goals"][0]["text"] = "Ask her for 77777 points."
    template = type(TEMPLATE).model_validate(raw)
    words, number = problems(template)
    assert f"f.json: warning: template {TEMPLATE.id!r}: seats.0.goals.0.text: " in words
    assert "seats.0.goals.0.text: 77777 " in number
    words, number = problems(instantiate(template, 0, 0))
    assert f"task '{TEMPLATE.id}/0': scenario.seats.0.goals.0: " in words
    tasks = [instantiate(template, number, 0) for number in range(3)]
    assert len(problems(*tasks)) == 6  # their names differ, so their texts do


def test_the_worths_that_goal_tests_ask_for_are_numbers_of_the_worth():
    raw = TEMPLATE.model_dump(mode="json")
    test = next(test for test in raw["goal_tests"] if test["worth_at_least"] is not None)
    seat, goal = test["seat"], test["goal"]
    raw["seats"][seat]["goals"][goal]["text"] = "Reach 123."
    assert f"seats.{seat}.goals.{goal}.text: 123 " in problems(type(TEMPLATE).model_validate(raw))[0]
    test["worth_at_least"] = 123
    assert problems(type(TEMPLATE).model_validate(raw)) == []


def test_an_answer_is_leaked_where_only_the_right_one_appears_in_a_text_of_others():
    raw = TEMPLATE.model_dump(mode="json")
    question = raw["questions"][0]
    others = [seat for seat in range(len(raw["seats"])) if seat != question["about"]]
    question.update(answer="A violet submarine.", wrong=["A golden balloon.", "A wooden sledge.", "A rusty tractor."])
    raw["seats"][others[0]]["private_info"] = "Somebody spoke of a violet submarine."
    [problem] = problems(type(TEMPLATE).model_validate(raw))
    assert "questions.0.answer: " in problem
    raw["seats"][others[0]]["private_info"] = "A violet submarine, a golden balloon, a wooden sledge, a rusty tractor?"
    assert problems(type(TEMPLATE).model_validate(raw)) == []


def test_a_secret_in_a_backstory_is_named():
    cast = starter_cast().model_dump(mode="json")
    pair = next(pair for pair in cast["relationships"] if pair.get("backstory"))
    pair["backstory"] += " " + cast["characters"][pair["seats"][0]]["secret"]
    [problem] = problems(type(starter_cast()).model_validate(cast))
    assert f"f.json: warning: cast: characters.{pair['seats'][0]}.secret: " in problem
    assert f".backstory (of {pair['seats'][0]} and {pair['seats'][1]}), " in problem


def test_private_texts_are_compared_with_everything_that_others_read():
    """Secrets with the context and with what is public of others; goals with what is public of every seat."""
    scenario = Scenario.model_validate(scene())
    task = seat_characters(scenario, starter_cast(), (0, 1), "t")
    assert problems(task) == []
    secret, goal = task.characters[0].secret, scenario.seats[0].goals[0]
    context = task.model_copy(
        update={"scenario": Scenario.model_validate(scene(context=f"{SCENE['context']} {secret}"))}
    )
    [problem] = problems(context)
    assert "task 't': characters.0.secret: " in problem
    assert "of it in scenario.context, " in problem
    first, second = task.characters
    for seat, text, field in ((1, secret, "characters.0.secret"), (0, goal, "scenario.seats.0.goals.0")):
        people = [first, second]
        people[seat] = people[seat].model_copy(update={"public_info": text})
        [problem] = problems(task.model_copy(update={"characters": tuple(people)}))
        assert f"task 't': {field}: " in problem
        assert f"characters.{seat}.public_info, " in problem


def test_a_goal_in_the_backstory_of_one_casting_is_named_and_faults_of_the_scenario_once():
    scenario = Scenario.model_validate(scene(context="A man and a friend wait at the tram stop."))
    plain, cast = [seat_characters(scenario, starter_cast(), pair, f"t{pair[0]}") for pair in ((0, 1), (2, 3))]
    tie = Relationship(seats=(0, 1), kind="friend", backstory=SCENE["seats"][0]["goals"][0])
    related = Task(id="told", scenario=scenario, characters=cast.characters, relationships=(tie,))
    gender, leaked = problems(plain, cast, related)
    assert "task 't0': scenario.context: " in gender
    assert "task 'told': scenario.seats.0.goals.0: " in leaked


def test_near_duplicates_are_found_in_the_set_and_against_another():
    own = Scenario.model_validate(scene())
    other = Scenario.model_validate(scene(id="lent-tent", context=SCENE["context"].replace("tram", "bus")))
    [problem] = problems(own, other)
    assert problem.startswith("f.json: warning: scenario 'lent-tent': context: ")
    assert "scenario 'borrowed-tent', f.json" in problem
    [problem] = problems(other, against=[own])
    assert "scenario 'borrowed-tent', g.json" in problem
    versions = [scene(id=name, tags=["vignette=tent", f"tone={name}"]) for name in ("warm", "cold")]
    assert problems(*map(Scenario.model_validate, versions)) == []
    [problem] = problems(own, own)
    assert "f.json: scenario 'borrowed-tent': id: " in problem


def test_min_hash_finds_every_pair_that_an_exact_comparison_finds():
    rng = random.Random(3)
    texts = [" ".join(rng.choices("abcdefghij", k=60)) for _ in range(20)]
    texts += [text.replace(" a b", " x y").replace(" c", " z", 1) for text in texts]

    def runs(text):
        words = text.split()
        return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}

    def similarity(first, second):
        return len(runs(first) & runs(second)) / len(runs(first) | runs(second))

    exact = {i for i, text in enumerate(texts) if any(similarity(text, before) >= 0.5 for before in texts[:i])}
    assert {index for index, _, _ in near_duplicates(texts)} == exact
    assert len(exact) >= 15
    for index, other, share in near_duplicates(texts):
        assert share == pytest.approx(similarity(texts[index], texts[other]))


def test_words_are_whole_and_public_ones_tell_nothing():
    assert gendered_words("The shepherd ushers Theo in; hers, HE said.", {"he", "hers", "her"}) == ["hers", "HE"]
    assert content_words("The 12 tents, and a tent of his") == {"tent": "tent"}
    text = "The salt mine, the river walk and the steam railway are worth visiting."
    assert leak(text, text) is not None
    goal = "Choose salt mine over river walk over steam railway; museum last, castle never."
    assert leak(goal, "A list hangs there: salt mine; castle, museum, steam, river walk, railway; choose!") is not None
    assert leak(goal, "A list hangs there: salt; mine, castle, museum.", "salt mine river walk steam railway") is None


@pytest.mark.parametrize("source", BUILT_IN)
def test_the_built_in_sets_have_no_problem(source):
    material = read_material(source)
    assert material.refused == []
    assert [str(problem) for problem in lint(material.records)] == []


def test_the_built_in_sets_do_not_repeat_each_other():
    records = {source: read_material(source).records for source in BUILT_IN}
    assert lint([*records["starter"], *records["everyday"], *records["everyday-groups"]]) == []


def test_bad_records_are_refused_one_by_one_and_the_others_read(tmp_path):
    file = tmp_path / "mixed.jsonl"
    good, template = scene(), TEMPLATE.model_dump(mode="json")
    slot = copy.deepcopy(template)
    slot["seats"][0]["ages"] = [60, 20]
    lines = [good, {**good, "contxt": 1}, slot, {"characters": []}, template]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:2]) + "{oops\n" + json.dumps(lines[2]) + "\n")
    with file.open("a") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in (*lines[3:], [], {"seats": 3})))
    material = read_material(file)
    assert [type(record).__name__ for _, record in material.records] == ["Scenario", "Cast", "Template"]
    assert [re.findall(r"jsonl, (line \d)", sentence) for sentence in material.refused] == [
        [f"line {n}"] for n in (2, 3, 4, 7, 8)
    ]
    assert any("contxt" in sentence and "context" in sentence for sentence in material.refused)
    with raises(UnknownNameError, field="source", nearest="everyday"):
        read_material("everday")
    (tmp_path / "empty.json").write_text("[]")
    (refused,) = read_material(tmp_path / "empty.json").refused
    assert "empty.json" in refused
