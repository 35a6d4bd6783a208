"""The texts of ``negotiation`` tasks: joint plans with their issues and options, goals and hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Something that two people do together: the sentence that begins the context, and issues with their options."""

    opening: str
    issues: Mapping[str, tuple[str, ...]]


PLANS: tuple[Plan, ...] = (
    Plan(
        "Two people share a stall at the spring market and settle how to run it.",
        {
            "day": ("Thursday", "Friday", "Saturday", "Sunday", "bank holiday"),
            "pitch": ("by the fountain", "under the arcade", "at the gate", "by the church", "along the canal"),
            "goods": ("honey", "candles", "seedlings", "old prints", "preserves"),
            "shelter": ("blue tent", "parasols", "wooden hut", "open cart", "sailcloth"),
            "music": ("accordion", "guitar", "record player", "brass duo", "silence"),
        },
    ),
    Plan(
        "Two people have one free week and a borrowed camper van, and plan a journey together.",
        {
            "coast": ("north coast", "south coast", "lakes", "islands", "river valley"),
            "start": ("first week of May", "mid June", "early July", "late August", "mid October"),
            "pace": ("one place", "two places", "three places", "a new place daily", "no plan"),
            "meals": ("own stove", "inns", "picnics", "markets", "street food"),
            "nights": ("camp sites", "farmyards", "forest edges", "harbours", "guesthouses"),
        },
    ),
    Plan(
        "Two people rent one studio together and draw up its rules.",
        {
            "mornings": ("painting", "pottery", "rehearsals", "photography", "lessons"),
            "heating": ("stove", "radiators", "warm coats", "heated floor", "heat lamp"),
            "visitors": ("never", "Sundays", "weekends", "by appointment", "at any time"),
            "storage": ("shelves", "cellar", "loft", "lockers", "rented garage"),
            "cleaning": ("daily", "twice a week", "weekly", "monthly", "hired help"),
        },
    ),
    Plan(
        "Two people give a concert together in the old mill and fix its programme.",
        {
            "opening piece": ("waltz", "ballad", "march", "lullaby", "improvisation"),
            "hour": ("noon", "late afternoon", "early evening", "dusk", "midnight"),
            "seating": ("rows", "circle", "tables", "cushions", "standing"),
            "entrance": ("free", "donation", "low price", "middle price", "high price"),
            "encore": ("none", "folk song", "tango", "hymn", "duet"),
        },
    ),
    Plan(
        "Two people take over a neglected allotment together and decide what becomes of it.",
        {
            "south bed": ("tomatoes", "roses", "beans", "lavender", "melons"),
            "north bed": ("ferns", "rhubarb", "mint", "hostas", "currants"),
            "corner": ("pond", "compost", "bench", "beehive", "sandpit"),
            "fence": ("hedge", "willow", "wire", "boards", "none at all"),
            "watering": ("rain barrel", "hose", "cans", "drip line", "pump"),
        },
    ),
    Plan(
        "Two people prepare one celebration for a friend of both and have to agree on everything.",
        {
            "room": ("boathouse", "greenhouse", "village hall", "rooftop", "back room"),
            "food": ("soup", "grill", "buffet", "cakes", "dumplings"),
            "guests": ("ten guests", "twenty guests", "thirty guests", "forty guests", "open house"),
            "game": ("quiz", "charades", "bowls", "treasure hunt", "no game"),
            "present": ("telescope", "bicycle", "painting", "weekend away", "cookery course"),
        },
    ),
)
RULES: tuple[str, ...] = (
    "Nothing counts until both agree on every point at once; otherwise each goes without the other.",
    "They need one agreement on all points; without it nothing comes of the plan.",
    "All points are agreed on together or not at all.",
)
GOALS: tuple[str, ...] = (
    "Reach an agreement that is worth as many points to you as possible. Your points, which add up: {points}.",
    "Bring home as many points as you can; those of all issues are added. {points}.",
    "Agree on a plan that suits you. What each choice is worth to you, to be added up: {points}.",
    "Find out what the other cares about, and get a high sum for yourself: {points}.",
)
NO_AGREEMENT: tuple[str, ...] = (
    "Without an agreement you get {points}.",
    "If nothing is agreed you are left with {points}.",
    "No agreement is worth {points} to you.",
)
HINTS: tuple[str, ...] = (
    "Something that matters little to you may matter much to the other.",
    "Name whole packages rather than single points.",
    "An offer that is refused tells you something, too.",
)

OFFERS: tuple[str, ...] = (
    "How about this: {terms}?",
    "My suggestion is {terms}.",
    "Let us put it down like this: {terms}.",
    "I could sign this today: {terms}.",
    "Would this do for you: {terms}?",
    "Here is a whole package: {terms}.",
)
