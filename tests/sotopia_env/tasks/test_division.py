"""The family ``division``: exact reference points, and a reader that deals only on complete, assented allocations."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from sotopia_env.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.agreement import Accept, Offer, Reject, Unclear
from sotopia_env.tasks.division import AGENTS, FAMILY, DivisionProblem
from sotopia_env.tasks.division_speech import Item, read_division
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.texts import division as words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from tests.sotopia_env import factories

ITEMS = (Item("book", "books", 2), Item("hat", "hats", 3), Item("ball", "balls", 1))
Share = tuple[int, int, int]


def offered(text: str) -> Share | None:
    """The speaker's share of books, hats and balls in the one offer that ``text`` makes."""
    found = [act.terms for act in read_division(text, ITEMS, "agent_0", "agent_1") if isinstance(act, Offer)]
    if len(found) != 1:
        return None
    for item in ITEMS:
        assert found[0]["agent_0"][item.name] + found[0]["agent_1"][item.name] == item.count
    mine = found[0]["agent_0"]
    return mine["book"], mine["hat"], mine["ball"]


OFFERS: list[tuple[str, Share]] = [
    ("I take both books and one hat, you get the rest.", (2, 1, 0)),
    ("I take 2 books and 1 hat, you get the rest.", (2, 1, 0)),
    ("You can have the ball; I keep everything else.", (2, 3, 0)),
    ("You can have the ball. I keep everything else.", (2, 3, 0)),
    ("I take two books and 3 hats, you take the ball.", (2, 3, 0)),
    ("I'd take the books and the ball, and you'd get the hats.", (2, 0, 1)),
    ("Let me have the ball, and the rest is yours.", (0, 0, 1)),
    ("I would like both books and the ball, you can have the rest.", (2, 0, 1)),
    ("I need the ball; everything else is yours.", (0, 0, 1)),
    ("If you give me both books, you can have the rest.", (2, 0, 0)),
    ("We each take one book, you get the hats and I get the ball.", (1, 0, 1)),
    ("I take everything.", (2, 3, 1)),
    ("You could have both books, then I'd have the hats and the ball. Deal?", (0, 3, 1)),
    ("Let's do one book each, hats to me, ball to you.", (1, 3, 0)),
    ("I propose we split it like this - me: 2 books, 1 hat; you: 2 hats, 1 ball.", (2, 1, 0)),
    ("You get everything.", (0, 0, 0)),
    ("You get nothing, I take it all.", (2, 3, 1)),
    ("How about I take the books and you take the hats and the ball?", (2, 0, 0)),
    ("What if you take the ball and I take the rest?", (2, 3, 0)),
    ("Can I have both books if you get the hats and the ball?", (2, 0, 0)),
    ("My proposal: both books for me and three hats and the ball for you.", (2, 0, 0)),
    ("Both books and the ball are mine, the hats are yours.", (2, 0, 1)),
    ("I give you the ball and the books, and I keep the hats.", (0, 3, 0)),
    ("All three hats for you, the books and the ball for me.", (2, 0, 1)),
    ("I keep the ball, one of the books and two of the hats; the remaining things go to you.", (1, 2, 1)),
    ("You take no books, two hats and no ball, I take the rest.", (2, 1, 1)),
    ("offer: book=1; hat=0", (1, 0, 0)),
    ('{"offer": {"books": 2, "hat": 1}}', (2, 1, 0)),
    ("I don't agree. I take the hats and you get the rest.", (0, 3, 0)),
    ("That's a lovely ball, but I take the books and you get the rest.", (2, 0, 0)),
    ("I’ll take the hats, you’ll get the rest.", (0, 3, 0)),
]
NO_OFFERS = [
    "I'd like the hats.",
    "I want the ball.",
    "I take both books.",
    "You can have the ball.",
    "You get the rest.",
    "I keep everything else.",
    "I take four hats and you get the rest.",
    "I take all four hats and you get the rest.",
    "I take both hats and you get the rest.",
    "I take three books, you take the rest.",
    "I take two books and you take one book and the hats and the ball.",
    "I take the hat and you get the rest.",
    "I take a few hats and you get the rest.",
    "I take some hats, you get the rest.",
    "I take most of the hats and you get the rest.",
    "I take one book and the ball, you take the hats.",
    "I take the books or the hats, you get the rest.",
    "Maybe I take the books and you get the rest.",
    "I might take the books and you get the rest.",
    "Perhaps you take the ball and I take the rest.",
    "I take everything but the ball.",
    "I take everything except the ball.",
    "You said I take the books and you get the rest.",
    "My friend told me: I take the books and you get the rest.",
    'He shouted "I take the books and you get the rest" at her.',
    "Last year I took the books and you got the rest.",
    "Earlier I took the books, you took the rest.",
    "Do you want the books?",
    "Who takes the ball?",
    "Why do you take both books and I get the rest?",
    "Are you happy with the hats?",
    "How many hats are there?",
    "There are two books, three hats and a ball.",
    "The books are worth 5 points to me.",
    "I love hats.",
    "I don't care about the ball.",
    "I don't take the ball, you get the rest.",
    "I will never give you both books and keep the rest.",
    "Both get the rest: you get the rest, I take the books and the rest.",
    "The books and the hats, the rest.",
    "Two books, one hat.",
    "Split the hats evenly.",
    "Let's share fairly.",
    "I take the spoons and you get the forks.",
    "If my sister agrees, I take the books and you get the rest.",
    "I take the books and you get the rest, unless you object.",
    "I take at least one book and you get the rest.",
    "I take the books, you get the rest. I take the hats, you get the rest.",
    "offer: book=5",
    "offer: spoon=1",
    "offer: book=some",
    "Good morning!",
    "What would you say if I took both books and you got the rest?",
    "Anna gets the ball, I take the books and you get the rest.",
    "You want the books, I want the hats, and the ball we should discuss.",
    "So you want both books and I get the rest? That is unfair.",
    "I took the books and you got the rest.",
    "I take the books and you get the hats; the ball goes to the neighbour.",
    "You take the hats. I take the books. We can flip a coin for the ball.",
    "You say I take the books and you get the rest.",
    "",
]


@pytest.mark.parametrize(("text", "share"), OFFERS)
def test_a_complete_allocation_is_an_offer(text: str, share: Share) -> None:
    assert offered(text) == share


@pytest.mark.parametrize("text", NO_OFFERS)
def test_a_near_miss_is_no_offer(text: str) -> None:
    assert offered(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I take four hats and you get the rest.", "more hats than there are"),
        ("I take the hat and you get the rest.", "how many hats"),
        ("I take both books.", "who gets all the hats"),
        ("I take the books or the hats, you get the rest.", "'or'"),
        ("You get the rest.", "rest"),
    ],
)
def test_an_unreadable_offer_keeps_its_reason(text: str, reason: str) -> None:
    reasons = [act.reason for act in read_division(text, ITEMS, "agent_0", "agent_1") if isinstance(act, Unclear)]
    assert any(reason in found for found in reasons)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("Deal!", Accept), ("I accept.", Accept), ("accept", Accept), ("No, thanks.", Reject), ("reject", Reject)],
)
def test_assent_and_refusal(text: str, kind: type) -> None:
    assert any(isinstance(act, kind) for act in read_division(text, ITEMS, "agent_0", "agent_1"))


def fixed_task() -> Task:
    """A task with two books, three hats and one ball."""
    task = FAMILY.generate(0, 0, "medium")
    points = [{"book": 2, "hat": 1, "ball": 3}, {"book": 1, "hat": 2, "ball": 2}]
    data: dict[str, Any] = task.model_dump()
    items = {item.name: item.count for item in ITEMS}
    data["scenario"]["outcome"]["parameters"] = {"items": items, "points": points}
    data["scenario"]["shared_data"] = {"family": "division", "items": items}
    for seat, side in zip(data["scenario"]["seats"], points, strict=True):
        seat["private_data"] = {"role": "divider", "points": side}
    return Task.model_validate(data)


TASK = fixed_task()
PROPOSAL = "I take both books and one hat, you get the rest."
DIALOGUES: list[tuple[str, list[str], Share | None]] = [
    ("offer and deal", [PROPOSAL, "Deal!"], (2, 1, 0)),
    ("offer and repeated terms", [PROPOSAL, "Agreed, I take two hats and the ball, and you get the rest."], (2, 1, 0)),
    ("the same offer from both", [PROPOSAL, "You take both books and one hat, I take the rest."], (2, 1, 0)),
    ("nobody answers", [PROPOSAL], None),
    ("assent to oneself", [PROPOSAL, "Hm.", "Deal!"], None),
    ("refused", [PROPOSAL, "No, that is not fair."], None),
    ("refused, then deal", [PROPOSAL, "No way.", "Please?", "Deal."], None),
    ("deal but other terms", [PROPOSAL, "Deal, I take the hats and you get the rest."], None),
    ("deal with a part", [PROPOSAL, "Deal, I take both hats."], None),
    ("counter and deal", [PROPOSAL, "I take the hats, you get the rest.", "Deal!"], (2, 0, 1)),
    ("a question is no assent", [PROPOSAL, "Deal?"], None),
    ("conditional assent", [PROPOSAL, "I accept if you add a hat."], None),
    ("assent with a but", [PROPOSAL, "Sounds good, but let me think."], None),
    ("deal on an incomplete offer", ["I take both books.", "Deal!"], None),
    ("deal on an impossible offer", ["I take four hats, you get the rest.", "Deal!"], None),
    ("deal on nothing", ["Hello.", "Deal!"], None),
    ("leaving is no assent", [PROPOSAL, ""], None),
    ("explicit", ["offer: book=2; hat=1", "accept"], (2, 1, 0)),
    ("a closed deal binds", [PROPOSAL, "Deal!", "No, I take everything."], (2, 1, 0)),
    ("withdrawn", [PROPOSAL, "Hm.", "I withdraw my offer.", "Deal!"], None),
]


def play(task: Task, texts: list[str]) -> EpisodeState:
    state = initial_state(task, Rules(), 0)
    for text in texts:
        state = transition(state, Action(ActionType.SPEAK, text) if text else Action(ActionType.LEAVE))
    return state


@pytest.mark.parametrize(("label", "texts", "share"), DIALOGUES)
def test_deals(label: str, texts: list[str], share: Share | None) -> None:
    result = FAMILY.read(TASK, play(TASK, texts).turns)
    assert result.agreement == (share is not None), (label, result.reason)
    assert result.reason
    if share is not None:
        assert tuple(result.terms["agent_0"].values()) == share, label


def test_the_tables_are_as_long_as_promised() -> None:
    assert len(OFFERS) + len(NO_OFFERS) + len(DIALOGUES) >= 60
    for phrasings, least in ((words.CONTEXTS, 8), (words.GOALS, 8), (words.OFFERS, 6), (words.ACCEPTANCES, 6)):
        assert len(set(phrasings)) >= least


@pytest.mark.parametrize("level", LEVELS)
def test_every_phrasing_makes_its_deal(level: str) -> None:
    for task, (k, j) in zip(
        tasks(level, 24), itertools.cycle(itertools.product(range(len(words.OFFERS)), (0, 3, 5))), strict=False
    ):
        first = FAMILY.problem(observe(play(task, []), "agent_0"))
        for terms, _ in random.Random(k).sample(list(first.candidates()), 3):
            state = play(task, [first.phrase_offer(terms, k)])
            second = FAMILY.problem(observe(state, "agent_1"))
            assert second.incoming() == terms, first.phrase_offer(terms, k)
            for seed in (j, j + 1):
                closed = transition(state, Action(ActionType.SPEAK, second.phrase_accept(terms, seed)))
                result = FAMILY.read(task, closed.turns)
                assert (result.agreement, result.terms) == (True, terms), second.phrase_accept(terms, seed)


def tasks(level: str, n: int = 25) -> list[Task]:
    return [FAMILY.generate(index, 7, level) for index in range(n)]


@pytest.mark.parametrize("level", LEVELS)
def test_reference_points_equal_brute_force(level: str) -> None:
    for task in tasks(level, 12):
        parameters = task.scenario.outcome.parameters  # type: ignore[union-attr]
        items, (first, second) = parameters["items"], parameters["points"]
        assert sum(items[name] * first[name] for name in items) == 10
        assert sum(items[name] * second[name] for name in items) == 10
        reached = set()
        for share in itertools.product(*(range(count + 1) for count in items.values())):
            mine = sum(n * first[name] for n, name in zip(share, items, strict=True))
            yours = sum((items[name] - n) * second[name] for n, name in zip(share, items, strict=True))
            reached.add((float(mine), float(yours)))
        points = FAMILY.reference(task)
        assert points.best == (10.0, 10.0)
        assert points.disagreement == (0.0, 0.0)
        assert points.best_joint == max(map(sum, reached))
        frontier = {p for p in reached if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in reached)}
        assert set(points.frontier) == frontier
        assert points.fair in frontier
        assert points.fair[0] * points.fair[1] == max(a * b for a, b in reached) > 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_task_tells_its_numbers_in_words(level: str) -> None:
    for task in tasks(level):
        assert len(task.scenario.shared_data["items"]) == {"easy": 2, "medium": 3, "hard": 4}[level]
        plurals = {single: plural for items in words.PLACES.values() for single, plural in items}
        for name, count in task.scenario.shared_data["items"].items():
            word = ("one", "two", "three")[count - 1]
            assert f"{word} {name if count == 1 else plurals[name]}" in task.scenario.context
        for seat in task.scenario.seats:
            said = " ".join(seat.goals)
            for name, points in seat.private_data["points"].items():
                assert f"each {name} is worth {points} point" in said


def test_payoffs_are_the_points_of_the_pieces() -> None:
    result = FAMILY.read(TASK, play(TASK, [PROPOSAL, "Deal!"]).turns)
    assert result.payoffs == (5.0, 6.0)
    assert result.shares == (0.5, 0.6)


def test_the_problem_is_made_of_the_observation() -> None:
    state = play(TASK, [PROPOSAL])
    problem = FAMILY.problem(observe(state, "agent_1"))
    assert isinstance(problem, DivisionProblem)
    terms = problem.incoming()
    assert terms is not None
    assert problem.value(terms) == 0.6
    values = [value for _, value in problem.candidates()]
    assert values == sorted(values, reverse=True)
    assert (values[0], values[-1], len(values)) == (1.0, 0.0, 24)
    assert FAMILY.problem(observe(state, "agent_0")).outgoing() == (terms,)
    assert not problem.settled()
    assert FAMILY.problem(observe(play(TASK, [PROPOSAL, "Deal!"]), "agent_0")).settled()
    assert set(terms) == set(AGENTS)


def test_equal_arguments_equal_task_and_other_arguments_another() -> None:
    assert FAMILY.generate(3, 1, "hard") == FAMILY.generate(3, 1, "hard")
    assert FAMILY.generate(3, 1, "hard").id == "division-hard-1-3"
    hashes = {FAMILY.generate(i, s, lv).content_hash for i in range(3) for s in range(3) for lv in LEVELS}
    assert len(hashes) == 27


@pytest.mark.parametrize(("arguments", "word"), [((0, 0, "hrad"), "hard"), ((-1, 0, "easy"), "index")])
def test_misuse_is_answered_with_one_sentence(arguments: tuple[int, int, str], word: str) -> None:
    with pytest.raises(InvalidValueError, match=word):
        FAMILY.generate(*arguments)


def test_a_task_of_another_family_is_refused() -> None:
    with pytest.raises(InvalidTaskError, match=r"outcome\.family"):
        FAMILY.read(factories.task(), ())
