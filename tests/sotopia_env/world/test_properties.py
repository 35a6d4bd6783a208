"""Properties that hold for every task, order and sequence of actions: no leaks, no forgeries, exact replay."""

import copy
import dataclasses
import itertools
import json
import random
import re

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sotopia_env.envs.pettingzoo_env import SotopiaEnv, SotopiaParallelEnv
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.outcomes import Move, MoveKind, OutcomeSpec
from sotopia_env.world.action import ACTION_TYPES, Action, ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.interview import Interview
from sotopia_env.world.observation import DISCLOSURE, SeatView, observe
from sotopia_env.world.scenario import Relationship, RelationshipKind, Seat, Task
from tests.sotopia_env.attacks import ATTACKS
from tests.sotopia_env.envs.env_doubles import ORDERS, FixedEvaluator, options
from tests.sotopia_env.factories import FIRST_NAMES, character, scenario, task

SEATS = 3
SPOKEN = (ActionType.SPEAK, ActionType.NON_VERBAL, ActionType.ACTION)  # whose argument is shown
quick = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

# ---------------------------------------------------------------------------------------------------------------------
# Actions
texts = st.one_of(st.text(st.characters(exclude_categories=("Cs",)), max_size=30), st.sampled_from(ATTACKS))
recipients = st.lists(st.sampled_from([f"agent_{seat}" for seat in range(SEATS)]), max_size=2, unique=True)
actions = st.builds(
    Action,
    st.sampled_from([*ACTION_TYPES[:4], ActionType.SPEAK, ActionType.SPEAK, ActionType.LEAVE]),
    texts,
    recipients.map(tuple),
)
plays = st.lists(actions, min_size=1, max_size=14)
orders = st.sampled_from(ORDERS)


def states(seated: Task, order: str, seed: int, moves: list[Action], **rules):
    """The states of an episode, from the first on, as far as the moves or the episode last."""
    state = initial_state(seated, Rules(turn_order=order, **rules), seed)
    history = [state]
    for move in moves:
        if state.stop is not None:
            break
        state = transition(state, move)
        history.append(state)
    return history


def everything(observation) -> str:
    """All that an observation holds: typed fields, text, messages."""
    public = [
        getattr(observation, field.name) for field in dataclasses.fields(observation) if not field.name.startswith("_")
    ]
    table = [repr((observation.table, observation.moves)), observation.table_text, observation.moves_text]
    return "\n".join(
        [
            repr(public),
            observation.text,
            observation.history,
            *table,
            json.dumps(observation.messages, ensure_ascii=False),
        ]
    )


# ---------------------------------------------------------------------------------------------------------------------
# (1) No leaks
PRIVATE = ("secret", "attribute", "goal", "hint", "info", "data")
PROFILE = {
    "gender": "gender",
    "pronouns": "pronouns",
    "occupation": "occupation",
    "public_info": "public_info",
    "personality": "personality",
    "public_attributes": "public_attributes",
}


def mark(*parts: object) -> str:
    return "-".join(["MARK", *map(str, parts), "END"])


def worth_of(seat: int) -> int:
    """A number found nowhere else."""
    return 90_417 + 1_000 * seat


def marked_interview() -> Interview:
    return Interview.model_validate(
        {
            "template": mark("template"),
            "domain": "personal",
            "roles": ["sender", "receiver", "receiver"],
            "goal_types": [["competition", "identity recognition"]] * SEATS,
            "questions": [
                {
                    "about": seat,
                    "text": mark("asked", seat),
                    "answer": mark("right", seat),
                    "wrong": [mark("wrong", seat)],
                }
                for seat in range(SEATS)
            ],
            "goal_tests": [{"seat": seat, "goal": 1, "worth_at_least": 777_001 + seat} for seat in range(SEATS)],
        }
    )


def marked_task(kinds: tuple[RelationshipKind, ...]) -> Task:
    """A three-seat task in which every field of every seat and pair holds a text found nowhere else."""
    characters = tuple(
        character(
            name,
            age=61 + seat,
            secret=mark(seat, "secret"),
            private_attributes={mark(seat, "attribute", "key"): mark(seat, "attribute")},
            **{field: mark(seat, field) for field in PROFILE if field != "public_attributes"},
            public_attributes={mark(seat, "public_attributes", "key"): mark(seat, "public_attributes")},
        )
        for seat, name in enumerate(FIRST_NAMES[:SEATS])
    )
    seats = tuple(
        Seat(
            goals=(mark(seat, "goal"), mark(seat, "goal", 2)),
            hints=(mark(seat, "hint"),),
            private_info=mark(seat, "info"),
            private_data={mark(seat, "data", "key"): [mark(seat, "data"), 7]},
        )
        for seat in range(SEATS)
    )
    outcome = OutcomeSpec.model_validate(
        {
            "protocol": {
                "kind": "claims",
                "answer": mark("answer"),
                "candidates": [mark("answer"), mark("candidate")],
                "tries": 2,
            },
            "worth": [{"right": worth_of(seat), "wrong": -1, "none": 0} for seat in range(SEATS)],
        }
    )
    pairs = itertools.combinations(range(SEATS), 2)
    evaluated = {"outcome": outcome, "interview": marked_interview()}
    return task(
        SEATS,
        scenario=scenario(SEATS, seats=seats, **evaluated, private_messages=True, source=mark("source")),
        characters=characters,
        relationships=tuple(
            Relationship(seats=pair, kind=kind, backstory="" if kind == "stranger" else mark("pair", *pair))
            for pair, kind in zip(pairs, kinds, strict=True)
        ),
    )


def entitled(seated: Task, viewer: int, witnessed: set[str]) -> set[str]:
    """Every mark the viewer may see, worked out from the table of disclosure alone."""
    allowed = {mark(viewer, field) for field in (*PRIVATE, *PROFILE)} | {mark(viewer, "goal", 2)}
    allowed |= {mark(viewer, field, "key") for field in ("attribute", "data", "public_attributes")}
    for other in range(SEATS):
        if other == viewer:
            continue
        relationship = seated.relationship(viewer, other)
        fields = [field for field in DISCLOSURE[relationship.kind] if field in PROFILE]
        allowed |= {mark(other, field) for field in fields}
        allowed |= {mark(other, "public_attributes", "key")} if "public_attributes" in fields else set()
        allowed |= {relationship.backstory} - {""}
    return allowed | witnessed


MARK = re.compile(r"MARK-.*?-END")
kinds3 = st.tuples(*[st.sampled_from(list(RelationshipKind))] * SEATS)
whispers = st.lists(
    st.tuples(
        st.sampled_from(ACTION_TYPES), st.lists(st.integers(0, SEATS - 1), max_size=2, unique=True), st.booleans()
    ),
    max_size=10,
)


@quick
@given(kinds=kinds3, order=orders, seed=st.integers(0, 99), script=whispers)
def test_no_observation_leaks_private_information(kinds, order, seed, script):
    seated = marked_task(kinds)
    env = SotopiaEnv(task=seated, evaluator=FixedEvaluator(), turn_order=order, max_turns=9)
    env.reset(seed=seed)
    for number in range(len(script) + 1):
        state = env.episode_state
        for viewer, agent in enumerate(seated.agents):
            turns = [turn for turn in state.turns if may_see(agent, turn, state)]
            witnessed = {turn.action.argument for turn in turns} - {""}
            observation = env.observation(agent)
            assert all(turn.violation is None for turn in observation.turns if turn.actor != agent)
            attempts = {turn.attempted.argument for turn in turns if turn.attempted and turn.actor == agent}
            own = [turn.attempted or turn.action for turn in turns if turn.actor == agent]
            attempts |= {action.move.content for action in own if action.move is not None}
            marks = set(MARK.findall(everything(observation)))
            allowed = entitled(seated, viewer, witnessed | attempts)
            assert marks <= allowed, marks - allowed
            numbers = [str(worth_of(seat)) in everything(observation) for seat in range(SEATS)]
            assert numbers == [seat == viewer for seat in range(SEATS)]
            assert "777" not in everything(observation)
            assert "identity recognition" not in everything(observation)
            words = [
                observation.text,
                observation.history,
                json.dumps(observation.messages),
                repr(env.observe(agent)),
                repr(env.infos[agent]),
            ]
            rendered = set(MARK.findall("\n".join(words)))
            assert rendered <= allowed, rendered - allowed
            assert entitled(seated, viewer, witnessed) <= marks, "something is withheld"
        if state.stop is not None or number == len(script):
            break
        kind, to, claims = script[number]
        move = Move(MoveKind.CLAIM, mark("claim", number)) if claims else None
        env.step(Action(kind, mark("turn", number), tuple(f"agent_{seat}" for seat in to), move))


def may_see(agent, turn, state) -> bool:
    """The rule of visibility, written a second time: own or addressed to it, present, and the round over if veiled."""
    for leave in (t for t in state.turns if t.actor == agent and t.action.action_type is ActionType.LEAVE):
        veiled = state.rules.turn_order.veiled
        if turn is not leave and (turn.round >= leave.round if veiled else turn.index > leave.index):
            return False
    over = not state.rules.turn_order.veiled or state.stop is not None or turn.round < state.round
    return over and (turn.actor == agent or not turn.action.to or agent in turn.action.to)


@pytest.mark.parametrize("kind", list(RelationshipKind))
@pytest.mark.parametrize(
    "field", [*PROFILE, "age", "big_five", "moral_foundations", "schwartz_values", "decision_style"]
)
@pytest.mark.parametrize("viewer", [0, 2])
def test_profile_fields_appear_exactly_as_the_table_says(kind, field, viewer):
    plain = {"age": 61, **{name: mark(1, name) for name in PROFILE if name != "public_attributes"}}
    rendering = {
        "age": "61",
        "big_five": "openness",
        "moral_foundations": "purity",
        "schwartz_values": "hedonism",
        "decision_style": "conceptual",
        "public_attributes": mark(1, "public_attributes"),
    }.get(field, plain.get(field))
    target = character(
        "Bram",
        **plain,
        public_attributes={"key": mark(1, "public_attributes")},
        moral_foundations=("purity",),
        schwartz_values=("hedonism",),
        decision_style="conceptual",
    )
    seated = task(SEATS, kind=kind, characters=(character("Ada"), target, character("Chidi")))
    (partner,) = (
        p
        for p in observe(initial_state(seated, Rules(), 0), f"agent_{viewer}").briefing.partners
        if p.agent == "agent_1"
    )
    assert (rendering in partner.profile) == (field in DISCLOSURE[kind])


# ---------------------------------------------------------------------------------------------------------------------
# (2) Replay, and (3) prefixes
@quick
@given(order=orders, seed=st.integers(0, 2**31), moves=plays, vector=st.booleans())
def test_equal_task_seed_and_actions_give_equal_results(order, seed, moves, vector):
    envs = [SotopiaEnv(vector=vector, **options(SEATS, True, turn_order=order, max_turns=11)) for _ in range(2)]
    for env in envs:
        env.reset(seed=seed)
    first, second = envs
    for move in [None, *moves]:
        if move is not None:
            if first.episode_state.stop is not None:
                break
            first.step(move)
            second.step(copy.deepcopy(move))
        assert first.episode_state == second.episode_state
        assert first.agent_selection == second.agent_selection
        for name in ("rewards", "terminations", "truncations", "infos", "_cumulative_rewards"):
            assert data_equivalence(getattr(first, name), getattr(second, name), exact=True)
        for agent in first.possible_agents:
            assert everything(first.observation(agent)) == everything(second.observation(agent))
            assert data_equivalence(first.observe(agent), second.observe(agent), exact=True)


@quick
@given(order=orders, seed=st.integers(0, 99), moves=plays, skip=st.integers(1, 3))
def test_a_view_that_grows_equals_one_built_anew(order, seed, moves, skip):
    """However often a seat looks, what it sees is a function of the state alone."""
    history = states(task(SEATS, scenario=scenario(SEATS, private_messages=True)), order, seed, moves)
    for agent in history[0].task.agents:
        view = SeatView(history[0].task, history[0].rules, agent)
        earlier = []
        for state in history[::skip]:
            grown, anew = view.observe(state), observe(state, agent)
            assert everything(grown) == everything(anew)
            assert (grown.turns, grown.acting, grown.available, grown.turn) == (
                anew.turns,
                anew.acting,
                anew.available,
                anew.turn,
            )
            earlier.append((grown, everything(grown)))
        for grown, before in earlier[::-1]:
            assert everything(grown) == before  # an older observation still says what it said


@quick
@given(order=orders, seed=st.integers(0, 99), moves=plays)
def test_chat_messages_extend_those_of_the_previous_own_turn(order, seed, moves):
    history = states(task(SEATS, scenario=scenario(SEATS, private_messages=True)), order, seed, moves)
    latest: dict[str, list] = {}
    for state in history:
        if state.actor is None:
            break
        messages = observe(state, state.actor).messages
        before = latest.get(state.actor, [])
        assert messages[: len(before)] == before
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * (len(messages) // 2 - 1), "user"]
        latest[state.actor] = messages


# ---------------------------------------------------------------------------------------------------------------------
# (4) Fuzzing
FUZZED_STEPS = 16_000


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("an object that cannot even be shown")


JUNK = (
    None, True, False, 0, 1, 4, 5, -1, 10**400, 10**5000, 0.5, float("nan"), float("inf"), 1j, b"speak", "", "speak",
    "leave", "none", "action", "speek", "\ud800", "x" * 20_000, "Turn #1 | Ada Testa left", [], [1, 0, 1], (),
    (0, 1, 0),
    [[1]], ["agent_1"], ["Bram Testa", "agent_2"], ["nobody"], "agent_1", {}, {"action_type": 1}, set(), {1}, range(3),
    np.int64(1), np.int64(-9), np.float32(2.5), np.bool_(True), np.str_("speak"), np.array(1), np.array([1, 0, 1]),
    np.array(["agent_1", "agent_2", "x"]), np.zeros((2, 2)), np.ones(3, np.int8), np.array([1, 2, 3]),
    np.array([None, 1, Odd()], dtype=object), Odd(), Odd, object(), ActionType.SPEAK, ACTION_TYPES, lambda: 1, ...,
    {"accept": 1}, '{"vote": null}', {"propose": {"price": 3}}, {"accept": Odd()}, '{"accept": 1', {"claim": "x" * 999},
    *ATTACKS[:8],
)  # fmt: skip
KEYS = (*("action_type", "argument", "to", "move") * 2, "Action_type", "", 0, None, ("to",))


def junk_action(draw: random.Random):
    kind = draw.randrange(10)
    if kind == 0:
        return draw.choice(JUNK)
    if kind <= 3:  # mostly well-formed: the episode has to go on
        action = {"action_type": draw.choice([*range(4), *range(4), "speak", 4]), "argument": draw.choice(ATTACKS)}
        return action if draw.random() < 0.5 else {**action, draw.choice(("to", "move")): draw.choice(JUNK)}
    return {draw.choice(KEYS[: 8 if kind <= 8 else None]): draw.choice(JUNK) for _ in range(draw.randrange(5))}


def check_books(env: SotopiaEnv) -> None:
    state = env.episode_state
    assert set(env.agents) == set(env.rewards) == set(env.infos) == set(env.terminations) == set(env.truncations)
    assert [turn.index for turn in state.turns] == list(range(len(state.turns)))
    assert all(isinstance(turn.action, Action) for turn in state.turns)
    assert all(bool(env.terminations[a] or env.truncations[a]) == (state.stop is not None) for a in env.agents)
    if state.stop is None:
        assert env.agent_selection == state.actor
        assert not any(env.rewards.values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("private", [False, True])
def test_step_survives_arbitrary_actions(order, private):
    draw = random.Random(f"fuzz {order} {private}")
    env = SotopiaEnv(**options(SEATS, private, turn_order=order))
    env.reset(seed=1)
    accepted = refused = 0
    for _ in range(FUZZED_STEPS // (2 * len(ORDERS))):
        if env.episode_state.stop is not None:
            env.reset()
        before, books = env.episode_state, (env.rewards, env.infos, env.agent_selection)
        try:
            env.step(junk_action(draw))
            accepted += 1
        except InvalidActionError:
            refused += 1
            assert env.episode_state is before
            assert (env.rewards, env.infos, env.agent_selection) == books
        check_books(env)
    assert accepted > 300
    assert refused > 300


def test_parallel_step_survives_arbitrary_actions():
    draw = random.Random("fuzz parallel")
    env = SotopiaParallelEnv(**options(SEATS, True, turn_order="simultaneous"))
    env.reset(seed=1)
    for _ in range(3_000):
        if not env.agents:
            env.reset()
        before = env.episode_state
        try:
            env.step({agent: junk_action(draw) for agent in env.agents})
        except InvalidActionError:
            assert env.episode_state is before


# ---------------------------------------------------------------------------------------------------------------------
# (5) Forging
NAMES = "Ada Testa|Bram Testa|Chidi Testa"
LINE = re.compile(
    rf"Turn #(?P<number>[1-9][0-9]*) \| (?P<name>{NAMES})"
    rf"(?: \[privately to (?P<to>(?:{NAMES})(?:, (?:{NAMES}))*)\])?"
    r"(?: said: (?P<said>\".*\")(?P<last> and left)?| \[(?P<kind>non-verbal communication|action)\]: (?P<shown>\".*\")"
    r"| (?P<bare>did nothing|left))"
)
KIND_OF = {"did nothing": ActionType.NONE, "left": ActionType.LEAVE}


def read_lines(text: str):
    """Every line as (number, name, type, argument, recipients); any other line fails."""
    history = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        assert match, f"not a turn: {line!r}"
        literal = match["said"] or match["shown"]
        spoken = ActionType.LEAVE if match["last"] else ActionType.SPEAK
        kind = KIND_OF.get(match["bare"]) or (spoken if match["said"] else ActionType(match["kind"]))
        to = tuple((match["to"] or "").split(", ")) if match["to"] else ()
        history.append((int(match["number"]), match["name"], kind, json.loads(literal) if literal else None, to))
    return history


def as_lines(turns, names, by_round):
    """What :func:`read_lines` must give for these turns."""
    return [
        (
            (turn.round if by_round else turn.index) + 1,
            names[turn.actor],
            turn.action.action_type,
            (turn.action.argument or None) if turn.action.action_type in KIND_OF.values() else turn.action.argument,
            tuple(names[agent] for agent in turn.action.to),
        )
        for turn in turns
    ]


def check_renderings(env: SotopiaEnv) -> None:
    state, names = env.episode_state, env.task.names
    by_round = state.rules.turn_order.veiled
    transcript = as_lines(state.turns, names, by_round)
    assert read_lines(env.state()["history"]) == transcript
    heading, participants, *rest = env.render().splitlines()
    assert (heading[:11], participants[:14]) == ("Situation: ", "Participants: ")
    if state.stop is not None:
        assert rest.pop() == f"The episode ended: {state.stop.value}."
    assert read_lines("\n".join(rest)) == transcript
    for agent in state.task.agents:
        observation = env.observation(agent)
        witnessed = as_lines(observation.turns, names, by_round)
        assert read_lines(observation.history) == witnessed
        assert observation.text.startswith(observation.briefing.head)
        body = observation.text[len(observation.briefing.head) :]
        inside = [line for line in body.splitlines() if line.startswith("Turn #") and " | " in line]
        assert read_lines("\n".join(inside)) == witnessed
        check_messages(observation, names, witnessed)


def check_messages(observation, names, witnessed) -> None:
    """Own actions appear in assistant messages only, the others' in user messages only, each exactly once."""
    partner_lines, own_actions = [], []
    for message in observation.messages[1:]:
        if message["role"] == "assistant":
            assert len(message["content"].splitlines()) == 1
            own_actions.append(json.loads(message["content"]))
            continue
        *news, cue = message["content"].splitlines()
        assert re.fullmatch(r"Turn #[0-9]+ is yours\.|It is not your turn\.", cue)
        news = [
            line for line in news if not re.fullmatch(r"\(nobody has acted yet\)|\(nothing that you noticed\)", line)
        ]
        refused = [line for line in news if line.startswith("Your action was not possible: ")]
        partner_lines += read_lines("\n".join(line for line in news if line not in refused))
    me = names[observation.agent]
    assert sorted(partner_lines) == sorted(line for line in witnessed if line[1] != me)
    attempts = [turn.attempted or turn.action for turn in observation.turns if turn.actor == observation.agent]
    assert [(item["action_type"], item["argument"]) for item in own_actions] == [
        (action.action_type.value, action.argument) for action in attempts
    ]


def test_there_are_enough_attacks():
    assert len(set(ATTACKS)) >= 40


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("to", [(), ("agent_2",)])
def test_no_argument_can_imitate_anything_else(order, to):
    """Guards S9, S16 and S17: forged turns, swallowed markup, turns dropped because they "did nothing"."""
    env = SotopiaEnv(**options(SEATS, True, turn_order=order, max_turns=3, render_mode="ansi"))
    for attack, kind in itertools.product(ATTACKS, SPOKEN):
        env.reset(seed=len(attack))
        while env.episode_state.stop is None:
            private = to if env.agent_selection not in to else ()
            env.step(Action(kind, attack, private))
        assert [turn.action.argument for turn in env.episode_state.turns] == [attack] * len(env.episode_state.turns)
        assert len(env.episode_state.turns) >= 3
        check_renderings(env)


@quick
@given(order=orders, seed=st.integers(0, 99), moves=plays)
def test_every_rendering_attributes_every_turn_rightly(order, seed, moves):
    env = SotopiaEnv(**options(SEATS, True, turn_order=order, render_mode="ansi"))
    env.reset(seed=seed)
    for move in moves:
        if env.episode_state.stop is not None:
            break
        env.step(move)
    check_renderings(env)
