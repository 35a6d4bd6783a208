"""One seat as text in and text out, with the messages and rewards that trainers take."""

from __future__ import annotations

import asyncio
import json
import pickle

import numpy as np
import pytest

from sotopia_env import naming
from sotopia_env.adapters import Seats, TextSeat, rows
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.evaluators.turn_rewards import counterfactual_rewards, standing, state_values
from sotopia_env.foundation.errors import EvaluationError, InvalidActionError, InvalidValueError, UnknownNameError
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world import Dimension, Rules, TurnOrder
from sotopia_env.world.episode import replay
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.play.table import Table
from tests.adapters import beliefs


def speak(text: str, **move) -> str:
    return json.dumps({"action_type": "speak", "argument": text, **({"move": move} if move else {})})


def accept_all(seat: TextSeat) -> str:
    """Accepts the latest open offer if that pays, or waits for one that does."""
    offers = seat.table.observe(seat.agent).moves.accept
    pays = standing(seat.table.task, seat.episode().plain_turns, seat.agent) > 0
    return speak("Agreed.", accept=offers[-1]) if offers and pays else speak("What do you offer?")


async def play(seat: TextSeat, model=accept_all) -> list:
    messages = await seat.begin()
    while not seat.done:
        text = model(seat)
        news, done = await seat.say(text)
        assert done == seat.done
        messages += [{"role": "assistant", "content": text}, *news]
    return messages


@pytest.mark.parametrize("focal", [0, 1])
def test_the_conversation_is_the_one_that_the_seat_observes(focal):
    seat = TextSeat.against("bargaining", "conceder", focal, seed=5)
    messages = asyncio.run(play(seat))
    assert [m["role"] for m in messages[:3]] == ["system", "user", "assistant"]
    final = list(seat.table.observe(seat.agent).messages)
    assert messages == final[: len(messages)]
    assert seat.table.stop.value == "settled"
    assert seat.reward == pytest.approx(seat.table.evaluation.outcome.shares[focal])
    assert set(seat.scores) == {"goal", "financial_and_material_benefits"}
    assert seat.scores["goal"] == pytest.approx(10 * seat.reward)
    assert sum(seat.turn_rewards) == pytest.approx(seat.reward)
    assert len(seat.turn_rewards) == seat.info["own_turns"]
    assert replay(seat.episode()).stop is seat.table.stop


def test_a_copy_between_turns_goes_on_alike():
    async def both() -> tuple[TextSeat, TextSeat]:
        seat = TextSeat.against("division", {1: "linear"}, seed=3)
        await seat.begin()
        await seat.say(speak("Well?"))
        copy = pickle.loads(pickle.dumps(seat))
        for one in (seat, copy):
            while not one.done:
                await one.say(accept_all(one))
        return seat, copy

    seat, copy = asyncio.run(both())
    assert copy.episode().turns == seat.episode().turns
    assert (copy.reward, copy.turn_rewards) == (seat.reward, seat.turn_rewards)


def test_a_copy_makes_models_again(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    seat = TextSeat.against(
        "bargaining", "openai/gpt-4o", evaluator="verified+judge:openai/gpt-4o", scalarisation="overall"
    )
    copy = pickle.loads(pickle.dumps(seat))
    assert copy.info == seat.info
    assert copy.turn_rewards is seat.turn_rewards is None, "a judge decides over a part of this reward"


@pytest.mark.parametrize("scalarisation", ["goal", "share"])
def test_turn_rewards_have_the_unit_of_the_reward(scalarisation):
    seat = TextSeat.against("bargaining", "conceder", seed=5, scalarisation=scalarisation)
    asyncio.run(play(seat))
    assert seat.reward > 0
    assert sum(seat.turn_rewards) == pytest.approx(seat.reward)


def test_an_unfinished_episode_counts_what_was_agreed_and_no_open_offer():
    async def work() -> TextSeat:
        seat = TextSeat.against("bargaining", "conceder", seed=5)
        await seat.begin()
        for _ in range(5):
            await seat.say(speak("What do you offer?"))
        assert sum(seat.turn_rewards) > 0
        await seat.end()
        return seat

    seat = asyncio.run(work())
    assert not seat.done
    assert seat.reward == 0
    assert sum(seat.turn_rewards) == pytest.approx(0)
    asyncio.run(seat.say(accept_all(seat)))
    assert seat.table.stop.value == "settled"
    assert seat.reward == pytest.approx(sum(seat.turn_rewards))
    assert seat.reward > 0


def test_continuations_of_a_seat_take_its_own_policy_by_name():
    seat = TextSeat.against("bargaining", "random-offers", seed=5, name="greedy")
    asyncio.run(play(seat))
    episode = seat.episode()
    assert [info.name for info in episode.policies] == ["greedy", "random-offers"]
    continuations = Continuations(
        lambda info: naming.make_policy({"greedy": "random-walk"}.get(info.name, info.name)), VerifiedOutcome()
    )
    values = asyncio.run(state_values(episode, continuations, 4, seat.agent))
    rewards = counterfactual_rewards(episode, seat.agent, values)
    assert len(rewards.values) == len(seat.turn_rewards)
    assert any(rewards.values)


def test_two_seats_of_an_episode_have_a_conversation_and_rewards_each():
    async def play(copied: bool) -> Seats:
        seats = Seats.against("bargaining", focal=(0, 1), seed=5, scalarisation="share", name="self")
        read: dict[str, list] = {agent: [] for agent in seats}
        while acting := await seats.play():
            if copied:
                seats = pickle.loads(pickle.dumps(seats))
                acting = [seats[seat.agent] for seat in acting]
            (seat,) = acting
            unusable = len(seats.table.turns) == 2 and not seat.info["reasks"]
            text = "What?" if unusable else accept_all(seat) if seats.table.turns[9:] else offer(seat)
            read[seat.agent] += [*seat.news(), {"role": "assistant", "content": text}]
            seat.take(text)
        for agent, seat in seats.items():
            messages = [m for m in read[agent] if m["content"] != "What?" and "not an action" not in m["content"]]
            assert messages == list(seat.table.observe(agent).messages[: len(messages)])
        return seats

    seats = asyncio.run(play(copied=False))
    first, second = seats.values()
    assert seats.table.stop.value == "settled"
    assert [first.reward, second.reward] == pytest.approx(seats.table.evaluation.outcome.shares)
    for seat in (first, second):
        assert sum(seat.turn_rewards) == pytest.approx(seat.reward)
        assert seat.scores["goal"] == pytest.approx(10 * min(max(seat.reward, 0), 1))
    assert first.answer_rewards.count(None) == first.info["reasks"] == 1
    assert tuple(value for value in first.answer_rewards if value is not None) == first.turn_rewards
    assert first.news() == second.news() == []
    assert [info.name for info in seats.table.episode().policies] == ["self", "self"]
    copy = asyncio.run(play(copied=True))
    assert [seat.answer_rewards for seat in copy.values()] == [seat.answer_rewards for seat in seats.values()]


def offer(seat: TextSeat) -> str:
    issue, part = seat.table.task.scenario.outcome.issues[0], {"agent_0": 2, "agent_1": 3}[seat.agent]
    return speak("This?", propose={issue.name: int(issue.low + (issue.high - issue.low) / part)})


def test_seats_of_a_resumed_episode_go_on_from_there():
    async def play() -> tuple[TextSeat, TextSeat]:
        whole = TextSeat.against("bargaining", "conceder", seed=5)
        await whole.begin()
        await whole.say(speak("Well?"))
        rest = Seats(Table.resume(whole.episode()), {"agent_1": "conceder"})["agent_0"]
        assert [message["role"] for message in await rest.begin()][-3:] == ["user", "assistant", "user"]
        for seat in (whole, rest):
            while not seat.done:
                await seat.say(accept_all(seat))
        return whole, rest

    whole, rest = asyncio.run(play())
    assert rest.episode().turns == whole.episode().turns
    assert rest.reward == whole.reward
    assert rest.answer_rewards == whole.answer_rewards[1:]


def test_a_fork_goes_on_from_an_earlier_turn_with_the_same_partners_and_reward():
    whole = TextSeat.against("bargaining", "conceder", seed=5, scalarisation="goal")
    asyncio.run(play(whole))
    turn = whole.table.turns[4].turn
    assert turn.actor == whole.agent
    fork = whole.seats.fork(turn.index)[whole.agent]
    assert fork.news() == list(whole.table.observe(whole.agent).messages[: len(fork.news())])
    while not fork.done:
        asyncio.run(fork.say(Decision(fork.table.observe(fork.agent).parse(accept_all(fork)))))
    assert [item.turn for item in fork.table.turns] == [item.turn for item in whole.table.turns]
    assert fork.reward == whole.reward
    assert fork.seats.partners["agent_1"].name == "conceder"


def test_simultaneous_seats_answer_before_any_of_them_is_a_turn():
    async def play() -> Seats:
        seats = Seats.against("bargaining", focal=(0, 1), rules=Rules(turn_order=TurnOrder.SIMULTANEOUS))
        first, second = await seats.play()
        second.take(speak("Hello."))
        assert second.answer_rewards == (None,)
        assert await seats.play() == [first]
        assert second.news() == []
        assert (await first.say(speak("Hello.")))[0][0]["role"] == "user"
        assert second.answer_rewards == (0.0,)
        return seats

    assert len(asyncio.run(play()).table.turns) == 2


def test_an_evaluation_that_failed_is_tried_again_and_one_that_was_made_is_not():
    class Judge(FixedEvaluator):
        calls = 0

        async def evaluate(self, episode):
            type(self).calls += 1
            if self.calls == 1:
                raise EvaluationError("busy")
            return await super().evaluate(episode)

    async def play() -> TextSeat:
        judge = Judge({Dimension.GOAL: 8})
        seat = TextSeat.against("bargaining", "leaver", evaluator=judge, scalarisation="goal", retries=0)
        await seat.begin()
        with pytest.raises(EvaluationError):
            await seat.say(speak("Hello."))
        assert (seat.reward, seat.scores) == (None, {})
        await seat.end()
        await seat.end()
        return seat

    assert asyncio.run(play()).reward == 8
    assert Judge.calls == 2


def test_a_row_with_other_columns_and_numbers_of_numpy_is_a_seat():
    row = list(rows(naming.task_set("bargaining", 2, 0, "easy"), "conceder", seed=7))[3]
    seat = TextSeat.of({**row, "focal": np.int64(row["focal"]), "prompt": "unused"}, reasks=0)
    assert (seat.agent, seat.table.state.seed) == ("agent_1", 8)
    assert [info.name for info in seat.episode().policies] == ["model"]
    del row["partner"], row["task"]
    for columns, error in (({"partnr": "linear"}, UnknownNameError), ({"prompt": "unused"}, InvalidValueError)):
        with pytest.raises(error, match="row: "):
            TextSeat.of({**row, **columns})


def test_text_fields_and_function_calls_are_the_same_action():
    offer = {"price": 98}
    forms = (
        speak("98?", propose=offer),
        {"action_type": "speak", "argument": "98?", "move": {"propose": offer}},
        {"name": "propose", "arguments": {"terms": offer, "words": "98?"}},
        {
            "id": "1",
            "type": "function",
            "function": {"name": "propose", "arguments": json.dumps({"terms": offer, "words": "98?"})},
        },
    )
    actions = []
    for form in forms:
        seat = TextSeat.against("bargaining", "silent")
        asyncio.run(seat.begin())
        assert "propose" in {function["name"] for function in seat.functions}
        asyncio.run(seat.say(form))
        actions.append(seat.table.turns[0].turn.action)
    assert all(action == actions[0] for action in actions)
    assert actions[0].move.content == offer


def test_an_unusable_answer_is_asked_again_and_then_passes_the_turn():
    async def work() -> TextSeat:
        seat = TextSeat.against("bargaining", "silent", reasks=1)
        await seat.begin()
        news, done = await seat.say("I'd rather not use JSON.")
        assert [message["role"] for message in news] == ["user"]
        assert not done
        assert not seat.table.turns
        await seat.say("Never.")
        await seat.say(speak("Fine."))
        return seat

    seat = asyncio.run(work())
    failed, _, second = seat.table.turns[:3]
    assert failed.generation.parse_failure
    assert (failed.generation.text, failed.generation.reasks) == ("Never.", 1)
    assert second.generation.reasks == 0
    assert seat.info["failed_turns"] == 1


def test_many_seats_and_simultaneous_rounds():
    for order in TurnOrder:
        if order.value not in ("round-robin", "simultaneous"):
            continue
        seat = TextSeat.against(
            "job_committee", "random-offers", 2, rules=Rules(turn_order=order, max_turns=30), seed=1
        )
        asyncio.run(play(seat))
        assert len(seat.table.task.agents) > 2
        assert seat.reward is not None


def test_a_task_without_an_outcome_pays_what_its_evaluator_scores():
    task = naming.task_set("starter", None, 0, "medium")[0]
    judge = FixedEvaluator({Dimension.GOAL: 8})
    seat = TextSeat.against(task, "leaver", evaluator=judge, scalarisation="goal")
    asyncio.run(play(seat, lambda _: speak("Hello.")))
    assert seat.reward == 8
    assert seat.turn_rewards is None


def test_misuse_names_the_argument():
    for arguments, error, field in (
        (("bargaining", "boulwar"), UnknownNameError, None),
        (("bargaining", {0: "boulware"}), InvalidValueError, "partner"),
        (("bargaining", "boulware", 2), InvalidValueError, "focal"),
    ):
        with pytest.raises(error) as caught:
            TextSeat.against(*arguments)
        assert field is None or caught.value.field == field
    for partners in ({"agent_0": "leaver", "agent_1": "leaver"}, {"agent_2": "leaver"}):
        with pytest.raises(InvalidValueError) as caught:
            Seats(Table(TextSeat.against("bargaining").table.task), partners)
        assert caught.value.field == "partners"
    seat = TextSeat.against("bargaining", "leaver")
    asyncio.run(play(seat))
    with pytest.raises(InvalidActionError):
        asyncio.run(seat.say(speak("Wait!")))
    assert Table.resume(seat.episode()).stop is seat.table.stop


@pytest.mark.parametrize(
    ("text", "finish_reason", "is_taken"),
    [
        (f"I could say {speak('Well?')}", "length", False),
        (f"I could say {speak('Well?')}", "max_tokens", False),
        (f"I could say {speak('Well?')}", "stop", True),
        (f"I could say {speak('Well?')}", "", True),
        (speak("Well?"), "length", True),
    ],
)
def test_nothing_is_taken_from_a_draft_in_a_text_that_was_cut_off(text, finish_reason, is_taken):
    async def answer() -> tuple[TextSeat, list]:
        seat = TextSeat.against("bargaining", "silent")
        await seat.begin()
        return seat, (await seat.say(text, finish_reason))[0]

    seat, news = asyncio.run(answer())
    assert seat.info["own_turns"] == is_taken
    assert ("max_tokens" in news[0]["content"]) == (not is_taken)


# --- turns that are paid by beliefs ---------------------------------------------------------------------------------


def test_a_row_says_how_turns_are_paid_and_each_is_known_when_it_is_over():
    """What hosts get that pay each answer at once (SkyRL, tinker, OpenEnv) is what others read after the end."""

    async def paid() -> list[float]:
        seat, values = TextSeat.of(beliefs.row()), []
        await seat.begin()
        while not seat.done:
            await seat.say(beliefs.statement(seat.info["own_turns"]))
            if not seat.done:
                with pytest.raises(InvalidValueError, match="measure"):
                    seat.step_reward(by_turn=True)
            await seat.seats.measure()
            values.append(seat.step_reward(by_turn=True))
        assert list(seat.turn_rewards) == pytest.approx(values)
        assert seat.reward is not None
        return values

    assert asyncio.run(paid()) == pytest.approx(asyncio.run(beliefs.expected()))
    assert TextSeat.of(beliefs.row("standing")).seats.turns == "standing"
    with pytest.raises(UnknownNameError, match="turns"):
        next(rows([beliefs.GAME], turn="belief"))


def test_who_asks_nobody_measures_nothing():
    seat = TextSeat.of({**beliefs.row(), "evaluator": "verified"})
    asyncio.run(seat.begin())
    asyncio.run(seat.say(beliefs.statement(0)))
    asyncio.run(seat.seats.measure())
    assert seat.seats.beliefs == ()
    with pytest.raises(InvalidValueError, match="measure"):
        seat.step_reward(by_turn=True)
