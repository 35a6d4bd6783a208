"""The words of ``group_decision`` tasks: occasions with their options, and phrasings of contexts, goals and votes."""

from __future__ import annotations

from collections.abc import Mapping

OCCASIONS: Mapping[str, tuple[str, ...]] = {
    "how to spend the free Saturday together": (
        "science museum",
        "lake picnic",
        "bowling alley",
        "pottery workshop",
        "botanical garden",
        "escape room",
        "bicycle ride",
        "matinee concert",
    ),
    "where to hold the neighbourhood dinner": (
        "noodle bar",
        "rooftop grill",
        "fish tavern",
        "vegetarian bistro",
        "pizza cellar",
        "curry kitchen",
        "garden potluck",
        "pancake parlour",
    ),
    "what to do with the small surplus in the club's account": (
        "new bookshelf",
        "repaired boiler",
        "summer festival",
        "tool library",
        "better lighting",
        "drinking fountain",
        "scholarship fund",
        "coffee machine",
    ),
    "which project the team takes up first next quarter": (
        "customer survey",
        "website redesign",
        "warehouse inventory",
        "mobile application",
        "training handbook",
        "supplier audit",
        "energy report",
        "archive digitisation",
    ),
    "where the choir travels in autumn": (
        "mountain lodge",
        "harbour hostel",
        "monastery guesthouse",
        "vineyard cottage",
        "island campsite",
        "castle dormitory",
        "forest cabins",
        "riverside inn",
    ),
    "what to plant on the shared plot": (
        "apple trees",
        "pumpkin patch",
        "herb spiral",
        "wildflower meadow",
        "potato rows",
        "berry hedge",
        "sunflower border",
        "bean trellis",
    ),
    "which film series the cinema club shows": (
        "silent comedies",
        "polar documentaries",
        "heist thrillers",
        "animated fables",
        "courtroom dramas",
        "space operas",
        "musical romances",
        "detective serials",
    ),
    "how the staff room is to be changed": (
        "quiet corner",
        "standing desks",
        "indoor plants",
        "table tennis",
        "reading lamps",
        "espresso counter",
        "sofa lounge",
        "whiteboard wall",
    ),
    "what the class gives the retiring teacher": (
        "fountain pen",
        "photo album",
        "hiking voucher",
        "theatre subscription",
        "garden bench",
        "handmade quilt",
        "telescope rental",
        "cookery course",
    ),
    "which sport the office team signs up for": (
        "dragon boats",
        "relay marathon",
        "beach volleyball",
        "curling league",
        "climbing challenge",
        "badminton ladder",
        "rowing regatta",
        "archery cup",
    ),
    "which topic the village paper puts on its front page": (
        "bridge repairs",
        "school kitchen",
        "youth orchestra",
        "wolf sightings",
        "bus timetable",
        "harvest market",
        "library opening",
        "flood barrier",
    ),
    "what the house community builds in the cellar": (
        "laundry station",
        "bike garage",
        "music studio",
        "hobby workshop",
        "sauna cubicle",
        "pantry shelves",
        "darkroom lab",
        "gymnastics mats",
    ),
}
"""Occasion to its possible options; every option can be told from the others by each of its words."""

CONTEXTS: tuple[str, ...] = (
    "{n} people sit together to decide {occasion}. On the table are: {options}.",
    "It is the last meeting before the deadline, and the {n} of them must settle {occasion}. The options: {options}.",
    "A group of {n} has met to choose {occasion}. After a first round of ideas these remain: {options}.",
    "The {n} members of a small committee talk over tea about {occasion}. They can choose one of: {options}.",
    "Everyone has arrived, the door is closed, and the one item on the agenda is {occasion}. Proposed were: {options}.",
    "In a group chat of {n}, one question has been open for days: {occasion}. The list reads: {options}.",
    "{n} people with different tastes have to agree on {occasion}. There is money for exactly one of: {options}.",
    "The evening is late and {n} tired people want to be done with one thing: {occasion}. Still possible: {options}.",
    "A short walk turns into a meeting: the {n} of them discuss {occasion}. They narrowed it down to: {options}.",
    "By tomorrow the {n} must report {occasion}. The proposals are: {options}.",
)
RULES: tuple[str, ...] = (
    "The option with the most votes is chosen; a vote may be changed until everybody has voted, and a tie at the top "
    "decides nothing.",
    "Each of the {n} has one vote, and the most votes win. Votes may be changed until the last one is in. If two "
    "options share the lead, there is no decision.",
    "They decide by open vote: the option with more votes than any other is chosen, and if the lead is shared the "
    "matter stays undecided.",
    "House rule: one vote each, the most votes carry an option, promises do not count, and with equal votes at the top "
    "nothing happens.",
)
GOALS: tuple[str, ...] = (
    "Bring the group to a decision that is good for you: {points}.",
    "Get as many points as you can from the decision. {points}.",
    "See to it that the group picks an option you like. To you they are worth: {points}.",
    "Persuade the others, or give way where it pays. Your own points: {points}.",
    "Win the vote for an option that serves you well ({points}).",
    "Make sure that the choice suits you. In points, your wishes are: {points}.",
    "Talk the others round to your favourite, but remember what the alternatives give you: {points}.",
    "Leave the meeting with the best outcome for yourself that the others will carry: {points}.",
    "Find out what the others want and get the most out of the vote: {points}.",
)
NO_DECISION: tuple[str, ...] = (
    "If nothing is decided you get {value}",
    "No decision is worth {value} to you",
    "Should the vote fail, you are left with {value}",
    "Without a winner you get {value}",
)
HINTS: tuple[str, ...] = (
    "Nobody but you knows your points.",
    "What somebody says about a vote may be untrue; the votes themselves are open.",
    "You may speak privately with single members before you vote.",
    "You can change your vote until everybody has voted.",
)

VOTES: tuple[str, ...] = (
    "I vote for the {option}.",
    "My vote goes to the {option}.",
    "Count me in for the {option}.",
    "Put me down for the {option}.",
    "I have thought it over, and I give the {option} my vote.",
    "I cast my vote for the {option}.",
    "For me it is clear: I'm voting for the {option}.",
    "My vote is for the {option}, and I hope some of you join me.",
)
JOINING: tuple[str, ...] = (
    "All right, I vote for the {option} too, so that we get this done.",
    "You have convinced me: I change my vote to the {option}.",
    "I can live with that. My vote goes to the {option}.",
    "Fine by me, count me in for the {option}.",
    "Then let us agree: I'm voting for the {option}.",
    "Good point. I give the {option} my vote.",
    "For the sake of the group, put me down for the {option}.",
)
TAKEN_BACK: tuple[str, ...] = (
    "Wait, I take my vote back.",
    "I would like to hear more first, so my vote is open again.",
    "Do not count me in yet; I take my vote back.",
)
