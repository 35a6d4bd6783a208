"""From a script to templates: every step is checked, resumable, and leaves no name of the script behind."""

import asyncio
import difflib
import json
import re

import pytest

from sotopia_env import tasks
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, ModelCallError, ModelRefusedError
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.writing.drafting import Drafter
from sotopia_env.writing.likeness import gestalt, jaccard, leakage, levenshtein
from sotopia_env.writing.script import STEPS, ScriptRoute
from tests.errors import raises

SCRIPT = "\n".join(
    ["INT. MILL - NIGHT", *(f"{('MARA', 'OTIS', 'QUILL')[n % 3]}: Line {n} about the wheel." for n in range(12))] * 2
)
NAMES = ["MARA", "OTIS", "QUILL"]
CONTEXT = "Mara, Otis and Quill stand in Hollow Mill, whose wheel broke last night, and must say who tells the owner."


def scene(first, **changes):
    return {"first": first, "last": first + 12, "summary": "A wheel.", "speakers": NAMES, "turns": 12} | changes


def wishes(text="To have somebody else tell the owner about it."):
    return [{"name": name, "goals": [text]} for name in NAMES]


ANSWERS = {
    "scenes": {"scenes": [scene(0), scene(13)]},
    "background": {"background": CONTEXT, "people": [{"name": name, "about": "Works there."} for name in NAMES]},
    "goals": {"people": wishes()},
    "rewrite": {"context": CONTEXT, "people": wishes()},
    "filter": {"examination": "Fine.", "goal": "To have somebody else tell the owner.", "type": "competition"},
    "private": {
        "facts": [
            {
                "name": "MARA",
                "fact": "You left the sluice open last night.",
                "question": "What did Mara leave open?",
                "answer": "The sluice",
            }
        ]
    },
    "negatives": {"wrong": ["The door", "The oil tap", "The account book"]},
    "leakage": {
        "mentions": [["Mara"], ["Otis"], ["Quill"]],
        "replacements": [{"original": "Hollow Mill", "replacement": "a joinery"}],
    },
    "slots": {
        "domain": "small society",
        "seats": [{"role": "sender", "ages": [25, 60], "occupations": ["joiner", "clerk", "carpenter"]} for _ in NAMES],
        "ties": [
            {"seats": seats, "kind": "acquaintance", "backstory": f"{{{seats[0]}}} and {{{seats[1]}}} work."}
            for seats in ([0, 1], [0, 2], [1, 2])
        ],
    },
}


def step_of(request):
    return re.match(r"script_(\w+): ", request.label).group(1)


def answer(request, **changes):
    return json.dumps({**ANSWERS, **changes}[step_of(request)])


def route(model, folder, script=SCRIPT, reasks=1):
    drafter = Drafter(model, Manner(temperature=1.0, reasks=reasks), concurrency=1)
    return asyncio.run(ScriptRoute(drafter, "The Mill", script, folder).run(profiles=2, seed=0))[0]


def test_a_script_becomes_templates_and_tasks(tmp_path):
    report = route(ScriptedChatModel(answer), tmp_path)
    assert report == f"{tmp_path}: 2 scenes, 2 templates, 2 tasks each"
    first, second = tasks.read_task_file(tmp_path / "templates.json").sources
    assert (first.id, second.id) == ("the-mill-0", "the-mill-13")
    assert first.context.startswith("{0}, {1} and {2} stand in a joinery")
    assert first.questions[0].text == "What did {0} leave open?"
    task_set = tasks.load(tmp_path / "tasks.jsonl")
    assert [task.id for task in task_set] == ["the-mill-0/0", "the-mill-0/1", "the-mill-13/0", "the-mill-13/1"]
    assert not re.search(
        "mara|otis|quill|hollow", task_set[0].model_dump_json(exclude={"id"}).casefold().replace("the-mill", "")
    )
    assert [path.name for path in sorted(tmp_path.glob("?_*.jsonl"))] == [
        f"{number}_{step}.jsonl" for number, step in enumerate(STEPS, start=1)
    ]
    report = json.loads((tmp_path / "leakage.json").read_text())
    assert set(report["each"]) == {"the-mill-0", "the-mill-13"}
    assert 0 < report["mean"]["jaccard"] < 0.5


def changed(step, **fields):
    return {step: ANSWERS[step] | fields}


FAULTS = [
    (changed("scenes", scenes=[scene(13), scene(0)]), "line numbers that increase from 0 to 25"),
    (changed("background", people=ANSWERS["background"]["people"][:2]), "at least 3 entries"),
    (changed("goals", people=wishes()[::-1]), "in this order"),
    (changed("rewrite", context=CONTEXT + " She is cold."), "use 'they'"),
    (changed("rewrite", context=CONTEXT + " Their mother is cold."), 'got "mother"'),
    (changed("filter", type="competitive"), 'did you mean "competition"'),
    (changed("private", facts=[ANSWERS["private"]["facts"][0] | {"answer": "Last night."}]), "does not contain"),
    (changed("negatives", wrong=["The sluice.", "the sluice", "The book"]), "three texts that differ"),
    (changed("negatives", wrong=["The door", "The tap", "The book that stands on the shelf upstairs"]), "lengths"),
    (changed("leakage", mentions=[["Mara"], ["Otis"], []]), "'QUILL' still"),
    (changed("leakage", mentions=[["Mara"], ["Otis"], ["Quill"], []]), "mentions: "),
    (changed("leakage", replacements=[{"original": "Elm Row", "replacement": "x y"}]), "'Elm Row' does not"),
    (changed("slots", ties=ANSWERS["slots"]["ties"][:2]), "ties: "),
    (changed("slots", seats=ANSWERS["slots"]["seats"][:2]), "seats: "),
]


@pytest.mark.parametrize(("change", "reason"), FAULTS)
def test_unusable_answers_are_asked_for_again_and_then_left_out(change, reason, tmp_path):
    bad = ScriptedChatModel(lambda request: answer(request, **change))
    assert "left out: " in route(bad, tmp_path / "bad")
    assert not (tmp_path / "bad" / "templates.json").exists()
    (step,) = change
    requests = [request for request in bad.requests if step_of(request) == step]
    assert reason in json.loads(re.search(r'".*"', requests[1].messages[-1]["content"]).group())
    mended = ScriptedChatModel(lambda request: answer(request, **({} if request.reask else change)))
    assert "2 templates" in route(mended, tmp_path / "mended")


def test_scenes_without_enough_people_or_turns_are_left_out(tmp_path):
    short = changed("scenes", scenes=[scene(0, turns=4), scene(13, speakers=NAMES[:2])])
    report = route(ScriptedChatModel(lambda request: answer(request, **short)), tmp_path)
    assert report.startswith("left out: 2 × scenes: too few turns or people\n")


@pytest.mark.parametrize("death", range(1, 16, 2))
def test_a_killed_run_continues_and_asks_nothing_twice(death, tmp_path):
    refuses = ModelRefusedError("no such model", kind="auth", status=401)
    first = ScriptedChatModel(lambda request: refuses if len(first.requests) > death else answer(request))
    with pytest.raises(ModelRefusedError):
        route(first, tmp_path / "out")
    for file in (tmp_path / "out").glob("?_*.jsonl"):
        with file.open("ab") as stream:
            stream.write(b'{"source": "the-')  # cut short by the death
    second = ScriptedChatModel(answer)
    route(second, tmp_path / "out")
    labels = [request.label for request in (*first.requests[:death], *second.requests)]
    assert len(labels) == len(set(labels))
    route(ScriptedChatModel(answer), tmp_path / "straight")
    for name in ("templates.json", "tasks.jsonl", "leakage.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    third = ScriptedChatModel([])
    route(third, tmp_path / "out")
    assert third.requests == []


def test_a_call_that_fails_is_asked_again_by_the_same_command(tmp_path):
    down = ModelCallError("no answer", kind="timeout")
    model = ScriptedChatModel(lambda request: down if step_of(request) == "private" else answer(request))
    assert "left out: 2 × private: no answer yet; the same command asks again" in route(model, tmp_path)
    assert "2 templates" in route(ScriptedChatModel(answer), tmp_path)


def test_a_directory_has_the_work_on_one_script(tmp_path):
    route(ScriptedChatModel(answer), tmp_path)
    with raises(InvalidValueError, field="out"):
        route(ScriptedChatModel(answer), tmp_path, SCRIPT + " Another line.")
    with raises(InvalidValueError, field="script"):
        route(ScriptedChatModel(answer), tmp_path / "x", " \n")
    (tmp_path / "1_scenes.jsonl").write_text("{}\n")
    with raises(DamagedRecordError, field="source", file="1_scenes.jsonl", line=1):
        route(ScriptedChatModel(answer), tmp_path)


def longest_common_subsequence(first, second):
    row = [0] * (len(second) + 1)
    for letter in first:
        before = row[:]
        for index, other in enumerate(second, start=1):
            row[index] = before[index - 1] + 1 if letter == other else max(before[index], row[index - 1])
    return row[-1]


def test_the_measures_are_what_they_say():
    first, second = "The mill wheel broke last night.", "Last night, somebody broke the wheel of a joinery."
    common = longest_common_subsequence(first, second)
    assert levenshtein(first, second) == pytest.approx(2 * common / (len(first) + len(second)))
    assert jaccard(first, second) == 5 / 10
    assert gestalt(first, second) == difflib.SequenceMatcher(None, first, second, False).ratio()
    report = leakage({"a": (first, first), "b": ("abc", "xyz")})
    assert report["each"] == {name: dict.fromkeys(report["mean"], value) for name, value in (("a", 1.0), ("b", 0.0))}
    assert report["mean"]["gestalt"] == 0.5
    assert report["sd"]["gestalt"] == pytest.approx(0.7071, abs=1e-4)
    assert leakage({})["mean"]["jaccard"] is None
