"""Words that only look like a deal: what negotiators say beside, around and instead of an assent.

Every row is a dialogue, first speaker first, and what it agrees on (``None``: nothing). The rows that do agree stand
guard over the other side: a reader that refuses everything would fail them.
"""

from __future__ import annotations

from typing import Any

import pytest

from sotopia_env.tasks import bargaining, division, hiring
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.scenario import Task

Row = tuple[tuple[str, ...], Any]


def turns(lines: tuple[str, ...]) -> tuple[Turn, ...]:
    return tuple(Turn(i, i // 2, f"agent_{i % 2}", Action(ActionType.SPEAK, line)) for i, line in enumerate(lines))


def answers(offer: str, refused: tuple[str, ...], agreed: tuple[str, ...], terms: Any) -> list[Row]:
    """Rows of one offer and many answers to it."""
    return [((offer, line), None) for line in refused] + [((offer, line), terms) for line in agreed]


def assented(offers: tuple[str, ...], word: str = "Deal.") -> list[Row]:
    """Rows of offers that a plain assent must not close."""
    return [((offer, word), None) for offer in offers]


# Said after an offer by the other side, in every family that makes deals; none of them is an assent.
NO_ASSENT = (
    "Deal? You must be dreaming.",
    "Deal... said nobody ever.",
    "Deal, minus one.",
    "Sold! To the highest bidder, and that isn't you.",
    "Okay, deal, pending approval from my boss.",
    "Deal, pending references.",
    "Deal, subject to a second look.",
    "Deal, without the extras.",
    "Agreed, plus a gift for my sister.",
    "Agreed, except for the last part.",
    "Done!!! I am so done with you.",
    "Done with you.",
    "Done talking.",
    "We are done here.",
    "I accept. Just kidding!",
    "I'd accept.",
    "I would accept that.",
    "I'd take it.",
    "Deal with it yourself.",
    "It's a deal I cannot take.",
    "I accept nothing.",
    "I accept that this is your offer.",
    "yes, deal, i take it. NOT!",
    "Deal or no deal, that's the question.",
    "Deal. Psych!",
    "Deal! Fooled you.",
    "Deal 🙄",
    "Deal 👎",
    "Deal! 🤡",
    "Deal. We'll see.",
    "Deal. I'll get back to you on that.",
    "Deal. Let me ask my wife first.",
    "Deal. I have my fingers crossed behind my back.",
    "I accept. You pay the delivery.",
    "Agreed. And I want the receipt, too.",
    "Deal, with one change.",
    "Deal, on my terms.",
    "Deal. My lawyer will look it over before anything is final.",
    "Fine, I accept, in a parallel universe.",
    "I accept under protest and reserve the right to walk.",
    "Deal. On second thought, give me a minute.",
    "Deal, for now.",
    "Deal, in principle.",
    "Deal, more or less.",
    "Deal, give or take.",
    "Accepted, with reservations.",
    "Accepted. Void where prohibited.",
    "Works for me? Hardly.",
    "Only a fool would say: deal.",
    "My evil twin says: I accept.",
    "In another life, deal.",
    "Opposite day: I accept.",
    "It's a deal for someone else.",
    "Sure, deal, whatever, dream on.",
    "Deal! Now throw in something extra.",
    "Agreed. Half now, half never.",
    "I accept. Or do I?",
    "I accept. Cancel that.",
    "I accept. Disregard my last sentence.",
    "Deal. Sike.",
    "Deal -- once hell freezes over.",
    "Deal (terms and conditions apply).",
    "Deal. Provided nobody offers me a better one.",
    "I accept the challenge.",
    "I agree to disagree.",
    "I agree that it is an offer.",
    "Deal! Thanks for nothing.",
    "Deal. Good luck with that.",
    "Deal, kind of.",
    "Great, deal, just add the lamp.",
    "Deal, see you in court.",
    "Deal. Have a nice life.",
    "You have a deal to make.",
    "I will take that as an insult.",
    "Yes. Deal. Thank you. I lied.",
    'I accept "as if".',
)
# Said after an offer; all of them assent.
ASSENT = (
    "That works for me 👍",
    "Deal! 🤝",
    "✅ Agreed.",
    "Deal! Thank you so much, it was a pleasure doing business with you.",
    "I accept. Thanks, and have a great day!",
    "Okay, that is fair. I accept your offer.",
    "Fair enough, you have yourself a deal.",
    "You drive a hard bargain. Deal!",
    "I was hoping for a bit more, but fine, deal.",
    "Deal. I'm glad we could work this out.",
    "It's a deal! Looking forward to it.",
    "Done. Let's shake hands.",
    "Agreed! That sounds great to me.",
    "Deal, my friend. Take care!",
)

BARGAINING: list[Row] = [
    *answers(
        "I can do $236.",
        (
            *NO_ASSENT,
            "Agreed, plus $20 for the charger.",
            "Deal, once you show me the receipt.",
            "Sold! Make that $276 though.",
            "Deal, I meant $276.",
            "Deal. My price was $276 all along.",
            "Deal, and another $40 on top.",
            "I accept $236 as a deposit.",
            "I accept $236 as a starting point.",
            "Deal at $236 plus tax.",
            "Deal at $236 without the cable.",
            "$236 it is, minus the chairs.",
            "$236 works, unless my sister wants it.",
            "I accept your $236. The rest you pay next week.",
            "Sold for $236 to the lady over there.",
            "I'd accept $236.",
        ),
        (*ASSENT, "Sold! $236 it is. When can you pick it up?", "I accept $236. Great doing business with you!"),
        236,
    ),
    *assented(
        (
            "I offer $236. Actually, make that $276.",
            "I offer $236. Sorry, I meant $276.",
            "I offer $236. Typo: $276.",
            "I offer $236. What I wanted to say was $276.",
            "I offer $236. Correction, $276.",
            "I offer $236. Hmm, $276 rather.",
            "I offer $236. Actually no.",
            "I offer $236. Never mind.",
            "I offer $236. Kidding aside, I have no money.",
            "I offer $236. Psych!",
            "I offer $236. Forget it.",
            "I offer $236. I take that back.",
            "I'd hate to offer $236.",
            "It would be silly to offer $236.",
            "Only a fool would offer $236.",
            "You would be a fool to pay $236.",
            "I offer $3900000.",
            "I offer $0.",
            "I offer -$50.",
            "I offer $236 million.",
            "I can do $1,577.",
            "offer: price=3900000",
            "offer: price=0",
            "I can do $236 as a deposit.",
            "I can do $236 down and the remainder next year.",
            "I can do $236 for half of it.",
            "I can do $236 in monthly installments of $10.",
            "I can do $236 per piece.",
            "Knock $236 off and we have a deal.",
            "I'll take it for $394 minus $236.",
            "I'll take it for half of $236.",
            "I'll pay twice $236.",
            "I could never do $236.",
            "My last customer paid $236 for one.",
            "Insurance alone is $236.",
            "I want it for free.",
            "Nothing under $236.",
            "I won't go above $236.",
            "In your dreams I pay $236.",
            "Over my dead body do I pay $236.",
            "I offer $236. 🤡",
            "I give it $236 at best.",
            "Give me $236 back.",
            "I bet $236 you can't sell it.",
        )
    ),
    (("I'll give you $236 and my old phone.", "Deal, minus the phone."), None),
    (("Let's say $236, you throw in the helmet.", "Deal, without the helmet."), None),
    (("I can do $236.", "$276.", "OK deal."), 276),
    (("I offer $236, no, $276.", "Deal."), 276),
    (("I can do $236.", "I want $276.", "Deal at $236?", "Deal."), 236),
    (("I offer $236.50", "Deal."), 236.5),
    (("I offer 236 dollars and not a cent more.", "Deal."), 236),
    (("I offer $236.", "Deal.", "Actually I meant $276."), 236),
    (("I offer $236. You asked for $394, I know.", "Deal."), 236),
    (("I offer $236. I paid $394 for my last one.", "Deal."), 236),
    (("I can do $1,576.", "Deal."), 1576),
    (("I offer $236 🙂", "Deal 👍🏽"), 236),
    (("I offer $236. That is $236 in cash, right now.", "Deal."), 236),
]

PACKAGE = {"salary": "$110k", "start_date": "June 15"}
HIRING: list[Row] = [
    *answers(
        "I offer $110k starting June 15.",
        (
            *NO_ASSENT,
            "Deal on the salary.",
            "Agreed on the start date.",
            "I accept the salary.",
            "The salary works for me.",
            "The date is fine with me.",
            "Deal for the pay.",
            "Agreed to the salary, that is.",
            "Deal, minus the probation.",
            "Agreed, plus a signing bonus.",
            "Agreed, provided my visa is approved.",
            "Sounds good, I accept, assuming remote work.",
            "Deal, but I start in August.",
            "Deal, starting whenever I like.",
            "I accept the job in principle.",
            "I accept, I guess, unless something better shows up.",
            "Yes to the salary, no to the date.",
            "I accept your rejection.",
            "I accept. I start when my vacation is over.",
            "I accept $110k and June 15, pending references.",
            "I accept $110k and June 15, plus a bonus.",
            "$110k and June 15 work, without weekends.",
            "Agreed: $110k. The date we settle another day.",
            "I accept! See you on July 15.",
            "Deal. My notice period ends in September.",
            "I'd accept $110k and June 15.",
        ),
        (
            *ASSENT,
            "I accept! I'll see you on June 15.",
            "Deal, $110k and June 15. Welcome to the team!",
            "I accept your offer. I look forward to working with you.",
            "I accept, I can't wait to start!",
        ),
        PACKAGE,
    ),
    *assented(
        (
            "I offer $110k starting June 15. Sorry, I meant $105k.",
            "I offer $110k starting June 15. Actually, make that $115k.",
            "I offer $110k starting June 15. Make that July 1.",
            "I offer $110k starting June 15. Typo, July 1.",
            "I offer $110k starting June 15. I wanted to say $105k.",
            "I offer $110k starting June 15. The salary was supposed to be $105k.",
            "I offer $110k starting June 15. Actually no.",
            "I offer $110k starting June 15. Never mind.",
            "I offer $110k starting June 15. Psych!",
            "I offer $110k starting June 15 or July 1.",
            "I offer between $105k and $110k starting June 15.",
            "I offer $110k starting no later than June 15.",
            "I'd hate to offer $110k starting June 15.",
            "Only a fool would offer $110k starting June 15.",
            "It would be silly to offer $110k starting June 15.",
            "Your predecessor earned $110k and began June 15.",
            "I offer half of $110k starting June 15.",
            "I offer $110k before deductions of 50k, starting the week after June 15.",
            "I offer $110k starting any day but June 15.",
            "I offer $110k starting the day after June 15.",
            "I offer $110k starting June 15, in your dreams.",
        ),
        "I accept.",
    ),
    (("How about $110k?", "$110k works. June 15?", "June 15 works."), PACKAGE),
    (("I offer $110k for a start on June 15.", "$110k and June 15: deal!"), PACKAGE),
    (("I offer $110k starting June 15 🙂", "I accept 🎉"), PACKAGE),
]

SHARE = {"compass": 2, "blanket": 0, "rope": 0}
DIVISION: list[Row] = [
    *answers(
        "I take all the compasses, you get the rest.",
        (
            *NO_ASSENT,
            "Deal, but leave me one.",
            "Deal, minus a rope.",
            "Deal, plus a compass.",
            "Agreed, plus one compass for me.",
            "Agreed, except one compass.",
            "Deal. I still want a compass.",
            "Deal on the compasses.",
            "Deal for the ropes.",
            "Agreed, apart from the blankets.",
            "Deal, the compasses at least.",
            "I accept the ropes.",
            "I'd accept the rest.",
        ),
        (
            *ASSENT,
            "You take all the compasses, I get the rest.",
            "Deal, you take the compasses and I take the rest.",
            "Agreed: two compasses for you, the blankets and the ropes for me. Thanks!",
        ),
        SHARE,
    ),
    *assented(
        (
            "I'd hate it if I take all the compasses and you get the rest.",
            "Only a fool would say: I take all the compasses, you get the rest.",
            "It would be silly for me to take all the compasses and you get the rest.",
            "It would be unfair if I take all the compasses and you get the rest.",
            "Nightmare: I take all the compasses, you get the rest.",
            "Over my dead body I take all the compasses and you get the rest.",
            "Heaven forbid that I take all the compasses and you get the rest.",
            "My idea of a bad joke: I take all the compasses, you get the rest.",
            "In a world without you I take all the compasses and you get the rest.",
            "The worst outcome: I take all the compasses, you get the rest.",
            "God forbid, I take all the compasses and you get the rest.",
            "I get everything, you get the rest.",
            "You get everything, I get the rest.",
            "I get all of it and you get what is left.",
            "You get the rest, I take it all.",
            "I get nothing, you get the rest, and I get the ropes.",
            "I take all the compasses. Actually, all the blankets. You get the rest.",
            "I take all the compasses, you get the rest. Actually no.",
            "I take all the compasses, you get the rest. Psych!",
            "I take all the compasses, you get the rest. Never mind.",
            "I take all the compasses, you get the rest. Kidding.",
            "I take all the compasses, you get the rest. Or the other way round.",
            "You get the compasses, I get the rest. Wait, the other way round.",
            "I take all the compasses, you get the rest, in your dreams.",
            "I take all the compasses, you get the rest, after I keep the blankets.",
            "I refuse that I take all the compasses and you get the rest.",
            "Remember, I take all the compasses and you get the rest, as my lawyer said.",
            "Either I take all the compasses and you get the rest, or nothing.",
            "Would it kill you if I take all the compasses and you get the rest?",
            "I pretend to take all the compasses and you get the rest.",
            "I steal all the compasses and you get the rest of my debts.",
            "I fail to take all the compasses and you get the rest.",
            "I take all the compasses, you get the rest, one day.",
            "I take all the compasses, you get the rest of the day.",
        )
    ),
    (("I get one compass, you get the rest.", "Deal, minus one."), None),
    (("I take all the compasses, you get the rest.", "I take all the compasses, you get the rest."), None),
    (("I take all the compasses, and you get the rest. Is that fair? 🙂", "Deal 👍"), SHARE),
    (("I love compasses. I take all the compasses, you get the rest, because I hike.", "Deal."), SHARE),
]


def _bargaining() -> Task:
    made = bargaining.FAMILY.generate(0, 7, "easy")
    parameters = {**made.scenario.outcome.parameters, "listed_price": 394}  # type: ignore[union-attr]
    outcome = made.scenario.outcome.model_copy(update={"parameters": parameters})  # type: ignore[union-attr]
    return made.model_copy(update={"scenario": made.scenario.model_copy(update={"outcome": outcome})})


def _division() -> Task:
    data = division.FAMILY.generate(0, 0, "medium").model_dump()
    items = {"compass": 2, "blanket": 2, "rope": 2}
    points = [{"compass": 1, "blanket": 2, "rope": 2}, {"compass": 2, "blanket": 2, "rope": 1}]
    data["scenario"]["outcome"]["parameters"] = {"items": items, "points": points}
    data["scenario"]["shared_data"] = {"family": "division", "items": items}
    for seat, side in zip(data["scenario"]["seats"], points, strict=True):
        seat["private_data"] = {"role": "divider", "points": side}
    return Task.model_validate(data)


TASKS = {"bargaining": _bargaining(), "hiring": hiring.FAMILY.generate(0, 0, "hard"), "division": _division()}


def _agreed(family: str, lines: tuple[str, ...]) -> tuple[Any, str]:
    module = {"bargaining": bargaining, "hiring": hiring, "division": division}[family]
    result = module.FAMILY.read(TASKS[family], turns(lines))
    if not result.agreement:
        return None, result.reason
    key = {"bargaining": "price", "division": "agent_0"}.get(family)
    return (result.terms[key] if key else result.terms), result.reason


def rows(family: str, table: list[Row]) -> list[Any]:
    return [pytest.param(family, *row, id=f"{family}: {' / '.join(row[0])[:110]}") for row in table]


@pytest.mark.parametrize(
    ("family", "lines", "terms"),
    [*rows("bargaining", BARGAINING), *rows("hiring", HIRING), *rows("division", DIVISION)],
)
def test_only_a_deal_is_read_as_one(family: str, lines: tuple[str, ...], terms: Any) -> None:
    agreed, reason = _agreed(family, lines)
    assert agreed == terms, reason
    assert reason
