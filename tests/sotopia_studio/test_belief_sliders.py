"""A person plays the families with facts and says with sliders what they believe, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio.store import episodes

from sotopia_env import naming
from sotopia_env.naming.evaluators import probe_of
from sotopia_env.world import Rules
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode
from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_keyboard import choose, press, tab_to


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def seated(studio: Studio, family: str, partner: str, turns: int, **changes: Any) -> tuple[Page, str]:
    task = next(iter(naming.task_set(family, 1, 0, "medium")))
    policies = dict.fromkeys(task.agents, partner) | {task.agents[0]: "human"}
    episode = studio.begin(task=task, policies=policies, rules=Rules(max_turns=turns), **changes)
    studio.wait(episode, "waiting")
    page = studio.page(390)
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    return page, episode


def record(studio: Studio, episode: str) -> Episode:
    async def read() -> Episode:
        async with studio.database.read() as connection:
            return await episodes.record_of(connection, episode)

    return studio.do(read())


def evaluated(studio: Studio, episode: str) -> Episode:
    """The record, once its evaluation has a belief of the person."""
    page = studio.page()
    for _ in range(200):
        present = record(studio, episode)
        if any(own(belief) for evaluation in present.evaluations for belief in evaluation.beliefs):
            return present
        page.wait_for_timeout(100)
    raise AssertionError("the answers were not evaluated")


def own(belief: Belief) -> bool:
    return belief.respondent == "agent_0" and bool(belief.shares)


def test_beliefs_are_asked_at_the_end_and_stored_beside_the_turns(studio: Studio) -> None:
    page, episode = seated(studio, "briefing", "broadcaster", 3, evaluator="verified+facts")
    assert page.locator("input[type=range]").count() == 0  # not before the end
    press(page, page.get_by_label("Your words"))
    page.keyboard.type("Good morning.")
    press(page, page.get_by_role("button", name="Send"))
    expect(page.get_by_role("heading", name="What do you believe now?")).to_be_visible()
    studio.wait(episode, "done")
    before = record(studio, episode)
    questions = page.locator("[data-shares]")
    assert questions.count() > 1
    expect(page.locator(".belief output").first).to_have_text("unknown")
    first, second = questions.first.get_by_role("slider").all()[:2]
    for slider, presses in ((first, 3), (second, 1)):
        tab_to(page, slider)
        for _ in range(presses):
            page.keyboard.press("ArrowRight")
    expect(questions.first.locator("output").first).to_have_text("75 %")
    expect(first).to_have_attribute("aria-valuetext", "75 %")
    trust = page.get_by_role("group", name=re.compile("100 coins"))
    expect(trust).to_have_count(3)  # the two others, and a stranger
    choose(page, trust.first, "75")
    choose(page, trust.last, "25")
    studio.check(page)
    page.wait_for_timeout(1_000)  # the draft is kept after a pause
    page.reload()
    expect(questions.first.locator("output").first).to_have_text("75 %")
    expect(trust.first.get_by_label("75")).to_be_checked()
    press(page, page.get_by_role("button", name="Save what I believe"))
    expect(page.locator("input[type=range]")).to_have_count(0)
    after = evaluated(studio, episode)
    assert after.turns_hash == before.turns_hash
    assert not before.beliefs
    answered, *others = after.beliefs
    assert answered.shares[:2] == (0.75, 0.25)
    assert answered.respondent == "agent_0"
    assert others
    coins = {belief.variable: belief.shares for belief in others if belief.shares}
    assert list(coins.values()) == [(0, 0, 0, 1, 0), (0, 1, 0, 0, 0)]
    untouched = [belief for belief in others if not belief.shares]
    assert untouched
    assert all(belief.reason for belief in untouched)  # unknown, and not uniform
    assert [belief.shares for belief in after.evaluations[-1].trust if own(belief)] == list(coins.values())
    scored = [belief for belief in after.evaluations[-1].beliefs if own(belief)]
    assert [belief.shares for belief in scored] == [answered.shares]


def test_beliefs_are_asked_after_turns_where_the_probe_says_so(studio: Studio) -> None:
    page, episode = seated(studio, "mini_mafia", "honest", 20, evaluator="verified+facts:probe=turns")
    page.get_by_label("Your words").fill("Who is it?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Your words")).to_have_value("")
    probe = page.locator(".probe")
    press(page, probe.locator("summary"))
    page.get_by_label("Your words").fill("Half a sent")
    slider = probe.get_by_role("slider").first
    tab_to(page, slider)
    page.keyboard.press("End")
    studio.check(page)
    press(page, probe.get_by_role("button", name="Save what I believe"))
    expect(probe).to_have_count(0)
    expect(page.get_by_label("Your words")).to_have_value("Half a sent")
    page.get_by_text("Leave", exact=True).click()
    page.get_by_role("button", name="Leave the conversation").click()
    expect(page.get_by_text("You left", exact=False).or_(page.get_by_text("is over"))).to_be_visible()
    studio.wait(episode, "done")
    (answered,) = [belief for belief in record(studio, episode).beliefs if belief.shares]
    assert 0 < answered.turns < len(record(studio, episode).turns)
    assert max(answered.shares) == 1.0


@pytest.mark.parametrize(
    ("evaluator", "moment"),
    [
        ("verified", ("none", False)),
        ("none", ("none", False)),
        ("verified+facts", ("end", True)),
        ("verified+facts:trust=false", ("end", False)),
        ("mean(verified+facts:probe=turns,samples=4)", ("turns", True)),
        ("facts:interviewee=bayesian", ("none", False)),
    ],
)
def test_the_evaluator_says_when_people_are_asked_and_whether_on_trust(
    evaluator: str, moment: tuple[str, bool]
) -> None:
    assert probe_of(evaluator) == moment
