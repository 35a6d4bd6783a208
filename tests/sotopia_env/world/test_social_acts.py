"""Classes of statements: by what the speaker knew at its turn, for researchers and never for seats."""

import json

import pytest

from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import InvalidMoveError, Move, variants
from sotopia_env.outcomes.facts import ActClass
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.protocols.ballot import Ballot
from sotopia_env.reports.transcript import act_rows, to_text
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, transition
from sotopia_env.world.episode import Episode, RecordedTurn
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import social_acts
from tests.sotopia_env.world.scenarios import play, say, verified_task

RULES = Rules(max_turns=12, max_silent_turns=0)
WOLF, SEER, SHEEP = (f"role of seat {seat}" for seat in range(3))


def statement(**parts: object) -> Action:
    """What an agent says with statements, perhaps beside a vote."""
    return Action(ActionType.SPEAK, "Well.", move=read_move(parts))


def classes(*actions: Action, kind: str = "facts") -> list[tuple[str, ...]]:
    state = play(verified_task(kind, 3, True), RULES, *actions)
    return [tuple(act.classes) for act in social_acts(state.task, state.turns)]


# The wolf (seat 0) knows the hour, the seer (1) all roles, the sheep (2) the code.
CASES = [
    ([say(state={"hour": "two"})], [("honest",)]),
    ([say(state={"hour": "one"})], [("lie",)]),
    ([say(), say(state={"hour": "two"})], [("unfounded",)]),
    ([say(state={SEER: "seer"})], [("unfounded", "right")]),
    ([say(state={SEER: "wolf"})], [("lie", "wrong")]),  # there is one wolf, and it knows itself
    ([say(), say(state={WOLF: "wolf"})], [("honest", "right")]),
    ([say(state={WOLF: "sheep"})], [("lie",)]),
    # What was proved in between is known from then on.
    ([say(show="hour"), say(state={"hour": "two"})], [(), ("honest",)]),
    ([say("", "agent_2", show="hour"), say(state={"hour": "two"})], [(), ("unfounded",)]),
    ([say(show=WOLF), say(), say(state={SEER: "seer"})], [(), ("honest", "right")]),
    # A promise is kept or broken by the vote, and void without one.
    ([say(), say(state={"vote of seat 1": "zoo"})], [("void",)]),
    ([say(), say(state={"vote of seat 1": "zoo"}), *[say()] * 2, say(vote="zoo")], [("kept",)]),
    ([say(), say(state={"vote of seat 1": "zoo"}), *[say()] * 2, say(vote="lake")], [("broken",)]),
    ([say(state={"vote of seat 1": "zoo"})], [("unfounded",)]),
    ([say(ask=["hour", "code"])], [(), ()]),
]


@pytest.mark.parametrize(("actions", "expected"), CASES)
def test_a_class_follows_from_the_knowledge_at_the_turn(actions, expected):
    assert classes(*actions) == expected


class Rounds(Ballot):
    """A ballot that is held again for the next round as soon as it closes; the state is the ballots so far."""

    def initial(self):
        return (super().initial(),)

    def menu(self, state, seat):
        return super().menu(state[-1], seat)

    def apply(self, state, seat, move, visible_to=None, basis=None):
        ballot, effect = super().apply(state[-1], seat, move)
        return (*state[:-1], ballot, *([] if ballot.waiting else self.initial())), effect

    def choices(self, state, seat):
        return tuple(super(Rounds, self).choices(ballot, seat)[0] for ballot in state)

    def leave(self, state, seat):
        return state

    def advance(self, state, seat):
        return state

    def settled(self, state):
        return False

    def table(self, state, seat):
        return super().table(state[-1], seat)


def vote_promise(option: str, **more: str) -> Action:
    return statement(state={"vote of seat 1": option}, **more)


ROUNDS = [
    # The promise of the first round is kept in it, whatever the second brings.
    ([say(), vote_promise("zoo")], ["zoo", "lake"], [("kept",)]),
    ([say(), vote_promise("lake")], ["zoo", "lake"], [("broken",)]),
    # A promise that goes with the vote itself, and one of the second round.
    ([say(), say()], ["zoo+zoo", "lake"], [("kept",)]),
    ([say(), say()], ["zoo", "lake+zoo"], [("broken",)]),
    # The third round never comes to its vote.
    ([], ["zoo", "lake", "-zoo"], [("void",)]),
]


@pytest.mark.parametrize(("talk", "votes", "expected"), ROUNDS)
def test_a_promise_is_about_the_choice_of_its_own_round(talk, votes, expected, monkeypatch):
    monkeypatch.setitem(variants._VARIANTS, "rounds", Rounds)
    base = verified_task("facts", 3, True)
    rules = base.scenario.outcome.protocol.model_copy(update={"variant": "rounds", "opens": 0, "secret": False})
    outcome = base.scenario.outcome.model_copy(update={"protocol": rules})
    task = Task(
        id="rounds",
        scenario=base.scenario.model_copy(update={"outcome": outcome}),
        characters=base.characters,
        relationships=base.relationships,
    )
    actions = [*talk, *[say()] * (-len(talk) % 3)]
    for text in votes:
        option, _, promise = text.partition("+")
        own = vote_promise(option[1:]) if option[0] == "-" else say(vote=option)
        actions += [say(vote="lake"), vote_promise(promise, vote=option) if promise else own, say(vote="lake")]
    state = play(task, Rules(max_turns=30, max_silent_turns=0), *actions)
    assert [tuple(act.classes) for act in social_acts(task, state.turns)] == expected


def test_statements_of_a_simultaneous_round_are_classed_by_what_was_known_before_it():
    rules = Rules(max_turns=12, max_silent_turns=0, turn_order="simultaneous")
    actions = [say(show="hour"), say(state={"hour": "two"}), say(), say(), say(state={"hour": "two"}), say()]
    state = play(verified_task("facts", 3, True), rules, *actions)
    assert [tuple(act.classes) for act in social_acts(state.task, state.turns)] == [(), ("unfounded",), ("honest",)]


def record(state) -> Episode:
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    return Episode(key="k", task=state.task, rules=state.rules, seed=state.seed, turns=turns, stop=state.stop)


def test_researchers_read_the_classes_and_seats_never_do():
    task = verified_task("facts", 3, True)
    state = play(task, RULES, *[say(state={"hour": "one"}), say(), say(state={SEER: "sheep"}), *[say()] * 3])
    for vote in ("zoo", "zoo", "zoo"):
        state = transition(state, say(vote=vote))
    episode = record(state)
    assert "hour: lie" in to_text(episode)
    assert [row["classes"] for row in act_rows([episode])] == ["lie", "lie wrong"]
    for agent in task.agents:
        observation = observe(state, agent)
        text = json.dumps([observation.text, observation.messages, observation.table and observation.table.to_json()])
        assert [name for name in ActClass if f": {name}" in text] == []


def test_one_move_holds_statements_beside_a_vote_and_all_count_or_none():
    state = play(verified_task("facts", 3, True), RULES, say(), say(), say())
    after = transition(state, statement(vote="zoo", state={"hour": "one"}, show="hour", ask="code"))
    turn = after.turns[-1]
    assert (turn.violation, turn.action.move.to_json()) == (
        None, {"vote": "zoo", "state": {"hour": "one"}, "show": "hour", "ask": "code"},
    )  # fmt: skip
    # The vote is secret, the statements are not.
    assert turn.hidden == "votes (secretly); states hour = one; proves hour = two; asks for code"
    refused = transition(state, statement(vote="zoo", show="code"))
    assert refused.turns[-1].violation
    assert refused.table.inner.votes == state.table.inner.votes


BAD = [
    ({"show": "code"}, ["only what you know yourself", "code", "'state' asserts"]),
    ({"show": WOLF, "state": {"hour": "noon"}}, ["hour", "noon", "one"]),
    ({"state": {"hous": "one"}}, ["hous", "hour"]),
    ({"ask": ["hour", "weather"]}, ["weather", "hour"]),
    ({"state": {}}, ["values by variable"]),
    ({"state": "two"}, ["values by variable"]),
    ({"show": []}, ["name of a variable"]),
    ({"vote": "zoo", "claim": "x"}, ["exactly one of", "or statements"]),
]


@pytest.mark.parametrize(("move", "parts"), BAD)
def test_impossible_statements_are_refused_in_one_sentence(move, parts):
    try:
        state = play(verified_task("facts", 3, True), RULES, Action(ActionType.SPEAK, "Well.", move=read_move(move)))
        problem = state.turns[0].violation or ""
    except (InvalidMoveError, InvalidActionError) as error:
        problem = str(error)
    assert [part for part in parts if part not in problem] == []
    assert len(problem.splitlines()) == 1


def test_a_variable_without_evidence_cannot_be_shown():
    state = play(verified_task("facts", 3, True), RULES, say(), say(), say(show="code"))
    assert "no evidence" in state.turns[-1].violation


def test_moves_of_statements_alone_bind_nobody():
    move = read_move({"ask": "hour", "state": {"code": "red"}})
    assert move.binding is None
    assert read_move({"vote": "zoo", "ask": "hour"}).binding == Move.of_parts(
        [(read_move({"vote": "zoo"}).kind, "zoo")]
    )
