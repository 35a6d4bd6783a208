"""The surface texts of the ``bargaining`` family: what is sold, where, and how the goals are put."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """Something for sale: name with its article, a description, and the usual span of listed prices in dollars."""

    name: str
    description: str
    low: int
    high: int


ITEMS = (
    Item("a touring bicycle", "Steel frame, new brake cables, a few scratches on the top tube.", 120, 480),
    Item("an acoustic guitar", "Spruce top, warm sound, comes with a padded bag.", 90, 420),
    Item("an oak writing desk", "Solid wood with three drawers, one ring mark from a cup.", 110, 520),
    Item("a stand mixer", "Five speeds and a steel bowl, used for one Christmas season.", 80, 300),
    Item("a two-person tent", "Waterproof, pitched twice, all pegs included.", 60, 260),
    Item("a mirrorless camera", "Comes with a standard lens and a spare battery.", 250, 900),
    Item("a leather armchair", "Deep brown, well worn in, from a smoke-free home.", 100, 650),
    Item("a record player", "Belt drive, recently fitted with a new needle.", 70, 380),
    Item("a set of garden chairs", "Four folding chairs of acacia, oiled last spring.", 60, 240),
    Item("a sewing machine", "Mechanical, serviced, with a box of feet and bobbins.", 70, 330),
    Item("an electric piano", "Weighted keys, stand and pedal included.", 200, 850),
    Item("a cargo trailer for bicycles", "Carries a week of groceries, folds flat.", 80, 310),
    Item("a gas barbecue", "Two burners, cleaned thoroughly, hose replaced.", 70, 360),
    Item("a dining table", "Seats six, extends to eight, beech veneer.", 120, 560),
    Item("a pair of hiking boots", "Worn on a single tour and found half a size too small.", 45, 160),
    Item("a telescope", "Reflector on a wooden mount, shows the rings of Saturn on a clear night.", 110, 540),
    Item("a wool carpet", "Hand-knotted, red and indigo, professionally cleaned.", 150, 800),
    Item("a coffee machine", "Makes espresso and milk foam, descaled every month.", 90, 450),
    Item("a rowing machine", "Quiet, with a water tank, stands upright when not in use.", 180, 700),
    Item("a set of drums", "Five pieces with cymbals, ideal for a patient neighbourhood.", 200, 780),
    Item("a chest freezer", "Runs quietly and keeps cold through a day without power.", 70, 290),
    Item("an antique mirror", "Gilded frame, slight clouding at one corner.", 90, 600),
    Item("a child's wooden bed", "Grows with the child, slats and side rails included.", 60, 280),
    Item("a laptop computer", "Thirteen inches, fast enough for everything but games.", 220, 880),
    Item("a surfboard", "Good for beginners, two small repairs, no leaks.", 90, 400),
    Item("a bookcase", "Tall, walnut, adjustable shelves, already taken apart for transport.", 50, 310),
    Item("an inflatable kayak", "For one paddler and a bag, with pump and paddle.", 100, 420),
    Item("a violin", "Full size, made in a small workshop, with bow and case.", 180, 950),
    Item("a greenhouse kit", "Aluminium frame, all panes intact, manual at hand.", 150, 620),
    Item("a scooter helmet and jacket", "Both medium, both in dark green, never in an accident.", 50, 210),
    Item("a pottery wheel", "Table model, strong motor, two splash pans.", 160, 720),
    Item("a vintage typewriter", "All keys strike true, ribbon included.", 60, 320),
    Item("a projector with screen", "Bright enough for a living room at dusk.", 110, 480),
    Item("a cello bow", "Carbon, light, rehaired a month before.", 70, 340),
)

# Nobody is named here: the same scenario may be played by other people, or with the people exchanged.
CONTEXTS = (
    "the seller is selling {item} for ${price}, and the buyer has come to have a look at it. {description}",
    "At a flea market the seller has put up {item} tagged at ${price}. {description} the buyer stops at the stall.",
    "the buyer has answered an advertisement: {item}, ${price}. {description} the seller opens the door.",
    "In the car park of a shopping centre the seller and the buyer meet over {item}, advertised at ${price}. "
    "{description}",
    "the seller is moving to another town and has to part with {item}. The note in the stairwell says ${price}. "
    "{description} the buyer rings the bell.",
    "On the last day of a garage sale the buyer asks the seller about {item}, which is marked ${price}. {description}",
    "the seller offers {item} on the notice board of a community centre for ${price}. {description} "
    "the buyer has arranged to meet there.",
    "Over a video call the seller shows the buyer {item}, listed online at ${price}. {description} They talk business.",
    "A small second-hand shop is about to close for the day. the seller keeps it, the buyer is the last visitor and is "
    "interested in {item}. {description} The label says ${price}.",
    "the seller and the buyer stand in a garage in front of {item}. {description} The asking price is ${price}.",
)

BUYER_GOALS = (
    "You want to buy {item}. Your target price is ${target}: every dollar less is a dollar won, and above "
    "${walk_away} you would be worse off than without it.",
    "Buy {item} as cheaply as you can. You hope to pay ${target} and are glad of every dollar below that; paying "
    "more than ${walk_away} would be a loss to you.",
    "Come home with {item} at a good price. ${target} would please you, less would delight you, and beyond "
    "${walk_away} it is better to leave without it.",
    "Negotiate the price of {item}. Your aim is ${target}; every dollar saved counts, and your limit is ${walk_away}.",
    "You would like to own {item} and mean to spend ${target} on it. The lower the price, the better for you; a price "
    "higher than ${walk_away} is worse than none.",
    "Get {item} for ${target} or less. You can stretch the price, but at ${walk_away} the purchase is worth nothing to "
    "you any more, and above it you lose.",
    "Strike a bargain over {item}. A purchase at ${target} meets your plan, cheaper is better still, and you should "
    "never go beyond ${walk_away}.",
    "Your goal is to buy {item}, ideally for ${target} and if possible for less. Not buying is better than paying more "
    "than ${walk_away}.",
    "Persuade the seller to let you have {item} near ${target}. Whatever you save below ${walk_away} is yours to keep. "
    "You lose by any price over that.",
)

SELLER_GOALS = (
    "You want to sell {item}. Your target price is ${target}: every dollar more is a dollar won, and below "
    "${walk_away} you would be worse off than keeping it.",
    "Sell {item} for as much as you can. You hope for ${target} and are glad of every dollar above that; less than "
    "${walk_away} would be a loss to you.",
    "Find {item} a new owner at a good price. ${target} would please you, more would delight you, and under "
    "${walk_away} it is better to keep it.",
    "Negotiate the price of {item}. Your aim is ${target}; every dollar more counts, and your limit is ${walk_away}.",
    "You would like to part with {item} and reckon with ${target}. The higher the price, the better for you; a price "
    "lower than ${walk_away} is worse than none.",
    "Get ${target} or more for {item}. You can come down, but at ${walk_away} the sale is worth nothing to you any "
    "more, and below it you lose.",
    "Strike a bargain over {item}. A sale at ${target} meets your plan, dearer is better still, and you should "
    "never go below ${walk_away}.",
    "Your goal is to sell {item}, ideally for ${target} and if possible for more. Keeping it is better than "
    "taking less than ${walk_away}.",
    "Persuade the buyer to pay close to ${target} for {item}. Whatever you get above ${walk_away} is your gain. You "
    "lose by any price under that.",
)

HINTS = (
    "Nothing is agreed before one of you has offered a price and the other has accepted that offer.",
    "A price named in passing binds nobody; an offer does, once it is accepted.",
    "You need not accept the first offer, and you can make as many of your own as you like.",
)

OFFERS = (
    "How about ${price}?",
    "I can do ${price}.",
    "What would you say to ${price}?",
    "My offer is ${price}.",
    "I would like to suggest ${price}. Does that work for you?",
    "Let's say ${price}.",
    "Would ${price} be acceptable to you?",
    "I could agree to ${price}.",
    "Shall we settle on ${price}?",
    "Thinking of both of us, I propose ${price}.",
    "I am offering ${price}, and I think that is fair.",
)
"""Words that go with an offer."""

ACCEPTS = (
    "Deal, ${price} it is.",
    "I accept ${price}.",
    "Agreed. ${price} works for me.",
    "All right, you have a deal at ${price}.",
    "Done! ${price} it is.",
    "That works for me. ${price}, then.",
    "I accept your offer of ${price}, thank you.",
    "Good, we have a deal at ${price}.",
)
"""Words that accept an offer."""

REJECTIONS = (
    "No, ${price} will not do.",
    "Sorry, I cannot agree to ${price}.",
    "${price} is out of the question for me.",
)
WITHDRAWALS = (
    "I take back my offer of ${price}.",
    "Forget about the ${price}; that offer is off.",
)
