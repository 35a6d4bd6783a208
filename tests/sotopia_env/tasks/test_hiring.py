"""The hiring family: table E.1 and its integrative variant, exact reference points, a careful reader of packages."""

from __future__ import annotations

import itertools

import pytest

from sotopia_env.errors import InvalidTaskError
from sotopia_env.tasks.contract_terms import Options, to_option
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.hiring import FAMILY, TOTAL, Side, read_acts
from sotopia_env.tasks.texts import hiring as words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, Turn, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task

AGENTS = ("agent_0", "agent_1")
OPTIONS = Options(("$100k", "$105k", "$110k", "$115k", "$120k"), ("June 1", "June 15", "July 1", "July 15", "August 1"))
PACKAGE = ("$110k", "July 1")


def turns(*lines: str) -> tuple[Turn, ...]:
    """Turns from lines such as ``"0 How about 110k?"``: the actor's seat, then what it says."""
    return tuple(
        Turn(number, number // 2, AGENTS[int(line[0])], Action(ActionType.SPEAK, line[2:]))
        for number, line in enumerate(lines)
    )


@pytest.fixture(scope="module")
def task() -> Task:
    """A hard task: exactly table E.1; seat 0 is the manager."""
    return FAMILY.generate(0, 0, "hard")


# Each row: the turns, and the package that is agreed (None: no agreement).
DIALOGUES = [
    # plain deals
    (("0 How about $110k with a start on July 1?", "1 Deal."), PACKAGE),
    (("0 We can offer $110,000, starting July 1st.", "1 I accept."), PACKAGE),
    (("1 I'd like a salary of 110k and a start date of July 1.", "0 Agreed."), PACKAGE),
    (("0 110k, July 1.", "1 Deal, 110k and July 1."), PACKAGE),
    (("0 Salary 110k, start July 1.", "1 That works for me."), PACKAGE),
    (("0 I could do 110k if you start on July 1.", "1 It's a deal."), PACKAGE),
    (("0 If you can start July 1, I can offer 110k.", "1 I accept your offer."), PACKAGE),
    (("1 I would take 110k as long as I can start on July 1.", "0 Agreed, 110k and July 1."), PACKAGE),
    (("0 One hundred and ten thousand dollars, starting on the first of July?", "1 Done."), PACKAGE),
    (("0 110 thousand and 1 July?", "1 You have a deal."), PACKAGE),
    (("0 offer: salary=$110k; start_date=July 1", "1 accept"), PACKAGE),
    (("0 offer: start date=July 1, salary=110,000", "1 accept: salary=$110k, start_date=July 1"), PACKAGE),
    (('1 {"offer": {"salary": "$110k", "start_date": "July 1"}}', '0 {"accept": true}'), PACKAGE),
    (("0 115k and June 1?", "1 I'd prefer 110k and July 1.", "0 Okay, 110k and July 1 it is."), PACKAGE),
    (("0 100k, August 1.", "1 No. 120k, June 1.", "0 Let's say 110k, July 1.", "1 I accept!"), PACKAGE),
    (("0 110k, July 1?", "1 Perfect, I accept! I'll see you on July 1."), PACKAGE),
    (("0 We could do 110k and July 1.", "1 Deal! Where do I sign?"), PACKAGE),
    # issue by issue
    (("0 How about 110k?", "1 110k works for me. Could I start on July 1?", "0 Agreed."), PACKAGE),
    (("0 How about 110k?", "1 Deal.", "0 And I propose July 1.", "1 Agreed."), PACKAGE),
    (("0 How about 110k?", "0 And a start on July 1?", "1 Deal."), PACKAGE),
    (("0 I suggest July 1.", "1 July 1 is fine.", "1 I'd like 110k.", "0 110k is fine."), PACKAGE),
    (("0 How about 110k?", "1 Deal."), None),
    (("0 How about July 1?", "1 I accept July 1."), None),
    (("0 How about 110k?", "1 110k works for me. Could I start on July 1?"), None),
    (("0 How about 110k?", "1 Deal.", "1 How about 115k and July 1?"), None),
    (("0 How about 110k?", "1 Deal.", "0 Let's start on July 1.", "1 No, I can't do that."), None),
    # only a part of a package
    (("0 110k, July 1?", "1 110k works for me."), None),
    (("0 110k, July 1?", "1 July 1 is fine."), None),
    (("0 110k, July 1?", "1 110k is fine, but I need to start on June 1."), None),
    (("0 110k, July 1?", "1 Agreed on July 1, but make it 115k."), None),
    (("0 110k, July 1?", "1 110k works.", "0 Deal."), None),
    # counter-offers
    (("0 110k, July 1?", "1 Deal at 115k, July 1."), None),
    (("0 110k, July 1?", "1 I accept 110k and June 15."), None),
    (("0 110k, July 1?", "1 Sounds good. Could you do 115k?"), None),
    (("0 110k, July 1?", "1 I accept 110k and June 15.", "0 Deal."), ("$110k", "June 15")),
    (("0 110k, July 1?", "1 Deal. Wait, no, 115k and June 1."), None),
    # assent to nothing, or to oneself
    (("0 Deal!",), None),
    (("0 I accept.", "1 Agreed."), None),
    (("0 110k, July 1?", "0 Deal!"), None),
    (("0 110k, July 1. Deal?",), None),
    (("0 110k, July 1?", "1 Do we have a deal?"), None),
    (("1 I accept 110k and July 1.",), None),
    # negation
    (("0 110k, July 1?", "1 No deal."), None),
    (("0 110k on July 1?", "1 110k on July 1? No way."), None),
    (("0 I can't offer 110k and July 1.", "1 Deal."), None),
    (("0 110k, July 1?", "1 I cannot accept that."), None),
    (("0 110k, July 1?", "1 That doesn't work for me."), None),
    (("0 110k, July 1?", "1 July 1 is too late."), None),
    (("0 110k, July 1?", "1 I won't start on July 1 for 110k."), None),
    (("0 110k, July 1?", "1 No.", "1 Hm, okay, deal."), None),
    # somebody else's or another time's terms
    (("1 My friend earns 110k and started on July 1.", "0 Deal."), None),
    (("1 My current salary is 110k, since July 1.", "0 Deal."), None),
    (("0 The last person got 110k and July 1.", "1 Deal."), None),
    (("1 Another company offered me 110k and July 1.", "0 Agreed."), None),
    (("0 So you want 110k and July 1?", "1 Deal."), None),
    (("0 You said 110k and July 1?", "1 Deal."), None),
    (('1 The advertisement said "110k, July 1".', "0 Deal."), None),
    # ranges, limits, conditions, musings, things that are no option
    (("0 Between 105k and 110k, July 1.", "1 Deal."), None),
    (("0 110k and either July 1 or July 15.", "1 Deal."), None),
    (("0 Around 110k, July 1.", "1 Deal."), None),
    (("0 At most 110k, July 1.", "1 Deal."), None),
    (("0 110k and some time in July.", "1 Deal."), None),
    (("0 112k, July 1.", "1 Deal."), None),
    (("0 110k, July 4.", "1 Deal."), None),
    (("0 110k, July 1?", "1 Deal, if I get a car."), None),
    (("0 110k, July 1, provided that you pass the medical check.", "1 Deal."), None),
    (("0 I might do 110k and July 1.", "1 Deal."), None),
    (("0 Perhaps 110k and July 1?", "1 Deal."), None),
    (("0 Suppose we said 110k and July 1.", "1 Deal."), None),
    (("0 110k, July 1?", "1 I might accept."), None),
    (("0 110k, July 1?", "1 Let me think about it."), None),
    (("0 110k, July 1?", "1 Probably, yes."), None),
    (("0 How about 5k more?", "1 Deal."), None),
    (("0 I get 3000 points for 110k and 1200 for July 1.", "1 Deal."), None),
    # echoes, politeness, sarcasm
    (("0 I propose 110k and July 1.", "1 110k and July 1? Hmm."), None),
    (("0 I propose 110k and July 1.", "1 Okay."), None),
    (("0 I propose 110k and July 1.", "1 Thank you, that is a good deal to think about."), None),
    (("0 I propose 110k and July 1.", "1 Yeah right, deal."), None),
    (("0 I propose 110k and July 1.", "1 Deal! Haha, just kidding."), None),
    (("0 110k, July 1?", "1 I agree that it is a nice office."), None),
    # withdrawal and what follows a deal
    (("0 110k, July 1?", "0 I withdraw my offer.", "1 Deal."), None),
    (("0 110k, July 1?", "0 Sorry, make it 105k, July 1.", "1 Deal."), ("$105k", "July 1")),
    (("0 110k, July 1?", "1 Deal.", "1 Actually, I want 120k."), PACKAGE),
    (("0 110k, July 1?", "1 Deal.", "0 I changed my mind."), PACKAGE),
    (("0 110k, July 1?", "1 Deal.", "1 Could I have 115k and July 1?", "0 Great to have you!"), PACKAGE),
    (
        ("0 110k, July 1?", "1 Deal.", "1 Could I have 115k and July 1?", "0 Fine, 115k and July 1."),
        ("$115k", "July 1"),
    ),
]


@pytest.mark.parametrize(("lines", "package"), DIALOGUES, ids=[" / ".join(lines)[:90] for lines, _ in DIALOGUES])
def test_a_dialogue_is_read_as_people_mean_it(
    task: Task, lines: tuple[str, ...], package: tuple[str, str] | None
) -> None:
    result = FAMILY.read(task, turns(*lines))
    expected = {} if package is None else {"salary": package[0], "start_date": package[1]}
    assert result.terms == expected
    assert result.agreement == (package is not None)
    assert result.reason
    if package is None:
        assert result.shares == (0.0, 0.0)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(DIALOGUES) >= 60
    assert sum(package is None for _, package in DIALOGUES) >= 40


@pytest.mark.parametrize("index", [0, 1, 2, 3])
@pytest.mark.parametrize(("offer", "accept"), list(itertools.product(words.OFFERS, words.ACCEPTS)))
def test_scripted_agreements_are_read_without_error(offer: str, accept: str, index: int) -> None:
    made = FAMILY.generate(index, 5, "easy")
    issues = made.scenario.shared_data["issues"]
    terms = {issue: labels[(index + 1) % 5] for issue, labels in issues.items()}
    said = (f"0 {offer.format(**terms)}", f"1 {accept.format(**terms)}")
    assert FAMILY.read(made, turns(*said)).terms == terms
    assert not FAMILY.read(made, turns(said[0])).agreement
    assert not FAMILY.read(made, turns(said[1])).agreement


def test_hard_tasks_are_table_e1(task: Task) -> None:
    manager, candidate = task.scenario.seats
    assert manager.private_data["points"] == {
        "salary": {"$100k": 6000, "$105k": 4500, "$110k": 3000, "$115k": 1500, "$120k": 0},
        "start_date": {"June 1": 0, "June 15": 600, "July 1": 1200, "July 15": 1800, "August 1": 2400},
    }
    assert candidate.private_data["points"] == {
        "salary": {"$100k": 0, "$105k": 1500, "$110k": 3000, "$115k": 4500, "$120k": 6000},
        "start_date": {"June 1": 2400, "June 15": 1800, "July 1": 1200, "July 15": 600, "August 1": 0},
    }


@pytest.mark.parametrize("level", LEVELS)
def test_reference_points_equal_brute_force_and_every_task_is_solvable(level: str) -> None:
    for index in range(40):
        task = FAMILY.generate(index, 11, level)
        points = FAMILY.reference(task)
        data = [seat.private_data for seat in task.scenario.seats]
        walk = tuple(side["walk_away_points"] for side in data)
        every = [
            tuple(side["points"]["salary"][salary] + side["points"]["start_date"][start] for side in data)
            for salary in data[0]["points"]["salary"]
            for start in data[0]["points"]["start_date"]
        ]
        good = [pair for pair in every if pair[0] >= walk[0] and pair[1] >= walk[1]]
        assert points.disagreement == walk
        assert points.best == tuple(max(pair[side] for pair in good) for side in (0, 1))
        assert points.best_joint == max(map(sum, every))
        assert set(points.frontier) == {
            a for a in every if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in every)
        }
        product = max((a - walk[0]) * (b - walk[1]) for a, b in good)
        assert (points.fair[0] - walk[0]) * (points.fair[1] - walk[1]) == product > 0


@pytest.mark.parametrize("level", LEVELS)
def test_tasks_are_well_told(level: str) -> None:
    variants, positions, contexts = set(), set(), set()
    for index in range(60):
        task = FAMILY.generate(index, 3, level)
        assert task == FAMILY.generate(index, 3, level)
        assert task.id == task.scenario.id == f"hiring-{level}-3-{index}"
        roles = [seat.private_data["role"] for seat in task.scenario.seats]
        assert roles == (["manager", "candidate"] if index % 2 == 0 else ["candidate", "manager"])
        for label in itertools.chain(*task.scenario.shared_data["issues"].values()):
            assert label in task.scenario.context
        for seat in task.scenario.seats:
            assert f"{seat.private_data['walk_away_points']} points" in seat.private_info
            for table in seat.private_data["points"].values():
                assert all(f"{label} gives {points} points" in seat.private_info for label, points in table.items())
            assert sum(max(table.values()) for table in seat.private_data["points"].values()) == TOTAL
        variants.add(task.scenario.tags[2])
        positions.add(task.scenario.shared_data["position"])
        contexts.add(task.scenario.context)
    assert variants == {"easy": {"integrative"}, "medium": {"integrative", "zero-sum"}, "hard": {"zero-sum"}}[level]
    assert len(positions) >= 10
    assert len(contexts) >= 55


def test_log_rolling_pays_in_the_integrative_variant_only() -> None:
    for index in range(24):
        task = FAMILY.generate(index, 1, "medium")
        tables = [seat.private_data["points"] for seat in task.scenario.seats]
        middle = sum(list(table["salary"].values())[2] + list(table["start_date"].values())[2] for table in tables)
        gain = FAMILY.reference(task).best_joint - middle
        assert (gain > 0) == ("integrative" in task.scenario.tags)


def test_a_problem_follows_the_talk() -> None:
    made = FAMILY.generate(3, 2, "easy")
    state = initial_state(made, Rules(), 0)
    mine = FAMILY.problem(observe(state, "agent_0"))
    candidates = mine.candidates()
    worth = [value for _, value in candidates]
    assert worth == sorted(worth, reverse=True)
    assert worth[0] == 1.0
    assert worth[-1] >= 0
    assert all(mine.value(terms) == value for terms, value in candidates)
    terms = candidates[4][0]
    for seed in range(30):
        said = transition(state, Action(ActionType.SPEAK, mine.phrase_offer(terms, seed)))
        theirs = FAMILY.problem(observe(said, "agent_1"))
        assert theirs.incoming() == terms
        assert FAMILY.problem(observe(said, "agent_0")).outgoing() == (terms,)
        assert not theirs.settled()
        agreed = transition(said, Action(ActionType.SPEAK, theirs.phrase_accept(terms, seed)))
        assert FAMILY.problem(observe(agreed, "agent_0")).settled()
        assert FAMILY.read(made, agreed.turns).terms == terms


def test_a_partial_offer_is_not_incoming_until_the_rest_is_settled() -> None:
    made = FAMILY.generate(0, 0, "hard")
    state = initial_state(made, Rules(), 0)
    for words_, incoming in (
        ("How about 110k?", None),
        ("110k works for me. I suggest July 1.", {"salary": "$110k", "start_date": "July 1"}),
    ):
        state = transition(state, Action(ActionType.SPEAK, words_))
        assert FAMILY.problem(observe(state, state.actor or "")).incoming() == incoming


def test_an_open_issue_counts_as_its_worst_option() -> None:
    side = Side("manager", {"salary": {"a": 10, "b": 4}, "start_date": {"x": 3, "y": 1}}, 2)
    assert side.payoff({"salary": "a"}) == 11


def test_values_of_the_explicit_form_are_options_or_nothing() -> None:
    for value in ("$110k", "110k", 110000, "110,000", "$110,000"):
        assert to_option("salary", value, OPTIONS) == "$110k"
    for value in ("July 1", "july 1st", "1 July", "the first of July"):
        assert to_option("start_date", value, OPTIONS) == "July 1"
    for issue, value in (("salary", "111k"), ("start_date", "July"), ("salary", "July 1"), ("salary", "110k or 115k")):
        assert to_option(issue, value, OPTIONS) is None


def test_a_foreign_task_is_refused(task: Task) -> None:
    bare = task.model_copy(update={"scenario": task.scenario.model_copy(update={"outcome": None}), "id": "x"})
    bare.__dict__.pop("memo", None)
    with pytest.raises(InvalidTaskError, match="hiring"):
        FAMILY.read(bare, ())


@pytest.mark.parametrize("text", ["", "July", "July 1 " * 300, "110k, " * 300, "a start on " * 200, "\ue000 July 1"])
def test_odd_texts_are_read_without_a_crash(text: str) -> None:
    read_acts(text, OPTIONS)


def test_a_context_names_nobody_so_that_seats_can_be_recast() -> None:
    for index in range(40):
        made = FAMILY.generate(index, 0, "easy")
        assert not any(character.first_name in made.scenario.context for character in made.characters)
        said = turns("0 offer: salary=" + made.scenario.shared_data["issues"]["salary"][1])
        assert FAMILY.reference(made.with_swapped_seats()) == FAMILY.reference(made)
        assert FAMILY.read(made.with_swapped_seats(), said) == FAMILY.read(made, said)
