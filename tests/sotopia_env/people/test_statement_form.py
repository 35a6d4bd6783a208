"""A person's form for what is said about facts: fields for every variable, read to the move that they stand for."""

import pytest

from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.people.seat.form import move_choices, read_action, statement_fields
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.observation import Observation, observe
from tests.sotopia_env.world.scenarios import play, say, verified_task


@pytest.fixture
def observation() -> Observation:
    """What seat 0, who knows the hour, may do once the ballot is open to it."""
    state = play(verified_task("facts", 3, True), Rules(max_silent_turns=0), say(), say(), say())
    return observe(state, "agent_0")


def choices(observation: Observation) -> dict[str, dict[str, str]]:
    assert observation.moves is not None
    return {field.label: dict(field.choices) for field in statement_fields(observation.moves)}


def test_each_variable_has_a_field_with_what_may_be_said_of_it(observation):
    fields = choices(observation)
    stated = ["say: one", "say: two", "say: three"]
    assert list(fields["hour"].values()) == ["say nothing of it", *stated, "prove what it is"]
    assert list(fields["code"].values()) == ["say nothing of it", "say: red", "say: green", "ask for it"]
    # The list of binding moves stays short.
    assert len(move_choices(observation.moves)) == 3


def test_fields_are_read_to_one_move_beside_a_vote(observation):
    names = {field.label: field.name for field in statement_fields(observation.moves)}
    fields = {"move": "2", names["hour"]: "show", names["code"]: "ask", names["role of seat 1"]: "state 0"}
    action = read_action(observation, {"argument": "Well.", **fields})
    assert action.move is not None
    assert action.move.to_json() == {"vote": "zoo", "state": {"role of seat 1": "wolf"}, "show": "hour", "ask": "code"}
    alone = read_action(observation, {names["hour"]: "show"}, ["agent_1"])
    assert alone.move is not None
    assert (alone.move.to_json(), alone.to) == ({"show": "hour"}, ("agent_1",))


def test_a_field_that_was_never_open_is_refused(observation):
    names = {field.label: field.name for field in statement_fields(observation.moves)}
    with pytest.raises(InvalidActionError, match="not available"):
        read_action(observation, {names["code"]: "show"})


def test_a_form_of_words_alone_stays_words(observation):
    assert read_action(observation, {"argument": "Hm."}).move is None
