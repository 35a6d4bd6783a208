"""Words beside moves: in the family's style, in plain English elsewhere, the same for the same seed."""

from __future__ import annotations

from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.outcomes import InvalidMoveError, Move, MoveKind, OutcomeSpec
from sotopia_env.tasks.families.mutual_friend import beliefs
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.scenario import Task
from tests.errors import raises

SPEECH = ActionType.SPEAK
GENERIC = {
    "protocol": {"kind": "agreement"},
    "issues": [
        {"name": "rent", "kind": "number", "low": 0, "high": 900, "unit": "$"},
        {"name": "room", "kind": "choice", "options": ["attic", "cellar"]},
        {"name": "keys", "kind": "items", "count": 3},
    ],
    "worth": [
        {"issues": {"rent": {"per_unit": sign}, "room": {"attic": 1, "cellar": 0}, "keys": {"each": 2}}}
        for sign in (1, -1)
    ],
}
BALLOT = {
    "protocol": {"kind": "ballot", "options": ["lake", "museum"]},
    "worth": [{"options": {"lake": 1, "museum": 0}}, {"options": {"lake": 0, "museum": 1}}],
}
CLAIMS = {
    "protocol": {"kind": "claims", "candidates": ["Ana", "Ben"], "answer": "Ana"},
    "worth": [{"right": 1}, {"right": 1}],
}


def with_outcome(task: Task, outcome: dict[str, Any]) -> Task:
    scenario = task.scenario.model_copy(update={"outcome": OutcomeSpec.model_validate(outcome)})
    return Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)


def speak(state: EpisodeState, words: str, move: Move | None = None) -> EpisodeState:
    state = transition(state, Action(SPEECH, words, move=move))
    assert state.turns[-1].violation is None
    return state


def words_for(state: EpisodeState, kind: str, content: Any, seed: int = 0) -> str:
    return tasks.phrase(observe(state, state.actor or ""), Move(MoveKind(kind), content), seed)


@pytest.fixture
def plain() -> EpisodeState:
    """A scenario of no family in which the first seat has made an offer."""
    task = with_outcome(tasks.starter_tasks()[0], GENERIC)
    terms = {"rent": 840, "room": "attic", "keys": {"agent_0": 2, "agent_1": 1}}
    return speak(initial_state(task, Rules(), 0), "", Move(MoveKind.PROPOSE, terms))


@pytest.mark.parametrize("kind", ["accept", "reject"])
@pytest.mark.parametrize("number", [1, True])
def test_answers_name_the_terms_of_the_offer(plain: EpisodeState, kind: str, number: int) -> None:
    words = words_for(plain, kind, number)
    assert "rent $840" in words
    assert "room attic" in words
    assert f"{plain.task.characters[0].name} 2" in words


def test_offers_are_read_in_any_spelling_and_withdrawn_with_their_terms(plain: EpisodeState) -> None:
    offer = {"rent": "$1", "room": "CELLAR", "keys": {"agent_1": 3}}
    assert "rent $1, room cellar" in words_for(plain, "propose", offer)
    assert "rent $840" in words_for(speak(plain, "Well."), "withdraw", True)
    with raises(InvalidMoveError, field="rent", nearest="$900"):
        words_for(plain, "propose", {**offer, "rent": 1000})


@pytest.mark.parametrize("kind", ["accept", "reject", "withdraw"])
def test_an_offer_that_is_not_on_the_table_gets_words_without_terms(plain: EpisodeState, kind: str) -> None:
    assert "$" not in words_for(plain, kind, 9)


def test_votes_and_claims_have_words_in_any_scenario() -> None:
    base = tasks.starter_tasks()[0]
    state = initial_state(with_outcome(base, BALLOT), Rules(), 0)
    assert "lake" in words_for(state, "vote", "lake")
    state = speak(state, "", Move(MoveKind.VOTE, "lake"))
    assert any(word in words_for(state, "vote", "lake") for word in ("join", "too"))
    assert "lake" not in words_for(state, "vote", None)
    state = initial_state(with_outcome(base, CLAIMS), Rules(), 0)
    assert "Ana" in words_for(state, "claim", "Ana")
    assert words_for(speak(state, "I guess Ana."), "claim", "Ana").startswith(("Yes", "I say so too"))


def test_a_rewritten_task_of_a_family_falls_back_to_plain_words() -> None:
    for name in ("bargaining", "division", "hiring", "campsite", "job_committee"):
        task = tasks.family(name).generate(0, 0, "easy")
        if len(task.agents) == 2:
            state = initial_state(with_outcome(task, GENERIC), Rules(), 0)
            offer = {"rent": 5, "room": "attic", "keys": {"agent_0": 3}}
            assert "rent $5, room attic" in words_for(state, "propose", offer)


@pytest.mark.parametrize("name", list(tasks.FAMILIES))
def test_every_phrasing_of_a_family_can_be_filled(name: str) -> None:
    task = tasks.family(name).generate(0, 0, "easy")
    state = initial_state(task, Rules(), 0)
    observation = observe(state, state.actor or "")
    space, kind = observation.briefing.space, observation.briefing.protocol
    assert space is not None
    contents = {
        "agreement": ("propose", space.terms_at(space.size - 1) if space.issues else None),
        "ballot": ("vote", space.terms_at(0).get("option")),
        "claims": ("claim", "Ana Lee"),
        "choices": (
            "state",
            {f"choice of {observation.briefing.name}": space.terms_at(0).get(observation.briefing.name)},
        ),
    }
    phrases = {words_for(state, *contents[kind], seed) for seed in range(200)}
    assert len(phrases) >= 5
    assert all("{" not in words for words in phrases)
    assert words_for(state, *contents[kind], 3) == words_for(state, *contents[kind], 3)


def test_facts_are_shared_one_friend_at_a_time_and_only_once() -> None:
    task = tasks.family("mutual_friend").generate(0, 0, "medium")
    state = initial_state(task, Rules(max_turns=99, max_silent_turns=0), 0)
    names = [friend["name"] for friend in task.scenario.seats[0].private_data["friends"]]
    for name in names:
        words = tasks.share(observe(state, "agent_0"), 1)
        assert words is not None
        assert name in words
        state = speak(speak(state, words), "Hm.")
    assert tasks.share(observe(state, "agent_0"), 1) is None


@pytest.mark.parametrize("name", [name for name in tasks.FAMILIES if name != "mutual_friend"])
def test_other_families_have_no_facts_to_tell(name: str) -> None:
    task = tasks.family(name).generate(0, 0, "easy")
    assert tasks.share(observe(initial_state(task, Rules(), 0), "agent_0"), 0) is None


@pytest.mark.parametrize("level", tasks.LEVELS)
def test_two_seats_that_tell_their_facts_find_the_friend(level: str) -> None:
    for task in tasks.generate("mutual_friend", 10, seed=3, level=level):
        state = initial_state(task, Rules(max_turns=40), 0)
        while state.stop is None:
            observation = observe(state, state.actor or "")
            odds = beliefs(observation)
            name = max(odds, key=odds.__getitem__)
            move = Move(MoveKind.CLAIM, name) if odds[name] > 0.8 and observation.moves else None
            words = tasks.phrase(observation, move, 0) if move else tasks.share(observation, 0)
            state = speak(state, words or "Let me think.", move)
        assert outcome_of(task, state.turns).payoffs == (1.0, 1.0), task.id
