"""The fields of a form that hold an action are read back as that action."""

from __future__ import annotations

import asyncio

import pytest

from sotopia_env import naming
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.people.seat.form import Proposal, form_fields, move_words, read_action
from sotopia_env.world import Action, Observation, Rules
from sotopia_env.world.action import ActionType, Advice
from sotopia_env.world.play.table import Table


def read(observation: Observation, action: Action) -> Action:
    fields = form_fields(observation, action)
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    return read_action(observation, texts, list(fields["to"]))


@pytest.mark.parametrize("source", ["bargaining", "division", "mutual_friend", "job_committee", "campsite"])
def test_every_action_of_scripts_is_read_back(source: str) -> None:
    names = naming.task_set(source, 2, 0, "medium")
    played = 0
    for task in names:
        table = Table(task, Rules(max_turns=8), seed=1)
        policies = {agent: naming.make_policy("conceder") for agent in task.agents}

        async def play(table: Table = table, policies: dict = policies) -> int:
            count = 0
            while table.stop is None:
                agent = table.acting[0]
                observation = table.observe(agent)
                action = (await policies[agent].act(observation, 3)).action
                assert read(observation, action) == action
                table.answer(agent, action)
                count += 1
            return count

        played += asyncio.run(play())
    assert played


def test_a_proposal_is_in_words() -> None:
    task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
    observation = Table(task, Rules(max_turns=8)).observe("agent_0")
    action = Action(ActionType.SPEAK, "Hm.", move=Move(MoveKind.PROPOSE, {"price": 120}))
    proposal = Proposal.of(observation, action)
    assert (proposal.words, proposal.move, proposal.manner, proposal.to) == ("Hm.", "offer: price $120", "", "")
    assert move_words(observation, None) == ""


@pytest.mark.parametrize(
    ("action", "response"),
    [
        (Action(ActionType.SPEAK, "Hm.", move={"propose": {"price": 120}}), "same"),
        (Action(ActionType.SPEAK, "120?", move={"propose": {"price": 120}}), "move"),
        (Action(ActionType.SPEAK, "Hm.", move={"propose": {"price": 121}}), "other"),
        (Action(ActionType.SPEAK, "Hm."), "other"),
        (Action(ActionType.LEAVE), "other"),
    ],
)
def test_what_a_person_did_with_advice(action: Action, response: str) -> None:
    proposed = Action(ActionType.SPEAK, "Hm.", move={"propose": {"price": 120}})
    advice = Advice(policy="boulware", mode="propose", action=proposed)
    assert advice.followed_by(action, is_copied=True) == advice.model_copy(
        update={"response": response, "is_copied": True}
    )
    plain = Advice(policy="x", mode="advise", action=Action(ActionType.SPEAK, "One."))
    assert plain.followed_by(Action(ActionType.SPEAK, "Two.")).response == "other"
