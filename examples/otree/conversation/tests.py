"""Bots for `otree test`: people who offer, accept and leave, through the fields of the page."""

import asyncio

from otree.api import Bot, Submission, expect

from . import EPISODES, Conversation, End

cases = ["deal", "leave"]


class PlayerBot(Bot):
    cases = cases

    def play_round(self):
        yield Submission(Conversation, check_html=False)
        expect(self.player.stop, "settled" if self.case == "deal" else "left")
        yield Submission(End, check_html=False)


def call_live_method(method, case, group, **kwargs):
    """Plays the episode of a group through the fields of its pages."""

    def send(number, fields):
        EPISODES.clear()  # as when the server was started again: the record alone must be enough

        async def views():
            return [view async for view in method(number, fields)]

        return asyncio.run(views())[-1]

    seen = send(1, {})
    expect("JSON" in str(seen), False)
    while not seen[1]["over"]:
        number = next(n for n, view in seen.items() if view["acting"])
        view = seen[number]
        stale = send(number, {"turn": view["turn"] - 1, "action_type": "leave"})
        expect(bool(stale[number]["problem"]), True)
        unfinished = send(number, {"turn": view["turn"], "action_type": "speak", "argument": ""})
        expect(bool(unfinished[number]["problem"]), True)
        seen = send(number, {"turn": view["turn"], **fields_of(view, case)})
        expect([v["problem"] for v in seen.values()], [""] * len(seen))
    scores = [player.field_maybe_none("goal") for player in group.get_players()]
    expect(all(score is not None for score in scores), True)


def fields_of(view, case):
    """Returns the fields that a person fills in."""
    if case == "leave":
        return {"action_type": "leave"}
    accept = next((value for value, label in view["moves"] if label.startswith("accept")), None)
    if accept is not None:
        return {"action_type": "speak", "argument": "Agreed.", "move": accept}
    middle = {t["name"]: str((int(float(t["low"])) + int(float(t["high"]))) // 2) for t in view["terms"]}
    return {"action_type": "speak", "argument": "How about the middle?", "move": "offer", **middle}
