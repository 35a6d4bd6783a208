"""Words that only look like a vote or like naming the mutual friend, and their plain-spoken opposites."""

from __future__ import annotations

import pytest

from sotopia_env.tasks.group_decision_votes import count_votes, read_ballot
from sotopia_env.tasks.mutual_friend_claims import keep_ledger
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn

OPTIONS = ("lake picnic", "bowling alley", "pottery workshop")
PEOPLE = ("Otto Berg", "Elif Nowak", "Maya Lind", "Maya Holt")
OTTO, ELIF = PEOPLE[:2]
V = "I vote for the lake picnic"

NO_VOTES = (
    f"{V}. Psych!",
    f"{V}. Gotcha!",
    f"{V}. Sike.",
    f"{V}. As if.",
    f"{V}. Actually no.",
    f"{V}. Actually, not.",
    f"{V}. Hmm, scratch that.",
    f"{V}. Strike that.",
    f"{V}. Cancel that.",
    f"{V}. I take it back.",
    f"{V}. No wait, bowling alley.",
    f"{V}. Wait, the bowling alley.",
    f"{V}. Make that bowling.",
    f"{V}. I mean the bowling alley.",
    f"{V}. Sorry, bowling.",
    f"{V}. On second thought, bowling.",
    f"{V}. You all fell for it.",
    f"{V}. My fingers are crossed.",
    f"{V}. Ignore me.",
    f"{V}. Or not.",
    f"{V}. Never mind.",
    f"{V} 🤡",
    f"{V} 👎",
    f"{V}, said no one.",
    f"{V}, just kidding.",
    f"{V}, or else bowling.",
    f"{V}, in a parallel universe.",
    f"{V}, over my dead body.",
    f"{V}, pending the price.",
    f"{V}, subject to the weather.",
    f"{V}, then the bowling alley.",
    f"{V}, minus the lake.",
    f"{V} never.",
    f"{V} last.",
    f"{V} second.",
    f"{V} as the worst option.",
    f"{V} to lose.",
    f"{V} to be removed from the list.",
    f"{V} to be dropped.",
    f"{V} pending the price.",
    f"{V} first, then the bowling alley.",
    f"{V} like I vote for taxes.",
    f"{V} when pigs fly.",
    f"{V} only in my nightmares.",
    f"{V} under protest and only as a fallback.",
    f"{V} in your dreams.",
    f"{V} haters to be quiet.",
    f"{V} for the dog, not for us.",
    f"{V} veto.",
    f"{V}. That was a test.",
    f"{V}. This vote is void.",
    f"{V}. Do not count it.",
    f"{V}. Surprise, bowling!",
    f"{V} and the workshop.",
    "My vote goes to the lake picnic over my dead body.",
    "My vote is for the lake picnic to be cancelled.",
    "The lake picnic gets my vote of no confidence.",
    "The lake picnic gets my vote for worst idea.",
    "Put me down for the lake picnic as a no.",
    "Put me down for the lake picnic as undecided.",
    "Count me in for the lake picnic protest.",
    "Me? I vote for the lake picnic? Ha.",
    "Only a fool would say: I vote for the lake picnic.",
    "It would be silly, but I vote for the lake picnic rejection.",
    "Opposite day: I vote for the lake picnic.",
    "vote: lake picnic, psych",
    "vote: lake picnic last",
    "vote: veto lake picnic",
    "vote: lake picnic pending the price",
)
VOTES = (
    f"{V}.",
    f"{V}!! 👍",
    f"{V} 🙂",
    f"{V} because it is cheap.",
    f"{V} because the bowling alley is too loud.",
    f"{V}, since everyone can swim.",
    f"{V}. It is a lovely place and everybody will enjoy it.",
    f"{V}, not the bowling alley.",
    f"{V} over the bowling alley.",
    f"{V}, and I hope you all join me. Thank you!",
    f"{V} as well.",
    f"{V} with all my heart.",
    f"{V}. Who is with me?",
    f"{V}. That is my final word.",
    "The bowling alley is too loud. My vote goes to the lake picnic.",
    "vote: lake picnic",
    "Vote: lake picnic!",
)


@pytest.mark.parametrize("text", NO_VOTES)
def test_what_only_looks_like_a_vote_is_none(text: str) -> None:
    ballot = read_ballot(text, OPTIONS)
    assert ballot.option is None
    assert ballot.problem


@pytest.mark.parametrize("text", VOTES)
def test_a_plain_vote_is_one(text: str) -> None:
    ballot = read_ballot(text, OPTIONS)
    assert (ballot.option, ballot.problem) == (OPTIONS[0], "")


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        ("I take that back.", False),
        ("I take it back!", False),
        ("Scratch that.", False),
        ("Cancel my vote, please.", False),
        ("I withdraw my vote.", False),
        ("I changed my mind.", False),
        ("Forget my vote.", False),
        ("I no longer vote for the picnic.", False),
        ("I don't vote for the picnic any more.", False),
        ("I am not voting for the picnic after all.", False),
        ("Strike my vote.", False),
        ("I revoke it.", False),
        ("Count me out.", False),
        ("Good, so do we have a majority?", True),
        ("You should take that back.", True),
        ("Did you take that back?", True),
        ("I will never take that back.", True),
        ("I don't vote for the bowling alley.", True),
    ],
)
def test_a_later_turn_may_cancel_a_standing_vote(later: str, stands: bool) -> None:
    said = [
        Turn(i, 0, "agent_0", Action(ActionType.SPEAK, text)) for i, text in enumerate(("vote: lake picnic", later))
    ]
    assert count_votes(said, OPTIONS).votes == ({"agent_0": OPTIONS[0]} if stands else {})


CLAIM = "Our mutual friend is Otto Berg."
NO_CONFIRMATIONS = (
    "Yes, go on.",
    "Yes, and pigs fly.",
    "Yes, and I am the queen.",
    "Yes, in your dreams.",
    "Yes! Not.",
    "Yes! Psych.",
    "Yes. Just kidding.",
    "Yes 🙄",
    "Yes? Who?",
    "Yes, sure, whatever you like to believe.",
    "Yes to the first part.",
    "Yes, one more candidate to cross off.",
    "Yes, pending a photo.",
    "Yes, minus the surname.",
    "Yes, and also Elif Nowak.",
    "Yes. It is Elif Nowak.",
    "Exactly the name I expected you to make up.",
    "Exactly what a liar would say.",
    "Absolutely no idea who that is.",
    "Of course you would say so.",
    "You are right to say it first. I have a list of ten.",
    "You are right about many things.",
    "Indeed? I have never met such a person.",
    "Indeed a common name.",
    "Agreed, it is anyone except them.",
    "Agreed, we need more facts.",
    "Correct me when I err, I have no such name.",
    "Right you are to guess.",
    "Same here: I have a candidate.",
    "Same here, I am looking for a friend.",
    "Me too, I have a name: Maya Holt is our mutual friend.",
    "Me too, I am tired.",
    "Definitely somebody from another list.",
    "Definitely worth a thought.",
    "Precisely my problem.",
    "I know Otto Berg from your stories.",
    "I know Otto Berg from television.",
    "I know Otto Berg is a stranger to me.",
    "I know Otto Berg by name only.",
    "I know Otto Berg does not ring a bell.",
    "It is Otto Berg's brother.",
    "Our mutual friend is Otto Berg's sister.",
    "Our mutual friend is Otto Berg. Psych!",
    "Our mutual friend is Otto Berg. Just kidding.",
    "Our mutual friend is Otto Berg. No wait, Elif Nowak.",
    "Our mutual friend is Otto Berg. Actually no.",
    "Our mutual friend is Otto Berg. Scratch that.",
    "Our mutual friend is Otto Berg in your dreams.",
    "Our mutual friend is Otto Berg, said no one.",
    "Our mutual friend is Otto Berg, pending proof.",
    "Only a fool would say: our mutual friend is Otto Berg.",
    "It would be silly if our mutual friend is Otto Berg.",
    "Opposite day: our mutual friend is Otto Berg.",
    "It is Otto Berg over my dead body.",
    "We both know Otto Berg is a stranger.",
    "We both know Otto Berg from the news.",
    "We both know Otto Berg would laugh at that.",
    "claim: Otto Berg, psych",
    "claim: Otto Berg's brother",
    "confirm: Otto Berg pending proof",
    "That is right, the name is a mystery to me.",
    "That is it, I give up.",
    "That is right out.",
    "Bingo night is on Friday.",
    "Confirmed cases are rising.",
    "Yes, he is my cat.",
    "Yes, he is on my list of enemies.",
    "Agreed, let us look for the friend.",
    "You are right, he is a character in a book.",
    "I know Otto Berg, the actor.",
    "Exactly wrong.",
)
CONFIRMATIONS = (
    "Yes.",
    "Yes! 🎉",
    "yes definitely",
    "Yes, that is right.",
    "Yes, I know him too.",
    "Yes, it is Otto Berg.",
    "Yes! I also know Otto Berg. Wonderful!",
    "Exactly! How lovely to meet you.",
    "You are right, he is my friend too.",
    "That's right, I went to school with him.",
    "Agreed, our mutual friend is Otto.",
    "I know Otto Berg too.",
    "I know Otto Berg as well. What a small world!",
    "Absolutely, thank you!",
    "Yes, Otto works for the city archive.",
    "claim: Otto Berg",
    "We both know Otto Berg!",
)


def _standing(answer: str) -> str | None:
    said = [Turn(i, 0, f"agent_{i}", Action(ActionType.SPEAK, text)) for i, text in enumerate((CLAIM, answer))]
    return keep_ledger(said, PEOPLE).claim_of("agent_1")


@pytest.mark.parametrize("answer", NO_CONFIRMATIONS)
def test_what_only_looks_like_a_confirmation_is_none(answer: str) -> None:
    assert _standing(answer) != OTTO


@pytest.mark.parametrize("answer", CONFIRMATIONS)
def test_a_plain_confirmation_is_one(answer: str) -> None:
    assert _standing(answer) == OTTO


@pytest.mark.parametrize("later", ["I take that back.", "Scratch that.", "I changed my mind.", "I retract my claim."])
def test_a_later_turn_may_take_a_claim_back(later: str) -> None:
    said = [Turn(i, i, "agent_0", Action(ActionType.SPEAK, text)) for i, text in enumerate((CLAIM, later))]
    assert keep_ledger(said, PEOPLE).claim_of("agent_0") is None
