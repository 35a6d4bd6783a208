"""Beliefs of language models: shares of answers to lettered questions, from the seat's own view alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest

from sotopia_env.chat_model import make_model
from sotopia_env.foundation.errors import ContextLengthError
from sotopia_env.naming import make_policy
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.policies import LLMPolicy
from sotopia_env.policies.interviews import belief_questions
from sotopia_env.tasks.families.mini_mafia import PLAIN
from sotopia_env.tasks.families.registry import generate
from sotopia_env.testing import ScriptedChatModel, check_no_leaks
from sotopia_env.world.play.table import Table
from tests.sotopia_env.chat_model.conftest import QUICK
from tests.sotopia_env.chat_model.server import MANNERS, LoopbackServer, Manner
from tests.sotopia_env.interviewed import question_of
from tests.sotopia_env.tasks.test_mini_mafia import seats

SAMPLES = 12


def asked(reply, samples: int = SAMPLES, **settings):
    """The beliefs of a villager, played by a model, in the middle of a game of honest scripts; and the parts."""
    task = generate("mini_mafia", 1, 0)[0]
    agent = seats(task)[PLAIN]
    policy = LLMPolicy(ScriptedChatModel(reply, name="local/m"), **settings)
    table = Table(task)
    while len(table.state.turns) < 4:
        asyncio.run(table.step(make_policy("honest")))
    view = task.scenario.facts.view(agent)
    variables = [v for v in view.variables.values() if v.kind == "role"]
    replies = asyncio.run(policy.believe(table.observe(agent), variables, 7, samples))
    return replies, variables, policy.model.requests, table, agent


def number_of(request, numbers: Counter) -> int:
    """How often the question of a request was asked before."""
    name = next(line for line in request.messages[-1]["content"].splitlines() if "truth about" in line)
    numbers[name] += 1
    return numbers[name] - 1


def letter_of(request, option: str) -> str:
    letters = question_of(request.messages[-1]["content"])
    return next(letter for letter, text in letters.items() if text == option)


def test_shares_of_answers_are_the_belief_whatever_the_order_of_the_options():
    numbers, letters = Counter(), set()

    def reply(request):
        options = sorted(question_of(request.messages[-1]["content"]).values())
        letter = letter_of(request, options[number_of(request, numbers) % 3 == 2])
        letters.add(letter)
        return json.dumps({"answer": letter})

    replies, variables, requests, table, agent = asked(reply)
    assert len(requests) == SAMPLES * len(variables)
    for variable, answer in zip(variables, replies, strict=True):
        first, second, third = sorted(variable.options)
        assert answer.probabilities == pytest.approx({first: 2 / 3, second: 1 / 3, third: 0})
        assert answer.samples == SAMPLES
    assert letters == {"A", "B", "C"}
    for request in requests:
        check_no_leaks(table.state, agent, [*request.messages[:-1]])
        assert request.schema["properties"]["answer"]["enum"] == ["A", "B", "C"]
    assert len({request.replicate for request in requests}) == len(requests), "a cache keeps all answers apart"


@pytest.mark.parametrize("text", ["The wolf, I think.", '{"answer": "Z"}', '{"action_type": "none"}'])
def test_text_that_is_no_option_is_unknown_with_the_reason(text):
    replies, *_ = asked(lambda request: text, samples=3, reasks=0)
    for reply in replies:
        assert reply.probabilities is None
        assert reply.reason.startswith("0 of 3 answers usable; ")
        assert reply.asked


def test_one_usable_answer_is_not_a_belief_and_unusable_ones_are_left_out():
    def reply(request, usable, numbers):
        return json.dumps({"answer": "A"}) if number_of(request, numbers) < usable else "Hm."

    for usable, known in ((1, False), (4, True)):
        replies, *_ = asked(partial(reply, usable=usable, numbers=Counter()), samples=6, reasks=0)
        assert {one.probabilities is not None for one in replies} == {known}
        assert {one.samples for one in replies} == {4 if known else 0}


class Weighing(ScriptedChatModel):
    """Gives an answer a weight by its length; a conversation may be too long for it."""

    fits = True
    texts: ClassVar[list[str]] = []

    async def shares(self, request, answers):
        if not self.fits:
            raise ContextLengthError("too long")
        self.texts.append(request.messages[-1]["content"])
        return [[len(answer) / sum(map(len, group)) for answer in group] for group in answers]


@pytest.mark.parametrize("fits", [True, False])
def test_probabilities_are_taken_where_the_model_has_them(fits):
    model = Weighing(lambda request: '{"answer": "A"}', name="local/m")
    model.fits, model.texts = fits, []
    table = Table(generate("mini_mafia", 1, 0)[0])
    tree = PublicVariable("tree", ("oak", "beech", "yew"), "fact", "", "", True)
    hour = PublicVariable("hour", ("one", "two"), "fact", "", "the hour of the train", True)
    first, second = asyncio.run(LLMPolicy(model).believe(table.observe("agent_0"), [tree, hour], 0, 6))
    assert len(model.requests) == (0 if fits else 12)
    assert {first.samples, second.samples} == {0 if fits else 6}
    assert sum(first.probabilities.values()) == pytest.approx(1)
    if fits:
        lengths = {option: len(f'{{"tree": "{option}"}}') for option in tree.options}
        assert first.probabilities == pytest.approx({o: n / sum(lengths.values()) for o, n in lengths.items()})
        assert second.probabilities == {"one": 0.5, "two": 0.5}
        (text,) = model.texts
        assert all(word in text for word in ("tree", "oak", "beech", "yew", "the hour of the train"))


def test_the_order_of_options_is_the_same_at_every_moment_and_differs_between_tasks():
    variable = PublicVariable("tree", ("oak", "beech", "yew"), "fact", "", "", True)
    table = Table(generate("mini_mafia", 1, 0)[0])
    before = belief_questions(table.observe("agent_0"), [variable])
    asyncio.run(table.play(make_policy("honest")))
    assert belief_questions(table.observe("agent_0"), [variable]) == before
    texts = {belief_questions(table.observe("agent_0"), [replace(variable, name=f"t{n}")])[-25:] for n in range(20)}
    assert len(texts) > 3


def test_more_options_than_letters_cannot_be_asked_about():
    many = PublicVariable("day", tuple(f"day {number}" for number in range(30)), "fact", "", "", True)
    policy = LLMPolicy(ScriptedChatModel(lambda request: '{"answer": "A"}', name="local/m"))
    table = Table(generate("mini_mafia", 1, 0)[0])
    (reply,) = asyncio.run(policy.believe(table.observe("agent_0"), [many], 0, 4))
    assert "26" in reply.reason


# --- servers ------------------------------------------------------------------------------------------------------

WEIGHTS = {"oak": 0.5, "beech": 0.2, "yew": 0.1}
LIKING = 0.15
"""For the letter A, whatever it stands for; the rest of the probability is on words that are no letter."""
TREE = PublicVariable("tree", tuple(WEIGHTS), "fact", "", "", True)


def best(body):
    """Tokens of an answer, with the probabilities of the letters at the place of the answer."""
    options = question_of(body["messages"][-1]["content"])
    letters = {letter: WEIGHTS[text] + LIKING * (letter == "A") for letter, text in options.items()}
    top = max(letters, key=letters.get)
    # Some tokenizers merge the quote or a blank with the letter, so that one letter has several tokens.
    split = {letter: share * 0.75 for letter, share in letters.items()} | {f' "{top}': letters[top] * 0.25, "Z": 0.05}
    return [
        ('{"', {'{"': 0.9, "{": 0.1}),
        ("answer", {"answer": 1.0}),
        ('": "', {'": "': 1.0}),
        (top, split),
        ('"}', {}),
    ]


def letters_of(body):
    return "".join(token for token, _ in best(body))


def served(**settings):
    """The belief of a model on a server about one variable, and the bodies of the requests."""
    table = Table(generate("mini_mafia", 1, 0)[0])
    with LoopbackServer(reply=letters_of, **settings) as server:
        model = make_model("local/tiny", api_base=server.api_base, retries=QUICK)

        async def ask():
            reply = (await LLMPolicy(model).believe(table.observe("agent_0"), [TREE], 3, 12))[0]
            await model.close()
            return reply

        return asyncio.run(ask()), [seen.body for seen in server.requests]


def test_a_server_that_sends_probabilities_is_asked_once_for_each_order_of_the_options():
    reply, bodies = served(best=best)
    assert len(bodies) == 3
    assert {(body["logprobs"], body["top_logprobs"]) for body in bodies} == {(True, 20)}
    assert (reply.samples, reply.reason) == (0, "")
    # By hand: each option has the letter A in one of three orders; the top letter has a quarter in another token.
    expected = dict.fromkeys(WEIGHTS, 0.0)
    for body in bodies:
        options = question_of(body["messages"][-1]["content"])
        weights = {text: WEIGHTS[text] + LIKING * (letter == "A") for letter, text in options.items()}
        top = max(weights, key=weights.get)
        masses = {text: weight * (1 if text == top else 0.75) for text, weight in weights.items()}
        for text, mass in masses.items():
            expected[text] += mass / sum(masses.values()) / 3
    assert reply.probabilities == pytest.approx(expected)
    assert {question_of(body["messages"][-1]["content"])["A"] for body in bodies} == set(WEIGHTS)


SILENT = [
    {},  # sends log-probabilities of its own tokens alone
    {"best": best, "most_alternatives": 5},
    {"best": best, "manner": Manner(("top_logprobs",))},
    {"best": best, "manner": MANNERS["transformers serve"]},
]


@pytest.mark.parametrize("settings", SILENT)
def test_from_a_server_that_does_not_send_probabilities_answers_are_drawn(settings):
    reply, bodies = served(**settings)
    assert reply.samples == 12
    assert sum(reply.probabilities.values()) == pytest.approx(1)
    answered = [body for body in bodies if not {"top_logprobs", "return_token_ids"} & body.keys()]
    assert len(bodies) <= 12 + 3, "the first answer counts, and a refused field is left out from then on"
    assert len(answered) >= 11


def test_text_in_place_of_a_letter_is_no_belief_although_the_server_sends_probabilities():
    reply, _ = served(best=lambda body: [("oak", {"oak": 0.9, "yew": 0.1})])
    assert reply.samples == 12, "letters were written, but not the tokens that were reported"
    table = Table(generate("mini_mafia", 1, 0)[0])
    with LoopbackServer(reply="It is an oak.", best=best) as server:
        model = make_model("local/tiny", api_base=server.api_base, retries=QUICK)

        async def ask():
            replies = await LLMPolicy(model, reasks=0).believe(table.observe("agent_0"), [TREE], 3, 4)
            await model.close()
            return replies

        (reply,) = asyncio.run(ask())
    assert reply.probabilities is None
    assert reply.reason.startswith("0 of 4 answers usable")
