"""Makes the pictures of the documentation: ``python -m tests.sotopia_studio.pictures docs/studio``.

A studio is filled as its users would fill it, and each page is taken at 1280 × 860 or 390 × 844, light or dark.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from sotopia_studio.store import library

from sotopia_env import naming
from sotopia_env import tasks as shipped
from sotopia_env.world import Rules
from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_board import annotate, join, open_study, recorded, say
from tests.sotopia_studio.test_first_study import LEVELS
from tests.sotopia_studio.test_keyboard import SCALE

SIZES = {1280: 860, 390: 844}
PRICE: dict[str, Any] = {
    "kind": "play",
    "tasks": "bargaining",
    "seats": "first",
    "partner": "boulware",
    "max_turns": 12,
}
INTERVIEW = [
    {"name": "trust", "text": "How far did you trust {partner}?", **SCALE},
    {"name": "who", "text": "Was {partner} a person or a program?", "kind": "choice", "options": ["person", "program"]},
    {"name": "tried", "text": "What did you try?", "kind": "text", "required": False},
]


class Camera:
    """Takes pictures of pages into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, page: Page, name: str, *, full: bool = False) -> None:
        """Takes a picture whose name ends with its width and, in the dark, with ``dark``."""
        width = next(width for width in SIZES if f"-{width}" in name)
        page.set_viewport_size({"width": width, "height": SIZES[width]})
        page.emulate_media(color_scheme="dark" if name.endswith("dark") else "light")
        page.wait_for_load_state("networkidle") if "/seat/" not in page.url and "/studies/" not in page.url else None
        page.wait_for_timeout(700)  # worths under the form, and pictures of charts
        page.screenshot(path=self.folder / f"{name}.png", full_page=full)
        page.set_viewport_size({"width": 1280, "height": 860})
        page.emulate_media(color_scheme="light")


def fill(studio: Studio) -> str:
    """Adds the library that ships; returns the id of a task."""

    async def work() -> str:
        async with studio.database.write() as connection:
            await library.put_cast(connection, shipped.starter_cast(), shipped.starter_scenarios(), tags=["starter"])
            for task in list(naming.task_set("everyday", 6, 0, "medium")):
                identity, _ = await library.put_task(connection, task, tags=["everyday"])
        return identity

    return studio.do(work())


def pictures_of_lists(studio: Studio, camera: Camera) -> None:
    task, page = fill(studio), studio.page()
    page.goto(f"{studio.address}/runs")
    page.get_by_label("Name", exact=True).fill("three against three")
    page.get_by_label("Policies", exact=True).fill("boulware\nconceder\nlinear")
    page.get_by_label("Tasks", exact=True).fill("bargaining")
    page.get_by_label("How many tasks").fill("8")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#run .status")).to_have_text("done", timeout=120_000)
    page.get_by_role("link", name="Compare its policies").click()
    expect(page.locator(".headline")).to_be_visible(timeout=120_000)
    camera.take(page, "compare-1280")
    camera.take(page, "compare-390-dark")
    studio.wait(studio.begin(tag="talk"), "waiting")
    addresses = {
        "home": "/",
        "choose": "/simulate",
        "characters": "/characters",
        "runs": "/runs",
        "episodes": "/episodes",
    }
    for name, address in (addresses | {"task": f"/tasks/{task}"}).items():
        page.goto(studio.address + address)
        page.wait_for_timeout(500)
        page.reload()  # the menus of a list are there as soon as they have been counted
        camera.take(page, f"{name}-1280")
        if name == "home":
            camera.take(page, "home-390")
    page.goto(f"{studio.address}/episodes?policy=conceder&stop=settled")
    page.locator("tbody a").nth(2).click()
    for name in ("episode-1280", "episode-1280-dark", "episode-390"):
        camera.take(page, name)
    page.get_by_role("link", name="Again, with one change").click()
    page.get_by_label("Played by").last.fill("linear")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#status")).to_contain_text("done")
    camera.take(page, "simulate-1280")


def pictures_of_seats(studio: Studio, camera: Camera) -> None:
    page = studio.page()
    campsite = next(iter(naming.task_set("campsite", 1, 0, "medium")))
    episode = studio.begin(task=campsite, policies={"agent_0": "human", "agent_1": "boulware"})
    studio.wait(episode, "waiting")
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    say(page, "Good evening. What do you need most?")
    expect(page.locator(".turn")).to_have_count(2)
    page.get_by_label("make an offer").check()
    for issue in ("food", "water", "firewood"):
        page.get_by_label(f"{issue} for you").fill("2")
    page.get_by_label("Your words").fill("Two of each for me?")
    for name in ("seat-1280", "seat-390", "seat-390-dark"):
        camera.take(page, name)
    briefing = next(iter(naming.task_set("briefing", 1, 0, "medium")))
    policies = {"agent_0": "human", "agent_1": "broadcaster", "agent_2": "broadcaster"}
    episode = studio.begin(task=briefing, policies=policies, rules=Rules(max_turns=3), evaluator="verified+facts")
    studio.wait(episode, "waiting")
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    say(page, "Hello all.")
    expect(page.get_by_role("heading", name="What do you believe now?")).to_be_visible()
    camera.take(page, "beliefs-390")


def pictures_of_studies(studio: Studio, camera: Camera) -> None:
    page = studio.page()
    page.goto(f"{studio.address}/studies/new")
    page.get_by_role("button", name="Build it").first.click()
    page.get_by_label("Title").fill("Talk about a price")
    expect(page.locator("#summary")).to_contain_text("Saved.")
    page.evaluate("document.activeElement.blur()")
    camera.take(page, "study-builder-1280")
    page.get_by_role("button", name="Add a factor").click()
    page.locator("[id='i-factors.0.name']").fill("partner")
    for number, (name, value) in enumerate(LEVELS):
        page.locator(f"[id='i-factors.0.levels.{number}.name']").fill(name)
        page.locator(f"[id='i-factors.0.levels.{number}.value']").fill(value)
    expect(page.locator("#summary")).to_contain_text("partner: soft")
    page.get_by_role("heading", name="Conditions", exact=True).first.scroll_into_view_if_needed()
    page.evaluate("[...document.querySelectorAll('h2')].find(h => h.textContent === 'Conditions').scrollIntoView()")
    camera.take(page, "study-conditions-1280")
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("[...document.querySelectorAll('h2')].find(h => h.textContent === 'Questions').scrollIntoView()")
    camera.take(page, "study-builder-390-dark")
    page.get_by_role("button", name="Try it as a participant").click()
    page.get_by_label("I agree").check()
    page.get_by_role("button", name="Take part", exact=True).click()
    page.get_by_role("button", name="I have read this").click()
    expect(page.get_by_text("It is your turn")).to_be_visible()
    camera.take(page, "study-trial-1280")
    page.get_by_role("button", name="End it and delete it").click()
    page.get_by_role("button", name="Open the study").click()
    expect(page.get_by_role("heading", name="Talk about a price")).to_be_visible()
    camera.take(page, "study-open-1280")


def pictures_of_people(studio: Studio, camera: Camera) -> None:
    levels = [{"name": "alone", "value": "none"}, {"name": "helped", "value": "propose"}]
    factors = [{"name": "help", "varies": "assistance", "levels": levels}]
    extra: dict[str, Any] = {"adviser": "conceder", "factors": factors, "interview": INTERVIEW}
    open_study(studio, **PRICE, n=2, repeats=2, name="helped", title="Talk about a price", **extra)
    people = [join(studio, "helped", size) for size in ("desk", "phone")]
    for number, person in enumerate(people):
        say(person, "Good morning. Is it still for sale?")
        expect(person.locator(".turn")).to_have_count(2)
        if number == 0:
            person.get_by_text("Leave", exact=True).click()
            person.get_by_role("button", name="Leave the conversation").click()
            person.get_by_role("link", name="Go on").click()
            camera.take(person, "interview-390-dark", full=True)
    board = studio.page()
    board.goto(f"{studio.address}/studies/helped")
    camera.take(board, "study-page-1280", full=True)
    open_study(studio, **PRICE, n=2, name="assisted", title="With help", adviser="conceder", assistance="propose")
    helped = join(studio, "assisted")
    say(helped, "Good morning.")
    expect(helped.locator(".turn")).to_have_count(2)
    helped.get_by_role("button", name="Put it into the form").click()
    camera.take(helped, "seat-assistant-1280")
    scores = {"kind": "annotate", "title": "Score", "runs": [recorded(studio, 10)], "min_words": 2}
    open_study(studio, **scores, dimensions=["goal"], name="scores")
    reader = studio.guest()
    reader.goto(f"{studio.address}/join/scores")
    reader.get_by_role("button", name="Begin").click()
    reader.get_by_label("I agree").check()
    reader.get_by_role("button", name="Take part", exact=True).click()
    camera.take(reader, "annotate-instructions-1280", full=True)
    annotate(studio, "scores")
    board.goto(f"{studio.address}/studies/scores/agreement")
    for picture in board.locator("figure img").all():
        picture.scroll_into_view_if_needed()
    board.evaluate("scrollTo(0, 0)")
    camera.take(board, "agreement-1280")


PARTS: dict[str, Callable[[Studio, Camera], None]] = {
    "lists": pictures_of_lists,
    "seats": pictures_of_seats,
    "studies": pictures_of_studies,
    "people": pictures_of_people,
}

if __name__ == "__main__":
    camera = Camera(Path(sys.argv[1]).resolve())
    for part in sys.argv[2:] or PARTS:
        with tempfile.TemporaryDirectory() as data, running(Path(data)) as server:
            PARTS[part](server, camera)
