"""Templates: which are refused, and the people and texts of their instances."""

import copy
import itertools
import json

import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.people import NameStock
from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world import Task
from sotopia_env.world.scenario import RelationshipKind
from tests.errors import raises

GRANDPARENT = {
    "id": "attic",
    "domain": "personal",
    "context": "{0}, {1} and {2} clear the attic of {0}. A trunk is locked.",
    "seats": [
        {
            "role": "sender",
            "ages": [60, 80],
            "occupations": ["retired nurse", "retired baker", "retired tailor"],
            "goals": [
                {"text": "Tell {1} where the key is, but not before the trunk is promised.", "type": "cooperation"},
                {"text": "Get both to come again.", "type": "relationship maintenance"},
            ],
            "hints": ["{2} is curious."],
            "private_info": "The trunk holds letters of a singer.",
        },
        {
            "role": "receiver",
            "ages": [20, 60],
            "occupations": ["florist", "welder", "clerk"],
            "goals": [{"text": "Learn where the key is.", "type": "information acquisition"}],
        },
        {
            "role": "receiver",
            "ages": [5, 40],
            "occupations": ["pupil", "pupil in a choir school", "young acrobat"],
            "goals": [{"text": "Have the trunk.", "type": "competition"}],
        },
    ],
    "ties": [
        {"seats": [0, 1], "kind": "family", "backstory": "{0} is a parent of {1}.", "age_gap": [-45, -18]},
        {"seats": [0, 2], "kind": "family", "backstory": "{0} is a grandparent of {2}.", "age_gap": [-90, -36]},
        {"seats": [1, 2], "kind": "family", "backstory": "{1} is a parent of {2}.", "age_gap": [-45, -18]},
    ],
    "questions": [
        {"about": 0, "text": "What has {0} in the trunk?", "answer": "Letters", "wrong": ["Hats", "A flag", "Maps"]}
    ],
    "tags": ["home"],
    "source": "test templates",
}
STRANGERS = [{"seats": list(pair), "kind": "stranger"} for pair in itertools.combinations(range(3), 2)]
BALLOT = {
    "id": "excursion",
    "domain": "small society",
    "context": "Three members of a club vote on the guide of the excursion.",
    "seats": [
        {
            "role": "sender",
            "ages": [18, 90],
            "occupations": ["member of the board"],
            "goals": [{"text": "Have {1} chosen (8 points; {2} 2, nobody 1).", "type": "competition"}],
        }
    ]
    * 3,
    "ties": STRANGERS,
    "goal_tests": [
        {"seat": 0, "goal": 0, "terms": {"option": ["{1}"]}},
        {"seat": 2, "goal": 0, "worth_at_least": 8},
    ],
    "outcome": {
        "protocol": {"kind": "ballot", "options": ["{1}", "{2}", "Rowan the guide"]},
        "worth": [{"options": {"{1}": 8, "{2}": 2, "Rowan the guide": 0}, "no_decision": 1}] * 3,
    },
}
PRICE = {
    **BALLOT,
    "id": "bill",
    "domain": "large society",
    "private_messages": True,
    "max_turns": 15,
    "goal_tests": [{"seat": 1, "goal": 0, "terms": {"share of {0}": [0, 40]}}],
    "outcome": {
        "protocol": {"kind": "agreement"},
        "issues": [{"name": "share of {0}", "kind": "number", "low": 0, "high": 90, "unit": "$"}],
        "worth": [{"issues": {"share of {0}": {"per_unit": unit}}, "constant": 45} for unit in (-1, 0.5, 0.5)],
    },
}
RAW = (GRANDPARENT, BALLOT, PRICE)
TEMPLATES = [Template.model_validate(raw) for raw in RAW]


def changed(raw: dict, path: str, value) -> dict:
    """A template with another value at a dotted path; ``None`` removes the field."""
    raw = copy.deepcopy(raw)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    part = raw
    for parent in parents:
        part = part[parent]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return raw


@pytest.fixture
def write_templates(tmp_path):
    def write(*raw: dict):
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(raw), encoding="utf-8")
        return path

    return write


def test_a_file_of_templates_is_read(write_templates):
    assert list(tasks.read_task_file(write_templates(*RAW)).sources) == TEMPLATES


@pytest.mark.parametrize(
    ("raw", "path", "value", "fields"),
    [
        (GRANDPARENT, "questions.0.answer", None, {"field": "questions.0.answer"}),
        (GRANDPARENT, "questions.0.about", 1, {"field": "questions.0.about"}),
        (GRANDPARENT, "context", "{0} and {3}", {"field": "context"}),
        (GRANDPARENT, "context", "A set {a, b}", {"field": "context"}),
        (GRANDPARENT, "context", "{0} knows Nameof9seat.", {"field": "context"}),
        (GRANDPARENT, "ties.2", {"seats": [1, 2], "kind": "romantic"}, {"field": "ties.2.kind"}),
        (GRANDPARENT, "context", " ".join(first for first, _ in NameStock.without().firsts), {"field": "seats"}),
        (GRANDPARENT, "context", " ", {"field": "context"}),
        (GRANDPARENT, "seats.1.goals.0.text", "Ask {", {"field": "seats.1.goals.0.text"}),
        (GRANDPARENT, "seats.1.goals.0.type", "information acquisitions",
         {"field": "seats.1.goals.0.type", "nearest": "information acquisition"}),
        (GRANDPARENT, "seats.1.ages", [60, 20], {"field": "seats.1.ages"}),
        (GRANDPARENT, "seats.0.ages", [40, 80], {"field": "seats.0.occupations"}),
        (GRANDPARENT, "seats.1.ages", [70, 75], {"field": "ties.0.age_gap"}),
        (GRANDPARENT, "ties.1.age_gap", [-30, -10], {"field": "ties"}),
        (GRANDPARENT, "ties", STRANGERS[:2], {"field": "ties"}),
        (GRANDPARENT, "ties.0.kind", "stranger", {"field": "ties.0.backstory"}),
        (GRANDPARENT, "ties.0.age_gaps", [1, 2], {"field": "ties.0.age_gaps", "nearest": "age_gap"}),
        (BALLOT, "outcome", None, {"field": "goal_tests.0"}),
        (BALLOT, "goal_tests.0.terms.option", ["Rowan the gide"],
         {"field": "goal_tests.0.terms.option", "nearest": "Rowan the guide"}),
        (BALLOT, "outcome.worth.0.options.{2}", None, {"field": "outcome.worth[0].options"}),
        (PRICE, "outcome.protocol.kind", "agrement", {"field": "outcome.protocol.kind", "nearest": "agreement"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_file_record_and_field(write_templates, raw, path, value, fields):
    file = write_templates(TEMPLATES[0].model_dump(mode="json"), changed({**raw, "id": "other"}, path, value))
    with raises(InvalidTaskError, file="mine.json", record="record 2", **fields) as error:
        tasks.read_task_file(file)
    assert "\n" not in str(error.value)


def test_ids_are_unique_and_a_file_holds_templates(write_templates):
    with raises(InvalidTaskError, field="id", got="attic", record="record 2"):
        tasks.read_task_file(write_templates(GRANDPARENT, GRANDPARENT))
    with raises(InvalidTaskError, file="mine.json"):
        tasks.read_task_file(write_templates())
    with raises(InvalidValueError, field="path", got=7):
        tasks.read_task_file(7)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
def test_people_fit_their_slots_and_their_names_appear_in_every_text(template):
    for number in range(40):
        task = instantiate(template, number, 3)
        assert (task.id, task.scenario.id) == (f"{template.id}/{number}", template.id)
        for slot, person in zip(template.seats, task.characters, strict=True):
            assert slot.ages[0] <= person.age <= slot.ages[1]
            assert person.occupation in slot.occupations
        for tie in template.ties:
            first, second = (task.characters[seat].age for seat in tie.seats)
            assert tie.age_gap is None or tie.age_gap[0] <= second - first <= tie.age_gap[1]
            assert task.relationship(*tie.seats).kind is RelationshipKind(tie.kind)
        names = [word for person in task.characters for word in (person.first_name, person.last_name)]
        assert len(set(names)) == 6
        assert not [name for name in names if name in template.model_dump_json()]
        assert not [slot for slot in ("{0}", "{1}", "{2}") if slot in repr(task)]
        tasks.check(task)
        assert Task.model_validate_json(task.model_dump_json()) == task


def test_texts_name_the_characters_of_their_seats():
    attic, excursion, bill = (instantiate(template, 0, 0) for template in TEMPLATES)
    first, second, third = (person.first_name for person in attic.characters)
    assert attic.scenario.context.startswith(f"{first}, {second} and {third} clear the attic of {first}.")
    assert attic.scenario.seats[0].hints == (f"{third} is curious.",)
    assert attic.relationship(0, 1).backstory == f"{first} is a parent of {second}."
    assert attic.scenario.interview.questions[0].text == f"What has {first} in the trunk?"
    second, third = (person.first_name for person in excursion.characters[1:])
    assert excursion.scenario.outcome.protocol.options == (second, third, "Rowan the guide")
    assert excursion.scenario.interview.goal_tests[0].terms == {"option": (second,)}
    assert bill.scenario.outcome.issues[0].name == f"share of {bill.characters[0].first_name}"
    assert (bill.scenario.private_messages, bill.scenario.max_turns) == (True, 15)


def test_an_interview_has_the_roles_and_goals_of_the_templates_seats():
    interview = instantiate(TEMPLATES[0], 0, 0).scenario.interview
    assert (interview.template, interview.domain) == ("attic", "personal")
    assert interview.roles == ("sender", "receiver", "receiver")
    assert interview.goal_types == (
        ("cooperation", "relationship maintenance"),
        ("information acquisition",),
        ("competition",),
    )


def test_instances_are_fixed_by_number_and_seed():
    template = TEMPLATES[0]
    assert instantiate(template, 1, 0) == instantiate(template, 1, 0)
    hashes = {instantiate(template, number, seed).content_hash for number in range(4) for seed in range(4)}
    assert len(hashes) == 16
    with raises(InvalidValueError, field="number", got=-1):
        instantiate(template, -1, 0)
