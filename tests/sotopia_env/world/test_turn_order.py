"""Reactive order: who acts when, checked against the rule written a second time; silence, limits, waits and leaks."""

import asyncio
import dataclasses
import itertools
import json
import random
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.policies.function_calls import FUNCTIONS, call_of, functions_of, with_calls
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.tasks.families.registry import generate
from sotopia_env.testing import FixedEvaluator, ScriptedChatModel
from sotopia_env.world.action import MAX_WAIT, Action, ActionType, ParseFailure, parse, to_json
from sotopia_env.world.dynamics import EpisodeState, Rules, StopReason, initial_state, transition
from sotopia_env.world.episode import Episode, read_episode, replay, to_line
from sotopia_env.world.observation import observe
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import final_table
from sotopia_env.world.turn_order import TurnOrder
from tests.sotopia_env.world.scenarios import KINDS, random_action, random_states, say, verified_task

NONE, LEAVE = Action(ActionType.NONE), Action(ActionType.LEAVE)
RULES = Rules(turn_order=TurnOrder.REACTIVE)
CASES = [
    *((kind, seats, private) for kind in ("", *KINDS) for seats in (2, 5) for private in (False, seats > 2)),
    *(("", 50, True), ("ballot", 50, False), ("secret ballot", 50, True), ("agreement", 50, False)),
]
FAMILIES = ("bargaining", "division", "mutual_friend", "hiring", "group_decision", "job_committee")


def with_waits(state: EpisodeState, rng: random.Random) -> Action:
    """A random action; a fifth of them name a time."""
    action = random_action(state, rng, 0.01)
    return dataclasses.replace(action, wait=rng.randint(1, 9)) if rng.random() < 0.2 else action


def play(task: Task, seed: int, **rules: object) -> list[EpisodeState]:
    state, rng = initial_state(task, dataclasses.replace(RULES, **rules), seed), random.Random(seed)
    states = [state]
    while state.stop is None:
        state = transition(state, with_waits(state, rng))
        states.append(state)
    return states


def episodes(kind: str, seats: int, private: bool) -> Iterator[list[EpisodeState]]:
    for seed in range(2 if seats == 50 else 6):
        yield play(verified_task(kind, seats, private), seed, max_turns=2 * seats + 20, end_when_settled=seed % 2 == 0)


every_case = pytest.mark.parametrize(("kind", "seats", "private"), CASES)


def chance(state: EpisodeState, now: int, seat: int) -> float:
    generator = random.Random(f"turn order {state.seed} {now}")
    return [generator.random() for _ in range(seat + 1)][seat]


def time_of_next_turn(last: EpisodeState, agent: str, since: int) -> int:
    """The rule, written a second time: when ``agent`` acts that last acted at ``since``, -1 for never."""
    seats, seat = len(last.task.agents), last.task.agents.index(agent)
    own = [turn for turn in last.turns if turn.actor == agent and turn.round == since]
    if own and own[0].action.wait is not None:
        return since + own[0].action.wait
    news = [
        turn.round
        for turn in last.turns
        if turn.actor != agent
        and turn.round >= since
        and not turn.action.silent
        and (not turn.action.to or agent in turn.action.to)
    ]
    if not own:  # the situation reaches every seat, and the clock starts with the first action
        delays = [int(chance(last, -1, other) * seats) for other in range(seats)]
        return delays[seat] - min(delays)
    first = min(news, default=None)
    by_itself = since + 1 + int(chance(last, since, seat) * 2 * seats)
    if first is None:
        return by_itself
    answer = first + 1 + int(chance(last, first, seat) * seats)
    # What arrives at the same time as the own turn, or before the seat speaks by itself, is answered.
    if first == since:
        return answer
    return by_itself if first >= by_itself else min(answer, by_itself)


@every_case
def test_every_seat_acts_when_the_rule_says_and_never_sees_those_who_act_at_the_same_time(kind, seats, private):
    for states in episodes(kind, seats, private):
        last = states[-1]
        assert [turn.index for turn in last.turns] == list(range(len(last.turns)))
        assert all(turn.veiled for turn in last.turns)
        ticks = [(number, [*turns]) for number, turns in itertools.groupby(last.turns, lambda turn: turn.round)]
        assert [number for number, _ in ticks] == sorted({number for number, _ in ticks})
        for _, turns in ticks:
            assert [last.task.seat_of[turn.actor] for turn in turns] == sorted(
                {last.task.seat_of[turn.actor] for turn in turns}
            )
        for agent in last.task.agents:
            times = [-1, *(turn.round for turn in last.turns if turn.actor == agent)]
            for since, time in itertools.pairwise(times):
                assert time == time_of_next_turn(last, agent, since)
            if agent not in last.left:
                assert time_of_next_turn(last, agent, times[-1]) > last.turns[-1].round or last.stop is None


@every_case
def test_the_record_has_the_clock_and_replays_from_its_line(kind, seats, private):
    waits = 0
    for states in episodes(kind, seats, private):
        last = states[-1]
        line = to_line(Episode.of_state(last))
        episode = read_episode(line, "here")
        assert to_line(episode) == line
        assert replay(episode) == last
        waits += sum(turn.action.wait is not None for turn in episode.plain_turns)
        if kind:
            assert final_table(last.task, last.turns) == (last.table, last.settled_after)
    assert waits


@every_case
def test_moves_that_are_open_count_unless_one_at_the_same_time_closed_them(kind, seats, private):
    for states in episodes(kind, seats, private):
        for before, after in itertools.pairwise(states):
            turn = after.turns[-1]
            if turn.attempted is not None and turn.attempted.move is not None:
                together = [other for other in before.turns if other.round == turn.round]
                outside = turn.attempted.to and seats > 2  # a private offer reaches too few to be accepted
                assert any(other.action.move or other.action.action_type == "leave" for other in together) or outside


@every_case
def test_no_seat_learns_when_another_wants_to_act(kind, seats, private):
    for states in episodes(kind, seats, private):
        last = states[-1]
        for agent in last.task.agents[:5]:
            observation = observe(last, agent)
            assert all(turn.action.wait is None for turn in observation.turns if turn.actor != agent)
            others = [message["content"] for message in observation.messages[1:] if message["role"] == "user"]
            assert "wait" not in "".join([observation.history, *others])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_times_of_a_seat_do_not_depend_on_what_it_cannot_see(family):
    (task,) = generate(family, 1, 3)
    task = task.model_copy(update={"scenario": task.scenario.model_copy(update={"private_messages": True})})
    for seed in range(20):
        states = play(task, seed)
        for before in states[:-1]:
            others = [agent for agent in before.active if agent != before.actor]
            if not others:
                continue
            private = transition(before, say("Between us.", others[0]))
            silent = transition(before, NONE)
            if private.stop or silent.stop or private.round == silent.round == before.round:
                continue
            for agent in others[1:]:
                seat = task.seat_of[agent]
                assert private.appointments[seat] == silent.appointments[seat]
            for agent in others:
                # The actor's own plan changes no other seat's plan.
                seat = task.seat_of[agent]
                later = transition(before, dataclasses.replace(NONE, wait=7))
                if later.stop is None and later.round != before.round:
                    assert later.appointments[seat] == silent.appointments[seat]


@pytest.mark.parametrize("seats", [2, 5, 50])
def test_a_time_that_a_seat_names_is_kept_whatever_happens(seats):
    state, named = initial_state(verified_task("", seats), dataclasses.replace(RULES, max_turns=8 * seats), 1), {}
    while state.stop is None:
        agent, wait = state.actor, 1 + len(state.turns) % 7
        assert named.pop(agent, state.round) == state.round
        named[agent] = state.round + wait
        state = transition(state, Action(ActionType.SPEAK, "Now.", wait=wait))
    assert state.stop is StopReason.TURN_LIMIT
    assert 8 * seats <= len(state.turns) < 9 * seats


def test_a_silent_seat_does_not_end_the_episode_while_others_have_something_to_read():
    for seed in range(30):
        state = initial_state(verified_task("", 5), RULES, seed)
        loud = state.actor
        while state.stop is None:
            words = say("Who is for it?") if not state.turns else NONE
            hurried = dataclasses.replace(words, wait=1) if state.actor == loud and len(state.turns) < 12 else words
            state = transition(state, hurried)
        assert state.stop in (StopReason.SILENCE, StopReason.TURN_LIMIT)
        first = state.turns[0].round
        assert {turn.actor for turn in state.turns if turn.round > first} >= {*state.task.agents} - {loud}


@pytest.mark.parametrize("seats", [2, 5, 50])
def test_silence_of_all_seats_or_the_clock_ends_the_episode(seats):
    state = initial_state(verified_task("", seats), dataclasses.replace(RULES, max_turns=1_000), 0)
    while state.stop is None:
        state = transition(state, NONE)
    assert state.stop is StopReason.SILENCE
    assert {turn.actor for turn in state.turns} == {*state.task.agents}
    state = initial_state(verified_task("", seats), dataclasses.replace(RULES, max_rounds=12, max_silent_turns=0), 0)
    while state.stop is None:
        state = transition(state, say())
    assert state.stop is StopReason.TURN_LIMIT
    assert state.turns[-1].round < 12


@pytest.mark.parametrize("seats", [2, 5, 50])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_limit_on_rounds_leaves_room_for_the_first_action_and_none_after_it(seats, rounds):
    for seed in range(60):
        state = initial_state(verified_task("", seats), dataclasses.replace(RULES, max_rounds=rounds), seed)
        assert state.round == 0
        while state.stop is None:
            assert observe(state, state.actor).own_turns_left() > 0
            state = transition(state, say())
        assert state.stop is StopReason.TURN_LIMIT
        assert {turn.round for turn in state.turns} <= {*range(rounds)}


def test_a_seat_that_left_does_not_act_and_a_single_remaining_seat_ends_the_episode():
    state, left = initial_state(verified_task("ballot", 5), RULES, 4), set()
    while state.stop is None:
        assert state.actor not in left
        left.add(state.actor)
        state = transition(state, LEAVE)
    assert state.stop is StopReason.LEFT


@pytest.mark.parametrize("order", TurnOrder)
def test_a_wait_changes_times_only_where_the_order_leaves_them_open(order):
    def actors(wait: int | None) -> list[tuple[int, str]]:
        state = initial_state(verified_task("", 5), Rules(turn_order=order, max_turns=30), 2)
        while state.stop is None:
            state = transition(state, Action(ActionType.SPEAK, "Yes.", wait=wait))
        return [(turn.round, turn.actor) for turn in state.turns]

    assert (actors(None) == actors(40)) == (order is not TurnOrder.REACTIVE)


class Slow:
    """Speaks after a random time on the wall clock, different in every process and for every request."""

    name, parameters = "slow", {}

    async def act(self, observation, seed):
        await asyncio.sleep(random.SystemRandom().uniform(0, 0.004))
        unread = len(observation.unread)
        return Decision(Action(ActionType.SPEAK, f"{seed} {unread}", wait=3 if unread > 2 else None))


@pytest.mark.parametrize("seats", [2, 5, 50])
def test_how_long_policies_think_changes_nothing(seats):
    def lines() -> str:
        table = Table(verified_task("", seats), dataclasses.replace(RULES, max_turns=60), 3)
        asyncio.run(table.play(Slow()))
        return to_line(table.episode().model_copy(update={"duration": 0.0}))

    assert lines() == lines()


def test_the_queue_holds_the_turns_since_the_seats_last_one():
    for states in episodes("agreement", 5, True):
        for state in states:
            for agent in state.task.agents:
                observation = observe(state, agent)
                own = [turn.round for turn in state.turns if turn.actor == agent and turn in observation.turns]
                waiting = [
                    turn for turn in observation.turns if turn.actor != agent and (not own or turn.round >= own[-1])
                ]
                assert list(observation.unread) == waiting
    for state in random_states(verified_task("", 5), Rules(max_turns=12), 1):
        if state.actor is not None and len(state.turns) >= 5:
            assert len(observe(state, state.actor).unread) == 4


# ---------------------------------------------------------------------------------------------------------------------
# Models
@pytest.mark.parametrize("format_", ["chat", "single", "brief", "tools"])
def test_a_model_names_its_time_and_sees_its_earlier_choice(format_):
    task = verified_task("agreement", 2)
    model = ScriptedChatModel(lambda request: '{"action_type": "speak", "argument": "Later.", "wait": 4}')
    other = ScriptedChatModel(lambda request: '{"action_type": "speak", "argument": "Well?", "wait": null}')
    table = Table(task, dataclasses.replace(RULES, max_turns=8), 1)
    policies = {agent: LLMPolicy(each, format=format_) for agent, each in zip(task.agents, (model, other), strict=True)}
    asyncio.run(table.play(policies))
    times = [item.turn.round for item in table.turns if item.turn.actor == "agent_0"]
    assert {later - time for time, later in itertools.pairwise(times)} == {4}
    assert len(times) > 1
    roles = ("user", "tool")
    theirs = "".join(m["content"] for request in other.requests for m in request.messages if m["role"] in roles)
    assert "Later." in theirs
    assert '"wait": 4' not in theirs
    # The brief format has no instructions.
    instructed = ["steps of time" in str(request.messages) for request in model.requests]
    assert set(instructed) == {format_ != "brief"}
    assert "steps of time" not in Table(task).observe("agent_0").text


def test_functions_and_schema_have_a_wait_in_reactive_order_only():
    task = verified_task("agreement", 2)
    for rules in (RULES, Rules()):
        state = initial_state(task, rules, 0)
        observation, reactive = observe(state, state.actor), rules is RULES
        assert {function["name"] for function in functions_of(observation)} <= {*FUNCTIONS}
        assert all(("wait" in f["parameters"]["properties"]) == reactive for f in functions_of(observation))
        assert not any("wait" in f["parameters"]["required"] for f in functions_of(observation))
        assert all(("wait" in form["properties"]) == reactive for form in action_schema(observation)["anyOf"])
    action = Action(ActionType.SPEAK, "Hm.", wait=5)
    call = call_of(to_json(action))
    assert json.loads(call.arguments) == {"words": "Hm.", "wait": 5}
    assert with_calls([{"role": "assistant", "content": to_json(action)}])[0]["tool_calls"]


@pytest.mark.parametrize("wait", [0, -1, 1.5, True, "3", MAX_WAIT + 1])
def test_an_invalid_time_is_refused(wait):
    with pytest.raises(InvalidActionError) as error:
        Action(ActionType.NONE, wait=wait)
    assert error.value.field == "wait"
    text = json.dumps({"action_type": "none", "argument": "", "wait": wait})
    assert isinstance(parse(text), ParseFailure)


@pytest.mark.parametrize("wait", [None, 1, MAX_WAIT])
def test_a_time_survives_text_and_record(wait):
    action = Action(ActionType.SPEAK, "Hm.", wait=wait)
    assert parse(to_json(action)) == action
    assert ("wait" in to_json(action)) == (wait is not None)


# ---------------------------------------------------------------------------------------------------------------------
# Environments
@pytest.mark.parametrize("order", TurnOrder)
def test_the_action_space_has_a_wait_in_reactive_order_only(order):
    options = {"task": verified_task("", 3), "evaluator": FixedEvaluator(), "turn_order": order.value, "max_turns": 12}
    env, waits = sotopia_v0.raw_env(**options), []
    env.reset(seed=1)
    for agent in env.agent_iter():
        if env.terminations[agent] or env.truncations[agent]:
            env.step(None)
            continue
        space = env.action_space(agent)
        space.seed(len(waits))
        action = {**space.sample(), "action_type": 1, "argument": "Well?", "to": np.zeros(3, np.int8)}
        assert space.contains(action)
        waits.append(action.get("wait"))
        env.step(action)
    taken = [turn.action.wait for turn in env.episode_state.turns]
    assert taken == [None if not wait else int(wait) for wait in waits]
    assert any(taken) == (order is TurnOrder.REACTIVE)


def test_a_wait_from_the_space_is_kept_through_gymnasium():
    options = {"task": verified_task("", 2), "evaluator": FixedEvaluator(), "turn_order": "reactive", "max_turns": 12}
    env = gymnasium.make("sotopia_env/Sotopia-v0", partner="random", **options)
    env.reset(seed=2)
    over = False
    while not over:
        action = {**env.action_space.sample(), "action_type": 1, "argument": "Well?", "wait": np.int64(3)}
        _, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    times = [turn.turn.round for turn in env.unwrapped.episode().turns if turn.turn.actor == "agent_0"]
    assert {later - time for time, later in itertools.pairwise(times)} == {3}
    assert not env.action_space.contains({**action, "wait": 50})


@pytest.mark.parametrize("seats", [2, 5, 50])
def test_one_at_a_time_and_in_parallel_the_same_actions_make_the_same_episode(seats):
    options = {"task": verified_task("", seats), "turn_order": "reactive", "max_turns": 2 * seats + 10}
    options["evaluator"] = FixedEvaluator()
    env, parallel = sotopia_v0.raw_env(**options), sotopia_v0.parallel_env(**options)
    env.reset(seed=3)
    parallel.reset(seed=3)
    assert not env.metadata["is_parallelizable"]
    steps = 0
    while parallel.agents:
        table = parallel.table
        actions = {
            agent: {"action_type": "speak", "argument": f"{steps}", "wait": 1 + steps % 4} for agent in table.acting
        }
        for agent in table.acting:
            assert env.agent_selection == agent
            env.step(actions[agent])
        *_, infos = parallel.step(actions)
        if parallel.agents:
            assert [agent for agent in infos if infos[agent]["acting"]] == [*table.acting]
        steps += 1
    assert env.episode_state.turns == parallel.episode_state.turns
    assert env.episode_state.stop is parallel.episode_state.stop is StopReason.TURN_LIMIT
    assert steps == len({turn.round for turn in env.episode_state.turns})
