"""The page of a seat as a conversation, in a real browser: what a person sees after every turn, at two sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, running

SIZES = {"desk": (1280, 860), "phone": (390, 844)}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def seated(studio: Studio, size: str, turns: int = 40) -> tuple[Page, str]:
    """A page of a new conversation, in which it is the person's turn."""
    width, height = SIZES[size]
    episode = studio.begin(rules=Rules(max_turns=turns))
    studio.wait(episode, "waiting")
    page = studio.page(width)
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    return page, episode


def in_view(page: Page) -> bool:
    """Whether all of the newest turn is in the window, and nothing lies over it."""
    return bool(
        page.locator(".turn").last.evaluate(
            """turn => {
              const box = turn.getBoundingClientRect();
              const composer = document.querySelector(".composer").getBoundingClientRect();
              const over = [box.top + 2, box.bottom - 2].every(
                (y) => turn.contains(document.elementFromPoint(box.left + box.width / 2, y)));
              return over && box.top >= 0 && box.bottom <= Math.min(composer.top, window.innerHeight);
            }"""
        )
    )


def say(page: Page, words: str) -> None:
    page.get_by_label("Your words").fill(words)
    page.get_by_role("button", name="Send").click()


@pytest.mark.parametrize("size", SIZES)
def test_the_newest_words_are_in_view_after_every_turn(studio: Studio, size: str) -> None:
    page, episode = seated(studio, size)
    page.evaluate("window.stays = true")
    for exchange in range(6):
        if exchange == 3:  # the fields of an offer make the form taller
            page.get_by_label("make an offer").check()
            page.get_by_role("spinbutton").fill(str(99 + exchange))
            assert in_view(page)
        say(page, f"This is what I have to say in exchange {exchange}, in a few more words than necessary.")
        expect(page.locator(".turn")).to_have_count(2 * exchange + 2)
        expect(page.get_by_label("Your words")).to_have_value("")
        assert in_view(page), exchange
        page.emulate_media(color_scheme="dark" if exchange % 2 else "light")
    assert page.evaluate("window.stays")  # nothing was loaded anew
    # The person acts on another device: the turn that arrives is in view, and so it is after the way back.
    studio.act(episode, Action(ActionType.SPEAK, "From my other device."), 12)
    expect(page.locator(".turn")).to_have_count(14)
    assert in_view(page)
    page.get_by_label("Your words").fill("Half a sent")
    page.wait_for_timeout(1_000)  # the draft is kept after a pause in typing
    page.goto(f"{studio.address}/scenarios")
    page.go_back()
    expect(page.locator(".turn")).to_have_count(14)
    expect(page.get_by_label("Your words")).to_have_value("Half a sent")
    assert in_view(page)
    studio.check(page)
