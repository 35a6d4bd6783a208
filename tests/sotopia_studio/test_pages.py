"""The page of an episode in a real browser, served by a real server with a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from sotopia_env.outcomes import Move
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, bargaining, running


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def test_an_episode_is_watched_live_and_is_whole_after_a_reload(studio: Studio) -> None:
    episode = studio.begin()
    page = studio.page()
    page.goto(f"{studio.address}/episodes/{episode}")
    turns = page.locator("#transcript > .turn")
    expect(turns).to_have_count(0)
    studio.wait(episode, "waiting")
    studio.act(episode, Action(ActionType.SPEAK, "<b>Good morning</b>", move=Move("propose", {"price": 98})), 0)  # type: ignore[arg-type]
    expect(turns).to_have_count(2)
    expect(turns.first).to_contain_text("<b>Good morning</b>")
    studio.check(page)
    page.reload()
    expect(turns).to_have_count(2)
    studio.act(episode, Action(ActionType.LEAVE), 2)
    expect(turns).to_have_count(3)
    expect(page.locator("#status")).to_contain_text("done")
    expect(page.locator("#evaluations")).to_contain_text("goal")
    page.reload()
    expect(turns).to_have_count(3)
    studio.check(page)


def test_an_episode_is_live_even_if_a_script_arrives_late(studio: Studio) -> None:
    episode = studio.begin()
    studio.wait(episode, "waiting")
    page = studio.page()

    def late(route: Route) -> None:
        time.sleep(0.7)
        route.continue_()

    page.route("**/hx-sse*", late)
    with page.expect_request("**/stream*"):
        page.goto(f"{studio.address}/episodes/{episode}")
    studio.act(episode, Action(ActionType.SPEAK, "Hello", move=Move("propose", {"price": 98})), 0)  # type: ignore[arg-type]
    expect(page.locator("#transcript > .turn")).to_have_count(2)


def test_a_seat_sees_only_its_own_observation(studio: Studio) -> None:
    episode = studio.begin()
    task = bargaining()
    studio.wait(episode, "waiting")
    page = studio.page(390)
    page.goto(f"{studio.address}/episodes/{episode}?seat=agent_1")
    other = task.scenario.seats[0]
    text = page.content()
    assert other.private_info not in text
    assert all(goal not in text for goal in other.goals)
    assert task.scenario.seats[1].private_info in text
    studio.act(episode, Action(ActionType.SPEAK, "Hello", move=Move("propose", {"price": 98})), 0)  # type: ignore[arg-type]
    expect(page.locator("#transcript > .turn")).to_have_count(2)
    studio.check(page)


def test_star_tags_comments_and_keys(studio: Studio) -> None:
    scripted = {"agent_0": "boulware", "agent_1": "conceder"}
    first, second = (studio.begin(policies=scripted, tag="pair") for _ in range(2))
    studio.wait(first, "done")
    studio.wait(second, "done")
    page = studio.page()
    page.goto(f"{studio.address}/episodes?tag=pair")
    expect(page.locator("tbody tr")).to_have_count(2)
    studio.check(page)
    page.get_by_role("link", name=bargaining().id).first.click()
    page.wait_for_url(f"**/{second}?tag=pair")
    page.get_by_role("button", name="Star").click()
    expect(page.get_by_role("button", name="Starred")).to_be_visible()
    page.get_by_label("New tag").fill("odd")
    page.get_by_role("button", name="Add tag").click()
    page.get_by_label("Your comment").fill("Quick concession.")
    page.get_by_role("button", name="Add comment").click()
    expect(page.locator(".comment")).to_contain_text("Quick concession.")
    page.goto(f"{studio.address}/episodes/{second}?tag=pair")
    page.locator("body").press("j")
    page.wait_for_url(f"**/{first}?tag=pair")
    page.locator("body").press("k")
    page.wait_for_url(f"**/{second}?tag=pair")
    studio.check(page)


def test_the_exported_page_needs_no_network(studio: Studio, tmp_path: Path) -> None:
    episode = studio.begin(policies={"agent_0": "boulware", "agent_1": "conceder"})
    studio.wait(episode, "done")
    page = studio.page()
    file, line = (
        page.request.get(f"{studio.address}/episodes/{episode}/{name}") for name in ("page.html", "record.jsonl")
    )
    assert line.json()["task"]["id"] == bargaining().id
    (tmp_path / "page.html").write_bytes(file.body())
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator(".turn")).not_to_have_count(0)
    assert len(requests) == 1
    studio.check(page)
