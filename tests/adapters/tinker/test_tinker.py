"""A seat as tinker-cookbook's environment of messages."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import pickle
import sys
from types import SimpleNamespace

import pytest

from sotopia_env.adapters import TextSeat
from tests.adapters import beliefs, failing
from tests.adapters.libraries import need
from tests.test_docs import PAGES, blocks

need("tinker_cookbook")

from sotopia_env.adapters.tinker import SeatMessageEnv


@pytest.mark.parametrize("by_turn", [False, True])
def test_steps_pay_the_episode_at_its_end_or_each_turn_its_own(by_turn):
    async def play() -> tuple[list[float], TextSeat]:
        seat = TextSeat.against("bargaining", "conceder", seed=5)
        env = SeatMessageEnv(seat, by_turn=by_turn)
        messages = await env.initial_observation()
        paid: list[float] = []
        while not seat.done:
            offers = seat.table.observe("agent_0").moves.accept if paid[8:] else ()
            move = {"move": {"accept": offers[-1]}} if offers else {}
            text = json.dumps({"action_type": "speak", "argument": "Well?", **move})
            result = await env.step({"role": "assistant", "content": text})
            assert result.next_messages[: len(messages)] == messages
            assert result.episode_done == seat.done
            messages = result.next_messages
            paid.append(result.reward)
        assert result.metrics["goal"] == pytest.approx(10 * seat.reward)
        return paid, seat

    paid, seat = asyncio.run(play())
    assert sum(paid) == pytest.approx(seat.reward)
    assert any(paid[:-1]) == by_turn


def test_steps_pay_for_what_the_others_believe():
    async def play() -> list[float]:
        seat = TextSeat.of(beliefs.row())
        env, paid = SeatMessageEnv(seat, by_turn=True), []
        await env.initial_observation()
        while not seat.done:
            result = await env.step({"role": "assistant", "content": beliefs.statement(len(paid))})
            paid.append(result.reward)
        return paid

    assert asyncio.run(play()) == pytest.approx(asyncio.run(beliefs.expected()))


def test_the_page_makes_groups_of_equal_seats_that_workers_can_take(tmp_path, monkeypatch):
    import tinker
    from tinker_cookbook import renderers, tokenizer_utils
    from tinker_cookbook.rl import train

    class Renderer:
        def get_stop_sequences(self) -> list[str]:
            return []

        def build_generation_prompt(self, messages: list[dict[str, str]]) -> tinker.ModelInput:
            return tinker.ModelInput.from_ints(list("\n".join(m["content"] for m in messages).encode()))

    trained = []

    async def main(config: train.Config) -> None:
        data, _ = await config.dataset_builder()
        group = pickle.loads(pickle.dumps(data.get_batch(len(data) - 1)[-1]))
        observations = [await env.initial_observation() for env in await group.make_envs()]
        trained.append((len(data), {tuple(prompt.to_ints()) for prompt, _ in observations}))

    monkeypatch.setattr(train, "main", main)
    monkeypatch.setattr(tokenizer_utils, "get_tokenizer", lambda _: None)
    monkeypatch.setattr(renderers, "get_renderer", lambda *_: Renderer())
    (code,) = (block.code for block in blocks(PAGES["adapters/tinker.md"], "python"))
    (tmp_path / "page_on_tinker.py").write_text(code, encoding="utf-8")  # a module, since groups are pickled
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("page_on_tinker")
    ((batches, observations),) = trained
    assert (batches, len(observations)) == (25, 1)


class Words:
    """A renderer of bytes; an answer that ends with a 0 is one that the model ended itself."""

    def get_stop_sequences(self) -> list[str]:
        return []

    def build_generation_prompt(self, messages):
        import tinker

        return tinker.ModelInput.from_ints(list("\n".join(str(m["content"]) for m in messages).encode()))

    def parse_response(self, action):
        from tinker_cookbook.renderers.base import ParseTermination

        whole = action[-1] == 0
        message = {"role": "assistant", "content": bytes(action[:-1] if whole else action).decode()}
        return message, ParseTermination.STOP_SEQUENCE if whole else ParseTermination.MALFORMED


async def roll(env, answer):
    """The rewards of a rollout in which ``answer`` gives the text of each turn, and None one without an end."""
    await env.initial_observation()
    rewards = []
    while True:
        text = answer(env.message_env.seat, len(rewards))
        action = [*text.encode(), 0] if text is not None else [104]
        result = await env.step(action)
        rewards.append(result.reward)
        if result.episode_done:
            return rewards


def mafia_group(answer):
    """The environments of a group of the page, and the rewards of each."""
    code = blocks(PAGES["training-self-play.md"], "python")[1].code
    names: dict = {"__name__": "page"}
    sys.modules["page"] = SimpleNamespace(__dict__=names)  # where dataclasses look
    exec(compile(code, "page", "exec"), names)

    async def play():
        group = names["Mafia"](Words(), 0)
        envs = await group.make_envs()
        paid = await asyncio.wait_for(asyncio.gather(*(roll(env, answer) for env in envs)), 60)
        transitions = [SimpleNamespace(transitions=[SimpleNamespace(reward=r) for r in row]) for row in paid]
        return envs, [sum(row) for row in paid], await group.compute_group_rewards(transitions, envs)

    return asyncio.run(play())


def test_the_page_of_self_play_plays_all_seats_and_compares_each_with_its_own_role():
    votes = itertools.count()

    def answer(seat, turn):
        others = [name for agent, name in seat.table.task.names.items() if agent != seat.agent]
        vote = {"move": {"vote": others[next(votes) % 2]}} if turn == 2 else {}
        return json.dumps({"action_type": "speak", "argument": "It was not me.", **vote})

    envs, totals, added = mafia_group(answer)
    seats = [env.message_env.seat for env in envs]
    assert len({id(seat.table) for seat in seats}) == 8
    assert totals == pytest.approx([seat.reward for seat in seats])
    assert 0 < sum(totals) < len(totals)
    for agent in seats[0].table.task.agents:
        own = [total + more for seat, total, (more, _) in zip(seats, totals, added, strict=True) if seat.agent == agent]
        assert sum(own) == pytest.approx(0)
        assert len(own) == 8


def test_a_seat_whose_rollout_a_limit_ends_leaves_and_the_others_go_on():
    def answer(seat, turn):
        speaks = json.dumps({"action_type": "speak", "argument": "It was not me."})
        return None if (seat.agent, turn) == ("agent_1", 1) else speaks

    envs, totals, _ = mafia_group(answer)
    assert all(env.message_env.seat.done for env in envs)
    assert [total for env, total in zip(envs, totals, strict=True) if env.message_env.seat.agent == "agent_1"] == [
        -1
    ] * 8


def test_a_failing_partner_is_survived_or_raised_and_a_step_can_be_repeated():
    def play(partner: str):
        seat = TextSeat.against("bargaining", partner, seed=failing.SEED)
        env = SeatMessageEnv(seat)
        asyncio.run(env.initial_observation())
        paid = 0.0
        while not seat.done:
            text = failing.answer(seat.info["own_turns"], seat.table.observe("agent_0").moves.accept)
            # Renderers give a model's thoughts and its answer as parts.
            parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": text}]
            message = {"role": "assistant", "content": parts}
            result = failing.persistently(lambda env=env, message=message: asyncio.run(env.step(message)))
            if result is None:
                return None, None
            paid += result.reward
        assert not seat.info["failed_turns"]
        return failing.turns_of(seat.episode()), paid

    failing.check_failing_partners(play, repeats=True)
