"""The family ``mutual_friend``: solvable tasks, exact payoffs, and a reader that refuses near misses."""

from __future__ import annotations

import itertools

import pytest

from sotopia_env.errors import InvalidTaskError, InvalidValueError
from sotopia_env.tasks.family import LEVELS
from sotopia_env.tasks.mutual_friend import FAMILY, PENALTY, FriendProblem
from sotopia_env.tasks.mutual_friend_claims import keep_ledger, read_utterance
from sotopia_env.tasks.texts import mutual_friend as words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, Turn, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from tests.sotopia_env import factories

PEOPLE = ("Maya Lind", "Otto Berg", "Maya Holt", "Elif Nowak")
MAYA, OTTO, HOLT, ELIF = PEOPLE

CLAIMS = [
    ("Our mutual friend is Otto Berg.", OTTO),
    ("Our mutual friend is Otto!", OTTO),
    ("our common friend must be otto berg", OTTO),
    ("It must be Otto.", OTTO),
    ("It's Elif Nowak!", ELIF),
    ("I think our mutual friend is Otto Berg.", OTTO),
    ("I'm sure it is Maya Lind.", MAYA),
    ("We both know Otto.", OTTO),
    ("I also have an Otto Berg on my list, so Otto Berg must be the one!", OTTO),
    ("I believe we have found them - Otto Berg is our mutual friend.", OTTO),
    ("So Elif it is!", ELIF),
    ("Otto Berg is our mutual friend.", OTTO),
    ("Then Otto is the one we both know.", OTTO),
    ("The person we both know is Otto Berg.", OTTO),
    ("The friend we share is Otto.", OTTO),
    ("Otto is on both our lists.", OTTO),
    ("claim: Otto Berg", OTTO),
    ("Claim: Elif", ELIF),
    ('claim: "Maya Lind"', MAYA),
    ("**Our mutual friend is Otto Berg.**", OTTO),
    ("Our mutual friend is Otto, do you agree?", OTTO),
    ("It's not Otto, it's Elif.", ELIF),
    ("It must be Otto, not Elif.", OTTO),
    ("I don't know Otto, so our mutual friend must be Elif.", ELIF),
    ("There's no doubt: our mutual friend is Elif.", ELIF),
    ("I can't believe it, our mutual friend is Otto!", OTTO),
    ("Maya Lind is our mutual friend, I don't know Maya Holt.", MAYA),
    ("Yes, our mutual friend is Otto.", OTTO),
]
NO_CLAIMS = [
    "Do you know Otto Berg?",
    "Is Otto our mutual friend?",
    "is otto our mutual friend",
    "Could it be Otto?",
    "It's Otto, right?",
    "It must be Otto, isn't it?",
    "It could be Otto.",
    "It might be Otto.",
    "Maybe it's Otto.",
    "Perhaps our mutual friend is Otto.",
    "It's probably Otto.",
    "My guess is it's Otto.",
    "I wonder whether it is Otto.",
    "I'm not sure it is Otto.",
    "It's either Otto or Elif.",
    "Our mutual friend is Otto or Elif.",
    "Our mutual friend is Otto. Our mutual friend is Elif.",
    "It is not Otto.",
    "It isn't Otto.",
    "I don't think it's Otto.",
    "I doubt that our mutual friend is Otto.",
    "It can't be Otto.",
    "Nobody said it is Otto.",
    "It isn't true that our mutual friend is Otto.",
    "You said our mutual friend is Otto.",
    "You think our mutual friend is Otto.",
    'My aunt shouted "our mutual friend is Otto Berg" at me.',
    "I thought it was Otto.",
    "If he plays chess, it is Otto.",
    "It is Otto if he works at the bank.",
    "Unless I am wrong, it is Otto.",
    "Our mutual friend is Maya.",
    "claim: Maya",
    "claim: Otto or Elif",
    "claim: not Otto",
    "claim: Somebody Else",
    "Our mutual friend is Zoe Quist.",
    "Our mutual friend is nice.",
    "I know Otto Berg.",
    "One of my friends is Otto Berg, who went to Elmfield University.",
    "Otto Berg is my friend.",
    "My best friend is Otto.",
    "I like Otto.",
    "Otto lives in Stonebridge.",
    "Tell me about Otto.",
    "Who is Otto Berg?",
    "We should find our mutual friend.",
    "I wish our mutual friend were Otto.",
    "Imagine our mutual friend is Otto.",
    "Hello there!",
    "That's Otto Berg on the photo.",
    "This is Otto Berg, my brother-in-law.",
    "It is Otto on the phone.",
    "Otto is the one who plays chess.",
    "Elif knows our mutual friend is Otto.",
    "Our mutual friend has a dog, and Otto Berg has a dog.",
    "Let me think about Otto and Elif.",
    "Wouldn't it be funny if it were Otto?",
    "",
]


@pytest.mark.parametrize(("text", "name"), CLAIMS)
def test_a_claim_is_read(text: str, name: str) -> None:
    assert read_utterance(text, PEOPLE).claims == (name,)


@pytest.mark.parametrize("text", NO_CLAIMS)
def test_a_near_miss_is_no_claim(text: str) -> None:
    assert read_utterance(text, PEOPLE).claims == ()
    turn = Turn(0, 0, "agent_0", Action(ActionType.SPEAK, text))
    assert keep_ledger([turn], PEOPLE).standing == ()


def test_in_simultaneous_order_a_yes_answers_nothing_of_its_own_round() -> None:
    def together(*rounds: tuple[str, str]) -> tuple[str | None, str | None]:
        turns = [
            Turn(2 * number + seat, number, f"agent_{seat}", Action(ActionType.SPEAK, text), veiled=True)
            for number, pair in enumerate(rounds)
            for seat, text in enumerate(pair)
        ]
        ledger = keep_ledger(turns, PEOPLE)
        return ledger.claim_of("agent_0"), ledger.claim_of("agent_1")

    assert together(("It must be Otto.", "Yes!")) == (OTTO, None)
    assert together(("It must be Otto.", "Hello."), ("Well?", "Yes!")) == (OTTO, OTTO)
    assert together(("Hello.", "It must be Otto."), ("Yes!", "Hm.")) == (OTTO, OTTO)


DIALOGUES = [
    ("claim and plain yes", ["It must be Otto.", "Yes!"], (OTTO, OTTO)),
    ("claim and that's right", ["It must be Otto.", "That's right, I went to school with him."], (OTTO, OTTO)),
    ("claim and know too", ["It must be Otto.", "I know Otto too."], (OTTO, OTTO)),
    ("claim and named confirmation", ["It must be Otto.", "Exactly, it is Otto."], (OTTO, OTTO)),
    ("asked as mutual and yes", ["Is Otto our mutual friend?", "Yes!"], (None, OTTO)),
    ("asked as mutual and know too", ["Is Otto our mutual friend?", "I know Otto too."], (None, OTTO)),
    ("mere question and yes", ["Do you know Otto?", "Yes!"], (None, None)),
    ("mere question and know too", ["Do you know Otto?", "Yes, I know Otto too."], (None, None)),
    ("yes to nothing", ["Hello!", "Yes!"], (None, None)),
    ("yes but", ["It must be Otto.", "Yes, but I am not sure."], (OTTO, None)),
    ("yes with a question", ["It must be Otto.", "Yes? Who is that?"], (OTTO, None)),
    ("a yes that is a question", ["It must be Otto.", "Yes?"], (OTTO, None)),
    ("yes that stalls", ["It must be Otto.", "Yes, let me think."], (OTTO, None)),
    ("yes about somebody else", ["It must be Otto.", "Yes, I know Elif."], (OTTO, None)),
    ("yes and another claim", ["It must be Otto.", "Yes, it must be Elif."], (OTTO, ELIF)),
    ("no", ["It must be Otto.", "No."], (OTTO, None)),
    ("denial", ["It must be Otto.", "I don't know Otto."], (OTTO, None)),
    ("yes to oneself", ["It must be Otto.", "Hm.", "Yes!"], (OTTO, None)),
    ("yes too late", ["Is Otto our mutual friend?", "Hm.", "So?", "Yes!"], (None, None)),
    ("taken back", ["It must be Otto.", "Hm.", "Sorry, it isn't Otto."], (None, None)),
    ("replaced", ["It must be Otto.", "Hm.", "It must be Elif."], (ELIF, None)),
    ("gratitude is no assent", ["It must be Otto.", "Great, thanks for telling me."], (OTTO, None)),
    ("explicit confirmation", ["claim: Otto Berg", "confirm: Otto Berg"], (OTTO, OTTO)),
]


@pytest.mark.parametrize(("label", "texts", "standing"), DIALOGUES)
def test_confirmations(label: str, texts: list[str], standing: tuple[str | None, str | None]) -> None:
    turns = [Turn(i, i // 2, f"agent_{i % 2}", Action(ActionType.SPEAK, text)) for i, text in enumerate(texts)]
    ledger = keep_ledger(turns, PEOPLE)
    assert (ledger.claim_of("agent_0"), ledger.claim_of("agent_1")) == standing, label


def test_gestures_claim_nothing() -> None:
    turn = Turn(0, 0, "agent_0", Action(ActionType.NON_VERBAL, "claim: Otto Berg"))
    assert keep_ledger([turn], PEOPLE).standing == ()


def test_the_tables_are_as_long_as_promised() -> None:
    assert len(CLAIMS) + len(NO_CLAIMS) + len(DIALOGUES) >= 60
    for phrasings, least in ((words.CONTEXTS, 8), (words.GOALS, 8), (words.CLAIMS, 6), (words.CONFIRMATIONS, 6)):
        assert len(set(phrasings)) >= least


def test_every_phrasing_is_understood() -> None:
    for phrase, name in itertools.product(words.CLAIMS + words.CONFIRMATIONS, PEOPLE):
        assert read_utterance(phrase.format(name=name), PEOPLE).claims == (name,), phrase
    facts = " and ".join(fact.format(value=words.ATTRIBUTES[kind][0]) for kind, fact in words.FACTS.items())
    for phrase, name in itertools.product(words.SHARES, PEOPLE):
        said = read_utterance(phrase.format(name=name, first=name.split(" ")[0], facts=facts), PEOPLE)
        assert (said.claims, said.asks, said.denials) == ((), (), ()), phrase


def test_no_attribute_value_contains_another() -> None:
    values = [value for group in words.ATTRIBUTES.values() for value in group]
    assert not [(a, b) for a, b in itertools.permutations(values, 2) if a in b]


def tasks(level: str, n: int = 25) -> list[Task]:
    return [FAMILY.generate(index, 7, level) for index in range(n)]


def friends(task: Task, seat: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = task.scenario.seats[seat].private_data["friends"]
    return found


def speak(state: EpisodeState, text: str) -> EpisodeState:
    return transition(state, Action(ActionType.SPEAK, text))


def play(task: Task, *texts: str) -> EpisodeState:
    state = initial_state(task, Rules(), 0)
    for text in texts:
        state = speak(state, text)
    return state


@pytest.mark.parametrize("level", LEVELS)
def test_exactly_one_friend_is_common_and_the_words_tell_the_lists(level: str) -> None:
    for task in tasks(level):
        parameters = task.scenario.outcome.parameters  # type: ignore[union-attr]
        common = [friend for friend in friends(task, 0) if friend in friends(task, 1)]
        assert [friend["name"] for friend in common] == [parameters["friend"]]
        namesakes = {f["name"] for f in friends(task, 0)} & {f["name"] for f in friends(task, 1)}
        assert len(namesakes) == (2 if level == "hard" else 1)
        firsts = [f["name"].split(" ")[0] for seat in range(2) for f in friends(task, seat)]
        assert not {c.first_name for c in task.characters} & set(firsts)
        for seat in range(2):
            assert len(friends(task, seat)) == {"easy": 4, "medium": 6, "hard": 8}[level]
            told = task.scenario.seats[seat].private_info
            assert all(value in told for friend in friends(task, seat) for value in friend.values())
            shared_first = common[0]["name"].split(" ")[0]
            others = [f for f in friends(task, seat) if f != common[0] and f["name"].startswith(f"{shared_first} ")]
            assert bool(others) == (level != "easy")


@pytest.mark.parametrize("level", LEVELS)
def test_payoffs_equal_brute_force_over_all_pairs_of_claims(level: str) -> None:
    task = FAMILY.generate(1, 3, level)
    parameters = task.scenario.outcome.parameters  # type: ignore[union-attr]
    points = FAMILY.reference(task)
    reached = []
    for first, second in itertools.product([None, *parameters["people"]], repeat=2):
        texts = [f"claim: {name}" if name else "Hello." for name in (first, second)]
        result = FAMILY.read(task, play(task, *texts).turns)
        both = first == second == parameters["friend"]
        expected = [both - PENALTY * (name not in (None, parameters["friend"])) for name in (first, second)]
        assert list(result.payoffs) == expected
        assert result.agreement == both
        reached.append(result.payoffs)
    assert tuple(max(column) for column in zip(*reached, strict=True)) == points.best
    assert max(map(sum, reached)) == points.best_joint
    assert [p for p in set(reached) if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in reached)] == list(
        points.frontier
    )


@pytest.mark.parametrize("level", LEVELS)
def test_sharing_facts_finds_the_friend_within_the_turn_limit(level: str) -> None:
    for task in tasks(level):
        state = initial_state(task, Rules(), 0)
        while state.stop is None and state.actor is not None:
            problem = FAMILY.problem(observe(state, state.actor))
            if problem.settled():
                break
            state = speak(state, _informed(problem, len(state.turns)))
        result = FAMILY.read(task, state.turns)
        assert result.agreement, result.reason
        assert result.shares == (1.0, 1.0)


def _informed(problem: object, seed: int) -> str:
    assert isinstance(problem, FriendProblem)
    incoming = problem.incoming()
    if incoming is not None and problem.value(incoming) > 0.5:
        return problem.phrase_accept(incoming, seed)
    best, worth = problem.candidates()[0]
    if worth > 0.7:
        return problem.phrase_offer(best, seed)
    return problem.phrase_share(seed) or "I have told you everything."


def test_a_wrong_claim_costs_once_and_taking_it_back_refunds_nothing() -> None:
    task = FAMILY.generate(0, 0, "easy")
    right = task.scenario.outcome.parameters["friend"]  # type: ignore[union-attr]
    wrong = next(f["name"] for f in friends(task, 0) if f["name"] != right)
    texts = [f"It must be {wrong}.", "Hm.", f"It must be {wrong}.", "No.", f"It isn't {wrong}.", "No.",
             f"It must be {right}.", "Yes!"]  # fmt: skip
    result = FAMILY.read(task, play(task, *texts).turns)
    assert result.agreement
    assert result.payoffs == (1 - PENALTY, 1.0)


def test_after_the_friend_is_found_later_talk_changes_nothing() -> None:
    task = FAMILY.generate(0, 0, "easy")
    right = task.scenario.outcome.parameters["friend"]  # type: ignore[union-attr]
    wrong = next(f["name"] for f in friends(task, 0) if f["name"] != right)
    result = FAMILY.read(task, play(task, f"claim: {right}", "Yes!", f"claim: {wrong}").turns)
    assert (result.agreement, result.payoffs) == (True, (1.0, 1.0))


def test_agreeing_on_the_wrong_person_is_a_failure_with_its_reason() -> None:
    task = FAMILY.generate(0, 0, "hard")
    right = task.scenario.outcome.parameters["friend"]  # type: ignore[union-attr]
    wrong = next(f["name"] for f in friends(task, 0) if f["name"] != right)
    result = FAMILY.read(task, play(task, f"claim: {wrong}", "Yes!").turns)
    assert not result.agreement
    assert result.payoffs == (-PENALTY, -PENALTY)
    assert wrong in result.reason


def test_a_namesake_with_other_attributes_is_recognised() -> None:
    task = FAMILY.generate(0, 0, "hard")
    right = task.scenario.outcome.parameters["friend"]  # type: ignore[union-attr]
    names = {f["name"] for f in friends(task, 1)}
    namesake = next(f for f in friends(task, 0) if f["name"] in names and f["name"] != right)
    facts = " and ".join(words.FACTS[kind].format(value=v) for kind, v in namesake.items() if kind != "name")
    state = play(task, f"One of my friends is {namesake['name']}, who {facts}.")
    assert FAMILY.problem(observe(state, "agent_1")).value({"friend": namesake["name"]}) == -PENALTY


def test_the_problem_is_made_of_the_observation() -> None:
    task = FAMILY.generate(0, 0, "medium")
    name = friends(task, 1)[0]["name"]
    state = play(task, f"Our mutual friend is {name}.")
    problem = FAMILY.problem(observe(state, "agent_1"))
    assert problem.incoming() == {"friend": name}
    assert problem.candidates()[0][0] == {"friend": name}
    assert not problem.settled()
    state = speak(state, problem.phrase_accept({"friend": name}, 1))
    problem = FAMILY.problem(observe(state, "agent_1"))
    assert problem.settled()
    assert problem.incoming() is None
    assert problem.outgoing() == [{"friend": name}]


def test_sharing_never_repeats_and_ends() -> None:
    task = FAMILY.generate(0, 0, "medium")
    state = initial_state(task, Rules(), 0)
    said = []
    for _ in range(6):
        text = FAMILY.problem(observe(state, "agent_0")).phrase_share(len(said))
        assert text is not None
        said.append(text)
        state = speak(speak(state, text), "Go on.")
    assert len(set(said)) == 6
    assert FAMILY.problem(observe(state, "agent_0")).phrase_share(0) is None


def test_equal_arguments_equal_task_and_other_arguments_another() -> None:
    assert FAMILY.generate(3, 1, "hard") == FAMILY.generate(3, 1, "hard")
    assert FAMILY.generate(3, 1, "hard").id == "mutual_friend-hard-1-3"
    hashes = {FAMILY.generate(i, s, lv).content_hash for i in range(3) for s in range(3) for lv in LEVELS}
    assert len(hashes) == 27


@pytest.mark.parametrize(("arguments", "word"), [((0, 0, "hrad"), "hard"), ((-1, 0, "easy"), "index")])
def test_misuse_is_answered_with_one_sentence(arguments: tuple[int, int, str], word: str) -> None:
    with pytest.raises(InvalidValueError, match=word):
        FAMILY.generate(*arguments)


def test_a_task_of_another_family_is_refused() -> None:
    with pytest.raises(InvalidTaskError, match=r"outcome\.family"):
        FAMILY.read(factories.task(), ())
