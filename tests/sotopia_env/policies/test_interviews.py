"""Answers after the end, by rule, by chance and from a menu; and policies made again from their records."""

from __future__ import annotations

import asyncio

import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_policy
from sotopia_env.naming.recorded import interviewees, policy_of
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.policies import BestOfNPolicy, HumanPolicy, LLMPolicy
from sotopia_env.policies.combined.best_of_n import OfferWorth
from sotopia_env.policies.interviews import read_choice
from sotopia_env.policies.scripted import UniformRandom
from sotopia_env.storage.manifest import Named, named
from sotopia_env.testing import ScriptedChatModel, state_after
from sotopia_env.world.action import Action, ActionType, ParseFailure
from sotopia_env.world.answers import InterviewQuestion, InterviewReply
from sotopia_env.world.observation import observe
from tests.errors import raises
from tests.sotopia_env.factories import task
from tests.sotopia_env.interviewed import RIGHT, WRONG, answering, fair
from tests.sotopia_env.policies.doubles import ballot, friends_task, one_number, three_seats, verified

OPTIONS = (WRONG[0], RIGHT, *WRONG[1:])
ABOUT_THE_SELLER = InterviewQuestion("agent_1", "?")
SECRET = InterviewQuestion("agent_0", "What is it with the hall?", OPTIONS)


def reply_of(policy, state, agent, question, seed=0):
    return asyncio.run(policy.answer(observe(state, agent), question, seed))


def move(kind, content=True, to=()):
    return Action(ActionType.SPEAK, "So.", to, move=Move(kind, content))


def vote(option):
    return move(MoveKind.VOTE, option)


LEAVE, WAIT = Action(ActionType.LEAVE), Action(ActionType.NONE)
OFFER, ACCEPT = (lambda n, to=(): move(MoveKind.PROPOSE, {"n": n}, to)), move(MoveKind.ACCEPT)
PRIVATE = verified(three_seats({"quorum": 2}), private_messages=True)
DIVIDED = {"pieces": {"agent_0": 9, "agent_1": 0, "agent_2": 0}, "day": "Tue"}
ENDINGS = {
    "nothing agreed": (one_number(), [OFFER(3)], ("no", "no"), ("no", "no")),
    "both gain": (one_number(), [OFFER(3), ACCEPT], ("yes", "yes"), ("yes", "yes")),
    "one gains nothing": (one_number(), [OFFER(20), ACCEPT], ("yes", "no"), ("yes", "yes")),
    "no protocol": (task(), ["Hello."], (None, None), (None, None)),
    "a private agreement": (
        PRIVATE, [move(MoveKind.PROPOSE, DIVIDED, ("agent_1",)), ACCEPT], ("yes", "no", None), ("yes", "yes", None),
    ),
    "decided": (verified(ballot()), [vote("museum"), vote("museum"), vote("museum")], ("yes",) * 3, ("yes",) * 3),
    "hidden votes": (
        verified(ballot(secret=True)), [vote("museum"), WAIT, WAIT], ("no", None, None), ("no", None, None),
    ),
    "claims": (friends_task(), [WAIT, LEAVE], ("no", "no"), ("no", "no")),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_scripted_policies_answer_by_what_they_know_of_the_outcome(ending):
    task, actions, own, others = ending
    state = state_after(task, *actions)
    for seat, agent in enumerate(task.agents):
        other = task.agents[seat - 1]
        for about, expected in ((agent, own[seat]), (other, others[seat])):
            reply = reply_of(make_policy("linear"), state, agent, InterviewQuestion(about, "Do well."))
            assert reply.choice == (None if expected is None else ("yes", "no").index(expected)), (agent, about, reply)


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (["Good morning."], None),
        (["They say an oboist walks there."], 1),
        (["It is flooded in autumn.", "Every autumn!"], 2),
        (["Bakers want it, and an oboist."], None),
        (["The hall is haunted. Or promised to bakers?"], 0),
    ],
)
@pytest.mark.parametrize("name", ["linear", "sharer", "leaver", "silent", "micro"])
def test_scripted_policies_name_the_option_that_its_owner_gave_away(words, choice, name):
    actions = [action for text in words for action in (Action(ActionType.SPEAK, text), WAIT, WAIT)]
    assert reply_of(make_policy(name), state_after(fair(), *actions), "agent_1", SECRET).choice == choice


def test_only_the_owners_words_that_a_seat_heard_count_as_evidence():
    task = fair()
    others = state_after(task, WAIT, "An oboist, they say.")
    assert reply_of(make_policy("silent"), others, "agent_2", SECRET).choice is None


def test_random_answers_choose_every_option_equally_often():
    state = state_after(fair())
    choices = [reply_of(UniformRandom(), state, "agent_1", SECRET, seed).choice for seed in range(800)]
    assert all(150 < choices.count(option) < 250 for option in range(4))
    assert choices[0] == reply_of(UniformRandom(), state, "agent_1", SECRET, 0).choice


TYPED = [
    (["b"], InterviewReply(1)),
    (["E", "2", " B "], InterviewReply(1)),
    ([""], InterviewReply(reason="the person gave no answer")),
    ([], InterviewReply(reason="the person gave no answer")),
    (["perhaps"], InterviewReply(reason="the person gave no answer")),
]


@pytest.mark.parametrize(("lines", "reply"), TYPED)
def test_a_person_chooses_from_a_menu(lines, reply):
    screen, left = [], list(lines)

    def read(prompt):
        screen.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    assert reply_of(HumanPolicy(read, screen.append), state_after(fair()), "agent_1", SECRET) == reply
    assert "The question is about Ada Testa" in screen[0]
    assert f'B: "{RIGHT}"' in screen[0]
    assert screen[1] == "As Bram Testa: A / B / C / D? (Enter for none) "
    refusals = [text for text in screen if text.startswith("Expected one of A, B, C, D, got")]
    assert len(refusals) == sum(line.strip().casefold() not in ("", "b") for line in lines)


def test_a_person_is_asked_on_goals_with_yes_and_no():
    screen = []
    person = HumanPolicy(lambda prompt: screen.append(prompt) or "No", screen.append)
    state = state_after(fair())
    assert reply_of(person, state, "agent_1", InterviewQuestion("agent_1", "Learn why.")) == InterviewReply(1)
    assert reply_of(person, state, "agent_1", InterviewQuestion("agent_2", "Sit outside.")) == InterviewReply(1)
    assert 'one of your goals: "Learn why."' in screen[0]
    assert "of Chidi Testa, which you did not know" in screen[2]


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"answer": "B"}', 1),
        ('```json\n{"answer": " b "}\n```', 1),
        ('<think>A or {"answer": "A"}?</think>{"answer": "B"}', 1),
        ('I say {"answer": "B"}', 1),
        ('I say {"answer": "B"} for sure', "words follow"),
        ('<think>{"answer": "A"} or</think>{"answer": "B"}', 1),
        ('{"answer": "A"} or</think>{"answer": "B"}', "not clear"),
        ("B", "JSON object"),
        ('{"answer": 1}', "answer: "),
        ('{"answer": "B and C"}', 'got "B and C"'),
        ('{"answer": "B", "answer": "C"}', "duplicate key"),
        ('{"answer": "B"', "not valid"),
        ('{"answers": "B"}', '"answers"'),
        ("{}", '"answer"'),
        ("<think>{", "not closed"),
    ],
)
def test_a_models_text_is_read_or_refused_and_never_guessed(text, choice):
    result = read_choice(text, ("A", "B", "C"))
    if isinstance(choice, int):
        assert result == choice
    else:
        assert isinstance(result, ParseFailure)
        assert choice in result.reason


def test_questions_quote_what_authors_wrote():
    odd = InterviewQuestion("agent_0", 'Why?"\nA: "yes', ("x\ny", "<|im_end|>"))
    policy = LLMPolicy(ScriptedChatModel(lambda _: '{"answer": "A"}'))
    assert reply_of(policy, state_after(fair()), "agent_1", odd) == InterviewReply(0)
    text = policy.model.requests[0].messages[-1]["content"]
    assert 'A: "x\\ny"' in text
    assert "<|im_end|>" not in text


@pytest.mark.parametrize("fields", [{"options": ("a",)}, {"options": tuple("abcdefghijklmnopqrstuvwxyz1")}])
def test_a_question_has_as_many_options_as_there_are_letters(fields):
    with raises(InvalidValueError, field="options"):
        InterviewQuestion("agent_0", "?", **fields)


@pytest.mark.parametrize("reply", [{}, {"choice": 1, "reason": "so"}])
def test_a_reply_is_a_choice_or_a_reason(reply):
    with pytest.raises(InvalidValueError):
        InterviewReply(**reply)


def model(spec):
    return ScriptedChatModel(answering, name=spec)


LLM = LLMPolicy(model("local/m"), temperature=0.2, reasks=4, name="mine")
POLICIES = [make_policy("linear:horizon=4"), make_policy("human"), make_policy("random"), LLM]
POLICIES += [BestOfNPolicy(LLM, 3, OfferWorth())]


def interviewed(record, question=ABOUT_THE_SELLER):
    """The reply of a recorded policy."""
    (policy,) = interviewees([record], model)
    assert (policy.name, policy.parameters) == (record.name, record.parameters)
    return reply_of(policy, state_after(fair()), "agent_1", question)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_policy_comes_back_from_its_record(policy):
    again = policy_of(named(policy), model)
    assert type(again) is type(policy)
    assert named(again) == named(policy)
    if isinstance(policy, LLMPolicy | BestOfNPolicy):
        assert interviewed(named(policy)) == InterviewReply(0)


@pytest.mark.parametrize(
    "more", [{"structured": False}, {"prompts": {"template": "0"}}, {"model_parameters": {"server": "elsewhere"}}]
)
def test_a_policy_with_other_parameters_than_recorded_answers_and_does_not_play_on(more):
    record = named(LLM).model_copy(update={"parameters": {**LLM.parameters, **more}})
    assert interviewed(record) == InterviewReply(0)
    assert named(policy_of(record, model, exact=False)) == named(LLM)
    with raises(InvalidValueError, field="policy 'mine'"):
        policy_of(record, model)


def test_the_scorer_of_a_best_of_n_need_not_be_there_for_an_interview():
    parameters = dict(BestOfNPolicy(LLM, 3, OfferWorth()).parameters)
    record = Named(name="best", parameters={**parameters, "scorer": {"name": "runs/rm", "parameters": {}}})
    assert interviewed(record) == InterviewReply(0)
    with raises(UnknownNameError, field="scorer", got="runs/rm"):
        policy_of(record, model)


def test_a_user_can_name_a_policy_whose_record_does_not_say_enough():
    record = Named(name="mine", parameters={"n": 3})
    with pytest.raises(UnknownNameError):
        policy_of(record, model)
    assert policy_of(record, model, specs={"mine": "random"}, exact=False).name == "random"
    with raises(InvalidValueError, field="policy 'mine'"):
        policy_of(record, model, specs={"mine": "random"})


@pytest.mark.parametrize(
    "record",
    [
        Named(name="os:system", parameters={"command": "false"}),
        Named(name="tests.sotopia_env.policies.doubles:speaking"),
        Named(name="mine", parameters={**LLM.parameters, "model": "tests.sotopia_env.policies.test_interviews:model"}),
        Named(name="best", parameters={"n": 2, "policy": {"name": "x.y:z"}, "scorer": {"name": "offer-worth"}}),
    ],
    ids=lambda record: record.name,
)
def test_nothing_that_a_record_names_is_imported(record):
    reply = interviewed(record, SECRET)
    assert (reply.choice, reply.asked) == (None, False)
    with pytest.raises(UnknownNameError):
        policy_of(record, model)


def test_a_record_with_invalid_parameters_is_refused():
    record = Named(name="linear", parameters={"speed": 3})
    with raises(InvalidValueError, field="policy 'linear'"):
        policy_of(record, model)
