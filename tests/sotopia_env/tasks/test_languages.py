"""Families in other languages: the same tasks, acts and rewards for the same seeds, because no word is read."""

import asyncio
import string
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.json_text import read_json
from sotopia_env.naming import make_evaluator, make_policy, task_set
from sotopia_env.tasks import texts
from sotopia_env.tasks.families.registry import FAMILIES, TRANSLATIONS, generate
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import social_acts

FOLDER = Path(texts.__file__).parent
SCRIPTS = {
    "mini_mafia": ("deceiver:lies=0.5", "bayesian", "uniform"),
    "briefing": ("oracle", "broadcaster", "honest"),
}


def played(task: Task, name: str, seed: int) -> tuple[list, list, dict]:
    """What was done, without any name, in one game: acts, moves and scores."""
    table, policy = Table(task, seed=seed), make_policy(name)
    asyncio.run(table.play(policy))
    evaluation = asyncio.run(table.evaluate(make_evaluator("verified+facts", policies=[policy])))
    facts = task.scenario.facts
    assert facts is not None
    order, options = list(facts.by_name), task.scenario.outcome.protocol.options
    acts = [
        (
            act.turn, act.actor, act.kind, order.index(act.variable), act.audience, act.classes,
            act.value and facts.by_name[act.variable].options.index(act.value),
        )
        for act in social_acts(task, table.state.turns)
    ]  # fmt: skip
    moves = [turn.action.move and turn.action.move.binding for turn in table.state.turns]
    votes = [move and options.index(move.content) for move in moves]
    scores = {(score.agent, str(score.dimension)): score.value for score in evaluation.scores}
    return acts, votes, scores


@pytest.mark.parametrize("name", TRANSLATIONS)
@pytest.mark.parametrize("level", ["easy", "hard"])
def test_play_is_equal_in_every_language(name, level):
    stem = name.rpartition("-")[0]
    for seed, (english, other) in enumerate(zip(generate(stem, 5, 3, level), generate(name, 5, 3, level), strict=True)):
        for script in SCRIPTS[stem]:
            assert played(other, script, seed) == played(english, script, seed)


def shape(value: object, key: str = "") -> object:
    """A text file's lists with their lengths, and its fields in braces; phrases may be as many as one likes."""
    if isinstance(value, dict):
        items = [(name, shape(item, name)) for name, item in value.items() if name not in ("phrases", "joiners")]
        return [item for _, item in items] if key == "settings" else dict(items)
    if isinstance(value, list):
        return [shape(item) for item in value]
    return sorted({field for _, field, _, _ in string.Formatter().parse(str(value)) if field} - {"verdict", "informed"})


@pytest.mark.parametrize("language", texts.LANGUAGES)
@pytest.mark.parametrize("name", ["mini_mafia", "briefing"])
def test_a_text_file_has_the_shape_of_the_english_one(name, language):
    english, other = (read_json(folder / f"{name}.json") for folder in (FOLDER, FOLDER / language))
    assert shape(other) == shape(english)
    ranks = [
        [[sorted(setting["roles"]).index(role) for role in setting["roles"]] for setting in one["settings"].values()]
        for one in (english, other)
        if name == "mini_mafia"
    ]
    assert ranks[1:] == ranks[:1]


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_seat_reads_and_says_nothing_of_the_english_texts(name):
    stem, _, language = name.rpartition("-")
    english, other = (generate(one, 6, 1, "medium") for one in (stem, name))
    for task, original in zip(other, english, strict=True):
        table = Table(task, seed=1)
        asyncio.run(table.play(make_policy(SCRIPTS[stem][0])))
        words = [turn.action.argument for turn in table.state.turns]
        source = FAMILIES[stem].phrases
        phrases = [
            text for kind in ("own_role", "role", "state", "show", "ask", "vote") for text in getattr(source, kind)
        ]
        openings = [text.partition("{")[0] for text in phrases if len(text.partition("{")[0]) > 5]
        assert [text for text in words if any(opening in text for opening in openings)] == []
        if language == "zh":
            left = " ".join(words)
            for person in (*task.names.values(), "Mia", "Jonas", "Samir", "Okoro", "Lehmann", "Duarte"):
                left = left.replace(person, "")
            assert not set(left) & set(string.ascii_letters)
        seat = table.observe("agent_0").text
        assert original.scenario.context not in seat
        assert task.scenario.context in seat
        assert [c.name for c in task.characters] == [c.name for c in original.characters]
        assert not any(c.occupation or c.personality or c.secret for c in task.characters)
        assert task.scenario.vignette == original.scenario.vignette
        assert task.scenario.conditions == {"language": language}


def test_a_language_is_a_name_that_a_task_source_takes_and_all_families_are_each_once():
    (task,) = task_set("briefing-zh:level=hard,n=1", None, 0, "medium")
    assert task.scenario.id == "briefing-zh-hard-0-0"
    assert not set(TRANSLATIONS) & set(FAMILIES)
    with pytest.raises(UnknownNameError, match="mini_mafia-es"):
        task_set("mini_mafia-se", 1, 0, "medium")
