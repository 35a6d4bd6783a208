"""What an attacker, a clumsy newcomer and a failing network do to the studio, and what it answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import websockets
from sotopia_studio import auth
from sotopia_studio.pages.rendering import NAVIGATION
from sotopia_studio.store import studies, tables
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError
from tests.sotopia_studio.server import HERE, Studio, hidden, studio
from tests.sotopia_studio.serving import serving

PLAY = {
    "kind": "play",
    "name": "talks",
    "title": "Talks",
    "tasks": "bargaining",
    "n": 2,
    "partner": "boulware",
    "max_turns": 6,
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data folder of a service lies in the working directory unless a setting says otherwise."""
    monkeypatch.chdir(tmp_path)


def run(url: str, work: Callable[[Studio], Awaitable[None]], **settings: object) -> None:
    async def inside() -> None:
        async with studio(url, **settings) as service:  # type: ignore[arg-type]
            await work(service)

    asyncio.run(inside())


async def program(studio: Studio, *scopes: str, **headers: str) -> httpx.AsyncClient:
    """A program with a token."""
    async with studio.database.write() as connection:
        secret = await auth.add_token(connection, "lab", "test", frozenset(scopes))
    transport = httpx.ASGITransport(studio.app, raise_app_exceptions=False)  # type: ignore[arg-type]
    return httpx.AsyncClient(
        transport=transport, base_url=HERE, headers={"authorization": f"Bearer {secret}", **headers}
    )


async def seated(studio: Studio, client: httpx.AsyncClient) -> tuple[httpx.AsyncClient, str, str]:
    """A participant in a seat: the browser, the episode and the agent."""
    assert (await client.post("/api/v1/studies", json=PLAY)).status_code == 201
    browser = studio.browser()
    await browser.post("/join/talks", data={"person": "p"})
    page = await browser.post("/study/consent", data={"consent": "1"})
    for _ in range(4800):
        if "/seat/" in str(page.url):
            break
        await asyncio.sleep(0.05)
        page = await browser.get("/study")
    *_, episode, agent = str(page.url).split("/")
    return browser, episode, agent


# --- one person must not stop the server --------------------------------------------------------------------------
@pytest.mark.parametrize("number", ["999999", "-3"])
def test_an_unknown_event_number_blocks_no_stream(sqlite_url: str, tmp_path: Path, number: str) -> None:
    with serving(sqlite_url, tmp_path) as (address, token):
        headers = {"authorization": f"Bearer {token}"}
        httpx.post(f"{address}/api/v1/library/import/starter", headers=headers)
        scenario = httpx.get(f"{address}/api/v1/scenarios?limit=1", headers=headers).json()["items"][0]["id"]
        people = httpx.get(f"{address}/api/v1/agents?limit=2", headers=headers).json()["items"]
        body = {"scenario": scenario, "agents": [item["id"] for item in people], "policies": ["human"]}
        started = httpx.post(f"{address}/api/v1/simulate", json=body, headers=headers)
        assert started.status_code == 202, started.text
        stream = f"{address}/episodes/{started.json()['episodes'][0]}/stream"
        with httpx.stream("GET", stream, headers={**headers, "last-event-id": number}, timeout=240) as answer:
            assert answer.status_code == 200
            assert httpx.get(f"{address}/api/v1/health", timeout=240).status_code == 200


def test_a_database_that_fails_for_a_while_stops_no_stream_and_no_worker(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sotopia_studio.store import events, jobs

    async def work(studio: Studio) -> None:
        broken, claim, counts = True, jobs.claim, events.counts

        async def fail(*args: object) -> object:
            if broken:
                raise OperationalError("SELECT", {}, Exception("server closed the connection"))
            return await (claim if len(args) == 3 else counts)(*args)  # type: ignore[arg-type]

        client = await program(studio, "read", "run")
        _, episode, _ = await seated(studio, client)
        stream = studio.app.state.services.hub.follow(episode)  # type: ignore[attr-defined]
        stream_events = [await anext(stream)]
        monkeypatch.setattr(jobs, "claim", fail)
        monkeypatch.setattr(events, "counts", fail)
        await asyncio.sleep(0.4)
        broken = False
        answer = await client.post(f"/api/v1/episodes/{episode}/stop")
        assert answer.status_code == 202
        async for event in stream:
            stream_events.append(event)
        assert stream_events[-1].kind == "stopped"
        record = await client.post("/api/v1/runs", json={"spec": {"policies": ["boulware"], "n": 1}})
        assert record.status_code == 202, record.text
        for _ in range(4800):
            row = (await client.get(f"/api/v1/runs/{record.json()['run']}")).json()
            if row["status"] == "done":
                return
            await asyncio.sleep(0.1)
        raise AssertionError(row)

    run(sqlite_url, work, data=Path(sqlite_url.removeprefix("sqlite:///")).parent)


# --- what a name may reach ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        {"partner": "tests.sotopia_studio.server:studio"},
        {"partner": "local/m:template=/etc/passwd"},
        {"partner": "best-of-2(local/m:examples=/etc/passwd by offer-worth)"},
        {"tasks": "/etc/passwd"},
        {"tasks": "secrets.yaml"},
        {"evaluator": "judge:local/m:api_base=http://evil.example/v1"},
        {"evaluator": "judge:local/m:custom=/etc/passwd"},
        {"evaluator": "interview:local/m:interviewee=(local/m:template=/etc/passwd)"},
        {"evaluator": "mean(verified+judge:huggingface/https://evil.example)"},
    ],
)
def test_with_accounts_studies_and_runs_cannot_read_files_import_code_or_name_servers(
    sqlite_url: str, change: dict[str, str]
) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        answer = await client.post("/api/v1/studies", json={**PLAY, **change})
        assert answer.status_code == 422, answer.text
        assert "root:" not in answer.text
        spec = {"policies": [change.get("partner", "boulware")], "n": 1}
        spec |= {key: value for key, value in change.items() if key != "partner"}
        assert (await client.post("/api/v1/runs", json={"spec": spec})).status_code == 422
        spec = {"policies": ["boulware"], "manner": {"template": "/etc/passwd"}}
        assert (await client.post("/api/v1/runs", json={"spec": spec})).status_code == 422

    run(sqlite_url, work, accounts=True, models={"api_base": "http://127.0.0.1:9/v1"})


def test_custom_dimensions_work_with_accounts(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        dimensions = {
            "name": "mine",
            "dimensions": [{"name": "warmth", "low": 0, "high": 5, "instruction": "How warm?"}],
        }
        added = await client.post("/api/v1/evaluation_dimensions", json=dimensions)
        assert added.status_code == 201, added.text
        await client.post("/api/v1/library/import/starter")
        scenario = (await client.get("/api/v1/scenarios?limit=1")).json()["items"][0]["id"]
        people = (await client.get("/api/v1/agents?limit=2")).json()["items"]
        body = {"scenario": scenario, "agents": [item["id"] for item in people], "policies": ["silent"]}
        body |= {"evaluator": "judge:local/m", "dimensions": added.json()["id"]}
        answer = await client.post("/api/v1/simulate?dry_run=true", json=body)
        assert answer.status_code == 200, answer.text

    run(sqlite_url, work, accounts=True, data=tmp_path, models={"api_base": "http://127.0.0.1:9/v1"})


# --- browsers -----------------------------------------------------------------------------------------------------
def test_browsers_behind_a_proxy_with_passwords_are_protected(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await studio.researcher()
        headers = {"origin": "https://evil.example", "authorization": "Basic bGFiOmxhYg=="}
        answer = await browser.post("/api/v1/tokens", json={"name": "stolen"}, headers=headers)
        assert answer.status_code == 403

    run(sqlite_url, work)


def test_passwords_cannot_be_guessed_faster_with_made_up_headers(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = studio.browser()
        form = {"name": "rosa", "password": "guess"}
        answers = [
            (await browser.post("/login", data=form, headers={"authorization": f"Bearer {number}"})).status_code
            for number in range(14)
        ]
        assert 429 in answers

    run(sqlite_url, work, accounts=True)


def test_another_password_ends_sessions_and_tokens(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await auth.add_user(studio.database, "rosa", "a long password", "admin")
        browser = studio.browser()
        await browser.post("/login", data={"name": "rosa", "password": "a long password"})
        answer = await browser.post("/api/v1/tokens", json={"scopes": ["admin"]})
        headers = {"authorization": f"Bearer {answer.json()['token']}"}
        await auth.add_user(studio.database, "rosa", "another password", "researcher")
        assert (await browser.get("/api/v1/tokens")).status_code == 401
        assert (await studio.browser().get("/api/v1/tokens", headers=headers)).status_code == 401

    run(sqlite_url, work, accounts=True)


def test_no_secret_of_a_link_is_logged(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sotopia_studio.studies import opening

    async def fail(*_: object) -> str:
        raise RuntimeError("a fault")

    async def work(studio: Studio) -> None:
        monkeypatch.setattr(opening, "claim", fail)
        with caplog.at_level(logging.WARNING):
            assert (await studio.browser().post("/p/a-secret-of-a-link")).status_code == 500
        assert "a-secret-of-a-link" not in caplog.text

    run(sqlite_url, work)


def test_every_page_says_who_is_logged_in_and_logs_out(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        await auth.add_user(studio.database, "rosa", "a long password", "researcher")
        browser = studio.browser()
        await browser.post("/login", data={"name": "rosa", "password": "a long password"})
        task = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).model_dump(mode="json")
        body = {"task": task, "policies": ["human", "boulware"], "tag": "pilot"}
        (episode,) = (await browser.post("/api/v1/simulate", json=body)).json()["episodes"]
        paths = [address for address, _ in NAVIGATION]
        for path in (*paths, f"/episodes/{episode}", f"/seat/{episode}/agent_0", "/studies/new", "/design"):
            page = (await browser.get(path)).text
            assert ">rosa<" in page, path
            assert 'action="/logout"' in page, path
        listed = (await browser.get("/episodes?tag=pilot")).text
        assert 'href="/api/v1/episodes/export.jsonl?tag=pilot"' in listed
        assert (await browser.get("/api/v1/episodes/export.jsonl?tag=pilot")).status_code == 200
        assert 'action="/logout"' not in (await browser.post("/logout")).text
        assert (await browser.get("/api/v1/episodes")).status_code == 401

    run(sqlite_url, work, accounts=True, data=tmp_path)


# --- what is not mine ---------------------------------------------------------------------------------------------
def test_a_participant_sees_only_the_seat_and_nobody_else_acts_in_it(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await program(studio, "read", "run")
        browser, episode, agent = await seated(studio, researcher)
        other = "agent_0" if agent == "agent_1" else "agent_1"
        for path in (
            f"/episodes/{episode}",
            f"/episodes/{episode}/stream",
            f"/episodes/{episode}/record.jsonl",
            f"/api/v1/episodes/{episode}",
            f"/api/v1/episodes/{episode}/events",
            f"/api/v1/episodes/{episode}/seats/{agent}",
            "/api/v1/studies/talks/export.csv",
            "/api/v1/tokens",
            "/studies/talks",
        ):
            assert (await browser.get(path)).status_code == 403, path
        for path in (f"/seat/{episode}/{other}", f"/seat/{episode}/{other}/view", f"/seat/{episode}/{other}/changes"):
            assert (await browser.get(path)).status_code == 404, path
        answer = await researcher.get(f"/api/v1/episodes/{episode}/seats/{agent}")
        action = {"turn": answer.json()["turn"], "key": "k", "action": {"action_type": "leave"}}
        answer = await researcher.post(f"/api/v1/episodes/{episode}/seats/{agent}/actions", json=action)
        assert answer.status_code == 403

    run(sqlite_url, work)


# --- races --------------------------------------------------------------------------------------------------------
def test_a_panel_participant_who_clicks_twice_joins_once(url: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        assert (await client.post("/api/v1/studies", json={**PLAY, "partner": "person"})).status_code == 201
        browsers = [studio.browser() for _ in range(6)]
        await asyncio.gather(*(browser.post("/join/talks", data={"person": "panel-1"}) for browser in browsers))
        people = (await client.get("/api/v1/studies/talks/participants")).json()
        assert [person["external"] for person in people] == ["panel-1"]
        await asyncio.gather(*(browser.post("/study/consent", data={"consent": "1"}) for browser in browsers))
        await asyncio.gather(*(browser.get("/study") for browser in browsers))
        async with studio.database.read() as connection:
            query = select(func.count()).where(tables.assignment.c.participant.is_not(None))
            assert (await connection.execute(query)).scalar_one() == 1
        other = studio.browser()
        await other.post("/join/talks", data={"person": "panel-2"})
        await other.post("/study/consent", data={"consent": "1"})
        await asyncio.gather(*(browser.get("/study") for browser in [*browsers, other]))
        async with studio.database.read() as connection:
            count = (await connection.execute(select(func.count()).select_from(tables.episode))).scalar_one()
        assert count == 1

    run(url, work)


def test_a_link_is_claimed_once_and_a_closed_study_admits_no_one(url: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        await client.post("/api/v1/studies", json=PLAY)
        (link,) = (await client.post("/api/v1/studies/talks/links/new")).json()
        browsers = [studio.browser() for _ in range(5)]
        answers = await asyncio.gather(*(browser.post(link.removeprefix(HERE)) for browser in browsers))
        assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404, 404]
        await client.post("/api/v1/studies/talks/close")
        assert (await studio.browser().post("/join/talks", data={"person": "late"})).status_code == 409

    run(url, work)


def test_a_study_named_like_another_studys_id_is_separate(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        first = (await client.post("/api/v1/studies", json=PLAY)).json()["id"]
        assert (await client.post("/api/v1/studies", json={**PLAY, "name": first})).status_code == 201
        async with studio.database.read() as connection:
            assert (await studies.by_name(connection, first)).name == "talks"

    run(sqlite_url, work)


# --- what cannot be stored, and what is too much ------------------------------------------------------------------
NUL = "a\x00b"


def test_odd_characters_and_numbers_are_refused_in_one_sentence(url: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run", accept="application/json")
        browser, episode, agent = await seated(studio, client)
        page = await browser.get(f"/seat/{episode}/{agent}")
        form = {name: hidden(page.text, name) for name in ("turn", "key", "opened")}
        requests = [
            client.get("/api/v1/episodes", params={"task": NUL}),
            client.get("/api/v1/episodes/a%00b"),
            client.get("/api/v1/jobs/a%00b"),
            client.get("/api/v1/runs/a%00b"),
            client.get("/api/v1/agents/a%00bcdefg"),
            client.get("/api/v1/agents", params={"q": "%_" + NUL}),
            client.get("/api/v1/studies/a%00b"),
            client.post("/api/v1/tokens", json={"name": NUL}),
            client.post("/api/v1/tokens", content=b'{"name": "\\ud800"}', headers={"content-type": "application/json"}),
            client.patch(f"/api/v1/episodes/{episode}", json={"add_tags": [NUL]}),
            client.post("/api/v1/runs", json={"spec": {"policies": ["boulware"], "n": 1}, "name": NUL}),
            client.post("/api/v1/runs", json={"spec": {"policies": ["boulware"], "n": 1, "seed": 2**80}}),
            client.post(f"/api/v1/episodes/{episode}/seats/{agent}/actions", json={"turn": 2**31, "key": "k"}),
            client.post("/api/v1/agents", json={"id": "x", "name": "Ann", "age": -4}),
            client.post("/api/v1/agents", content=b'{"age": NaN}', headers={"content-type": "application/json"}),
            client.post("/api/v1/agents", content=b"[" * 100_000, headers={"content-type": "application/json"}),
            client.post("/api/v1/agents", content=b"{", headers={"content-type": "text/plain"}),
            client.post(f"/episodes/{episode}/comments", data={"text": NUL}),
            browser.post("/join/talks", data={"person": NUL}),
            browser.get(f"/seat/a%00b/{agent}"),
            browser.post(f"/seat/{episode}/{agent}", data={**form, "turn": "9" * 5000}),
            browser.post(f"/seat/{episode}/{agent}", data={**form, "argument": "x" * 1_000_000}),
            browser.post(f"/seat/{episode}/{agent}", data={**form, "key": NUL, "argument": "Well."}),
            browser.post(
                f"/seat/{episode}/{agent}", content=b"\xff\x00{", headers={"content-type": "multipart/form-data"}
            ),
            browser.post("/login", data={"name": NUL, "password": NUL}),
            browser.post("/p/a%00b"),
        ]
        for number, request in enumerate(requests):
            answer = await request
            assert answer.status_code < 500, (number, answer.text)

    run(url, work)


def test_drafts_have_a_size_limit(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        await client.post("/api/v1/studies", json={**PLAY, "instructions": "Read."})
        browser = studio.browser()
        await browser.post("/join/talks", data={"person": "p"})
        for number in range(5):
            await browser.post("/study/draft", data={"form": f"made-up-{number}", "text": "x" * 1000})
        await browser.post("/study/draft", data={"form": "consent:", "text": "x" * 700_000})
        async with studio.database.read() as connection:
            assert (await connection.execute(select(func.count()).select_from(tables.draft))).scalar_one() == 0
        assert (await browser.post("/study/draft", content=b"a=" + b"x" * 5_000_000)).status_code == 413
        answer = await browser.post("/study/draft", data={"form": "consent:", "text": "kept"})
        assert answer.status_code == 204

    run(sqlite_url, work)


def test_a_message_of_bytes_does_not_break_a_socket(sqlite_url: str, tmp_path: Path) -> None:
    async def talk(address: str, token: str) -> None:
        url = address.replace("http", "ws") + "/api/v1/ws/simulation"
        headers = {"authorization": f"Bearer {token}"}
        async with websockets.connect(url, additional_headers=headers) as socket:
            for message in (b"\x00\xff", "[" * 5_000, '{"type": "START_SIM", "data": {"task": 1e999}}', "{}"):
                await socket.send(message)
                assert json.loads(await asyncio.wait_for(socket.recv(), 240))["type"] == "ERROR"

    with serving(sqlite_url, tmp_path) as (address, token):
        asyncio.run(talk(address, token))


def test_values_that_no_column_holds_are_an_error_about_the_value(url: str) -> None:
    async def work(studio: Studio) -> None:
        with pytest.raises(InvalidValueError):
            async with studio.database.write() as connection:
                await connection.execute(
                    tables.run.insert().values(id="a", kind="batch", spec="", status="done", created=0, planned=2**70)
                )

    run(url, work)


def test_unknown_ids_and_filters_are_errors_before_a_stream_starts(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await studio.researcher()
        for path in ("/episodes/nope/stream", "/seat/nope/agent_0/changes", "/api/v1/studies/nope/codebook"):
            assert (await browser.get(path)).status_code == 404, path
        for path in ("/episodes?low=high", "/episodes?starred=9", "/episodes/nope?low=high"):
            assert (await browser.get(path)).status_code in (404, 422), path

    run(sqlite_url, work)


@pytest.mark.parametrize("tasks", ["bargaining", "bargaining:n=999999999"])
def test_requests_for_more_than_can_be_planned_are_refused(sqlite_url: str, tasks: str) -> None:
    async def work(studio: Studio) -> None:
        client = await program(studio, "read", "run")
        spec = {"policies": ["boulware"], "tasks": tasks, "repeats": 1_000_000}
        assert (await client.post("/api/v1/runs", json={"spec": spec})).status_code == 422
        for change in ({"repeats": 10**9}, {"kind": "validate", "overlap": 10**9}):
            study = {"kind": "play", "name": "large", "title": "Large", "tasks": tasks, **change}
            assert (await client.post("/api/v1/studies", json=study)).status_code == 422

    run(sqlite_url, work)
