"""The field's standard opponents: their formulas on small spaces by hand numbers."""

import itertools
import random

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming.policies import make_policy as make
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies.negotiators.bidding import ranking
from sotopia_env.policies.negotiators.concession import TimeDependent
from sotopia_env.policies.negotiators.opponents import FrequencyModel, Liar, Micro, OpponentModeller, RandomWalk
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.dynamics import Rules, StopReason
from sotopia_env.world.outcome import outcome_of
from tests.errors import raises
from tests.sotopia_env.policies.doubles import (
    MIXED,
    act,
    ballot,
    decide,
    friends_task,
    mixed,
    moves,
    moving,
    observed,
    one_number,
    play,
    proposals,
    three_seats,
    verified,
    violations,
)

NUMBER = one_number()
FEW = one_number(high=4)


def n(value):
    return moving(propose={"n": value})


# ---------------------------------------------------------------------------------------------------------------------
# MiCRO
@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ((), {4}),
        ((n(4), n(0)), {3}),  # one of mine, one of theirs: one step down
        ((n(4), NO_ACTION), {4}),  # nothing new from the partner: repeat
        ((n(4), n(0), n(3), n(0)), {3, 4}),  # the same again is nothing new
        ((n(4), n(0), n(3), n(1)), {2}),
    ],
)
def test_micro_steps_down_only_in_reply_to_new_offers(history, expected):
    offers = {act(Micro(), observed(FEW, *history), seed).move.content["n"] for seed in range(20)}
    assert offers == expected


@pytest.mark.parametrize(
    ("history", "accepts"),
    [
        ((NO_ACTION, n(3)), False),  # its first offer is worth 4
        ((n(4), n(3)), True),  # its next one would be worth 3
        ((n(4), n(2)), False),
        ((n(4), n(0), n(3), n(2)), True),
        ((n(4), NO_ACTION, n(4), n(3)), True),
    ],
)
def test_micro_accepts_what_is_worth_its_lowest_offer(history, accepts):
    move = act(Micro(), observed(FEW, *history)).move
    assert (move.kind is MoveKind.ACCEPT) is accepts


def test_micro_agrees_with_itself_in_the_middle():
    for task, middle in ((FEW, 2), (NUMBER, 10)):
        state = play((Micro(), Micro()), task)
        assert state.stop is StopReason.SETTLED
        assert abs(outcome_of(task, state.turns).terms["n"] - middle) <= 2


def test_micro_makes_at_most_its_number_of_offers():
    rows = ranking(observed(NUMBER).briefing)
    assert [rows.terms(row)["n"] for row in rows.ladder(5)] == [20, 15, 10, 5, 0]
    assert len(rows.ladder(10)) == 10
    assert rows.ladder(100) == list(range(21))
    # With all 21 it has conceded next to nothing when ten turns are over, as the paper's would.
    state = play((Micro(steps=100), Micro(steps=100)), NUMBER)
    assert [terms["n"] for terms in proposals(state, 0)] == list(range(20, 10, -1))
    with raises(InvalidValueError, field="steps"):
        Micro(steps=1)


def test_micro_counts_the_partner_that_concedes_least():
    task = verified(three_seats("all"))

    def offer(mine, day="Mon"):
        return moving(propose={"pieces": {"agent_0": mine, "agent_1": 9 - mine}, "day": day})

    def own_share(*history):
        return act(Micro(), observed(task, *history)).move.content["pieces"]["agent_0"]

    best = own_share()
    assert best == 9
    assert own_share(offer(9), offer(0), NO_ACTION) == 9
    assert own_share(offer(9), offer(0), offer(1)) < 9
    # Accepting is moving, too.
    assert own_share(offer(9), offer(0), moving(accept=2)) < 9


# ---------------------------------------------------------------------------------------------------------------------
# Frequency models
def test_the_model_weighs_unchanged_issues_and_counts_repeated_values():
    observation = observed(verified(MIXED))
    rows = ranking(observation.briefing)
    offers = [mixed(40, "June 15", 0), mixed(30, "June 15", 0)]
    model = FrequencyModel(rows, offers, learning=0.3)
    # Start and firewood were kept: each gains 0.3 / 3, and the sum of 1.2 is normalised.
    assert model.weights == pytest.approx([1 / 3 / 1.2, (1 / 3 + 0.1) / 1.2, (1 / 3 + 0.1) / 1.2])
    row = next(r for r in range(len(rows.utilities)) if rows.terms(r) == mixed(20, "June 1", 3))
    # Price 20 is at distances 1/2 and 1/4 of the range; the other date counts 0 twice; all three pieces are elsewhere.
    price, start, firewood = (1 + 0.5 + 0.75) / 3, 1 / 3, 1 / 3
    expected = sum(w * v for w, v in zip(model.weights, (price, start, firewood), strict=True))
    assert model.scores(np.array([row])) == pytest.approx([expected])


def test_among_offers_at_the_target_the_one_the_partner_seems_to_like_is_made():
    """A price of 13 and no firewood, or 10 and all of it: nearly the same to seat 0, not to the partner."""
    history = []
    for price in (40, 38, 36):
        history += [NO_ACTION, moving(propose=mixed(price, "June 15", 0))]
    observation = observed(verified(MIXED), *history)
    linear, modeller = TimeDependent(), OpponentModeller("frequency", tolerance=0.1)
    plain, friendly = (act(policy, observation).move.content for policy in (linear, modeller))
    assert friendly["firewood"]["agent_1"] == 3
    rows = ranking(observation.briefing)
    assert rows.utility(friendly) >= linear.at(3 / 9) - 1e-9
    assert rows.utility(friendly) <= linear.at(3 / 9) + 0.1 + 1e-9
    model = FrequencyModel(rows, [action.move.content for action in history[1::2]])
    scores = {key: float(model.scores(_row(rows, terms))[0]) for key, terms in (("plain", plain), ("own", friendly))}
    assert scores["own"] >= scores["plain"]


def _row(rows, terms):
    return np.array([next(r for r in range(len(rows.utilities)) if rows.terms(r) == terms)])


def test_hard_headed_holds_out_to_its_last_turn():
    state = play((make("hard-headed"), make("silent")), NUMBER, Rules(max_silent_turns=0))
    values = [terms["n"] for terms in proposals(state, 0)]
    assert values[:8] == [20] * 8
    assert values[-1] == 1  # the cheapest number worth at least the floor of 0.02


def test_a_modeller_accepts_what_is_worth_its_lowest_offer_so_far():
    early = observed(NUMBER, n(8), n(9), rules=Rules(max_turns=40))
    assert act(make("hard-headed"), early).move == Move(MoveKind.ACCEPT, 2)
    assert act(make("boulware"), early).move.kind is MoveKind.PROPOSE


# ---------------------------------------------------------------------------------------------------------------------
# Chance and lies
def test_a_random_walk_stays_within_a_step_of_its_last_offer():
    policy = RandomWalk(step=0.2, floor=0.3)
    offers = [terms["n"] for terms in proposals(play((policy, make("silent")), NUMBER, Rules(max_silent_turns=0)), 0)]
    assert len(set(offers)) > 3
    assert min(offers) >= 6
    assert all(abs(after - before) <= 5 for before, after in itertools.pairwise(offers))  # 4, rounded up
    assert len({act(policy, observed(NUMBER), seed).move.content["n"] for seed in range(40)}) > 8


LIED_TO = {
    "number": NUMBER,
    "mixed": verified(MIXED),
    "quorum": verified(three_seats({"quorum": 2})),
    "ballot": verified(ballot()),
}


@pytest.mark.parametrize("scene", LIED_TO)
@pytest.mark.parametrize("partner", ["boulware", "linear", "tit-for-tat", "frequency", "micro"])
def test_lies_change_no_outcome(partner, scene):
    task = LIED_TO[scene]
    outcomes, words = [], []
    for policy in (Liar(), TimeDependent()):
        state = play((policy, make(partner), make("linear"))[: len(task.agents)], task)
        assert violations(state) == []
        outcomes.append((outcome_of(task, state.turns), moves(state)))
        words.append([turn.action.argument for turn in state.turns if turn.actor == "agent_0"])
    assert outcomes[0] == outcomes[1]
    assert words[0] != words[1]


def test_the_liars_words_differ_from_its_moves():
    rng = random.Random(0)
    honest = TimeDependent()
    for history in ((), (n(20), n(1)), (NO_ACTION, n(20)), (n(20), n(1), n(18), n(3))):
        observation, seed = observed(NUMBER, *history), rng.randrange(1000)
        lie, truth = act(Liar(), observation, seed), act(honest, observation, seed)
        assert lie.move == truth.move
        assert lie.argument != truth.argument


def test_the_liar_names_its_friends_and_shares_no_facts_about_them():
    observation = observed(friends_task())
    words = act(Liar(), observation).argument
    assert any(name in words for name in ("Ann Lee", "Cy Fox", "Di Poe"))
    assert not any(fact in words for fact in ("Elm", "Ash", "hen"))


@pytest.mark.parametrize(("talker", "same_moves"), [("presser", "boulware"), ("prober", "linear")])
def test_pressure_and_questions_are_words_only(talker, same_moves):
    task = NUMBER
    states = [play((make(policy), make("linear")), task) for policy in (talker, same_moves)]
    assert moves(states[0]) == moves(states[1])
    words = [[turn.action.argument for turn in state.turns if turn.actor == "agent_0"] for state in states]
    assert all(more.startswith(less) for more, less in zip(*words, strict=True))
    assert words[0] != words[1]


@pytest.mark.parametrize("name", ["micro", "hard-headed", "frequency", "random-walk", "liar", "presser", "prober"])
def test_names_and_parameters(name):
    policy = make(name)
    assert policy.name == name
    for key, value in policy.parameters.items():
        assert make(f"{name}:{key}={value}") == policy
    assert decide(policy, observed(NUMBER)).generation is None


@pytest.mark.parametrize(
    ("make_it", "field"),
    [
        (lambda: OpponentModeller(tolerance=2), "tolerance"),
        (lambda: OpponentModeller(exponent=0), "exponent"),
        (lambda: RandomWalk(step=-0.1), "step"),
        (lambda: RandomWalk(floor=True), "floor"),
        (lambda: Micro(steps=2.5), "steps"),
    ],
)
def test_parameters_are_checked(make_it, field):
    with raises(InvalidValueError, field=field):
        make_it()
