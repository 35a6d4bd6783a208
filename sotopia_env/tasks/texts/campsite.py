"""The texts of ``campsite`` tasks: where the campers are, why they need what, and phrasings of goals and offers."""

from __future__ import annotations

from collections.abc import Mapping

NOUNS: Mapping[str, tuple[str, str]] = {
    "food": ("package of food", "packages of food"),
    "water": ("canister of water", "canisters of water"),
    "firewood": ("bundle of firewood", "bundles of firewood"),
}
"""Issue name to the singular and the plural of its pieces."""

# Nobody is named here: the same scenario may be played by other people, or with the people exchanged.
CONTEXTS: tuple[str, ...] = (
    "Two campers reach the same clearing at dusk. The ranger's box holds three packages of food, three canisters of "
    "water and three bundles of firewood for both of them.",
    "A late bus has put down two campers at the lake. The supplies that came with it, three packages of food, three "
    "canisters of water and three bundles of firewood, are for them to share.",
    "After a storm two campers are left at the upper site. The hut still has three packages of food, three canisters "
    "of water and three bundles of firewood.",
    "Two campers with neighbouring tents have ordered extra supplies together: three packages of food, three canisters "
    "of water and three bundles of firewood stand between the tents.",
    "The warden of a nature reserve leaves three packages of food, three canisters of water and three bundles of "
    "firewood for the two campers on the ridge, and drives off.",
    "Two campers have won the same weekend in the dunes. Included are three packages of food, three canisters of water "
    "and three bundles of firewood, to be shared.",
    "At the foot of the glacier two campers open the depot of their club: three packages of food, three canisters of "
    "water, three bundles of firewood.",
    "On the last evening before the site closes, two campers may take what is left in the store: three packages of "
    "food, three canisters of water and three bundles of firewood.",
)
RULES: tuple[str, ...] = (
    "Every piece has to go to one of them, and both have to agree.",
    "They must agree on all nine pieces, or each makes do with the little that the kiosk sells.",
    "Nothing is handed out before both agree who gets which of the pieces.",
)
GOALS: tuple[str, ...] = (
    "Get the supplies you need most. To you, {points}; without an agreement you have to make do with {no_agreement} "
    "points.",
    "Come out of the division with as many points as you can: {points}. No agreement leaves you {no_agreement}.",
    "Make your stay as pleasant as possible: {points}. If you cannot agree, you are left with {no_agreement} points.",
    "Divide the supplies to your advantage. For you count: {points}; a quarrel without result gives {no_agreement}.",
    "Find out what the other one can do without, and bring back what serves you: {points}. Failing an agreement you "
    "get {no_agreement} points.",
    "Talk the other camper into a division that suits you: {points}. Without one you get {no_agreement}.",
    "Secure your own needs first, as far as the other one lets you: {points}. No deal means {no_agreement} points.",
)
HINTS: tuple[str, ...] = (
    "The other camper's needs may be quite different from yours, or just the same.",
    "Why you need something may matter more to the other one than how much you want it.",
    "An offer says of every piece who gets it.",
)
REASONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "food": (
        (
            "You have a long climb ahead and nothing left to eat but crackers.",
            "Somebody with a great appetite joins you tomorrow, and you have promised to cook.",
            "Your own provisions got wet in the boat and are spoilt.",
        ),
        (
            "Your bread will last for a day, not more.",
            "You can fish a little, but you are no great angler.",
            "A good breakfast would do you good before the hike.",
        ),
        (
            "Your rucksack is still full of pasta and nuts.",
            "You eat little when you are out of doors.",
            "A friend brings a pot of stew tomorrow anyway.",
        ),
    ),
    "water": (
        (
            "You have to take tablets with plenty of clean water.",
            "The sun has burnt you badly, and you are thirsty all the time.",
            "Your filter broke this morning, and the stream is muddy.",
        ),
        (
            "Your bottle is half full, and the well is an hour away.",
            "You would like to wash off the dust of the road.",
            "You drink a great deal of tea in the evening.",
        ),
        (
            "Your filter works, and the lake is close by.",
            "You have filled every bottle at the last village.",
            "It is going to rain, and you have a good tarpaulin to catch it.",
        ),
    ),
    "firewood": (
        (
            "Your sleeping bag is far too thin for these nights.",
            "You promised a fire to the friends who arrive tonight.",
            "Your clothes are soaked and have to dry before tomorrow.",
        ),
        (
            "A small fire would keep the midges away.",
            "You like a warm meal, and your gas is nearly used up.",
            "The evenings are cool, and you sit up late.",
        ),
        (
            "You go to bed with the sun and sleep warm.",
            "You have a gas stove with a new cartridge.",
            "There is plenty of dry brushwood around your tent.",
        ),
    ),
}
"""Item to reasons why it matters very much, somewhat, and little."""

OFFERS: tuple[str, ...] = (
    "How about this: I take {mine}, and you get {yours}.",
    "Could you live with {yours}? Then I would keep {mine}.",
    "I would need {mine}; {yours} would be yours.",
    "Let us do it like this: {yours} for your tent, {mine} for mine.",
    "What if you carry off {yours} and leave me {mine}?",
    "My suggestion is {mine} for me and {yours} for you.",
)
ACCEPTANCES: tuple[str, ...] = (
    "Agreed. I take {mine}, and {yours} is yours.",
    "Good, that gets us both through the night: {mine} for me, {yours} for you.",
    "Fine with me. I carry {mine} over to my tent.",
    "You have a deal: {mine} for me.",
    "All right, {yours} for you, and I am content with {mine}.",
)
