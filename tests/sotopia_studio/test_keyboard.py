"""Whole pages with the keyboard alone, in a real browser: simulate, a participant's study, annotation; live updates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, library, runs
from sotopia_studio.studies import opening

from sotopia_env import naming
from sotopia_env.people.studies.settings import study_of
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, bargaining, running


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def tab_to(page: Page, target: Locator) -> None:
    """Presses Tab until the target has the focus, which must be visible on the way."""
    expect(target).to_be_visible()
    for _ in range(120):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
        assert page.evaluate(VISIBLE), page.evaluate("document.activeElement.outerHTML")
    raise AssertionError(f"Tab does not lead to {target}")


VISIBLE = """() => {
  const element = document.activeElement;
  if (element === document.body) return true; // the browser's own controls are next
  const box = element.getBoundingClientRect();
  return getComputedStyle(element).outlineStyle !== "none" && box.bottom > 0 && box.top < window.innerHeight;
}"""


def press(page: Page, target: Locator, key: str = "Enter") -> None:
    tab_to(page, target)
    page.keyboard.press(key)


def write(page: Page, target: Locator, text: str) -> None:
    tab_to(page, target)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def choose(page: Page, group: Locator, label: str) -> None:
    """Chooses a radio button: Tab enters the group at one of them, arrows move within."""
    button = group.get_by_label(label)
    expect(button).to_be_visible()
    for _ in range(120):
        if group.evaluate("element => element.contains(document.activeElement)"):
            break
        page.keyboard.press("Tab")
    if not button.is_checked():
        page.keyboard.press("Space")
    for _ in range(20):
        if button.is_checked():
            return
        page.keyboard.press("ArrowRight")
    raise AssertionError(f"arrows do not lead to {label!r}")


def test_a_researcher_starts_an_episode(studio: Studio) -> None:
    async def fill() -> None:
        async with studio.database.write() as connection:
            await library.put_task(connection, bargaining())

    studio.do(fill())
    page = studio.page()
    page.goto(f"{studio.address}/simulate")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # past the navigation
    write(page, page.get_by_label("Search"), bargaining().id[:8])
    choose(page, page.get_by_role("group", name="Among"), "tasks")
    press(page, page.locator('.choice a[href*="task="]'))  # the list follows what is typed and chosen
    players = page.get_by_label("Played by")
    expect(players).to_have_count(2)
    for player, policy in zip(players.all(), ("boulware", "conceder"), strict=True):
        write(page, player, policy)
    expect(page.locator("#about_0")).to_contain_text("Concedes late")  # what the name means, below its field
    press(page, page.get_by_role("button", name="Begin"))
    expect(page.locator("#status")).to_contain_text("done")
    expect(page.locator("#transcript > .turn")).not_to_have_count(0)
    studio.check(page)
    press(page, page.get_by_role("link", name="Again, with one change"))
    write(page, page.get_by_label("Played by").last, "linear")
    press(page, page.get_by_role("button", name="Begin"))
    expect(page.get_by_text("conceder → linear")).to_be_visible()
    studio.check(page)


def open_study(studio: Studio, **settings: Any) -> None:
    studio.do(opening.open_study(studio.database, ServiceSettings(), study_of(settings)))


def join(studio: Studio, name: str) -> Page:
    """A person without an account on the page of instructions."""
    page = studio.guest()
    page.goto(f"{studio.address}/join/{name}")
    press(page, page.get_by_role("button", name="Begin"))
    press(page, page.get_by_label("I agree"), "Space")
    studio.check(page)
    press(page, page.get_by_role("button", name="Take part", exact=True))
    press(page, page.get_by_role("button", name="I have read this"))
    return page


SCALE = {"kind": "scale", "low": 1, "high": 7}


def test_a_participant_acts_in_a_seat(studio: Studio) -> None:
    play = {"kind": "play", "title": "Talk", "instructions": "Read.", "tasks": "bargaining", "n": 1, "seats": "first"}
    play |= {"interview": [{"name": "trust", "text": "How far did you trust {partner}?", **SCALE}]}
    play |= {"questionnaire": [{"name": "natural", "text": "How natural?", **SCALE}], "partner": "boulware"}
    open_study(studio, name="keys", **play)
    page = join(studio, "keys")
    write(page, page.get_by_label("Your words"), "Good morning. What about 100?")
    choose(page, page.get_by_role("group", name="Your move"), "make an offer")
    write(page, page.get_by_label("price"), "100")
    press(page, page.get_by_role("button", name="Send"))
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").first).to_contain_text("100")
    expect(page.get_by_label("Your words")).to_be_focused()  # where to go on, after the partner's answer
    page.keyboard.type("I have to go.")
    tab_to(page, page.get_by_label("How"))
    page.keyboard.type("Leave")
    press(page, page.get_by_role("button", name="Send"))
    expect(page.get_by_text("The conversation is over")).to_be_visible()
    studio.check(page)
    press(page, page.get_by_role("link", name="Go on"))
    choose(page, page.get_by_role("group", name="trust"), "5")
    studio.check(page)
    press(page, page.get_by_role("button", name="Go on"))
    choose(page, page.get_by_role("group", name="natural"), "6")
    press(page, page.get_by_role("button", name="Finish"))
    expect(page.get_by_text("COMPLETED")).to_be_visible()
    studio.check(page)


def recorded(studio: Studio, status: str = "done") -> str:
    """A run of one scripted episode."""
    tasks = naming.task_set("bargaining", 1, 0, "medium")
    plans = plan_episodes(tasks, all_matchups([naming.make_policy("boulware"), naming.make_policy("conceder")], False))
    with ThreadPoolExecutor(1) as pool:  # the browser's own event loop runs in this thread
        result = pool.submit(lambda: asyncio.run(run_episodes(plans[:1], progress=False))).result()

    async def add() -> str:
        async with studio.database.write() as connection:
            run = await runs.add(connection, "{}", planned=1, status=status)
            await episodes.add_recorded(connection, run, [(result.episodes[0], "")], 0.0)
        return run

    return studio.do(add())


def test_an_annotator_scores_an_episode(studio: Studio) -> None:
    settings = {
        "kind": "annotate",
        "title": "Score",
        "runs": [recorded(studio)],
        "dimensions": ["goal"],
        "min_words": 2,
    }
    open_study(studio, name="scores", **settings)
    page = join(studio, "scores")
    expect(page.locator(".form-section")).to_have_count(2)
    for section in page.locator(".form-section").all():
        write(page, section.get_by_label("Goal: why?"), "Held out for the price.")
        choose(page, section.get_by_role("group", name="Goal"), "7")
    studio.check(page)
    press(page, page.get_by_role("button", name="Send and go on"))
    expect(page.get_by_text("COMPLETED")).to_be_visible()


def test_typed_text_survives_updates_of_the_page(studio: Studio) -> None:
    episode = studio.begin()
    studio.wait(episode, "waiting")
    page = studio.page()
    updates = []
    page.on("response", lambda answer: updates.append(answer.url) if answer.url.endswith("/view") else None)

    def changed(route: Route) -> None:
        # A stream that ends is opened again: the page is updated over and over.
        body = f"retry: 100\nid: {1_000 + len(updates)}\ndata: changed\n\n"
        route.fulfill(body=body, content_type="text/event-stream")

    page.route("**/changes", changed)
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    page.get_by_label("make an offer").check()
    page.get_by_label("price").fill("97")
    page.get_by_label("Your words").focus()
    sentence = "I have thought about it, and 97 is as far as I can go."
    page.keyboard.type(sentence, delay=20)
    assert len(updates) >= 3
    expect(page.get_by_label("Your words")).to_be_focused()
    expect(page.get_by_label("Your words")).to_have_value(sentence)
    expect(page.get_by_label("price")).to_have_value("97")
    expect(page.get_by_label("make an offer")).to_be_checked()
    # The same person acts on another device: the turn is over, and the words are still there for the next one.
    studio.act(episode, Action(ActionType.SPEAK, "From my phone."), 0)
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.get_by_label("Your words")).to_have_value(sentence)
    expect(page.get_by_label("no move")).to_be_checked()
    page.unroute("**/changes")
    expect(page.get_by_label("Your words")).to_be_focused()
    studio.check(page)


def test_the_focus_stays_on_a_page_that_follows_a_run(studio: Studio) -> None:
    run = recorded(studio, "running")
    page = studio.page()
    page.goto(f"{studio.address}/runs/{run}")
    link = page.get_by_role("link", name="Compare its policies")
    tab_to(page, link)
    with page.expect_response("**/progress"):
        pass
    with page.expect_response("**/progress"):  # the page of the first one is there by now
        pass
    expect(link).to_be_focused()
