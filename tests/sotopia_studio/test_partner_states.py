"""What a person reads about a silent partner, each state in other words and within ten seconds of its real cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio import live
from sotopia_studio.store import jobs

from sotopia_env import naming
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_studio.studio import Studio, bargaining, running

SOON = 10_000
"""Milliseconds within which a page says what is the matter."""
SLOTS = 2
"""Episodes that the worker plays at once."""


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(models=("tiny",)) as model:
        yield model


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, server: LoopbackServer) -> Iterator[Studio]:
    models = ModelOptions.model_validate({"api_base": server.api_base, "timeout": 14})
    with running(tmp_path_factory.mktemp("studio"), models=models, concurrency=SLOTS) as one:
        yield one


@pytest.fixture(autouse=True)
def _a_model_that_answers(server: LoopbackServer) -> None:
    server.outage = ""


def seated(studio: Studio, policy: str) -> Page:
    """A page on which it is the person's turn."""
    episode = studio.begin(policies={"agent_0": "human", "agent_1": policy})
    studio.wait(episode, "waiting")
    page = studio.page()
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    expect(page.get_by_label("Your words")).to_be_visible()
    return page


def say(page: Page, words: str) -> None:
    page.get_by_label("Your words").fill(words)
    page.get_by_role("button", name="Send").click()


def expect_state(page: Page, state: str, words: str) -> None:
    line = page.locator(f'.status-line[data-delay="{state}"]')
    expect(line).to_contain_text(words, timeout=SOON)


def test_a_model_that_hangs_is_thinking_and_then_slow(studio: Studio, server: LoopbackServer) -> None:
    page = seated(studio, "local/tiny")
    server.outage = "hang"
    say(page, "Good morning.")
    expect(page.locator(".status-line")).to_contain_text("is thinking", timeout=4_000)
    expect_state(page, "slow", "is still thinking, for longer than usual")
    expect(page.locator(".leave")).to_be_visible()
    studio.check(page)


def test_a_model_that_is_down_is_retried_and_the_conversation_goes_on(studio: Studio, server: LoopbackServer) -> None:
    page = seated(studio, "local/tiny")
    server.outage = "reset"
    say(page, "Good morning.")
    expect_state(page, "retrying", "cannot be reached")
    page.wait_for_timeout(3_000)  # another attempt is made meanwhile, and the words stay
    expect(page.locator('[data-delay="retrying"]')).to_have_count(1)
    studio.check(page)
    server.outage = ""
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.get_by_label("Your words")).to_be_visible()


def test_a_person_who_closes_the_page_is_not_connected(studio: Studio) -> None:
    (first, page), (second, other) = studio.person(), studio.person()
    people = {"agent_0": first, "agent_1": second}
    episode = studio.begin(policies=dict.fromkeys(people, "human"), people=people, turn_seconds=120.0)
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    other.goto(f"{studio.address}/seat/{episode}/agent_1")
    expect(page.locator(".status-line").first).to_contain_text("It is your turn")
    other.wait_for_timeout(7_000)  # longer than the time after which a silent page counts as closed
    expect(page.locator("[data-absent]")).to_have_count(0)
    say(page, "Good morning.")
    expect(page.locator(".status-line")).to_contain_text("is thinking")
    other.close()
    expect_state(page, "absent", "is not connected. If no answer comes within 2 min, the character leaves.")
    studio.check(page)
    returned = other.context.new_page()
    returned.goto(f"{studio.address}/seat/{episode}/agent_1")
    expect(page.locator('[data-delay="absent"]')).to_have_count(0, timeout=SOON)


def test_a_person_who_has_not_come_is_expected(studio: Studio) -> None:
    (guest, _), (own, page) = studio.person(here=False), studio.person()
    people = {"agent_0": guest, "agent_1": own}
    episode = studio.begin(policies=dict.fromkeys(people, "human"), people=people)
    page.goto(f"{studio.address}/seat/{episode}/agent_1")
    expect_state(page, "expected", "has not come yet")
    studio.check(page)


THREE = next(iter(naming.task_set("mini_mafia", 1, 0, "medium")))


def press_leave(page: Page) -> None:
    page.get_by_text("Leave", exact=True).click()
    page.get_by_role("button", name="Leave the conversation").click()


def test_a_partner_who_leaves_is_named_and_ends_a_conversation_of_two(studio: Studio) -> None:
    page = seated(studio, "leaver")
    say(page, "Good morning.")
    expect(page.get_by_text("The conversation is over.")).to_contain_text(
        f"{bargaining().names['agent_1']} left.", timeout=SOON
    )
    expect(page.locator("form.answer")).to_have_count(0)
    studio.check(page)


def test_a_partner_in_another_browser_who_leaves_is_named_within_seconds(studio: Studio) -> None:
    (first, page), (second, other) = studio.person(), studio.person(390)
    people = {"agent_0": first, "agent_1": second}
    episode = studio.begin(policies=dict.fromkeys(people, "human"), people=people)
    for agent, view in (("agent_0", page), ("agent_1", other)):
        view.goto(f"{studio.address}/seat/{episode}/{agent}")
    say(page, "Good morning.")
    expect(page.locator(".status-line")).to_contain_text("is thinking")
    press_leave(other)
    expect(page.get_by_text("The conversation is over.")).to_contain_text(
        f"{bargaining().names['agent_1']} left.", timeout=SOON
    )
    studio.check(page)


@pytest.mark.parametrize("is_person", [True, False])
def test_of_three_one_leaves_and_the_others_go_on(studio: Studio, is_person: bool) -> None:
    (first, page), (second, other) = studio.person(), studio.person()
    people = {"agent_0": first, "agent_1": second} if is_person else {"agent_0": first}
    rest = "honest" if is_person else "leaver"
    policies = {"agent_0": "human", "agent_1": "human" if is_person else "honest", "agent_2": rest}
    episode = studio.begin(task=THREE, policies=policies, people=people, rules=Rules(max_turns=20))
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    say(page, "Good morning.")
    if is_person:
        other.goto(f"{studio.address}/seat/{episode}/agent_1")
        press_leave(other)
    name = THREE.names["agent_1" if is_person else "agent_2"]
    line = page.locator("[data-absent]", has_text=f"{name} left the conversation and will not answer.")
    expect(line).to_be_visible(timeout=SOON)
    studio.check(page)
    say(page, "Who is still here?")  # the others go on
    expect(page.locator(".turn", has_text="Who is still here?")).to_be_visible()
    expect(line).to_be_visible()


def test_a_worker_elsewhere_that_dies_is_an_interruption(studio: Studio) -> None:
    """Of another machine, so that nobody sees its death but by its silence; it took the job and nothing came of it."""
    page = seated(studio, "boulware")
    episode = page.url.split("/")[-2]

    async def answer() -> None:
        async with studio.database.write() as connection:
            state = await live.LiveEpisode.load(connection, episode, lock=True)
            hello = Action(ActionType.SPEAK, "Good morning.")
            await live.act(connection, state, "agent_0", lambda _: hello, turn=0, key=episode)
            assert await jobs.claim(connection, "elsewhere.1", (live.ADVANCE,)) is not None

    studio.do(answer())
    expect_state(page, "interrupted", "The server was interrupted")
    studio.check(page)
    expect(page.locator(".turn")).to_have_count(2)  # another worker takes over when the lease is over


def test_a_server_that_is_busy_says_so(studio: Studio, server: LoopbackServer) -> None:
    server.outage = "hang"
    for _ in range(SLOTS):
        say(seated(studio, "local/tiny"), "Good morning.")
    page = seated(studio, "boulware")
    say(page, "Good morning.")
    expect_state(page, "queued", "The server is busy")
    studio.check(page)
