"""The end of a conversation on a person's page: the reason, the result where the study allows it, what comes next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio import live

from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_keyboard import SCALE, join, open_study


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def leave(page: Page) -> None:
    page.get_by_text("Leave", exact=True).click()
    page.get_by_role("button", name="Leave the conversation").click()


def test_an_agreement_says_what_the_person_gets(studio: Studio) -> None:
    episode = studio.begin()
    studio.wait(episode, "waiting")
    page = studio.page()
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    page.get_by_label("Your words").fill("Well?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn")).to_have_count(2)
    studio.act(episode, Action(ActionType.SPEAK, "Agreed.", (), Move(MoveKind.ACCEPT, 1)), 2)
    status = page.locator(".composer .status-line")
    # 186 less the price of 394.
    expect(status).to_contain_text("It is settled: nothing more can be decided. You get -$208.")
    expect(page.get_by_role("link", name="See the episode")).to_have_attribute("href", f"/episodes/{episode}")
    studio.check(page)


def test_a_guest_is_thanked_and_a_broken_conversation_is_explained(studio: Studio) -> None:
    (first, page), (second, other) = studio.person(), studio.person()
    people = {"agent_0": first, "agent_1": second}
    for breaks in (False, True):
        episode = studio.begin(policies=dict.fromkeys(people, "human"), people=people)
        for agent, view in (("agent_0", page), ("agent_1", other)):
            view.goto(f"{studio.address}/seat/{episode}/{agent}")
        if breaks:
            studio.do(live.end(studio.database, episode, "failed", "ModelCallError: down"))
        else:
            leave(page)
        own = "It broke off: no answer came through" if breaks else "You left. You get $0."
        expect(page.locator(".composer")).to_contain_text(own)
        expect(page.locator(".composer")).to_contain_text("Thank you for taking part.")
        expect(other.locator(".composer")).to_contain_text("It broke off" if breaks else "Ulrike Macalister left.")
        assert "ModelCallError" not in page.content()
        studio.check(page)


def test_a_study_says_what_comes_next_and_may_keep_the_result_back(studio: Studio) -> None:
    play = {"kind": "play", "title": "Talk", "instructions": "Read.", "tasks": "bargaining", "n": 1, "seats": "first"}
    play |= {"questionnaire": [{"name": "natural", "text": "How natural?", **SCALE}], "partner": "boulware"}
    for name, shows in (("open", True), ("closed", False)):
        open_study(studio, name=name, show_result=shows, **play)
        page = join(studio, name)
        leave(page)
        composer = page.locator(".composer")
        expect(composer).to_contain_text("You left.")
        expect(composer).to_contain_text("Thank you for this conversation. Next come some last questions.")
        if shows:
            expect(composer).to_contain_text("You get $0.")
        else:
            page.wait_for_timeout(1_500)  # the evaluation is there by now
            page.reload()
            expect(composer).to_contain_text("You left.")
            assert "You get" not in composer.inner_text()
        page.get_by_role("link", name="Go on").click()
        expect(page.get_by_role("group", name="natural")).to_be_visible()
