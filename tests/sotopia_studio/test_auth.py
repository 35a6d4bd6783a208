"""Who may do what: sessions, tokens, origins, hosts, rates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from sotopia_studio import auth
from sotopia_studio.app import create_app
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import tables
from sotopia_studio.store.engine import Database

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError

HERE = "http://127.0.0.1:8321"
OWN = {"origin": HERE}
Work = Callable[[httpx.AsyncClient, Database], Awaitable[None]]


@asynccontextmanager
async def client(url: str, **settings: object) -> AsyncIterator[tuple[httpx.AsyncClient, Database]]:
    app = create_app(ServiceSettings(database=url, **settings))  # type: ignore[arg-type]
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as http:
            yield http, app.state.services.database


def run(url: str, work: Work, **settings: object) -> None:
    async def inside() -> None:
        async with client(url, **settings) as (http, database):
            await work(http, database)

    asyncio.run(inside())


async def one_time(database: Database) -> str:
    async with database.write() as connection:
        return await auth.add_login(connection)


async def token(database: Database, *scopes: str) -> dict[str, str]:
    async with database.write() as connection:
        secret = await auth.add_token(connection, "lab", "test", frozenset(scopes))
    return {"authorization": f"Bearer {secret}"}


def test_a_stranger_sees_the_login_and_gets_401_from_the_api(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, _: Database) -> None:
        page = await http.get("/", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        answer = await http.get("/api/v1/tokens")
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await http.get("/api/v1/tokens", headers={"authorization": "Bearer anything"})).status_code == 401

    run(sqlite_url, work)


def test_a_one_time_address_opens_one_session(url: str) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        secret = await one_time(database)
        assert (await http.get(f"/login/{secret}")).status_code == 200  # a scanner that follows links uses nothing up
        answer = await http.post(f"/login/{secret}", headers=OWN)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert (await http.get("/")).status_code == 200
        http.cookies.clear()
        used = await http.get(f"/login/{secret}")
        assert (used.status_code, f"/login/{secret}" in used.text) == (401, False)  # no form that would be refused
        again = await http.post(f"/login/{secret}", headers=OWN)
        assert again.status_code == 401
        assert "set-cookie" not in again.headers
        async with database.read() as connection:
            rows = str((await connection.execute(tables.session.select())).all())
        assert secret not in rows
        assert cookie.split("=")[1].split(";")[0] not in rows

    run(url, work)


def test_an_ended_session_is_invalid(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        await http.post(f"/login/{await one_time(database)}", headers=OWN)
        cookies = dict(http.cookies)
        await http.post("/logout", headers=OWN)
        http.cookies.update(cookies)
        answer = await http.get("/api/v1/tokens")
        assert answer.status_code == 401

    run(sqlite_url, work)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {},  # with a cookie, and without a word of where it comes from
    ],
)
def test_a_page_of_another_site_has_no_effect(sqlite_url: str, headers: dict[str, str]) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        await http.post(f"/login/{await one_time(database)}", headers=OWN)
        answer = await http.post("/api/v1/tokens", json={"name": "stolen"}, headers=headers)
        assert answer.status_code == 403
        assert (await http.get("/api/v1/tokens")).json() == []

    run(sqlite_url, work)


def test_a_name_that_resolves_to_this_machine_is_refused(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, _: Database) -> None:
        assert (await http.get("/login", headers={"host": "rebound.example"})).status_code == 421
        assert (await http.get("/login", headers={"host": "localhost:8321"})).status_code == 200

    run(sqlite_url, work)


def test_a_token_does_what_its_scopes_say_until_it_is_revoked(url: str) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        reader = await token(database, "read")
        listed = (await http.get("/api/v1/tokens", headers=reader)).json()
        assert [entry["scopes"] for entry in listed] == ["read"]
        more = await http.post("/api/v1/tokens", json={"name": "more", "scopes": ["admin"]}, headers=reader)
        assert more.status_code == 403
        await http.delete(f"/api/v1/tokens/{listed[0]['id']}", headers=reader)
        assert (await http.get("/api/v1/tokens", headers=reader)).status_code == 401

    run(url, work)


def test_behind_a_proxy_that_ends_https_links_and_cookies_are_of_the_public_address(sqlite_url: str) -> None:
    origin = "https://lab.example.org"

    async def work(http: httpx.AsyncClient, database: Database) -> None:
        headers = {"host": "lab.example.org", "origin": origin}
        answer = await http.post(f"/login/{await one_time(database)}", headers=headers)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-studio=")
        assert "Secure" in cookie
        study = {
            "kind": "play",
            "name": "rate",
            "title": "Bargain",
            "tasks": "bargaining",
            "n": 1,
            "partner": "boulware",
        }
        runner = {**await token(database, "run", "read"), "host": "lab.example.org"}
        creation = await http.post("/api/v1/studies", json=study, headers=runner)
        links = (await http.post("/api/v1/studies/rate/links/new", headers=runner)).json()
        assert creation.status_code == 201, creation.text
        assert (creation.status_code, [link.rpartition("/p/")[0] for link in links]) == (201, [origin])
        task = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).model_dump(mode="json")
        simulation = {"task": task, "policies": ["link", "boulware"], "repeats": 2}
        creation = await http.post("/api/v1/simulate", json=simulation, headers=runner)
        seats, episodes = creation.json()["links"], creation.json()["episodes"]
        assert [(link["episode"], link["address"].rpartition("/p/")[0]) for link in seats] == [
            (episode, origin) for episode in episodes
        ]
        for address in (f"/episodes/{episodes[0]}/links", f"/simulate/links?episode={episodes[0]}"):
            page = await http.post(address, headers=runner)
            assert (page.status_code, f"{origin}/p/" in page.text) == (200, True)

    run(sqlite_url, work, origin=origin)


def test_names_and_passwords(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        await auth.add_user(database, "rosa", "correct horse battery", "researcher")
        with pytest.raises(InvalidValueError):
            await auth.add_user(database, "rosa", "short", "researcher")
        form = {"name": "rosa", "password": "wrong horse battery"}
        assert (await http.post("/login", data=form, headers=OWN)).status_code == 401
        assert (await http.post("/login", data={**form, "name": "nobody"}, headers=OWN)).status_code == 401
        form["password"] = "correct horse battery"
        assert (await http.post("/login", data=form, headers=OWN)).status_code == 303
        assert (await http.get("/")).status_code == 200

    run(sqlite_url, work, accounts=True)


def test_guessing_passwords_is_slow(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, _: Database) -> None:
        form = {"name": "rosa", "password": "a guess of some length"}
        codes = [(await http.post("/login", data=form, headers=OWN)).status_code for _ in range(13)]
        assert codes[:10] == [401] * 10
        assert 429 in codes[10:]

    run(sqlite_url, work, accounts=True)


def test_a_body_that_is_too_long_is_refused(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, database: Database) -> None:
        headers = {**await token(database, "read"), "content-length": str(2**40)}
        assert (await http.post("/api/v1/tokens", content=b"{}", headers=headers)).status_code == 413

    run(sqlite_url, work)


def test_every_answer_has_the_security_headers(sqlite_url: str) -> None:
    async def work(http: httpx.AsyncClient, _: Database) -> None:
        for path in ("/login", "/static/studio.css", "/nowhere", "/api/v1/tokens"):
            headers = (await http.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"

    run(sqlite_url, work)
