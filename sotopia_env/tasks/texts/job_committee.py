"""The texts of ``job_committee`` tasks: posts, candidates' traits, conditions of the contract, goals and offers."""

from __future__ import annotations

from collections.abc import Mapping

POSITIONS: tuple[str, ...] = (
    "head of the city library",
    "conductor of the youth orchestra",
    "keeper of the botanical collection",
    "director of the community theatre",
    "station manager of the local radio",
    "head of the mountain rescue",
    "principal of the evening school",
    "curator of the maritime museum",
    "manager of the cooperative bakery",
    "editor of the county magazine",
    "harbour master",
    "chief forester",
)
TRAITS: tuple[str, ...] = (
    "who has twenty years in the trade and says so",
    "who comes from abroad with glowing references",
    "who has built up a similar house from nothing",
    "who is young, quick and untested",
    "who has done the job for a year as a stand-in",
    "who left the last post after a quarrel",
    "who knows everybody in town",
    "who has ideas that would turn the place upside down",
    "who is careful with money",
    "who was the favourite of the last committee and declined",
)
CONDITIONS: Mapping[str, tuple[str, ...]] = {
    "level": ("senior grade", "regular grade", "junior grade"),
    "contract": ("permanent", "three years", "one year"),
    "office": ("corner office", "shared office", "work from home"),
    "start": ("at once", "in spring", "in autumn"),
    "budget": ("own budget", "joint budget", "no budget"),
}
"""Issue name to its options; the first two are used where there are two."""

# Nobody is named here: the same scenario may be played by other people, or with the people exchanged.
CONTEXTS: tuple[str, ...] = (
    "A committee of five meets to appoint the new {position}. On the shortlist are: {candidates}.",
    "The post of {position} has been vacant for months, and a committee of five is to fill it tonight. The candidates "
    "are: {candidates}.",
    "Five people sit around a table with a pot of coffee and the files of those who want to become {position}: "
    "{candidates}.",
    "The last interview for the post of {position} is over, and the five of the committee are among themselves. They "
    "have seen: {candidates}.",
    "By order of the board, five people choose the next {position}. Still in the running: {candidates}.",
    "A video conference of five: the subject is who becomes {position}. The names on the slide: {candidates}.",
)
MATTERS: tuple[str, ...] = (
    "With the name they have to settle the {condition}: {options}.",
    "The offer letter also needs a line on the {condition}; possible are {options}.",
    "Together with the choice goes the {condition} ({options}).",
)
RULES: tuple[str, ...] = (
    "Three of the five can carry a proposal, but the chair has to be one of them; otherwise nobody is hired.",
    "A proposal stands when three have accepted it, the chair among them. Without that the post stays vacant.",
    "It takes three of them, and never without the chair. If they cannot agree, the post is advertised anew.",
)
GOALS: tuple[str, ...] = (
    "See to it that the post is filled in a way that suits you. Your points, which add up: {points}.",
    "Bring your own wishes through, as far as you find partners for them. In points: {points}.",
    "Get as many points as you can out of the appointment; one for the name and one for the terms are added: {points}.",
    "Win enough of the others for a proposal that is good for you ({points}).",
    "Leave the meeting with an appointment you can be glad of. What it is worth to you: {points}.",
    "Find out who can be moved, and carry a proposal that serves you: {points}.",
)
CHAIR: tuple[str, ...] = (
    "You chair the committee: no proposal passes without you, but you need two of the others.",
    "As the chair you can block everything and carry nothing alone.",
)
MEMBER: tuple[str, ...] = (
    "You are a member without a veto: three of you can decide over your head if the chair is one of them.",
    "You have one voice of five; the chair's is the one that nobody can do without.",
)
NO_AGREEMENT: tuple[str, ...] = (
    "If nobody is hired you get {points}.",
    "A vacant post is worth {points} to you.",
    "Should the talks fail, you are left with {points}.",
)
HINTS: tuple[str, ...] = (
    "Those who are passed over need not be asked, but they may have the better idea.",
    "Somebody who does not care about the name may care about the terms.",
    "You may speak privately with single members; an offer that leaves out the chair cannot be made.",
)

OFFERS: tuple[str, ...] = (
    "I propose {candidate}, with this on the contract: {condition}.",
    "What about {candidate}? And as to the rest, {condition}.",
    "Let us take {candidate} ({condition}).",
    "My proposal is {candidate}; {condition}.",
    "Could three of us agree on {candidate}, {condition}?",
    "I would put {candidate} on the letter, and {condition}.",
)
ACCEPTANCES: tuple[str, ...] = (
    "You have my voice for {candidate} ({condition}).",
    "I can go along with that: {candidate}, {condition}.",
    "Fine, {candidate} it is; {condition}.",
    "Count me in for {candidate} with {condition}.",
)
REJECTIONS: tuple[str, ...] = (
    "Not {candidate} on these terms ({condition}).",
    "I cannot support that: {candidate}, {condition}.",
    "No, {candidate} with {condition} is not for me.",
)
WITHDRAWALS: tuple[str, ...] = (
    "I take my proposal back: {candidate}, {condition}.",
    "Forget my proposal of {candidate} ({condition}).",
)
