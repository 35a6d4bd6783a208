"""The words of ``division`` tasks: places with their items, and phrasings of contexts, goals and offers."""

from __future__ import annotations

from collections.abc import Mapping

PLACES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "the attic of a house they are clearing": (
        ("lamp", "lamps"),
        ("mirror", "mirrors"),
        ("suitcase", "suitcases"),
        ("painting", "paintings"),
        ("typewriter", "typewriters"),
        ("quilt", "quilts"),
    ),
    "a stall at the end of a flea market": (
        ("book", "books"),
        ("hat", "hats"),
        ("ball", "balls"),
        ("vase", "vases"),
        ("record", "records"),
        ("clock", "clocks"),
    ),
    "the shed of a shared garden": (
        ("spade", "spades"),
        ("lantern", "lanterns"),
        ("bucket", "buckets"),
        ("trellis", "trellises"),
        ("rake", "rakes"),
        ("flowerpot", "flowerpots"),
    ),
    "a hamper they won together in a raffle": (
        ("jar of honey", "jars of honey"),
        ("cheese", "cheeses"),
        ("bottle of cider", "bottles of cider"),
        ("fruit cake", "fruit cakes"),
        ("tin of tea", "tins of tea"),
        ("sausage", "sausages"),
    ),
    "a box of supplies before a camping trip": (
        ("blanket", "blankets"),
        ("torch", "torches"),
        ("canteen", "canteens"),
        ("compass", "compasses"),
        ("rope", "ropes"),
        ("tarpaulin", "tarpaulins"),
    ),
    "the cupboard of an office that is moving": (
        ("monitor", "monitors"),
        ("headset", "headsets"),
        ("keyboard", "keyboards"),
        ("whiteboard", "whiteboards"),
        ("stapler", "staplers"),
        ("plant", "plants"),
    ),
    "a crate of toys left over from a fair": (
        ("puzzle", "puzzles"),
        ("kite", "kites"),
        ("drum", "drums"),
        ("puppet", "puppets"),
        ("marble run", "marble runs"),
        ("yo-yo", "yo-yos"),
    ),
    "the kitchen of a flat they both move out of": (
        ("saucepan", "saucepans"),
        ("teapot", "teapots"),
        ("stool", "stools"),
        ("toaster", "toasters"),
        ("ladle", "ladles"),
        ("bread knife", "bread knives"),
    ),
    "the storage room of a disbanded band": (
        ("guitar", "guitars"),
        ("microphone", "microphones"),
        ("amplifier", "amplifiers"),
        ("tambourine", "tambourines"),
        ("cable drum", "cable drums"),
        ("music stand", "music stands"),
    ),
    "a market cart after closing time": (
        ("melon", "melons"),
        ("basket", "baskets"),
        ("pumpkin", "pumpkins"),
        ("pineapple", "pineapples"),
        ("bouquet", "bouquets"),
        ("sack of walnuts", "sacks of walnuts"),
    ),
}
"""Place to the items (singular, plural) that may lie there."""

CONTEXTS: tuple[str, ...] = (
    "{a} and {b} stand before {place} and must divide what is left: {items}.",
    "In {place} lie {items}. {a} and {b} have to agree who takes what.",
    "There are {items} in {place}. {a} and {b} may keep them, if they can agree on a division.",
    "{a} and {b} share out {items}, all of it from {place}.",
    "Before anybody goes home, {a} and {b} want to divide {place}: {items}.",
    "Fair is fair, but what is fair? {a} and {b} are to split {place}; they count {items}.",
    "Nobody else wants the things in {place}, so {a} and {b} divide them: {items}.",
    "{a} has made a list of {place}: {items}. Now {b} and {a} settle who gets what.",
    "It is raining, and {a} and {b} use the time to divide up {place}. They find {items}.",
)
RULES: tuple[str, ...] = (
    "Every piece must go to one of them; without an agreement both leave empty-handed.",
    "Nothing may be left over or broken up. If they cannot agree, neither gets anything.",
    "All pieces are to be given out in one deal that both accept; otherwise all goes to charity.",
)
GOALS: tuple[str, ...] = (
    "Get as many points as you can: {points}.",
    "Come away with the pieces that matter most to you: {points}.",
    "Agree on a division that gives you many points: {points}.",
    "Bring home as much value as possible ({points}).",
    "Divide the things to your advantage. What they are worth to you: {points}.",
    "Find a deal that serves you well; remember that {points}.",
    "Negotiate well. For you, {points}.",
    "Secure the best share you can get the other to accept: {points}.",
    "Make a deal, and a good one: {points}.",
)
HINTS: tuple[str, ...] = (
    "The other one values the pieces differently, and you do not know how.",
    "Without an agreement you get 0 points.",
    "An offer says of every piece who gets it.",
)

OFFERS: tuple[str, ...] = (
    "I take {mine}, and you get {yours}.",
    "How about this: I keep {mine}, and you get {yours}.",
    "My proposal: {mine} for me and {yours} for you.",
    "You can have {yours}, and I take {mine}.",
    "What if you take {yours} and I take {mine}?",
    "Let me have {mine}, and the rest is yours.",
    "I would take {mine}, you get everything else.",
    "Let us say you keep {yours} and I get {mine}. Fair?",
)
ACCEPTANCES: tuple[str, ...] = (
    "Deal! I take {mine} and you get {yours}.",
    "Agreed: I get {mine}, and you get {yours}.",
    "That works for me. You take {yours} and I take {mine}.",
    "I accept. I keep {mine}, you keep {yours}.",
    "Yes, let us do that: {mine} for me, {yours} for you.",
    "All right, it's a deal: {mine} for me.",
    "Done, I accept your offer and take {mine}.",
)
REJECTIONS: tuple[str, ...] = (
    "No, {mine} for me and {yours} for you is not fair.",
    "I cannot agree to that: {mine} is too little for me.",
    "If I only get {mine}, I would rather go on talking.",
)
WITHDRAWALS: tuple[str, ...] = (
    "I take back my offer: {mine} for me, {yours} for you.",
    "Forget what I offered, {mine} for me and {yours} for you.",
)
