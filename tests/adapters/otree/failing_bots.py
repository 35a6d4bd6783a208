"""Bots of people whose partner fails: they reload the page, and continue without it when the time is over."""

import asyncio

from otree.api import Bot, Submission, expect

from . import Conversation, End

RELOADS = 3


class PlayerBot(Bot):
    def play_round(self):
        yield Submission(Conversation, check_html=False, timeout_happened=True)
        yield Submission(End, check_html=False)


def call_live_method(method, case, group, **kwargs):
    """Listens, then accepts; reloads the page when the partner did not answer."""

    def send(fields):
        async def views():
            return [view async for view in method(1, fields)]

        return asyncio.run(views())[-1][1]

    view, count = send({}), 0
    while not view["over"]:
        fields = {"turn": view["turn"], "action_type": "speak", "argument": "Well?"}
        accept = [value for value, label in view["moves"] if label.startswith("accept")]
        view = send({**fields, "move": accept[-1]} if accept and count >= 8 else fields)
        for _ in range(RELOADS):
            if view["problem"]:
                expect("the model is down" in view["problem"], False)
                view = send({})
        if view["problem"]:
            return
        count += 1
