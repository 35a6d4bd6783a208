"""What a researcher does, in a real browser: design, cast, simulate, run, compare; every page, on a phone as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio import auth
from sotopia_studio.store import library
from sotopia_studio.store.kinds import CHARACTERS, SCENARIOS

from sotopia_env import tasks as shipped
from sotopia_env.world import Action
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, bargaining, running


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


@pytest.fixture(scope="module")
def ids(studio: Studio) -> dict[str, str]:
    """A library with what ships and a task, and an ended episode."""

    async def fill() -> dict[str, str]:
        async with studio.database.write() as connection:
            await library.put_cast(connection, shipped.starter_cast(), shipped.starter_scenarios(), tags=["starter"])
            identity, _ = await library.put_task(connection, bargaining())
            scenario = (await library.items(connection, SCENARIOS, limit=1))[0].id
            character = (await library.items(connection, CHARACTERS, limit=1))[0].id
        return {"task": identity, "scenario": scenario, "character": character}

    names = studio.do(fill())
    names["episode"] = studio.begin(policies={"agent_0": "boulware", "agent_1": "conceder"}, tag="shown")
    studio.wait(names["episode"], "done")
    return names


PAGES = (
    "/",
    "/simulate",
    "/simulate?task={task}",
    "/simulate?scenario={scenario}",
    "/simulate?task={task}&episode={episode}",
    "/simulate?again={episode}",
    "/episodes",
    "/episodes?tag=nothing",
    "/episodes/{episode}",
    "/runs",
    "/compare",
    "/compare?tag=shown",
    "/scenarios",
    "/scenarios/{scenario}",
    "/scenarios/new",
    "/characters",
    "/characters/{character}",
    "/characters/new",
    "/tasks",
    "/tasks/{task}",
    "/tasks/new",
    "/dimensions",
    "/dimensions/new",
    "/design",
    "/studies",
)


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow("every page once more"))])
def test_every_page_is_accessible_and_without_errors(studio: Studio, ids: dict[str, str], width: int) -> None:
    page = studio.page(width)
    for address in PAGES:
        page.goto(studio.address + address.format(**ids))
        studio.check(page)
    page.context.close()


@pytest.mark.parametrize("role", ["admin", "researcher", "viewer"])
def test_every_page_says_who_is_logged_in_and_lets_them_log_out(studio: Studio, ids: dict[str, str], role: str) -> None:
    async def session() -> str:
        await auth.add_user(studio.database, f"rosa-{role}", "a long password", role)  # type: ignore[arg-type]
        return await auth.log_in(studio.database, f"rosa-{role}", "a long password")

    page = studio.guest()
    page.context.add_cookies([{"name": "studio", "value": studio.do(session()), "url": studio.address}])
    for address in (*PAGES, "/api/docs", "/nowhere", "/episodes/none", "/runs/none"):
        answer = page.request.get(studio.address + address.format(**ids), headers={"accept": "text/html"})
        text = answer.text()
        assert f"rosa-{role}" in text, address
        assert 'action="/logout"' in text, address
        if role == "viewer":
            assert answer.status in (200, 403, 404), address
    page.goto(f"{studio.address}/scenarios")
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{studio.address}/scenarios")
    expect(page).to_have_url(f"{studio.address}/login")
    studio.problems.clear()


def _setup(page: Page, studio: Studio, task: str, *policies: str) -> None:
    page.goto(f"{studio.address}/simulate?list=tasks&empty=1")
    page.locator(f'.choice a[href$="={task}"]').click()
    for field, policy in zip(page.get_by_label("Played by").all(), policies, strict=True):
        field.fill(policy)


def test_a_simulation_is_set_up_and_watched(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    _setup(page, studio, ids["task"], "boulware", "conceder")
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.locator(".forecast")).to_contain_text("nothing was sent")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#status")).to_contain_text("done")
    expect(page.locator("#transcript > .turn")).not_to_have_count(0)
    expect(page.locator("#evaluations")).to_contain_text("goal")
    studio.check(page)


def test_a_wrong_name_is_explained_and_the_form_is_kept(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    _setup(page, studio, ids["task"], "boulwar", "conceder")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_contain_text("boulware")
    expect(page.get_by_label("Played by").nth(1)).to_have_value("conceder")
    studio.problems.clear()  # the browser reports the refused form as an error


def test_a_researcher_takes_a_seat_with_the_keyboard_alone(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    _setup(page, studio, ids["task"], "me", "boulware")
    page.get_by_role("button", name="Begin").press("Enter")
    page.wait_for_url("**/seat/**")
    assert "JSON" not in page.content()
    page.get_by_label("Your words").fill("Would you take 100?")
    page.get_by_label("make an offer").press("Space")
    page.get_by_label("price").fill("100")
    page.get_by_role("button", name="Send").press("Enter")
    expect(page.locator(".turn")).to_have_count(2)
    studio.check(page)


def test_a_run_is_started_followed_and_compared(studio: Studio) -> None:
    page = studio.page()
    page.goto(f"{studio.address}/runs")
    page.get_by_label("Name", exact=True).fill("pilot")
    page.get_by_label("Policies", exact=True).fill("boulware\nconceder")
    page.get_by_label("Tasks", exact=True).fill("bargaining")
    page.get_by_label("How many tasks").fill("3")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#run .status")).to_have_text("done", timeout=30_000)
    studio.check(page)
    page.get_by_role("link", name="Compare its policies").click()
    expect(page.get_by_role("table").first).to_contain_text("boulware")
    chart = page.get_by_role("img").first
    expect(chart).to_be_visible()
    # It has its size, and so is visible, before it is loaded.
    page.wait_for_function("image => image.naturalWidth > 0", arg=chart.element_handle())
    studio.check(page)


def test_an_invited_person_plays_through_a_link(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    _setup(page, studio, ids["task"], "link", "me")
    page.get_by_role("button", name="Begin").click()
    link = page.locator("code.address").inner_text()
    studio.check(page)
    page.reload()  # makes a new link, and begins no other episode
    newer = page.locator("code.address").inner_text()
    assert page.url.endswith("/links")
    assert newer != link
    guest = studio.guest(390)
    guest.goto(link)
    expect(guest.get_by_role("alert")).to_be_visible()
    expect(guest.get_by_role("button")).to_have_count(0)
    studio.problems.clear()  # the browser reports the refused link
    guest.goto(newer)
    guest.get_by_role("button", name="Begin").click()
    expect(guest.get_by_text("It is your turn")).to_be_visible()
    assert guest.get_by_role("navigation").count() == 0
    studio.check(guest)
    guest.get_by_label("Your words").fill("Good morning.")
    guest.get_by_role("button", name="Send").click()
    expect(guest.locator(".turn")).to_have_count(1)
    page.get_by_role("link", name="Take your seat").click()
    expect(page.get_by_text("Good morning.")).to_be_visible()
    page.get_by_label("How").select_option("leave")
    page.get_by_role("button", name="Send").click()
    expect(guest.get_by_text("The conversation is over")).to_be_visible()
    guest.goto(f"{studio.address}/study")  # where every link leads
    expect(guest.get_by_text("The conversation is over")).to_be_visible()
    studio.check(guest)
    page.goto(page.url.replace("/seat/", "/episodes/").removesuffix("/agent_1"))
    expect(page.locator("#transcript > .turn")).to_have_count(2)


def test_the_links_of_several_episodes_are_in_one_table(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    _setup(page, studio, ids["task"], "link", "link")
    page.get_by_label("Episodes").fill("2")
    page.get_by_role("button", name="Begin").click()
    rows = page.get_by_role("region", name="Links").locator("tbody tr")
    expect(rows).to_have_count(4)
    links = page.locator("code.address").all_inner_texts()
    assert len(set(links)) == 4
    studio.check(page)
    guest = studio.guest()
    guest.goto(links[-1])
    guest.get_by_role("button", name="Begin").click()
    expect(guest.get_by_role("heading", name=rows.last.locator("td").nth(2).inner_text())).to_be_visible()
    rows.last.get_by_role("link").click()
    expect(page.get_by_text("has not come yet")).to_have_count(1)


def test_a_stopped_episode_continues_from_its_page(studio: Studio, ids: dict[str, str]) -> None:
    episode = studio.begin()
    studio.wait(episode, "waiting")
    studio.act(episode, Action(ActionType.SPEAK, "Good morning."), 0)
    studio.wait(episode, "waiting", turns=2)
    page = studio.page()
    page.goto(f"{studio.address}/episodes/{episode}")
    page.get_by_role("button", name="Stop the episode").click()
    page.get_by_role("button", name="Continue from the last turn").click()
    expect(page.locator("#status")).to_contain_text("waiting")
    studio.act(episode, Action(ActionType.SPEAK, "Once more."), 2)
    expect(page.locator("#transcript > .turn")).to_have_count(4)
    studio.check(page)


def test_a_viewer_sees_no_form_that_would_be_refused(studio: Studio, ids: dict[str, str]) -> None:
    async def session() -> str:
        async with studio.database.write() as connection:
            return await auth.open_session(connection, "viewer", "viewer")

    page = studio.guest()
    page.context.add_cookies([{"name": "studio", "value": studio.do(session()), "url": studio.address}])
    readable = (
        "/",
        "/episodes/{episode}",
        "/scenarios",
        "/scenarios/{scenario}",
        "/characters/{character}",
        "/tasks/{task}",
    )
    for address in (*readable, "/runs", "/dimensions", "/studies", "/simulate?task={task}", "/design"):
        answer = page.goto(studio.address + address.format(**ids))
        assert answer is not None
        assert answer.status == 200, address
        # Whoever may only read may log out.
        expect(page.locator('form[method=post]:not([action="/logout"]):visible')).to_have_count(0)
        for link in page.locator("a:visible").all():
            target = str(link.get_attribute("href"))
            assert "/new" not in target, address
            assert not target.startswith("/simulate"), address
    page.goto(f"{studio.address}/episodes/{ids['episode']}")
    expect(page.locator("#transcript > .turn").first).to_be_visible()
    studio.check(page)


def test_strangers_and_participants_see_no_way_into_the_studio(studio: Studio) -> None:
    guest, (_, person) = studio.guest(), studio.person()
    for page, address, status, words in (
        (guest, "/p/nothing", 404, "ask for a new one"),
        (guest, "/study", 401, "your link opens this page"),
        (guest, "/seat/none/agent_0", 401, "your link opens this page"),
        (person, "/episodes", 403, ""),
    ):
        answer = page.goto(studio.address + address)
        assert answer is not None
        assert answer.status == status, address
        expect(page.get_by_role("alert")).to_contain_text(words)
        assert page.get_by_role("navigation").count() == 0
        assert page.get_by_role("link", name="Home").count() == 0
        studio.problems.clear()  # the browser reports the refused page
    expect(person.get_by_role("link", name="Back to your page")).to_be_visible()
    guest.goto(f"{studio.address}/episodes")
    expect(guest).to_have_url(f"{studio.address}/login")


def test_an_ended_episode_is_evaluated_again_on_its_page(studio: Studio, ids: dict[str, str]) -> None:
    page = studio.page()
    page.goto(f"{studio.address}/episodes/{ids['episode']}")
    page.get_by_label("Evaluator").fill("diligence")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.get_by_role("region", name="Evaluation by diligence")).to_be_visible()  # without a reload
    studio.check(page)
