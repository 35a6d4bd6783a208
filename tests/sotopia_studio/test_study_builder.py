"""The builder of studies without a screen: a form for every setting, drafts, and files equal byte for byte."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from sotopia_studio.store import library
from sotopia_studio.store.kinds import SCENARIOS

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.settings_form import sent_of, values_of
from sotopia_env.people.studies import builder
from sotopia_env.people.studies.files import read_text, to_text
from sotopia_env.people.studies.settings import KINDS, PlayStudy, study_of
from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.studio import bargaining
from tests.sotopia_studio.test_studies import consented, joined, my_turn, run
from tests.sotopia_studio.test_study_files import EVERY, FILE


class FormOf(HTMLParser):
    """The fields that a browser would send for the form ``builder`` of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: list[tuple[str, str]] = []
        self.inside = False
        self.area: str | None = None
        self.menu = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form":
            self.inside = values.get("id") == "builder"
        name, value = values.get("name") or "", values.get("value") or ""
        if not self.inside:
            return
        if tag == "input" and (values.get("type") not in ("radio", "checkbox") or "checked" in values):
            self.fields.append((name, value))
        elif tag == "textarea":
            self.area, self.text = name, ""
        elif tag == "select":
            self.menu = name
        elif tag == "option" and self.menu and "selected" in values:
            self.fields.append((self.menu, value))

    def handle_data(self, data: str) -> None:
        if self.area is not None:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self.area is not None:
            # A browser drops the first line break of a text area, and sends breaks as CRLF.
            self.fields.append((self.area, self.text.removeprefix("\n").replace("\n", "\r\n")))
            self.area = None
        elif tag == "select":
            self.menu = ""


def fields_of(page: str, **changes: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, value in FormOf(page).fields:
        fields.setdefault(name, []).append(value)
    return fields | {name.replace("__", "."): [value] for name, value in changes.items()}


async def begun(studio: Studio, **form: str) -> tuple[httpx.AsyncClient, httpx.Response]:
    browser = await studio.researcher()
    page = await browser.post("/studies/new", data=form)
    assert "/studies/drafts/" in str(page.url), page.text
    return browser, page


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_field(kind: str) -> None:
    sent = builder.new_draft(kind)
    fields = [field.path for _, members in builder.cards(kind, sent) for field in members]
    assert sorted(fields) == sorted(set(KINDS[kind].model_fields) - {"kind", "frozen"})  # the studio writes that one
    assert set(sent) - {"kind"} <= set(builder.labels(sent)), "a field of a draft that is in no form would be lost"


@pytest.mark.parametrize("kind", KINDS)
def test_the_builder_is_equal_to_the_file(sqlite_url: str, kind: str) -> None:
    words = "First line.\n\n  Second: 'line' with \"quotes\" & <b>marks</b>\n"
    study = study_of({"kind": kind, "name": "one", "title": "One", "instructions": words, **EVERY[kind]})
    assert study_of(values_of(KINDS[kind], sent_of(study))) == study

    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, text=to_text(study))
        answer = await browser.post(page.url, data={**fields_of(page.text), "do": "file"})
        assert str(answer.url).endswith("study.yaml"), answer.text
        assert answer.text == to_text(study)

    run(sqlite_url, work)


def test_a_study_is_built_and_opened_and_exports_what_it_is(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, kind="play")
        refused = await browser.post(page.url, data={**fields_of(page.text, max_turns="many"), "do": "open"})
        assert refused.status_code == 422
        assert 'id="e-title"' in refused.text
        assert 'id="e-max_turns"' in refused.text
        assert fields_of(refused.text)["max_turns"] == ["many"]
        changes = {"title": "Zwei Gespräche", "max_turns": "6", "partner__other": "no-such-program"}
        unknown = await browser.post(page.url, data={**fields_of(refused.text, **changes), "do": "open"})
        assert unknown.status_code == 422
        assert 'id="e-partner"' in unknown.text
        fields = fields_of(unknown.text, partner="conceder", title="Zwei Gespräche")
        opened = await browser.post(page.url, data={**fields, "do": "open"})
        assert str(opened.url).endswith("/studies/zwei-gesprache"), opened.text
        file = (await browser.get("/studies/zwei-gesprache/study.yaml")).text
        assert "max_turns: 6" in file
        assert "partner: conceder" in file
        assert (await browser.get(page.url)).status_code == 404  # the draft has become the study
        again = await browser.post("/studies/zwei-gesprache/copy")
        copied = await browser.post(again.url, data={**fields_of(again.text, name="zwei-gesprache"), "do": "file"})
        assert copied.text == file

    run(sqlite_url, work)


def test_a_builder_left_half_way_loses_nothing(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, kind="play")
        half = fields_of(page.text, title="Half a title", turn_seconds="3o0")
        assert (await browser.post(f"{page.url}/keep", data=half)).status_code == 200
        listed = (await browser.get("/studies/new")).text
        assert "Half a title" in listed
        later = await browser.get(page.url)
        assert fields_of(later.text)["turn_seconds"] == ["3o0"]

    run(sqlite_url, work)


def test_two_tabs_lose_nothing(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, first = await begun(studio, kind="play")
        second = await browser.get(first.url)
        for title in ("First", "First tab"):  # one tab saves as often as it likes
            answer = await browser.post(f"{first.url}/keep", data=fields_of(first.text, title=title))
            assert "HX-Redirect" not in answer.headers
        answer = await browser.post(f"{second.url}/keep", data=fields_of(second.text, title="Second tab"))
        copy = answer.headers["HX-Redirect"]
        assert copy not in str(first.url)
        moved = await browser.get(copy)
        assert fields_of(moved.text)["title"] == ["Second tab"]
        assert "changed in another tab" in moved.text
        assert fields_of((await browser.get(first.url)).text)["title"] == ["First tab"]

    run(sqlite_url, work)


def test_rows_are_added_moved_and_removed(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, kind="play")

        async def press(page: httpx.Response, action: str, **changes: str) -> httpx.Response:
            return await browser.post(page.url, data={**fields_of(page.text, **changes), "do": action})

        page = await press(page, "add questionnaire", questionnaire__0__text="One?")
        page = await press(page, "add factors", questionnaire__1__text="Two?")
        assert "factors.0.levels.1.value" in fields_of(page.text)  # two levels to begin with
        page = await press(page, "up questionnaire.1")
        texts = [fields_of(page.text)[f"questionnaire.{number}.text"] for number in range(2)]
        assert texts == [["Two?"], ["One?"]]
        page = await press(page, "remove questionnaire.0")
        page = await press(page, "remove questionnaire.0")
        page = await press(page, "remove factors.0")
        assert not [name for name in fields_of(page.text) if name.startswith(("questionnaire.", "factors."))]
        assert (await press(page, "remove factors.0")).status_code == 422

    run(sqlite_url, work)


def test_a_factor_shows_its_conditions(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, text=FILE)
        assert "partner: firm" in page.text
        assert "Each person stays in one condition" in page.text
        assert "8 conversations, about 8 participants" in page.text
        picked = fields_of(page.text, tasks="starter", only="orchard-harvest/0", n="")
        page = await browser.post(page.url, data={**picked, "do": "refresh"})
        assert "4 conversations" in page.text
        assert "orchard" in page.text

    run(sqlite_url, work)


def test_a_faulty_file_is_kept_and_explained(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await studio.researcher()
        faulty = FILE.replace("partner: boulware", "partnr: boulware")
        for then in ("build", "open"):
            page = await browser.post("/studies/new", data={"then": then}, files={"file": ("s.yaml", faulty.encode())})
            assert page.status_code == 422
            assert "line 15" in page.text
            assert "partnr: boulware" in page.text
        assert (await browser.get("/api/v1/studies")).json() == []

    run(sqlite_url, work)


@pytest.mark.parametrize(
    "action", ["add title", "add nothing", "remove interview.9", "up interview.0", "x", "down a.b"]
)
def test_a_change_of_a_row_that_is_not_there_is_refused(action: str) -> None:
    with pytest.raises(InvalidValueError):
        builder.rearranged(builder.new_draft("play"), action)


def test_empty_names_are_made_from_what_they_name(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, kind="play")
        fields = fields_of(page.text, title="Two tones", interview__0__name="", interview__0__text="How kind?")
        page = await browser.post(page.url, data={**fields, "do": "add factors"})
        fields = fields_of(page.text, factors__0__varies="instructions")
        page = await browser.post(page.url, data={**fields, "do": "refresh"})
        assert '<textarea id="i-factors.0.levels.1.value"' in page.text
        values = {f"factors__0__levels__{number}__value": f"Be {tone}.\n\nNow." for number, tone in enumerate("ab")}
        answer = await browser.post(page.url, data={**fields_of(page.text, **values), "do": "file"})
        study = read_text(answer.text)
        assert isinstance(study, PlayStudy)
        assert [question.name for question in study.interview] == ["how-kind"]
        assert [(level.name, level.value) for level in study.factors[0].levels] == [
            ("be-a-now", "Be a.\n\nNow."), ("be-b-now", "Be b.\n\nNow."),
        ]  # fmt: skip
        assert (study.name, study.factors[0].name) == ("two-tones", "instructions")

    run(sqlite_url, work)


def as_names(*titles: str) -> list[str]:
    return [builder.short_name(title) for title in titles]


def test_a_title_gives_a_name() -> None:
    assert as_names("Talk about a price!", "Gespräche 2", "话题", "x" * 99) == [
        "talk-about-a-price", "gesprache-2", "", "x" * 60,
    ]  # fmt: skip


def answers(**more: Any) -> dict[str, Any]:
    return {"name": "q", "text": "?", "kind": "choice", **more}


@pytest.mark.parametrize("options", [["yes", "no\nnever"], ["yes", " no"], ["yes", ""], ["yes", "yes"]])
def test_an_answer_that_nobody_could_choose_is_refused(options: list[str]) -> None:
    study = {"kind": "play", "name": "one", "title": "One", "questionnaire": [answers(options=options)]}
    with pytest.raises(InvalidValueError) as caught:
        study_of(study)
    assert caught.value.field == "questionnaire.0.options"


async def in_library(studio: Studio, words: str) -> tuple[str, str]:
    """The entry of a task, and of a scenario, that somebody has written in the studio."""
    task = bargaining()
    scenario = task.scenario.model_copy(update={"context": words, "id": "own-scenario"})
    task = task.model_copy(update={"id": "own-task", "scenario": scenario.model_copy(update={"id": "of-task"})})
    async with studio.database.write() as connection:
        made = [await library.put_task(connection, task), await library.put(connection, SCENARIOS, scenario)]
    return made[0][0], made[1][0]


def test_situations_of_the_library_are_picked_and_stay_as_they_were(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        words = "A lamp of brass stands between the two, and each would like to have it."
        task, scenario = await in_library(studio, words)
        browser, page = await begun(studio, kind="play")
        fields = fields_of(page.text, title="Lamps", partner="boulware", do="check")
        entries = dict(re.findall(r'name="library" value="(([^"@]+)@[0-9a-f]+)"', page.text))
        picked = {identity: entry for entry, identity in entries.items()}
        assert {task, scenario} <= set(picked)
        page = await browser.post(page.url, data={**fields, "library": [picked[task], picked[scenario]], "do": "open"})
        assert str(page.url).endswith("/studies/lamps"), page.text
        text = (await browser.get("/studies/lamps/study.yaml")).text
        assert read_text(text).library == (picked[task], picked[scenario])  # type: ignore[union-attr]
        assert "frozen" not in text
        # The library changes under the study: the items are deleted, and the study plays what it had.
        for path, key in (("tasks", task), ("scenarios", scenario)):
            assert (await browser.delete(f"/api/v1/{path}/{key}")).status_code == 200
        person = await joined(studio, "lamps")
        await consented(person)
        assert words.split(",")[0] in (await my_turn(person)).text
        # The file opens the same study again where the content is; a wrong hash is refused with its field.
        again = text.replace("name: lamps", "name: lamps-two")
        assert (await browser.post("/studies/new", data={"text": again, "then": "open"})).status_code == 200
        wrong = again.replace("lamps-two", "lamps-three").replace(picked[task], f"{task}@0123456789abcdef")
        answer = await browser.post("/studies/new", data={"text": wrong, "then": "open"})
        assert answer.status_code == 422
        assert "library" in answer.text

    run(sqlite_url, work)
