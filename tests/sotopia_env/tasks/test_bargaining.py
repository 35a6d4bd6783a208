"""The bargaining family: exact reference points, solvable tasks, and a careful reader of prices in speech."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.agreement import Accept, Offer, Reject, Repeat, Unclear, Withdraw
from sotopia_env.tasks.bargaining import FAMILY, Side, read_acts
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.texts import bargaining as words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, Turn, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import RelationshipKind, Task

AGENTS = ("agent_0", "agent_1")


def turns(*lines: str) -> tuple[Turn, ...]:
    """Turns from lines such as ``"0 How about 80?"``: the actor's seat, then what it says."""
    return tuple(
        Turn(number, number // 2, AGENTS[int(line[0])], Action(ActionType.SPEAK, line[2:]))
        for number, line in enumerate(lines)
    )


@pytest.fixture(scope="module")
def task() -> Task:
    """A task with a listed price of 100; seat 0 buys."""
    made = FAMILY.generate(0, 7, "easy")
    parameters = {
        "listed_price": 100,
        "sides": [
            {"role": "buyer", "target_price": 70, "walk_away_price": 95},
            {"role": "seller", "target_price": 85, "walk_away_price": 60},
        ],
    }
    outcome = made.scenario.outcome.model_copy(update={"parameters": parameters})
    return made.model_copy(update={"scenario": made.scenario.model_copy(update={"outcome": outcome})})


# Each row: the turns, and the price that is agreed (None: no agreement).
DIALOGUES = [
    # plain deals
    (("0 How about 80?", "1 Deal."), 80),
    (("0 I can do $80.", "1 I accept."), 80),
    (("1 I'd let it go for 85.", "0 OK, 85 it is."), 85),
    (("1 My price is 90 dollars.", "0 Agreed, 90."), 90),
    (("0 Would you take eighty-five?", "1 Sold!"), 85),
    (("0 What would you say to $80?", "1 That works for me."), 80),
    (("0 80?", "1 Deal!"), 80),
    (("0 If you can do 80, I'll take it.", "1 Deal."), 80),
    (("1 It's yours for 85.", "0 I'll take it."), 85),
    (("0 I offer 70.", "1 I can't go that low. How about 85?", "0 Let's meet at 80.", "1 Fine, 80 it is."), 80),
    (("0 I offer 70.", "1 90.", "0 80.", "1 I accept your offer of 80."), 80),
    (("0 offer: price=82", "1 accept"), 82),
    (('0 {"offer": {"price": 82}}', '1 {"accept": {"price": 82}}'), 82),
    (("1 offer: price=$88", "0 accept: price=88"), 88),
    (("0 How about 82.50?", "1 Done."), 82.5),
    (("1 I could do 85 if that works for you.", "0 It works for me."), 85),
    (("0 80 is my offer, take it or leave it.", "1 Alright, you have a deal."), 80),
    (("0 How about 80?", "1 Deal, when can you pick it up?"), 80),
    (("0 How about 80?", "1 No problem. Deal."), 80),
    (("1 I can do 85.", "0 85? Deal."), 85),
    (("1 I can do 85.", "0 I can do 85."), 85),
    (("0 I paid 100 for the last one, but I could give you 80 for this.", "1 Deal."), 80),
    (("0 **$80** is my offer.", "1 I’ll take it!"), 80),
    # a counter-offer, then the other side's assent
    (("0 How about 80?", "1 Deal at 90."), None),
    (("0 How about 80?", "1 Deal at 90.", "0 Agreed."), 90),
    (("0 How about 80?", "1 Sounds good, but can you do 85?"), None),
    (("0 How about 80?", "1 Deal. Actually, no, 90."), None),
    (("0 How about 80?", "1 I accept. Wait, make it 90.", "0 OK, deal."), 90),
    # assent to nothing, or to oneself
    (("0 Deal!",), None),
    (("0 I'll take it.", "1 Great, deal."), None),
    (("0 How about 80?", "0 Deal!"), None),
    (("0 How about 80? Deal?",), None),
    (("1 I accept 80.",), None),
    (("1 I accept 80.", "0 Then we have a deal at 80."), 80),
    (("0 How about 80?", "1 Do we have a deal?"), None),
    (("0 How about 80?", "1 Deal?"), None),
    # near misses: negation
    (("0 How about 80?", "1 No deal."), None),
    (("0 How about 80?", "1 80? No way."), None),
    (("0 I would never pay 80.", "1 Deal."), None),
    (("1 I can't sell it for 80.", "0 Deal."), None),
    (("0 How about 80?", "1 I can't accept that."), None),
    (("0 How about 80?", "1 That doesn't work for me."), None),
    (("0 How about 80?", "1 I won't take 80."), None),
    (("0 How about 80?", "1 That's not a deal I'd take."), None),
    (("0 How about 80?", "1 That is too low.", "1 Deal."), None),
    (("0 How about 80?", "1 No.", "1 Hm. Okay, deal."), None),
    (("0 How about 80?", "1 80 is too low.", "0 Come on."), None),
    (("0 I don't want to pay 80.", "1 Deal."), None),
    # near misses: somebody else's or another time's price
    (("0 My neighbour paid 80.", "1 Deal."), None),
    (("0 They sell these for 80 online.", "1 Deal."), None),
    (("1 I bought it for 80 two years ago.", "0 Deal."), None),
    (("0 A new one costs 80.", "1 Agreed."), None),
    (("1 Another buyer offered me 90.", "0 Deal."), None),
    (('0 My brother said "deal at 80" to me.', "1 Deal."), None),
    (("0 So you want 80?", "1 Deal."), None),
    (("0 You said 80?", "1 Deal."), None),
    (("1 Your offer of 80 is interesting.", "0 Deal."), None),
    (("1 Why 80?", "0 Deal."), None),
    (("1 The list price is 100.", "0 Deal."), None),
    # near misses: ranges, limits, conditions, musings
    (("0 Somewhere between 80 and 90.", "1 Deal."), None),
    (("0 I could pay around 80.", "1 Deal."), None),
    (("0 80 or 85?", "1 Deal."), None),
    (("0 80-85 would be fine.", "1 Deal."), None),
    (("0 I can't go above 80.", "1 Deal."), None),
    (("0 At most 80.", "1 Deal."), None),
    (("0 80ish?", "1 Deal."), None),
    (("0 I'd pay 80 if you deliver it today.", "1 Deal."), None),
    (("0 How about 80?", "1 Deal, if you also take the chair."), None),
    (("0 How about 80?", "1 Deal, as long as you pay today."), None),
    (("0 How about 80?", "1 I might accept that."), None),
    (("0 How about 80?", "1 Maybe. Let me think about it."), None),
    (("0 Suppose I paid 80.", "1 Deal."), None),
    (("0 Maybe 80?", "1 Deal."), None),
    (("0 I was thinking of 80.", "1 Deal."), None),
    (("0 My budget is 80.", "1 Deal."), None),
    (("0 Could you come down by 10 dollars?", "1 Deal."), None),
    (("0 Give me 20 off.", "1 Deal."), None),
    (("0 How about 10 percent off?", "1 Deal."), None),
    # near misses: echoes, politeness, sarcasm, gestures of speech
    (("1 I can do 90.", "0 90? Hmm."), None),
    (("1 I can do 90.", "0 Okay."), None),
    (("1 I can do 90.", "0 I see. That is a great deal of money."), None),
    (("1 I can do 90.", "0 Yeah right, deal of the century."), None),
    (("1 I can do 90.", "0 Oh sure, deal. In your dreams."), None),
    (("1 I can do 90.", "0 Deal! Just kidding."), None),
    (("1 I can do 90.", "0 Is that a good deal?"), None),
    (("1 I can do 90.", "0 You drive a hard bargain."), None),
    (("1 It is 90 years old.", "0 Deal."), None),
    (("1 I can deliver it 90 km.", "0 Deal."), None),
    (("0 How about 80?", "1 I can agree that it is a fair bike."), None),
    (("0 How about 80?", "1 Deal with it."), None),
    (("0 How about 80?", "1 A deal is a deal."), None),
    (("0 How about 80?", "1 It works perfectly."), None),
    (("0 How about 80?", "1 That is fine, but add 10."), None),
    (("0 How about 80?", "1 Sold. Not."), None),
    (("0 How about 80?", "1 80 dollars! Are you serious?"), None),
    (("0 How about 80?", "1 80. Hm."), None),
    (("0 How about 80?", "1 I heard you: 80."), None),
    (("0 How about 80?", "1 Thanks for the offer of 80."), None),
    (("0 How about 80?", "1 I'd be crazy to accept 80."), None),
    (("0 How about 80?", "1 I'll agree to 80 when hell freezes over."), None),
    (("0 How about 80?", "1 I could have accepted 80 yesterday."), None),
    (("0 How about 80?", "1 Nobody would accept 80."), None),
    (("0 How about 80?", "1 I'm not sure about 80.", "1 Fine, deal."), 80),
    (("0 How about 80?", "1 > I accept"), None),
    (("0 How about 80?", "1 I'd rather keep it than sell it for 80."), None),
    (("0 How about 80?", "1 I agree that 80 is low."), None),
    (("0 How about 80?", "1 If I accept 80, what do I get?"), None),
    (("0 How about 80?", "1 I'd like more,\nbut deal."), 80),
    # withdrawal, rejection, and what happens after a deal
    (("0 How about 80?", "0 I withdraw my offer.", "1 Deal."), None),
    (("0 How about 80?", "0 Actually, I take that back.", "1 I accept."), None),
    (("0 How about 80?", "0 No wait, 75.", "1 Deal."), 75),
    (("0 How about 80?", "1 Deal.", "0 Actually, 70."), 80),
    (("0 How about 80?", "1 Deal.", "1 No, I changed my mind."), 80),
    (("0 How about 80?", "1 Deal.", "0 How about 75 instead?", "1 Great, thanks!"), 80),
    (("0 How about 80?", "1 Deal.", "0 How about 75 instead?", "1 Fine, 75 it is."), 75),
    (("0 How about 80?", "1 Deal.", "0 Great, 80 it is."), 80),
    (("0 How about 80?", "1 I could do 90.", "1 Okay, 80 works for me."), 80),
    (("0 How about 80? Or maybe 85?", "1 Deal."), None),
]


FRAGMENTS = [
    "80",
    "$90",
    "85-90",
    "deal",
    "I",
    "accept",
    "no",
    "not",
    "if",
    "you",
    ",",
    ".",
    "?",
    "!",
    "but",
    "and",
    "how",
    "about",
    "I'll",
    "take",
    "it",
    "for",
    "between",
    "or",
    "10%",
    "k",
]
FRAGMENTS += ["deal at", "eighty five", "take back", "\n", '"', "...", "—", "<1>"]


@pytest.mark.parametrize(("lines", "price"), DIALOGUES, ids=[" / ".join(lines)[:90] for lines, _ in DIALOGUES])
def test_a_dialogue_is_read_as_people_mean_it(task: Task, lines: tuple[str, ...], price: float | None) -> None:
    result = FAMILY.read(task, turns(*lines))
    assert (result.terms.get("price") if result.agreement else None) == price
    assert result.reason
    if price is None:
        assert result.payoffs == (0.0, 0.0)
        assert result.terms == {}


def test_the_table_is_as_long_as_promised() -> None:
    assert len(DIALOGUES) >= 60
    assert sum(price is None for _, price in DIALOGUES) >= 40


@pytest.mark.parametrize(("offer", "accept"), list(itertools.product(words.OFFERS, words.ACCEPTS)))
@pytest.mark.parametrize("price", [80, 1250])
def test_scripted_agreements_are_read_without_error(task: Task, offer: str, accept: str, price: int) -> None:
    listed = {80: 100, 1250: 1500}[price]
    parameters = {**task.scenario.outcome.parameters, "listed_price": listed}
    outcome = task.scenario.outcome.model_copy(update={"parameters": parameters})
    scaled = task.model_copy(update={"scenario": task.scenario.model_copy(update={"outcome": outcome})})
    said = [f"0 {offer.format(price=f'{price:,}')}", f"1 {accept.format(price=f'{price:,}')}"]
    result = FAMILY.read(scaled, turns(*said))
    assert (result.agreement, result.terms) == (True, {"price": price})
    assert not FAMILY.read(scaled, turns(said[0])).agreement
    assert not FAMILY.read(scaled, turns(f"1 {said[1][2:]}")).agreement


def test_gestures_and_private_asides_agree_to_nothing(task: Task) -> None:
    offer = Turn(0, 0, "agent_0", Action(ActionType.SPEAK, "How about 80?"))
    for action in (
        Action(ActionType.NON_VERBAL, "I accept."),
        Action(ActionType.NON_VERBAL, "nods and shakes hands"),
        Action(ActionType.NONE, "I accept."),
        Action(ActionType.LEAVE, "I accept."),
        Action(ActionType.SPEAK, "I accept.", ("agent_9",)),
    ):
        assert not FAMILY.read(task, (offer, Turn(1, 0, "agent_1", action))).agreement
    assert FAMILY.read(task, (offer, Turn(1, 0, "agent_1", Action(ActionType.ACTION, "accept")))).agreement


def test_leaving_after_the_deal_keeps_it_and_before_it_ends_the_offer(task: Task) -> None:
    said = turns("0 How about 80?", "1 Deal.")
    leave = Turn(2, 1, "agent_0", Action(ActionType.LEAVE))
    assert FAMILY.read(task, (*said, leave)).agreement
    assert not FAMILY.read(task, (said[0], leave, said[1])).agreement


@given(target=st.integers(5, 60), walk_away=st.integers(5, 60), other=st.tuples(st.integers(5, 60), st.integers(5, 60)))
@settings(max_examples=60, deadline=None)
def test_reference_points_equal_brute_force(target: int, walk_away: int, other: tuple[int, int]) -> None:
    target = min(target, walk_away - 1)  # the buyer aims below its limit, the seller above
    seller = Side("seller", max(other) + 1, min(other))
    if walk_away <= seller.walk_away_price:
        return
    buyer = Side("buyer", target, walk_away)
    made = FAMILY.generate(0, 1, "easy")
    parameters = {
        "listed_price": 100,
        "sides": [
            {"role": side.role, "target_price": side.target_price, "walk_away_price": side.walk_away_price}
            for side in (buyer, seller)
        ],
    }
    outcome = made.scenario.outcome.model_copy(update={"parameters": parameters})
    task = Task(
        id="t",
        scenario=made.scenario.model_copy(update={"outcome": outcome}),
        characters=made.characters,
        relationships=made.relationships,
    )
    points = FAMILY.reference(task)
    every = [(buyer.payoff(price), seller.payoff(price)) for price in range(0, 200)]
    fair = [pair for pair in every if min(pair) >= 0]
    assert points.best == tuple(max(pair[side] for pair in fair) for side in (0, 1))
    assert points.best_joint == max(sum(pair) for pair in fair)
    assert points.fair[0] * points.fair[1] == max(pair[0] * pair[1] for pair in fair)
    undominated = {a for a in fair if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in fair)}
    assert set(points.frontier) == undominated
    assert points.disagreement == (0.0, 0.0)


def test_payoffs_have_a_bonus_and_a_penalty() -> None:
    buyer, seller = Side("buyer", 70, 95), Side("seller", 85, 60)
    assert [buyer.payoff(price) for price in (95, 80, 70, 60, 100)] == [0, 15, 25, 40, -10]
    assert [seller.payoff(price) for price in (60, 75, 85, 95, 55)] == [0, 15, 25, 40, -10]


@pytest.mark.parametrize("level", LEVELS)
def test_every_task_is_solvable_and_well_told(level: str) -> None:
    contexts, goals, items, kinds = set(), set(), set(), set()
    for index in range(120):
        task = FAMILY.generate(index, 3, level)
        assert task == FAMILY.generate(index, 3, level)
        points = FAMILY.reference(task)
        assert min(points.best) > 0
        assert min(points.fair) > 0
        roles = [seat.private_data["role"] for seat in task.scenario.seats]
        assert roles == (["buyer", "seller"] if index % 2 == 0 else ["seller", "buyer"])
        for seat in task.scenario.seats:
            told = " ".join((*seat.goals, seat.private_info))
            assert f"${seat.private_data['target_price']}" in told
            assert f"${seat.private_data['walk_away_price']}" in told
            goals.add(seat.goals[0].split(" ")[0:4].__str__())
        data = task.scenario.shared_data
        assert f"${data['listed_price']}" in task.scenario.context
        assert data["item"] in task.scenario.context
        assert task.id == task.scenario.id == f"bargaining-{level}-3-{index}"
        contexts.add(task.scenario.context[:12])
        items.add(data["item"])
        kinds.add(task.relationships[0].kind)
    assert len(items) >= 25
    assert len(kinds) == len(RelationshipKind)
    assert len(goals) >= 8


def test_hard_tasks_have_narrow_zones() -> None:
    def width(level: str) -> float:
        total = 0.0
        for index in range(60):
            parameters = FAMILY.generate(index, 0, level).scenario.outcome.parameters
            limits = sorted(side["walk_away_price"] for side in parameters["sides"])
            total += (limits[1] - limits[0]) / parameters["listed_price"]
        return total / 60

    assert width("hard") < width("medium") / 2 < width("easy") / 2


def test_different_seeds_and_indices_give_different_tasks() -> None:
    made = [FAMILY.generate(index, seed, "easy") for index in range(20) for seed in range(3)]
    assert len({task.content_hash for task in made}) == 60
    assert len({task.id for task in made}) == 60


def test_a_problem_uses_its_own_seat_only(task: Task) -> None:
    made = FAMILY.generate(4, 2, "medium")
    state = initial_state(made, Rules(), 0)
    for agent in made.agents:
        seat = made.scenario.seats[made.agents.index(agent)]
        problem = FAMILY.problem(observe(state, agent))
        candidates = problem.candidates()
        worth = [value for _, value in candidates]
        assert worth == sorted(worth, reverse=True)
        assert (worth[0], worth[-1]) == (1.0, 0.0)
        assert all(problem.value(terms) == value for terms, value in candidates)
        assert candidates[-1][0] == {"price": seat.private_data["walk_away_price"]}
        assert problem.incoming() is None
        assert problem.outgoing() == ()
        assert not problem.settled()


def test_a_problem_follows_the_talk() -> None:
    made = FAMILY.generate(4, 2, "medium")
    state = initial_state(made, Rules(), 0)
    mine = FAMILY.problem(observe(state, "agent_0"))
    terms = mine.candidates()[3][0]
    for seed in range(30):
        said = transition(state, Action(ActionType.SPEAK, mine.phrase_offer(terms, seed)))
        theirs = FAMILY.problem(observe(said, "agent_1"))
        assert theirs.incoming() == terms
        assert FAMILY.problem(observe(said, "agent_0")).outgoing() == (terms,)
        agreed = transition(said, Action(ActionType.SPEAK, theirs.phrase_accept(terms, seed)))
        assert FAMILY.problem(observe(agreed, "agent_0")).settled()
        assert FAMILY.read(made, agreed.turns).terms == terms


def test_a_foreign_task_or_request_is_refused(task: Task) -> None:
    with pytest.raises(InvalidValueError, match="did you mean 'hard'"):
        FAMILY.generate(0, 0, "hardd")
    with pytest.raises(InvalidValueError, match="index"):
        FAMILY.generate(-1, 0, "hard")
    bare = task.model_copy(update={"scenario": task.scenario.model_copy(update={"outcome": None})})
    with pytest.raises(InvalidTaskError, match="bargaining"):
        FAMILY.read(bare, ())


@pytest.mark.parametrize(
    "text", ["", "?", "$", "<0>", "<<1>>", "\ue000 80", "80 " * 400, "if " * 300, "a hundred and " * 80, "🙂" * 50]
)
def test_odd_texts_are_read_without_a_crash(text: str) -> None:
    read_acts(text, 100)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_mixture_of_words_is_read_without_a_crash(words_: list[str]) -> None:
    for act in read_acts(" ".join(words_), 100):
        assert isinstance(act, Offer | Accept | Reject | Withdraw | Unclear | Repeat)


def test_a_hostile_text_costs_little() -> None:
    start = time.process_time()
    for text in ("deal to me " * 1400 + "x", "if you go " * 1500, "the a " * 2500, "80 " * 5000, "hundred and " * 1300):
        read_acts(text, 100)
    assert time.process_time() - start < 3


def test_reading_is_cheap(task: Task) -> None:
    lines = tuple(f"{number % 2} It has been used with care, number {number}." for number in range(20))
    said = turns(*lines)
    FAMILY.read(task, said)
    copies = [tuple(Turn(t.index, t.round, t.actor, t.action) for t in said) for _ in range(200)]
    start = time.process_time()
    for copy in copies:
        FAMILY.read(task, copy)
    assert (time.process_time() - start) / 4000 < 8e-6 * 3  # slack for slow and busy machines


def test_a_context_names_nobody_so_that_seats_can_be_recast() -> None:
    for index in range(40):
        made = FAMILY.generate(index, 0, "easy")
        assert not any(character.first_name in made.scenario.context for character in made.characters)
        assert FAMILY.reference(made.with_swapped_seats()) == FAMILY.reference(made)
