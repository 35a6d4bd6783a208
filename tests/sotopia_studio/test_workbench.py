"""The workbench: cards to choose from, the last cast, an episode played again with one change, repeats."""

from __future__ import annotations

import asyncio
import html
from typing import Any

import httpx
from sotopia_studio import live
from sotopia_studio.store import episode_lists, episodes, library
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.store.kinds import CHARACTERS, SCENARIOS, TASKS

from sotopia_env import naming
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.tasks import everyday_scenarios, starter_cast
from sotopia_env.tasks.synopsis import first_sentence, synopsis
from tests.sotopia_studio.server import Studio, hidden, simulation_form, studio
from tests.sotopia_studio.studio import bargaining


async def ended(service: Studio, episode: str) -> LiveSpec:
    """The settings of an episode, once it has ended."""
    for _ in range(2400):
        async with service.database.read() as connection:
            state = await live.LiveEpisode.load(connection, episode)
        if state.status == "done":
            return state.spec
        await asyncio.sleep(0.05)
    raise AssertionError(state.status)


def values(page: httpx.Response) -> dict[str, str]:
    return simulation_form(page.text)


def episode_of(page: httpx.Response) -> str:
    return page.url.params["episode"]


def test_scenarios_are_cards_that_a_search_finds_by_their_words(url: str) -> None:
    async def act() -> None:
        async with studio(url, workers=0) as service:
            browser = await service.researcher()
            scenarios = everyday_scenarios()[:30]
            async with service.database.write() as connection:
                await library.put_all(connection, SCENARIOS, [(one, (), ()) for one in scenarios])
                await library.put_task(connection, bargaining())
            first = await browser.get("/simulate")
            assert first.text.count('class="card choice"') == 24
            wanted = next(one for one in scenarios if one.outcome is not None)
            words = wanted.context.split(".")[0][8:40]
            for text in (words.upper(), wanted.id):
                page = await browser.get("/simulate", params={"q": text})
                assert page.text.count('class="card choice"') == 1
                assert html.escape(first_sentence(wanted.context), quote=False) in html.unescape(page.text)
                assert synopsis(wanted).counts in html.unescape(page.text)
            # The keys of the records are not the words of a situation.
            assert "Nothing matches" in (await browser.get("/simulate", params={"q": "private_info"})).text
            tasks = await browser.get("/simulate", params={"list": "tasks", "q": bargaining().scenario.context[:20]})
            assert tasks.text.count('class="card choice"') == 1
            assert "/simulate?task=" in tasks.text

    asyncio.run(act())


def test_the_last_cast_is_kept_and_an_episode_is_played_again_with_one_change(sqlite_url: str) -> None:
    async def act() -> None:
        async with studio(sqlite_url) as service:
            browser = await service.researcher()
            cast, scenarios = starter_cast(), [one for one in everyday_scenarios() if one.outcome is not None][:2]
            async with service.database.write() as connection:
                people = await library.put_all(connection, CHARACTERS, [(one, (), ()) for one in cast.characters])
                keys = await library.put_all(connection, SCENARIOS, [(one, (), ()) for one in scenarios])
            address = f"/simulate?scenario={keys[0][0]}"
            form = values(await browser.get(address))
            assert form["policy_0"] == ""
            form |= {"agent_0": people[0][0], "agent_1": people[1][0], "policy_0": "boulware", "policy_1": "conceder"}
            first = await browser.post("/simulate", data={**form, "seed": "7", "max_turns": "6"})
            assert first.status_code == 200, first.text
            before = await ended(service, episode_of(first))
            # The same cast waits in the form of another scenario, and is not in the way of an empty one.
            other = values(await browser.get(f"/simulate?scenario={keys[1][0]}"))
            assert [other[name] for name in ("agent_0", "policy_0", "policy_1")] == [
                people[0][0],
                "boulware",
                "conceder",
            ]
            assert values(await browser.get(f"{address}&empty=1"))["policy_0"] == ""

            again = values(await browser.get(f"/simulate?again={episode_of(first)}"))
            second = await browser.post("/simulate", data={**again, "policy_1": "linear"})
            after = await ended(service, episode_of(second))
            changed = {"policies": {**before.policies, "agent_1": "linear"}, "tag": again["tag"]}
            assert after == before.model_copy(update=changed)
            assert f"{after.task.names['agent_1']}: conceder → linear" in second.text
            same = await browser.post("/simulate", data=again)
            assert "Nothing was changed" in same.text
            async with service.database.read() as connection:
                together = await episode_lists.page(connection, EpisodeFilter(tag=again["tag"]))
            assert {row.id for row in together} == {episode_of(page) for page in (first, second, same)}

    asyncio.run(act())


def test_repeats_are_a_list_of_their_own_and_a_recorded_episode_can_be_played_again(sqlite_url: str) -> None:
    async def act() -> None:
        plans = plan_episodes([bargaining()], [tuple(map(naming.make_policy, ("boulware", "conceder")))], seed=3)
        recorded = (await run_episodes(plans, evaluator=naming.make_evaluator("verified"), progress=False)).episodes[0]
        async with studio(sqlite_url, workers=0) as service:
            browser = await service.researcher()
            async with service.database.write() as connection:
                ((episode, _),) = await episodes.add_recorded(connection, None, [(recorded, "")], 1.0)
            again = values(await browser.get(f"/simulate?again={episode}"))
            assert [again["policy_0"], again["policy_1"]] == ["boulware", "conceder"]
            assert (again["seed"], again["evaluator"]) == (str(recorded.seed), "verified")
            several = await browser.post("/simulate", data={**again, "tag": "", "repeats": "3"})
            assert several.status_code == 200, several.text
            tag = several.url.params["tag"]
            async with service.database.read() as connection:
                rows = await episode_lists.page(connection, EpisodeFilter(tag=tag))
                specs = [(await live.LiveEpisode.load(connection, row.id)).spec for row in rows if row.id != episode]
            assert sorted(spec.seed for spec in specs) == [recorded.seed + number for number in range(3)]
            assert [spec.task for spec in specs] == [recorded.task] * 3

    asyncio.run(act())


def test_a_wrong_field_is_explained_and_what_was_typed_is_kept(sqlite_url: str) -> None:
    async def act() -> None:
        async with studio(sqlite_url, workers=0) as service:
            browser = await service.researcher()
            async with service.database.write() as connection:
                task, _ = await library.put_task(connection, bargaining())
            form: dict[str, Any] = values(await browser.get(f"/simulate?task={task}"))
            assert hidden((await browser.get(f"/simulate?task={task}")).text, "task") == task
            for change in ({"minutes": "soon"}, {"policy_0": "bulware"}, {"repeats": "many"}):
                typed = {**form, "policy_0": "boulware", "policy_1": "smol", **change}
                answer = await browser.post("/simulate", data=typed)
                assert answer.status_code == 422
                assert values(answer)["policy_1"] == "smol"
            async with service.database.read() as connection:
                assert await episode_lists.count(connection) == 0
                assert await library.count(connection, TASKS) == 1

    asyncio.run(act())


def test_policies_are_suggested_with_a_line_each(sqlite_url: str) -> None:
    async def act() -> None:
        async with studio(sqlite_url, workers=0) as service:
            browser = await service.researcher()
            async with service.database.write() as connection:
                task, _ = await library.put_task(connection, bargaining())
            lines = {line.name: line.about for line in naming.described_policies()}
            assert {*naming.POLICY_NAMES, "smol"} <= set(lines)
            assert len(set(lines.values())) == len(lines)  # a line tells its policy from the others
            for address in (f"/simulate?task={task}", "/runs"):
                text = html.unescape((await browser.get(address)).text)
                for name, about in lines.items():
                    assert name == "human" or (f"<code>{name}</code>" in text and about in text), name

    asyncio.run(act())
