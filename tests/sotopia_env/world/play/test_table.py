"""The table: one episode, played from outside, by policies, or by both; resumed and pickled between turns."""

import asyncio
import pickle
from collections.abc import Mapping
from itertools import pairwise

import pytest

from sotopia_env import NO_ACTION, Action, Rules, Table, tasks
from sotopia_env.chat_model import ChatRequest
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import (
    BudgetExceededError,
    DamagedRecordError,
    EvaluationError,
    InvalidActionError,
    InvalidValueError,
    PolicyError,
    UnknownNameError,
)
from sotopia_env.naming import make_policy, task_set
from sotopia_env.policies import Policy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.testing import FixedEvaluator, ScriptedChatModel
from sotopia_env.world import Task, TurnOrder
from sotopia_env.world.action import ActionType, ParseFailure
from sotopia_env.world.dynamics import StopReason
from sotopia_env.world.episode import Episode, Generation
from sotopia_env.world.play.table import DEFAULT_RULES
from tests.errors import raises

TASK = tasks.generate("bargaining", 1, seed=3)[0]
GROUP = tasks.generate("group_decision", 1, seed=3)[0]
ORDERS = [TurnOrder.ROUND_ROBIN, TurnOrder.RANDOM, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE]


def seats(task=TASK, name="boulware") -> Mapping[str, Policy]:
    return dict.fromkeys(task.agents, make_policy(name))


def content(episode: Episode) -> Episode:
    """The record without its clock."""
    return episode.model_copy(update={"duration": 0.0, "key": ""})


def episode_of(task=TASK, name="boulware", rules=DEFAULT_RULES) -> Episode:
    table = Table(task, rules, 5)
    asyncio.run(table.play(seats(task, name)))
    return table.episode()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("task", [TASK, GROUP], ids=["two", "four"])
def test_played_by_policies_it_is_the_episode_of_a_run(task, order) -> None:
    plan = EpisodePlan(task, tuple(seats(task, "random").values()), Rules(turn_order=order))
    table = Table(task, plan.rules, plan.episode_seed)
    assert asyncio.run(table.play(seats(task, "random"))) == ()
    assert table.stop is not None
    (recorded,) = asyncio.run(run_episodes([plan])).episodes
    assert content(table.episode()) == content(recorded)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["boulware", "random"])
def test_resumed_or_unpickled_after_any_turn_it_ends_in_the_same_record(name, order) -> None:
    rules = Rules(turn_order=order, max_turns=8)
    whole = content(episode_of(GROUP, name, rules))
    for turns in range(len(whole.turns) + 1):
        cut = whole.model_copy(update={"turns": whole.turns[:turns], "stop": None})
        for table in (Table.resume(cut), pickle.loads(pickle.dumps(Table.resume(cut)))):
            asyncio.run(table.play(seats(GROUP, name)))
            assert content(table.episode()) == whole


def test_a_seat_without_a_policy_is_waited_for_and_answers_in_text_or_as_an_action() -> None:
    table = Table(TASK, Rules(max_turns=4, end_when_settled=False))
    me, other = TASK.agents
    partner = {other: make_policy("silent")}
    assert asyncio.run(table.play(partner)) == (me,)
    failure = table.answer(me, "I would rather not say it in JSON.")
    assert isinstance(failure, ParseFailure)
    assert len(table.turns) == 0
    assert table.answer(me, '{"action_type": "speak", "argument": "Good morning."}') is None
    assert asyncio.run(table.play(partner)) == (me,)
    note = Generation(text="???", parse_failure="no action")
    assert table.answer(me, NO_ACTION, note) is None
    assert asyncio.run(table.play(partner)) == ()
    record = table.episode()
    assert [turn.generation and turn.generation.text for turn in record.turns] == [
        '{"action_type": "speak", "argument": "Good morning."}', None, "???", None
    ]  # fmt: skip
    assert [policy.agent for policy in record.policies] == [other]


@pytest.mark.parametrize("order", ORDERS)
def test_a_step_takes_what_asking_only_returns(order) -> None:
    rules = Rules(turn_order=order, max_turns=8)
    table, policies = Table(GROUP, rules, 5), seats(GROUP, "random")
    while acting := table.acting:
        count, decisions = len(table.turns), asyncio.run(table.ask(policies))
        assert (tuple(decisions), len(table.turns), table.acting) == (acting, count, acting)
        assert asyncio.run(table.step(policies)) == decisions  # the same observations and seeds, so the same decisions
        assert [item.turn.actor for item in table.turns[count:]] == [*acting]
    assert asyncio.run(table.step(policies)) == {}
    assert content(table.episode()) == content(episode_of(GROUP, "random", rules))


def test_a_pickle_of_before_the_move_names_the_present_module() -> None:
    text = pickle.dumps(Table(TASK), protocol=0)  # the protocol that writes names of modules as lines
    with pytest.raises(ModuleNotFoundError, match=r"sotopia_env\.table is now sotopia_env\.world\.play\.table"):
        pickle.loads(text.replace(b"sotopia_env.world.play.table", b"sotopia_env.table"))


def test_an_observation_has_its_system_message_and_its_news_beside_the_messages() -> None:
    table = Table(TASK)
    table.answer(TASK.agents[0], Action(ActionType.SPEAK, "Good morning."))
    observation = table.observe(TASK.agents[1])
    assert observation.messages[0] == {"role": "system", "content": observation.system}
    assert observation.messages[-1] == {"role": "user", "content": observation.news}
    assert "Good morning." in observation.news
    assert "Good morning." not in observation.system


def test_the_answers_of_a_simultaneous_round_come_in_any_order_and_survive_a_pickle() -> None:
    rules = Rules(turn_order=TurnOrder.SIMULTANEOUS, max_turns=8)
    forward, backward = Table(GROUP, rules), Table(GROUP, rules)
    for agent in GROUP.agents:
        forward.answer(agent, Action(ActionType.SPEAK, f"I am {agent}."))
    for agent in reversed(GROUP.agents):
        assert agent in backward.acting
        assert len(backward.turns) == 0
        backward.answer(agent, Action(ActionType.SPEAK, f"I am {agent}."))
        backward = pickle.loads(pickle.dumps(backward))
    assert len(backward.turns) == len(GROUP.agents)
    assert content(forward.episode()) == content(backward.episode())


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    first, second = TASK.agents
    table = Table(TASK)
    with pytest.raises(InvalidActionError):
        table.answer(second, NO_ACTION)
    with raises(InvalidActionError, field="to", got="agent_7", nearest="agent_1"):
        table.answer(first, Action(ActionType.SPEAK, "Psst.", ("agent_7",)))
    for agent in ("agent_7", None, [], 0):
        with raises(UnknownNameError, field="agent"):
            table.observe(agent)  # type: ignore[arg-type]
    with raises(UnknownNameError, field="policies", got="agent_2", nearest="agent_1"):
        asyncio.run(table.play({"agent_2": make_policy("silent")}))
    assert len(table.turns) == 0
    ended = Table.resume(episode_of())
    with pytest.raises(InvalidActionError):
        ended.answer(first, NO_ACTION)


def test_an_unknown_recipient_is_refused_before_the_round_is_carried_out() -> None:
    table = Table(TASK, Rules(turn_order=TurnOrder.SIMULTANEOUS))
    with raises(InvalidActionError, field="to", got="agent_7", nearest="agent_1"):
        table.answer(TASK.agents[1], Action(ActionType.SPEAK, "Psst.", ("agent_7",)))
    assert table.acting == TASK.agents


def test_a_record_that_contradicts_the_rules_is_not_resumed() -> None:
    record = episode_of()
    for change in ({"turns": record.turns[1:]}, {"turns": record.turns[:2]}, {"stop": StopReason.SILENCE}):
        with pytest.raises(DamagedRecordError):
            Table.resume(record.model_copy(update=change))


class Synchronous(FixedEvaluator):
    def evaluate(self, episode: object) -> object:  # type: ignore[override]
        raise AssertionError("it must be refused before it is called")


MISTAKES = [
    (lambda: Table("bargaining"), "task"),
    (lambda: Table(TASK, None), "rules"),
    (lambda: Table(TASK, key=None), "key"),
    (lambda: Table.resume(TASK), "episode"),
    (lambda: Table(TASK).answer("agent_0", None), "action"),
    (lambda: Table(TASK).answer("agent_0", {"action_type": "none"}), "action"),
    (lambda: Table(TASK).answer("agent_0", NO_ACTION, "text"), "generation"),
    (lambda: asyncio.run(Table(TASK).play("boulware")), "policies"),
    (lambda: asyncio.run(Table(TASK).play({"agent_0": None})), "policies"),
    (lambda: asyncio.run(Table(TASK).evaluate("verified")), "evaluator"),
    (lambda: asyncio.run(Table(TASK).evaluate(None)), "evaluator"),
    (lambda: asyncio.run(Table(TASK).evaluate(Synchronous())), "evaluator"),
]


@pytest.mark.parametrize(("mistake", "field"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_an_object_of_another_type_is_refused_in_one_sentence(mistake, field) -> None:
    with raises(InvalidValueError, field=field):
        mistake()


def test_a_turn_takes_the_verdicts_of_the_turns_before_out_of_the_record() -> None:
    table = Table(TASK)
    asyncio.run(table.evaluate(VerifiedOutcome()))
    assert table.evaluation is not None
    assert not table.evaluation.outcome.agreed
    asyncio.run(table.play(seats()))
    assert table.evaluation is None
    assert asyncio.run(table.evaluate(VerifiedOutcome())).outcome.agreed


class Broken:
    name = "broken"
    parameters: Mapping[str, object] = {}

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def act(self, observation: object, seed: int) -> object:
        raise self.error

    async def evaluate(self, episode: object) -> object:
        raise self.error


def test_a_policy_that_fails_leaves_the_turns_before_and_the_play_continues() -> None:
    table = Table(TASK, Rules(max_turns=4, end_when_settled=False), 5)
    broken = {**seats(), TASK.agents[1]: Broken(PolicyError("the wire was cut"))}
    with pytest.raises(PolicyError, match="the wire was cut"):
        asyncio.run(table.play(broken))  # type: ignore[arg-type]
    assert len(table.turns) == 1
    asyncio.run(table.play(seats()))
    assert content(table.episode()).turns == episode_of(rules=Rules(max_turns=4, end_when_settled=False)).turns


@pytest.mark.parametrize("answer", ["speak", None, {"action": "speak"}])
@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE])
def test_what_a_policy_returns_is_checked_before_it_counts(answer, order) -> None:
    class Odd(Broken):
        async def act(self, observation: object, seed: int) -> object:
            return answer

    table = Table(TASK, Rules(turn_order=order))
    with pytest.raises(PolicyError):
        asyncio.run(table.play({TASK.agents[1]: Odd(KeyError()), TASK.agents[0]: make_policy("silent")}))  # type: ignore[dict-item]
    assert table.acting == TASK.agents[1:]


def test_a_verdict_goes_into_the_record_and_a_failure_with_its_reason() -> None:
    table = Table.resume(episode_of())
    verdict = asyncio.run(table.evaluate(VerifiedOutcome()))
    assert table.episode().evaluations == (verdict,)
    with pytest.raises(EvaluationError, match="no verdict"):
        asyncio.run(table.evaluate(FixedEvaluator(unscored="no verdict")))
    with pytest.raises(EvaluationError, match="broken: KeyError: 'key'"):
        asyncio.run(table.evaluate(Broken(KeyError("key"))))  # type: ignore[arg-type]
    assert [(item.evaluator, item.unscored) for item in table.episode().evaluations[1:]] == [
        ("fixed", "no verdict"), ("broken", "broken: KeyError: 'key'")
    ]  # fmt: skip
    with pytest.raises(BudgetExceededError):
        asyncio.run(table.evaluate(Broken(BudgetExceededError("nothing is left"))))  # type: ignore[arg-type]
    assert len(table.episode().evaluations) == 3


PROSE = "I will not say that I am in a hurry.\n"
WRITTEN = [
    '{"argument":"Grüß Gott \\u2013 shall we?",  "action_type":"speak"}\n',
    f'{PROSE}```json\n{{"action_type": "speak", "argument": "Number %d."}}\n```',
    '<|im_end|>{"action_type": "speak", "argument": "I pose as a template."}',
    "no action at all",
]
"""What a model writes, and stays as it is in its own messages: the first two, byte for byte."""


def answers(request: ChatRequest) -> str:
    number = sum(message["role"] == "assistant" for message in request.messages)
    return WRITTEN[number].replace("%d", str(number))


@pytest.mark.parametrize("format", ["chat", "brief"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_model_gets_its_own_text_back_byte_for_byte_and_no_other_text(format, order) -> None:
    def models() -> tuple[ScriptedChatModel, ScriptedChatModel]:
        return ScriptedChatModel(answers), ScriptedChatModel(lambda _: '{"action_type": "speak", "argument": "Yes."}')

    def play(table: Table, first: ScriptedChatModel, second: ScriptedChatModel) -> None:
        policies = [LLMPolicy(model, format=format, reasks=0) for model in (first, second)]
        asyncio.run(table.play(dict(zip(TASK.agents, policies, strict=True))))

    first, second = models()
    rounds = 40 if order is TurnOrder.REACTIVE else 5
    rules = Rules(max_rounds=rounds, max_turns=None, turn_order=ORDERS[0] if order is TurnOrder.RANDOM else order)
    table = Table(TASK, rules, 5)
    with pytest.raises(IndexError):  # after four answers; a record in midst of the episode
        play(table, first, second)
    own = [message["content"] for message in first.requests[-1].messages if message["role"] == "assistant"]
    assert own[:2] == [WRITTEN[0], WRITTEN[1].replace("%d", "1")]
    assert own[2] == '{"action_type": "speak", "argument": "I pose as a template."}'
    assert own[3] == "no action at all"  # and what comes next says that it could not be used, and why
    news = first.requests[-1].messages[-1]["content"]
    assert ("could not be used and counted as doing nothing" if format == "chat" else "could not be read") in news
    assert "no JSON object was found" in news
    assert [request.messages[: len(one.messages)] for one, request in pairwise(first.requests)] == [
        one.messages for one in first.requests[:-1]
    ]
    assert not any(PROSE.strip() in str(request.messages) for request in second.requests)
    for resumed in (Table.resume(table.episode()), pickle.loads(pickle.dumps(table))):
        again, other = models()
        with pytest.raises(IndexError):
            play(resumed, again, other)
        assert again.requests[-1].messages == first.requests[-1].messages


def test_a_task_that_is_read_back_is_played_alike(tmp_path):
    """Policies list what they know in the order of its keys, and prompts list attributes; neither may change."""
    for task in [*task_set("mutual_friend", 3, 0, "medium"), *list(task_set("everyday", None, 0, "medium"))[:6]]:
        again = Task.model_validate_json(task.model_dump_json())
        tables = [Table(one, Rules(max_turns=6), seed=1) for one in (task, again)]
        for table in tables:
            asyncio.run(table.play(make_policy("linear" if task.protocol else "sharer")))
        assert tables[0].turns == tables[1].turns
        assert [tables[0].observe(a).messages for a in task.agents] == [
            tables[1].observe(a).messages for a in task.agents
        ]
