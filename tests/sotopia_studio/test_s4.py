"""A client that was written for SOTOPIA-S4, from its table of paths and bodies alone, against the studio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sotopia_studio import auth
from sotopia_studio.app import create_app
from sotopia_studio.settings import ServiceSettings

from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_studio.server import studio
from tests.sotopia_studio.test_models import reply

TRAITS = (
    "Openness to Experience - High; Conscientiousness - Low; Extraversion - High; Agreeableness - Low; "
    "Neuroticism - Low"
)
NORA: dict[str, Any] = {
    "first_name": "Nora",
    "last_name": "Lind",
    "age": 34,
    "occupation": "tram driver",
    "gender": "Woman",
    "gender_pronoun": "She/her",
    "public_info": "Nora sings in a choir.",
    "big_five": TRAITS,
    "moral_values": ["Care", "Fairness"],
    "schwartz_personal_values": ["Self-direction"],
    "personality_and_values": "Nora is curious and blunt.",
    "decision_making_style": "Analytical",
    "secret": "Nora has never liked the choir's conductor.",
    "mbti": "ENTP",
    "model_id": "tiny",
    "tag": "pilot",
}
EMIL = NORA | {"first_name": "Emil", "last_name": "Roth", "secret": "", "occupation": "baker"}
SCENARIO: dict[str, Any] = {
    "codename": "one_umbrella",
    "source": "own",
    "scenario": "Two friends wait for a tram in the rain and have one umbrella.",
    "agent_goals": ["Keep the umbrella <extra_info>You have a cold</extra_info>", "Borrow the umbrella."],
    "relationship": 3,
    "age_constraint": "[(18, 70), (18, 70)]",
    "occupation_constraint": None,
    "agent_constraint": None,
    "tag": "pilot",
}
AXES: dict[str, Any] = {
    "name": "tone",
    "dimensions": [{"name": "warmth", "description": "How warm is the agent?", "range_low": 0, "range_high": 5}],
}
Work = Callable[[httpx.AsyncClient], Awaitable[None]]


def with_client(url: str, data: Path, work: Work, *, scopes: str = "read run") -> None:
    """Runs a client with a token that follows no redirects, and a model on loopback that plays and judges."""

    async def inside(base: str) -> None:
        settings = {"data": data, "models": {"api_base": base}, "model_names": ("local/tiny",)}
        async with studio(url, **settings) as service:  # type: ignore[arg-type]
            async with service.database.write() as connection:
                secret = await auth.add_token(connection, "lab", "s4", frozenset(scopes.split()))
            transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)  # type: ignore[arg-type]
            root, headers = "http://127.0.0.1/api/s4", {"authorization": f"Bearer {secret}"}
            async with httpx.AsyncClient(transport=transport, base_url=root, headers=headers) as client:
                await work(client)

    with LoopbackServer(reply=reply, keep_requests=False, models=("tiny",)) as server:
        asyncio.run(inside(server.api_base))


async def added(client: httpx.AsyncClient, path: str, body: Any) -> str:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    identity = answer.json()
    assert isinstance(identity, str)
    return identity


async def listed(client: httpx.AsyncClient, path: str) -> list[Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    items = answer.json()
    assert isinstance(items, list)
    return items


def test_the_whole_story(url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        request = {"env_id": "nothing", "agent_ids": ["a", "b"], "models": ["verified", "sharer", "sharer"]}
        assert (await client.post("/simulate", json=request)).status_code == 404
        for path in ("/agents/", "/scenarios/", "/episodes/"):
            assert await listed(client, path) == []  # nothing is invented
        nora, emil = await added(client, "/agents/", NORA), await added(client, "/agents/", EMIL)
        scenario = await added(client, "/scenarios/", SCENARIO)
        pair = {"agent_1_id": nora, "agent_2_id": emil, "relationship": 3, "background_story": "", "tag": "pilot"}
        friends = await added(client, "/relationship/", pair)
        axes = await added(client, "/evaluation_dimensions/", AXES)

        assert await listed(client, f"/agents/id/{nora}") == [NORA | {"pk": nora}]
        assert {item["pk"] for item in await listed(client, "/agents/occupation/baker")} == {emil}
        assert {item["pk"] for item in await listed(client, "/agents/gender/Woman")} == {nora, emil}
        (environment,) = await listed(client, "/scenarios/codename/one_umbrella")
        assert environment["pk"] == scenario
        assert {name: environment[name] for name in ("scenario", "relationship", "source", "tag")} == {
            name: SCENARIO[name] for name in ("scenario", "relationship", "source", "tag")
        }
        assert "You have a cold" in environment["agent_goals"][0]
        assert (await client.get(f"/relationship/{emil}/{nora}")).json() == "3: friend"
        assert (await client.get("/evaluation_dimensions/")).json() == {"tone": AXES["dimensions"]}
        assert (await client.get("/models")).json() == ["local/tiny"]

        request = {
            "env_id": scenario,
            "agent_ids": [nora, emil],
            "models": ["local/tiny", "local/tiny", "local/tiny"],
            "max_turns": 4,
            "tag": "umbrella",
        }
        answer = await client.post("/simulate/", json=request)
        assert answer.status_code == 202, answer.text
        episode = answer.text
        for _ in range(2400):
            status = (await client.get(f"/simulation_status/{episode}")).json()
            assert (await client.get(f"/simulate/status/{episode}/")).status_code == 200
            if status != "Started":
                break
            await asyncio.sleep(0.05)
        assert status == "Completed"
        (log,) = await listed(client, f"/episodes/id/{episode}")
        assert await listed(client, "/episodes/tag/umbrella") == await listed(client, "/episodes/") == [log]
        assert (log["pk"], log["environment"], log["agents"]) == (episode, scenario, [nora, emil])
        assert "local/tiny" in log["models"][0]
        assert log["models"][1:] == ["local/tiny", "local/tiny"]
        assert ["Nora Lind", "Environment", 'said: "Let us see."'] in log["messages"][0]
        assert len(log["rewards"]) == 2
        assert log["rewards"][0][1]["goal"] == 0

        # Nothing is deleted from under what refers to it.
        assert (await client.delete(f"/agents/{nora}")).status_code == 409
        ends = {"episodes": episode, "relationship": friends, "agents": nora, "scenarios": scenario}
        for path, identity in (ends | {"evaluation_dimensions": axes}).items():
            answer = await client.delete(f"/{path}/{identity}/")
            assert (answer.status_code, answer.json()) == (200, identity)
        assert [item["pk"] for item in await listed(client, "/agents")] == [emil]
        assert (await client.get(f"/episodes/id/{episode}")).status_code == 404

    with_client(url, tmp_path, work)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/agents/", NORA | {"secrets": "none"}, "secrets"),
        ("/agents/", NORA | {"pk": "01ABC"}, "pk"),
        ("/agents/", NORA | {"big_five": "rather open"}, "big_five"),
        ("/agents/", NORA | {"decision_making_style": "by dice"}, "decision_making_style"),
        ("/scenarios/", SCENARIO | {"agent_constraint": [["Nora"]]}, "agent_constraint"),
        ("/scenarios/", SCENARIO | {"age_constraint": "young"}, "age_constraint"),
        ("/relationship/", {"agent_1_id": "a", "agent_2_id": "b", "relationship": 6}, "relationship"),
        ("/evaluation_dimensions/", AXES | {"dimensions": []}, "dimensions"),
        ("/simulate/", {"env_id": "e", "agent_ids": ["a", "b"], "models": ["m", "m", "m", "m"]}, "models"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused(sqlite_url: str, tmp_path: Path, path: str, body: Any, field: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["field"] == field
        assert await listed(client, "/agents") == await listed(client, "/scenarios") == []

    with_client(sqlite_url, tmp_path, work)


def test_unknown_ids_are_404_and_nobody_enters_without_a_token(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/simulation_status/x", "/agents/gender/Man", "/relationship/a/b", "/episodes/tag/x"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.post("/agents", json=NORA)).status_code == 403  # a token for reading

    with_client(sqlite_url, tmp_path, work, scopes="read")
    settings = ServiceSettings(database=sqlite_url, data=tmp_path)
    app = create_app(settings)

    async def without() -> None:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            headers = {"authorization": "Bearer any-non-empty-string"}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/s4") as client:
                assert (await client.get("/agents")).status_code == 401
                assert (await client.get("/agents", headers=headers)).status_code == 401

    asyncio.run(without())


def test_a_long_list_leads_to_its_rest(sqlite_url: str, tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        ids = [await added(client, "/agents", NORA | {"age": age}) for age in (20, 30, 40)]
        answer, read = await client.get("/agents", params={"limit": 2}), []
        read += answer.json()
        answer = await client.get(answer.links["next"]["url"])
        read += answer.json()
        assert [item["pk"] for item in read] == ids[::-1]
        assert "next" not in answer.links

    with_client(sqlite_url, tmp_path, work)
