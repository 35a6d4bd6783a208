"""Every family: valid tasks that repeat, levels as documented, exact reference points, and whole episodes of moves."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.episode import StopReason
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import outcome_of, references
from sotopia_env.world.scenario import Task

NAMES = tuple(tasks.FAMILIES)
EACH = [(name, level) for name in NAMES for level in tasks.LEVELS]
each_family = pytest.mark.parametrize("name", NAMES)
each_level = pytest.mark.parametrize(("name", "level"), EACH)
# What a commons brings depends on the rounds before: test_games has its best use.
each_level_by_outcomes = pytest.mark.parametrize(("name", "level"), [row for row in EACH if row[0] != "commons"])


def spec_of(task: Task) -> dict[str, Any]:
    assert task.scenario.resolved_outcome is not None
    spec: dict[str, Any] = task.scenario.resolved_outcome.model_dump(mode="json")
    return spec


@each_level
def test_a_hundred_tasks_of_each_level_are_valid_and_their_texts_fit_their_worths(name: str, level: str) -> None:
    family = tasks.family(name)
    for index in range(100):
        task = family.generate(index, 7, level)
        assert task.scenario.shared_data["family"] == name
        assert tasks.warnings(task) == []
        assert not {"{", "}"} & set(task.scenario.context + "".join(str(seat.goals) for seat in task.scenario.seats))
        if index % 10 == 0:
            tasks.check(task)
            assert Task.model_validate_json(task.model_dump_json()) == task == family.generate(index, 7, level)


def points_text(value: float) -> str:
    return f"{value:.0f} point"


def sentences(name: str, task: Task, worth: dict[str, Any]) -> list[str]:
    """Parts of one seat's goal or private information that must say what its worth says."""
    if name == "briefing":
        return [task.scenario.shared_data["decision"]]  # type: ignore[list-item]  # what it is worth depends on facts
    if name == "mini_mafia":
        return [task.scenario.shared_data["roles"]["hidden"]]  # type: ignore[index]
    if "game" in task.scenario.shared_data:
        return [task.scenario.shared_data["unit"]]  # type: ignore[list-item]  # what counts has the numbers
    if name == "bargaining":
        return [f"${abs(worth['constant']):.0f}"]
    if name == "group_decision":
        return [f"{option} {points_text(value)}" for option, value in worth["options"].items()] + [
            points_text(worth["no_decision"])
        ]
    issues, low = worth.get("issues", {}), points_text(worth.get("no_agreement", 0))
    if name == "hiring":
        salary = spec_of(task)["issues"][0]
        values = range(salary["low"], salary["high"] + 1, salary["step"])
        gains = {value: worth["constant"] + issues["salary"]["per_unit"] * value for value in values}
        by_salary = [f"${value:,} gives {points_text(gain)}" for value, gain in gains.items()]
        return [*by_salary, *(f"{date} gives {points_text(gain)}" for date, gain in issues["start"].items()), low]
    if name in ("job_committee", "negotiation"):
        return [f"{option} {value:.0f}" for table in issues.values() for option, value in table.items()] + [low]
    if name == "campsite":
        return [f" of {item} {points_text(gain['each'])}" for item, gain in issues.items()]
    assert name in ("division", "mutual_friend"), f"sentences: say which parts of a goal state the worths of {name!r}"
    return [f"worth {points_text(gain['each'])}" for gain in issues.values()]


@each_level
def test_goals_agree_with_the_worth(name: str, level: str) -> None:
    for task in tasks.generate(name, 15, seed=8, level=level):
        for side, worth in zip(task.scenario.seats, spec_of(task)["worth"], strict=True):
            text = f"{side.goals} {side.private_info}"
            assert [part for part in sentences(name, task, worth) if part not in text] == []
            if name == "division":
                values = [float(value) for value in re.findall(r"worth (\d+) point", text)]
                assert values == [gain["each"] for gain in worth["issues"].values()]


@each_family
def test_index_seed_and_level_make_different_tasks(name: str) -> None:
    family = tasks.family(name)
    requests = [(0, 0, "easy"), (1, 0, "easy"), (0, 1, "easy"), (0, 0, "medium"), (0, 0, "hard")]
    assert len({family.generate(*request).content_hash for request in requests}) == len(requests)


@each_family
def test_no_seat_reads_the_numbers_of_another(name: str) -> None:
    task = tasks.family(name).generate(0, 3, "hard")
    state = initial_state(task, Rules(), 0)
    secrets = [side.private_info or side.goals[0] for side in task.scenario.seats]
    for seat, agent in enumerate(task.agents):
        text = observe(state, agent).text
        assert [secret in text for secret in secrets] == [secret == secrets[seat] for secret in secrets]


def tops(task: Task, issue: str | None = None) -> list[set[str]]:
    """Per seat its favourite options (or kinds of items)."""
    worths = [worth["issues"] if "issues" in worth else worth["options"] for worth in spec_of(task)["worth"]]
    rows = [worth[issue] if issue else {k: v["each"] if isinstance(v, dict) else v for k, v in worth.items()}
            for worth in worths]  # fmt: skip
    return [{key for key, value in row.items() if value == max(row.values())} for row in rows]


def zone(task: Task) -> float:
    constants = [worth["constant"] for worth in spec_of(task)["worth"]]
    listed: Any = task.scenario.shared_data["listed_price"]
    return float(sum(constants)) / listed


def shape(task: Task) -> tuple[int, int]:
    spec = spec_of(task)
    return len(task.agents), len(spec["protocol"].get("options") or spec["issues"])


def friends(task: Task) -> list[list[dict[str, str]]]:
    return [seat.private_data["friends"] for seat in task.scenario.seats]


def shared_names(task: Task) -> int:
    first, second = ({friend["name"] for friend in side} for side in friends(task))
    return len(first & second)


def payoff_sums(task: Task) -> set[float]:
    return {round(sum(payoffs), 6) for payoffs in brute_payoffs(task)}


def orders(task: Task) -> list[list[str]]:
    worths = [worth["issues"] for worth in spec_of(task)["worth"]]
    return [sorted(worth, key=lambda name: -worth[name]["each"]) for worth in worths]


def committee(task: Task) -> tuple[int, int, int, int]:
    spec = spec_of(task)
    favourites = [next(iter(top)) for top in tops(task, "candidate")]
    chair = int(spec["protocol"]["needs"]["veto"][0][-1])
    sizes = [len(issue["options"]) for issue in spec["issues"]]
    return *sizes, len(set(favourites)), favourites.count(favourites[chair])  # type: ignore[return-value]


def roles(task: Task) -> tuple[bool, int]:
    """Whether roles can be shown, and how many of them come with knowledge of others."""
    facts = task.scenario.facts
    assert facts is not None
    return all(variable.evidence for variable in facts.variables if variable.kind == "role"), len(
        facts.deals[0].informs
    )


def notes(task: Task) -> tuple[int, int, int, bool]:
    """The number of seats, of facts for one partner, and of facts for nobody; and whether facts can be proved."""
    facts = task.scenario.facts
    assert facts is not None
    secrets = [variable.may_know for variable in facts.variables if variable.secret]
    proofs = all(variable.evidence for variable in facts.variables)
    return len(task.agents), sum(len(others) == 1 for others in secrets), secrets.count(()), proofs


def play(task: Task) -> tuple[int, int, int]:
    """Seats, rounds, and turns of talk before a choice."""
    rules = spec_of(task)["protocol"]
    return len(task.agents), rules["rounds"], rules["talks"]


def difficulty(task: Task) -> tuple[float, ...]:
    """Conflict, zone, issues and outcomes, the shares to a twentieth."""
    rows, low = list(brute_payoffs(task)), references(task).disagreement
    zone = sum(first >= low[0] and second >= low[1] for first, second in rows) / len(rows)
    conflict = (1 - statistics.correlation(*zip(*rows, strict=True))) / 2
    return round(conflict * 20) / 20, round(zone * 20) / 20, len(spec_of(task)["issues"]), len(rows)


LEVELS: dict[tuple[str, str], Callable[[Task], bool]] = {
    ("dilemma", "easy"): lambda t: play(t) == (2, 5, 1),
    ("dilemma", "medium"): lambda t: play(t) == (2, 3, 1),
    ("dilemma", "hard"): lambda t: play(t) == (2, 1, 1),
    ("volunteer", "easy"): lambda t: play(t) == (3, 3, 1),
    ("volunteer", "medium"): lambda t: play(t) == (4, 2, 1),
    ("volunteer", "hard"): lambda t: play(t) == (5, 1, 1),
    ("trust", "easy"): lambda t: play(t) == (2, 4, 1),
    ("trust", "medium"): lambda t: play(t) == (2, 2, 1),
    ("trust", "hard"): lambda t: play(t) == (2, 1, 1),
    ("public_goods", "easy"): lambda t: play(t) == (4, 4, 1),
    ("public_goods", "medium"): lambda t: play(t) == (4, 2, 1),
    ("public_goods", "hard"): lambda t: spec_of(t)["protocol"]["history"] == "strangers",
    ("traveller", "easy"): lambda t: play(t) == (2, 3, 1),
    ("traveller", "medium"): lambda t: play(t) == (2, 2, 1),
    ("traveller", "hard"): lambda t: play(t) == (2, 1, 1),
    ("commons", "easy"): lambda t: play(t) == (3, 4, 1),
    ("commons", "medium"): lambda t: play(t) == (4, 6, 1),
    ("commons", "hard"): lambda t: play(t) == (5, 12, 0),
    ("grid", "easy"): lambda t: play(t) == (2, 3, 1),
    ("grid", "medium"): lambda t: play(t) == (2, 1, 1),
    ("grid", "hard"): lambda t: play(t) == (2, 1, 0),
    ("mini_mafia", "easy"): lambda t: roles(t) == (True, 1),
    ("mini_mafia", "medium"): lambda t: roles(t) == (False, 1),
    ("mini_mafia", "hard"): lambda t: roles(t) == (False, 2),
    ("briefing", "easy"): lambda t: notes(t) == (3, 0, 0, True),
    ("briefing", "medium"): lambda t: notes(t) == (3, 3, 0, True),
    ("briefing", "hard"): lambda t: notes(t) == (4, 4, 4, False),
    ("bargaining", "easy"): lambda t: 0.27 < zone(t) < 0.43,
    ("bargaining", "medium"): lambda t: 0.13 < zone(t) < 0.26,
    ("bargaining", "hard"): lambda t: 0.03 < zone(t) < 0.1,
    ("division", "easy"): lambda t: shape(t) == (2, 2) and not tops(t)[0] & tops(t)[1],
    ("division", "medium"): lambda t: shape(t) == (2, 3),
    ("division", "hard"): lambda t: shape(t) == (2, 4) and bool(tops(t)[0] & tops(t)[1]),
    ("mutual_friend", "easy"): lambda t: (len(friends(t)[0]), len(friends(t)[0][0]), shared_names(t)) == (4, 3, 1),
    ("mutual_friend", "medium"): lambda t: (len(friends(t)[0]), len(friends(t)[0][0]), shared_names(t)) == (6, 4, 1),
    ("mutual_friend", "hard"): lambda t: (len(friends(t)[0]), len(friends(t)[0][0]), shared_names(t)) == (8, 5, 2),
    ("hiring", "easy"): lambda t: "integrative" in t.scenario.tags and len(payoff_sums(t)) > 1,
    ("hiring", "medium"): lambda t: ("zero-sum" in t.scenario.tags) is (payoff_sums(t) == {8400}),
    ("hiring", "hard"): lambda t: "zero-sum" in t.scenario.tags and payoff_sums(t) == {8400},
    ("group_decision", "easy"): lambda t: shape(t) == (3, 3),
    ("group_decision", "medium"): lambda t: shape(t) == (4, 4),
    ("group_decision", "hard"): lambda t: shape(t) == (5, 5) and len(set.union(*tops(t))) == 5,
    ("campsite", "easy"): lambda t: orders(t)[0] == orders(t)[1][::-1],
    ("campsite", "medium"): lambda t: orders(t)[0][0] != orders(t)[1][0] and orders(t)[0] != orders(t)[1][::-1],
    ("campsite", "hard"): lambda t: orders(t)[0][0] == orders(t)[1][0],
    ("job_committee", "easy"): lambda t: committee(t) == (3, 2, 2, 3),
    ("job_committee", "medium"): lambda t: committee(t) == (4, 3, 3, 1),
    ("job_committee", "hard"): lambda t: committee(t) == (5, 3, 5, 1),
    ("negotiation", "easy"): lambda t: difficulty(t) == (0.3, 0.5, 3, 27),
    ("negotiation", "medium"): lambda t: difficulty(t) == (0.6, 0.25, 3, 64),
    ("negotiation", "hard"): lambda t: difficulty(t) == (0.85, 0.1, 4, 256),
}


@each_level
def test_levels_differ_as_documented(name: str, level: str) -> None:
    assert (name, level) in LEVELS, f"LEVELS: say what makes a task of {name!r} {level}, as its module documents"
    for task in tasks.generate(name, 20, seed=5, level=level):
        assert LEVELS[name, level](task), task.id


def divisions(count: int, agents: Sequence[str]) -> list[dict[str, int]]:
    rows = itertools.product(range(count + 1), repeat=len(agents))
    return [dict(zip(agents, row, strict=True)) for row in rows if sum(row) == count]


def brute_payoffs(task: Task) -> Iterator[tuple[float, ...]]:
    """Every outcome's payoffs, from the JSON of the specification alone."""
    spec = spec_of(task)
    if spec["protocol"]["kind"] == "claims":
        yield tuple(worth["right"] for worth in spec["worth"])
    elif spec["protocol"]["kind"] == "choices":
        rounds = spec["protocol"]["rounds"]
        for row in itertools.product(*(game_options(spec["protocol"], agent) for agent in task.agents)):
            yield tuple(rounds * gain(worth, seat, row) for seat, worth in enumerate(spec["worth"]))
    elif spec["protocol"]["kind"] == "ballot":
        for option in spec["protocol"]["options"]:
            yield tuple(worth["options"][option] for worth in spec["worth"])
    else:
        values = [issue_values(issue, task.agents) for issue in spec["issues"]]
        for row in itertools.product(*values):
            terms = dict(zip([issue["name"] for issue in spec["issues"]], row, strict=True))
            yield tuple(payoff(worth, agent, terms) for worth, agent in zip(spec["worth"], task.agents, strict=True))


def game_options(rules: dict[str, Any], agent: str) -> list[str]:
    if (amounts := rules["amounts"]) is not None:
        return [str(n) for n in range(amounts["low"], amounts["high"] + 1, amounts["step"])]
    return list(rules["own_options"].get(agent) or rules["options"])


def gain(worth: dict[str, Any], seat: int, row: Sequence[str]) -> float:
    """What a round pays to a seat."""
    others = [option for number, option in enumerate(row) if number != seat]
    if "counts" in worth:
        return float(worth["counts"][row[seat]][others.count(worth["of"])])
    if "payoffs" in worth:
        cell = worth["payoffs"][row[seat]]
        for option in others:
            cell = cell[option]
        return float(cell)
    amounts, own, rest = list(map(float, row)), float(row[seat]), [float(option) for option in others]
    values = {"own": own, "others": sum(rest), "total": sum(amounts), "lowest": min(amounts), "highest": max(amounts),
              "below": float(own < min(rest)), "above": float(own > max(rest))}  # fmt: skip
    return round(worth["constant"] + sum(weight * values[name] for name, weight in worth["per"].items()), 6)


def issue_values(issue: dict[str, Any], agents: Sequence[str]) -> list[Any]:
    if issue["kind"] == "items":
        return divisions(issue["count"], agents)
    if issue["kind"] == "choice":
        return list(issue["options"])
    return list(range(issue["low"], issue["high"] + 1, issue["step"]))


def payoff(worth: dict[str, Any], agent: str, terms: dict[str, Any]) -> float:
    total = worth["constant"]
    for name, value in terms.items():
        gains = worth["issues"][name]
        if isinstance(value, dict):
            total += gains["each"] * value[agent]
        else:
            total += gains["per_unit"] * value if "per_unit" in gains else gains[value]
    return round(total, 6)


NO_OUTCOME = {"agreement": "no_agreement", "ballot": "no_decision", "claims": "none", "choices": "no_choice"}


def possible(task: Task, gains: Sequence[float]) -> bool:
    """Whether as many seats as an outcome needs would agree to it."""
    rules = spec_of(task)["protocol"]
    willing = [agent for agent, gain in zip(task.agents, gains, strict=True) if gain >= 0]
    if rules["kind"] == "choices":
        return True
    if rules["kind"] == "ballot":
        return len(willing) >= 1
    if rules["needs"] == "all":
        return len(willing) == len(task.agents)
    return len(willing) >= rules["needs"]["quorum"] and set(rules["needs"]["veto"]) <= set(willing)


@each_level_by_outcomes
def test_reference_points_equal_those_of_brute_force(name: str, level: str) -> None:
    task = tasks.family(name).generate(1, 4, level)
    points, spec = references(task), spec_of(task)
    rounds = spec["protocol"].get("rounds", 1)
    low = tuple(rounds * worth[NO_OUTCOME[spec["protocol"]["kind"]]] for worth in spec["worth"])
    payoffs = sorted(set(brute_payoffs(task)))
    able = [p for p in payoffs if possible(task, [u - d for u, d in zip(p, low, strict=True)])]
    rational = [p for p in payoffs if all(u >= d for u, d in zip(p, low, strict=True))]
    assert points.disagreement == low
    assert points.best == tuple(max([low[seat], *(p[seat] for p in able)]) for seat in range(len(low)))
    assert math.fsum(points.best_joint) == pytest.approx(max([sum(low), *map(sum, able)]))
    assert points.nash in rational
    assert nash_product(points.nash, low) == pytest.approx(max(nash_product(p, low) for p in rational))
    assert min_gain(points.egalitarian, low) == pytest.approx(max(min_gain(p, low) for p in rational))
    if len(payoffs) < 700:
        dominated = {
            p for p in payoffs if any(q != p and all(map(float.__ge__, floats(q), floats(p))) for q in payoffs)
        }
        assert points.frontier == tuple(p for p in payoffs if p not in dominated)


def floats(payoffs: Sequence[float]) -> list[float]:
    return [float(value) for value in payoffs]


def nash_product(payoffs: Sequence[float], low: Sequence[float]) -> float:
    return math.prod(u - d for u, d in zip(payoffs, low, strict=True))


def min_gain(payoffs: Sequence[float], low: Sequence[float]) -> float:
    return min(u - d for u, d in zip(payoffs, low, strict=True))


def act(state: EpisodeState, move: Move | None) -> EpisodeState:
    """The acting seat makes ``move`` with words that fit it, or says something."""
    assert state.actor is not None
    words = tasks.phrase(observe(state, state.actor), move, len(state.turns))
    after = transition(state, Action(ActionType.SPEAK, words, move=move))
    assert after.turns[-1].violation is None
    return after


def good_move(state: EpisodeState) -> Move | None:
    """Offers or takes the Nash solution, votes for it, or claims the answer; ``None`` before the ballot opens."""
    task, points = state.task, references(state.task)
    rules = spec_of(task)["protocol"]
    if rules["kind"] == "claims":
        return Move(MoveKind.CLAIM, rules["answer"])
    if rules["kind"] == "choices":
        view = observe(state, state.actor or "")
        assert view.moves is not None
        option = "10" if points.nash_terms is None else points.nash_terms[view.briefing.name]
        return Move(MoveKind.CHOOSE, option) if view.moves.choose else None
    assert points.nash_terms is not None
    if rules["kind"] == "ballot":
        menu = observe(state, state.actor or "").moves
        assert menu is not None
        # Whoever may not vote for the solution, because it is that seat, votes for another.
        options = [option for option in menu.vote if option == points.nash_terms["option"]] or menu.vote
        return Move(MoveKind.VOTE, options[0]) if options else None
    return Move(MoveKind.ACCEPT, 1) if state.turns else Move(MoveKind.PROPOSE, points.nash_terms)


@each_level_by_outcomes
def test_an_episode_of_moves_ends_with_the_nash_solution(name: str, level: str) -> None:
    task = tasks.family(name).generate(2, 6, level)
    state = initial_state(task, Rules(), 0)
    while state.stop is None:
        state = act(state, good_move(state))
    result, points = outcome_of(task, state.turns), references(task)
    assert state.stop is StopReason.SETTLED
    assert result.agreed
    assert result.payoffs == points.nash
    assert result.shares == points.shares(points.nash)


@each_family
def test_words_alone_never_reach_an_outcome(name: str) -> None:
    task = tasks.family(name).generate(0, 2, "easy")
    state = initial_state(task, Rules(max_turns=6), 0)
    while state.stop is None:
        words = tasks.phrase(observe(state, state.actor or ""), good_move(state), 0)
        state = transition(state, Action(ActionType.SPEAK, words))
    result = outcome_of(task, state.turns)
    assert not result.agreed
    assert result.payoffs == references(task).disagreement


def test_seats_change_with_the_index() -> None:
    for name, role in (("bargaining", "buyer"), ("hiring", "manager")):
        roles = [task.scenario.seats[0].private_data["role"] for task in tasks.generate(name, 4, seed=1)]
        assert [own == role for own in roles] == [True, False, True, False]
    chairs = [task.scenario.shared_data["chair"] for task in tasks.generate("job_committee", 5, seed=1)]
    assert chairs == [f"agent_{seat}" for seat in range(5)]


def test_the_listed_price_is_no_deal_and_the_target_lies_inside_the_own_limit() -> None:
    for task in tasks.generate("bargaining", 50, seed=2):
        listed: Any = task.scenario.shared_data["listed_price"]
        for seat, worth in zip(task.scenario.seats, spec_of(task)["worth"], strict=True):
            gain = worth["constant"] + worth["issues"]["price"]["per_unit"] * seat.private_data["target_price"]
            assert gain > 0
            if seat.private_data["role"] == "buyer":
                assert worth["constant"] < listed


def test_a_wrong_claim_costs_the_one_who_made_it() -> None:
    task = tasks.family("mutual_friend").generate(0, 0, "easy")
    answer = spec_of(task)["protocol"]["answer"]
    wrong = next(friend["name"] for friend in friends(task)[0] if friend["name"] != answer)
    state = initial_state(task, Rules(), 0)
    for claim in (wrong, answer, answer):
        state = act(state, Move(MoveKind.CLAIM, claim))
    assert outcome_of(task, state.turns).payoffs == (0.75, 1.0)


def test_a_committee_can_pass_over_two_members_but_not_the_chair() -> None:
    task = tasks.family("job_committee").generate(0, 0, "easy")
    terms = references(task).best_terms[0]
    state = act(initial_state(task, Rules(), 0), Move(MoveKind.PROPOSE, terms))
    for move in (
        Move(MoveKind.REJECT, 1),
        Move(MoveKind.ACCEPT, 1),
        Move(MoveKind.REJECT, 1),
        Move(MoveKind.ACCEPT, 1),
    ):
        state = act(state, move)
    assert outcome_of(task, state.turns).terms == terms
    state = transition(initial_state(task, Rules(), 0), Action(ActionType.LEAVE))
    assert state.stop is StopReason.SETTLED
