"""The steps of the page *A study in fifteen minutes*, in a real browser: with the keyboard alone, and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_keyboard import choose, press, write


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


LEVELS = (("firm", "boulware"), ("soft", "conceder"))


def leave(page: Page) -> None:
    """Ends the conversation as its person."""
    expect(page.get_by_text("It is your turn")).to_be_visible()
    page.locator("details.leave > summary").click()
    page.get_by_role("button", name="Leave the conversation").click()
    expect(page.get_by_text("The conversation is over")).to_be_visible()


def test_a_study_with_two_conditions_by_keyboard(studio: Studio) -> None:
    page = studio.page()
    page.set_viewport_size({"width": 1280, "height": 860})
    page.goto(f"{studio.address}/studies")
    press(page, page.get_by_role("link", name="New study"))
    press(page, page.get_by_role("button", name="Build it").first)
    expect(page).to_have_url(re.compile("/studies/drafts/"))
    draft = page.url
    studio.check(page)
    write(page, page.get_by_label("Title"), "Talk about a price")
    expect(page.locator("#summary")).to_contain_text("Saved.")
    press(page, page.get_by_role("button", name="Add a factor"))
    expect(page.locator("[id='i-factors.0']")).to_be_focused()  # goes on where the new row is
    write(page, page.locator("[id='i-factors.0.name']"), "partner")
    for number, (name, value) in enumerate(LEVELS):
        write(page, page.locator(f"[id='i-factors.0.levels.{number}.name']"), name)
        write(page, page.locator(f"[id='i-factors.0.levels.{number}.value']"), value)
    summary = page.locator("#summary")
    expect(summary).to_contain_text("partner: soft")
    expect(summary).to_contain_text("Each person stays in one condition")
    expect(summary).to_contain_text("Nothing is left to do")
    studio.check(page)
    press(page, page.get_by_role("button", name="Try it as a participant"))
    mark = page.get_by_text("Nothing here counts")
    expect(mark).to_be_visible()
    press(page, page.get_by_label("I agree"), "Space")
    studio.check(page)
    press(page, page.get_by_role("button", name="Take part", exact=True))
    press(page, page.get_by_role("button", name="I have read this"))
    expect(page.get_by_text("It is your turn")).to_be_visible()
    expect(mark).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") <= 860  # the mark does not push the seat out of view
    press(page, page.locator("details.leave > summary"))
    press(page, page.get_by_role("button", name="Leave the conversation"))
    press(page, page.get_by_role("link", name="Go on"))
    choose(page, page.get_by_role("group", name="trust"), "5")
    press(page, page.get_by_role("button", name="Go on"))
    choose(page, page.get_by_role("group", name="natural"), "6")
    press(page, page.get_by_role("button", name="Finish"))
    expect(page.get_by_text("COMPLETED")).to_be_visible()
    studio.check(page)
    press(page, page.get_by_role("button", name="End it and delete it"))
    expect(page).to_have_url(draft)
    press(page, page.get_by_role("button", name="Open the study"))
    expect(page.get_by_role("heading", name="Talk about a price")).to_be_visible()
    expect(page.get_by_text("0 of 8 done")).to_be_visible()  # the trial is not among them
    studio.check(page)


def test_a_study_on_a_phone_in_the_dark(studio: Studio) -> None:
    page = studio.page(390)
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{studio.address}/studies/new")
    studio.check(page)
    page.get_by_role("button", name="Build it").first.click()
    page.get_by_role("button", name="Open the study").click()  # too early: said beside the field, nothing lost
    expect(page.locator("[id='e-title']")).to_be_visible()
    assert all("422" in problem for problem in studio.problems)  # the browser reports the refused form itself
    studio.problems.clear()
    page.get_by_label("Title").fill("On the phone")
    page.get_by_text("starter", exact=True).click()
    page.locator("summary", has_text="Single situations").click()
    page.get_by_text("orchard-harvest/0", exact=True).click()
    page.locator(".pick-card", has_text="orchard-harvest/0").get_by_text("Preview").click()
    expect(page.locator(".pick-card", has_text="orchard-harvest/0").locator(".prose")).to_be_visible()
    page.get_by_label("Number of situations").fill("")
    page.get_by_label("Who plays the other seats").select_option("random")
    expect(page.locator("#summary")).to_contain_text("2 conversations")
    studio.check(page)
    page.goto(f"{studio.address}/studies/new")  # left half-way
    page.get_by_role("link", name="On the phone").click()
    page.get_by_role("button", name="Open the study").click()
    expect(page.get_by_role("heading", name="On the phone")).to_be_visible()
    studio.check(page)
    guest = studio.guest(390)
    guest.goto(f"{studio.address}/join/on-the-phone")
    guest.get_by_role("button", name="Begin").click()
    guest.get_by_label("I agree").check()
    guest.get_by_role("button", name="Take part", exact=True).click()
    guest.get_by_role("button", name="I have read this").click()
    expect(guest.get_by_text("Nothing here counts")).to_have_count(0)
    leave(guest)
    guest.get_by_role("link", name="Go on").click()
    guest.get_by_role("group", name="trust").get_by_label("3").check()
    guest.get_by_role("button", name="Go on").click()
    guest.get_by_role("group", name="natural").get_by_label("3").check()
    guest.get_by_role("button", name="Finish").click()
    expect(guest.get_by_text("COMPLETED")).to_be_visible()
    page.reload()
    expect(page.get_by_text("1 of 2 done")).to_be_visible()
    page.get_by_role("link", name="All its conversations").click()
    expect(page.get_by_role("link", name=re.compile("orchard-harvest")).first).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("#summary")).to_contain_text("1 person has begun")
    studio.check(page)


def test_the_page_names_what_these_tests_press() -> None:
    root = Path(__file__).parents[2]
    names = re.findall(r"\*\*(.+?)\*\*", (root / "docs" / "studio-first-study.md").read_text(encoding="utf-8"))
    assert len(names) > 5
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in names if " ".join(name.split()) not in source] == []
