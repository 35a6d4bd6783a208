"""The family ``group_decision``: exact reference points, solvable tasks, and a reader that refuses near misses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from sotopia_env.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.group_decision import FAMILY, GroupProblem
from sotopia_env.tasks.group_decision_votes import count_votes, read_ballot
from sotopia_env.tasks.texts import group_decision as words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, Turn, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from tests.sotopia_env import factories

OPTIONS = ("science museum", "lake picnic", "bowling alley")
M, P, B = OPTIONS

VOTES = [
    ("I vote for the museum.", M),
    ("I vote for the science museum!", M),
    ("i vote for museum", M),
    ("I vote museum.", M),
    ("As I said, I vote for the museum.", M),
    ("I'd like to cast my vote for the picnic!", P),
    ("My vote goes to the lake picnic.", P),
    ("My vote is for the picnic.", P),
    ("My vote: the picnic", P),
    ("vote: museum", M),
    ("Vote: bowling alley.", B),
    ("VOTE: Bowling", B),
    ("Count me in for the picnic!", P),
    ("Put me down for bowling, please.", B),
    ("The museum gets my vote.", M),
    ("The bowling alley has my vote.", B),
    ("I cast my vote for the museum.", M),
    ("I'm voting for the picnic.", P),
    ("I’m voting for the picnic.", P),
    ("I hereby vote for the picnic, and that is final.", P),
    ("**I vote for the museum**", M),
    ('"I vote for the museum."', M),
    ("I'll vote for the museum then.", M),
    ("I change my vote to the picnic.", P),
    ("I'm switching my vote from the museum to the picnic.", P),
    ("All right, I vote for the museum too.", M),
    ("I vote for the museum, not the picnic.", M),
    ("I vote for the museum over the picnic.", M),
    ("I won't vote for the museum, I vote for the picnic.", P),
    ("No, I vote for the museum.", M),
    ("Without a doubt, I vote for the museum.", M),
    ("I vote for the museum even if it rains.", M),
    ("I liked the picnic last year, but I vote for the museum.", M),
    ("What a day! I vote for the museum. Who is with me?", M),
    ("I thought about it and I vote for the picnic.", P),
    ("I give the museum my vote.", M),
]
NO_VOTES = [
    "I might vote for the museum.",
    "Maybe I vote for the museum.",
    "I could vote for the museum.",
    "I'd vote for the museum.",
    "I would vote for the museum.",
    "I'll probably vote for the museum.",
    "I'm tempted to vote for the museum.",
    "I'm thinking of voting for the picnic.",
    "If you all vote for the museum, I vote for the museum.",
    "I vote for the museum if Anna does.",
    "I vote for the museum provided that we eat there.",
    "Unless it rains, I vote for the picnic.",
    "Once Anna is back I vote for the picnic.",
    "Who votes for the museum?",
    "Should I vote for the museum?",
    "Do I vote for the museum or the picnic?",
    "I vote for the museum?",
    "Can you vote for the museum?",
    "I voted for the museum last year.",
    "Last year I vote for the museum and regret it.",
    "I was going to vote for the museum.",
    "I used to vote for the museum.",
    "Anna votes for the museum.",
    "Anna said: I vote for the museum.",
    'Anna shouted "I vote for the museum" to everybody.',
    "You should vote for the museum.",
    "Please vote for the museum.",
    "Let's all vote for the museum.",
    "We vote for the museum.",
    "My sister's vote goes to the museum.",
    "His vote goes to the museum.",
    "Your vote for the museum counts.",
    "I don't vote for the museum.",
    "I'm not voting for the museum.",
    "I will never vote for the museum.",
    "I refuse to vote for the museum.",
    "I vote against the museum.",
    "I vote for anything but the museum.",
    "I vote for the museum or the picnic.",
    "I vote for the museum and the picnic.",
    "I vote for the museum. I vote for the picnic.",
    "vote: museum or picnic",
    "vote: the beach",
    "vote: not the museum",
    "I vote for the opera.",
    "I like the museum best.",
    "I prefer the museum.",
    "I support the museum.",
    "Let's go with the museum.",
    "The museum it is!",
    "Same here.",
    "Me too.",
    "I agree with Anna.",
    "Seconded.",
    "Yes, museum.",
    "I vote yes.",
    "I vote that we wait for the museum.",
    "I'm going with the museum.",
    "I think the museum is great, so I'll vote for that.",
    "Count me in.",
    "Don't count me in for the museum.",
    "You can count me out for the museum.",
    "Everyone expects me to vote for the museum.",
    "They want me to vote for the museum.",
    "Imagine I vote for the museum.",
    "I dreamt that I vote for the museum.",
    "Next time I vote for the museum.",
    "Tomorrow I'll vote for the museum.",
    "The museum should get my vote, perhaps.",
    "The museum doesn't get my vote.",
    "Devote a thought to the museum.",
    "",
]


@pytest.mark.parametrize(("text", "option"), VOTES)
def test_a_stated_vote_is_read(text: str, option: str) -> None:
    assert read_ballot(text, OPTIONS).option == option


@pytest.mark.parametrize("text", NO_VOTES)
def test_a_near_miss_is_no_vote(text: str) -> None:
    ballot = read_ballot(text, OPTIONS)
    assert ballot.option is None
    assert not ballot.withdrawn


@pytest.mark.parametrize("text", ["I might vote for the museum.", "vote: museum or picnic", "I vote for the museum?"])
def test_a_refused_vote_keeps_its_reason(text: str) -> None:
    ballot = read_ballot(text, OPTIONS)
    assert ballot.option is None
    assert ballot.problem


def test_the_tables_are_as_long_as_promised() -> None:
    assert len(NO_VOTES) + len(VOTES) >= 60
    assert len(words.CONTEXTS) >= 8
    assert len(words.GOALS) >= 8
    assert len(words.VOTES) >= 6
    assert len(words.JOINING) >= 6


@pytest.mark.parametrize("options", list(words.OCCASIONS.values()))
def test_every_phrasing_is_understood_for_every_option(options: tuple[str, ...]) -> None:
    for phrase, option in itertools.product(words.VOTES + words.JOINING, options):
        assert read_ballot(phrase.format(option=option), options).option == option, phrase


def speak(state: EpisodeState, text: str, to: tuple[str, ...] = ()) -> EpisodeState:
    return transition(state, Action(ActionType.SPEAK, text, to))


def spoken(agent_texts: Sequence[tuple[int, str]], to: tuple[str, ...] = ()) -> tuple[Turn, ...]:
    return tuple(
        Turn(index, 0, f"agent_{seat}", Action(ActionType.SPEAK, text, to))
        for index, (seat, text) in enumerate(agent_texts)
    )


DIALOGUES = [
    ("strict majority of three", [(0, "I vote for the museum."), (1, "I vote for the museum.")], 3, M),
    ("half of four is not enough", [(0, "vote: museum"), (1, "vote: museum")], 4, None),
    ("three of four", [(0, "vote: museum"), (1, "vote: museum"), (2, "vote: museum")], 4, M),
    ("the last vote counts", [(0, "vote: museum"), (1, "vote: museum"), (0, "vote: picnic")], 3, None),
    ("voting twice is one vote", [(0, "vote: museum"), (0, "vote: museum")], 3, None),
    ("a withdrawn vote", [(0, "vote: museum"), (1, "vote: museum"), (1, "I withdraw my vote.")], 3, None),
    ("a question leaves the vote", [(0, "vote: museum"), (1, "vote: museum"), (1, "Or vote for the picnic?")], 3, M),
    ("two votes in one breath leave the vote", [(0, "vote: museum"), (1, "vote: museum"),
                                               (1, "I vote for the picnic. I vote for the museum.")], 3, M),
]  # fmt: skip


@pytest.mark.parametrize(("label", "texts", "seats", "winner"), DIALOGUES)
def test_counting(label: str, texts: list[tuple[int, str]], seats: int, winner: str | None) -> None:
    assert count_votes(spoken(texts), OPTIONS).winner(seats) == winner, label


def test_private_votes_and_gestures_do_not_count() -> None:
    poll = count_votes(spoken([(0, "vote: museum"), (1, "vote: museum")], to=("agent_2",)), OPTIONS)
    assert poll.votes == {}
    assert all(reason == "a private message" for _, reason in poll.problems)
    gesture = Turn(0, 0, "agent_0", Action(ActionType.NON_VERBAL, "I vote for the museum."))
    assert count_votes([gesture], OPTIONS).votes == {}


def tasks(level: str, n: int = 25) -> list[Task]:
    return [FAMILY.generate(index, 7, level) for index in range(n)]


@pytest.mark.parametrize("level", LEVELS)
def test_reference_points_equal_brute_force(level: str) -> None:
    for task in tasks(level):
        parameters = task.scenario.outcome.parameters  # type: ignore[union-attr]
        low = tuple(parameters["no_decision"])
        outcomes = [low] + [tuple(row[i] for row in parameters["utilities"]) for i in range(len(parameters["options"]))]
        points, seats = FAMILY.reference(task), range(len(low))
        assert points.disagreement == low
        assert points.best_joint == max(map(sum, outcomes))
        for seat in seats:
            others_safe = [o for o in outcomes if all(o[i] >= low[i] for i in seats if i != seat)]
            assert points.best[seat] == max(o[seat] for o in others_safe)
        frontier = {o for o in outcomes if all(o == q or any(o[i] > q[i] for i in seats) for q in outcomes)}
        assert set(points.frontier) == frontier
        assert points.fair in outcomes
        gain = max(_product([o[i] - low[i] for i in seats]) for o in outcomes if all(o[i] >= low[i] for i in seats))
        assert _product([points.fair[i] - low[i] for i in seats]) == gain > 0


def _product(values: Sequence[float]) -> float:
    product = 1.0
    for value in values:
        product *= value
    return product


@pytest.mark.parametrize("level", LEVELS)
def test_a_task_is_solvable_and_its_words_tell_its_numbers(level: str) -> None:
    for task in tasks(level):
        assert task.scenario.id == task.id == f"group_decision-{level}-7-{task.id.rsplit('-', 1)[1]}"
        assert len(task.agents) == {"easy": 3, "medium": 4, "hard": 5}[level]
        assert task.scenario.private_messages
        for seat in task.scenario.seats:
            said = " ".join((*seat.goals, *seat.hints, seat.private_info))
            for option, points in seat.private_data["utilities"].items():
                assert f"{option} {points} point" in said
                assert option in task.scenario.context
            assert f" {seat.private_data['no_decision']} point" in seat.private_info
        option = _fair_option(task)
        state = initial_state(task, Rules(), 0)
        for _ in task.agents:
            assert state.actor is not None
            problem = FAMILY.problem(observe(state, state.actor))
            assert problem.value({"option": option}) > 0
            state = speak(state, problem.phrase_offer({"option": option}, len(state.turns)))
        result = FAMILY.read(task, state.turns)
        assert result.agreement
        assert result.payoffs == FAMILY.reference(task).fair


def _fair_option(task: Task) -> str:
    parameters = task.scenario.outcome.parameters  # type: ignore[union-attr]
    fair = FAMILY.reference(task).fair
    columns = {o: tuple(row[i] for row in parameters["utilities"]) for i, o in enumerate(parameters["options"])}
    return next(option for option, column in columns.items() if column == fair)


def test_equal_arguments_equal_task_and_other_arguments_another() -> None:
    assert FAMILY.generate(3, 1, "hard") == FAMILY.generate(3, 1, "hard")
    hashes = {FAMILY.generate(i, s, lv).content_hash for i in range(3) for s in range(3) for lv in LEVELS}
    assert len(hashes) == 27


def test_the_problem_follows_the_votes() -> None:
    task = FAMILY.generate(0, 0, "medium")
    options = task.scenario.shared_data["options"]
    state = initial_state(task, Rules(), 0)
    problem = FAMILY.problem(observe(state, "agent_0"))
    assert isinstance(problem, GroupProblem)
    values = [value for _, value in problem.candidates()]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1.0
    assert problem.incoming() is None
    for text in (options[0], options[1], options[1]):
        state = speak(state, f"I vote for the {text}.")
    problem = FAMILY.problem(observe(state, "agent_0"))
    assert problem.outgoing() == [{"option": options[0]}]
    assert problem.incoming() == {"option": options[1]}
    assert not problem.settled()
    state = speak(speak(state, "Hm."), problem.phrase_accept({"option": options[1]}, 3))
    assert FAMILY.problem(observe(state, "agent_3")).settled()


def test_an_undecided_group_gets_its_disagreement_and_the_reason() -> None:
    task = FAMILY.generate(0, 0, "easy")
    option = task.scenario.shared_data["options"][0]
    state = speak(initial_state(task, Rules(), 0), f"I might vote for the {option}.")
    result = FAMILY.read(task, state.turns)
    assert not result.agreement
    assert result.payoffs == FAMILY.reference(task).disagreement
    assert "agent_0" in result.reason
    assert result.efficiency == 0


def test_private_votes_decide_nothing_in_an_episode() -> None:
    task = FAMILY.generate(0, 0, "easy")
    option = task.scenario.shared_data["options"][0]
    state = initial_state(task, Rules(), 0)
    for other in ("agent_1", "agent_2", "agent_0"):
        state = speak(state, f"I vote for the {option}.", (other,))
    assert not FAMILY.read(task, state.turns).agreement


@pytest.mark.parametrize(
    ("arguments", "word"),
    [((0, 0, "meduim"), "medium"), ((-1, 0, "easy"), "index"), ((0, -1, "easy"), "seed"), ((0, True, "easy"), "seed")],
)
def test_misuse_is_answered_with_one_sentence(arguments: tuple[int, int, str], word: str) -> None:
    with pytest.raises(InvalidValueError, match=word):
        FAMILY.generate(*arguments)


def test_a_task_of_another_family_is_refused() -> None:
    with pytest.raises(InvalidTaskError, match=r"outcome\.family"):
        FAMILY.read(factories.task(), ())
