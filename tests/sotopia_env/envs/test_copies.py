"""Environments of every family as vector environments and checkpoints treat them: pickled, copied and forked."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.tasks.families.negotiation import Difficulty, difficulty_family
from sotopia_env.tasks.families.registry import FAMILIES


def continuation(env: SotopiaSingleAgentEnv) -> str:
    """The rest of the episode and the next one, as the record of both."""
    records = []
    for _ in range(2):
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step({"action_type": "speak", "argument": "And now?"})
            over = terminated or truncated
        records.append(canonical_json(env.episode().model_dump(mode="json")))
        env.reset()
    return "\n".join(records)


def forked(env: SotopiaSingleAgentEnv) -> str:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(continuation(env)))
    process.start()
    sender.close()
    record: str = receiver.recv()
    process.join()
    return record


@pytest.mark.parametrize("family", FAMILIES)
def test_copies_of_an_environment_play_on_as_the_original(family: str) -> None:
    seats = len(FAMILIES[family].generate(0, 0, "medium").agents)
    env = SotopiaSingleAgentEnv(task=family, partner="random", max_turns=6, seats=seats)
    env.reset(seed=4)
    env.step({"action_type": "speak", "argument": "Hello."})
    copies = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    in_child = forked(env)
    record = continuation(env)
    assert [continuation(each) for each in copies] == [record, record]
    assert in_child == record


@pytest.mark.parametrize("family", [*FAMILIES.values(), difficulty_family(Difficulty(0.5, 2, 3, 0.4))])
def test_a_family_is_pickled_with_its_texts(family) -> None:
    again = pickle.loads(pickle.dumps(family))
    assert again.generate(3, 1, "medium") == family.generate(3, 1, "medium")


@pytest.mark.parametrize("form", [sotopia_v0.env, sotopia_v0.parallel_env])
def test_the_default_environments_are_copied(form) -> None:
    env = form()
    env.reset(seed=1)
    for again in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        env.reset(seed=2)
        again.reset(seed=2)
        assert again.unwrapped.episode() == env.unwrapped.episode()
