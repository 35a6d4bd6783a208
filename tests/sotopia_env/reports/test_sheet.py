"""Sheets and reports: the same numbers on a terminal, in Markdown, CSV and JSON, and nothing that poses as a table."""

import csv
import io
import json

import pytest

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.reports.intervals import CASTINGS, Estimate
from sotopia_env.reports.sheet import Missing, Report, Sheet
from tests.errors import raises

MEAN = Estimate(n=12, clusters=3, mean=0.25, low=0.1, high=0.5, p=0.04)
BARE = Estimate(n=2, clusters=1, mean=0.5, low=None, high=None, p=None, over=CASTINGS)


def cells(markdown: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("|")]


def sheet(**options) -> Sheet:
    rows = [("a", "x", MEAN, 0.0004), ("a", "y", BARE, Missing("one casting")), ("b", "x", MEAN, 0.5)]
    return Sheet("scores", ("policy", "partner", "estimate", "p"), rows, **options)


def test_an_estimate_has_columns_of_its_own_and_what_is_missing_is_empty():
    rows = list(csv.DictReader(io.StringIO(sheet().csv())))
    assert list(rows[0]) == ["policy", "partner", "n", "over", "clusters", "mean", "low", "high", "p"]
    assert [(row["mean"], row["low"], row["p"]) for row in rows] == [
        ("0.25", "0.1", "0.0004"),
        ("0.5", "", ""),
        ("0.25", "0.1", "0.5"),
    ]
    assert sheet().records()[1] == {"policy": "a", "partner": "y", "n": 2, "over": CASTINGS, "clusters": 1, "mean": 0.5,
                                    "low": None, "high": None, "p": None}  # fmt: skip
    other = Sheet("s", ("policy", "attack"), [("a", MEAN), ("b", None)])
    assert list(other.records()[1]) == ["policy", *(f"attack_{part}" for part in ("n", "over", "clusters", "mean", "low", "high"))]  # fmt: skip  # noqa: E501


def test_a_reader_gets_rounded_numbers_with_their_intervals():
    head, _, first, second, _ = cells(sheet(formats={"estimate": "{:.1f}".format}).markdown())
    assert head == ["policy", "partner", "estimate", "p"]
    assert first == ["a", "x", "0.2 [0.1, 0.5] 12", "<0.001"]
    assert second[2:] == ["0.5 [n/a: one casting; 2 or more are needed] 2", "n/a: one casting"]


def test_values_are_crossed_and_sheets_split_and_filtered():
    crossed = sheet().crossed(("policy",), "partner", corner="policy \\ partner", missing="not met")
    assert crossed.columns == ("policy", "x", "y")
    assert crossed.rows == [("a", MEAN, BARE), ("b", MEAN, Missing("not met"))]
    assert sheet().crossed(("policy",), "partner", means=True).rows[0] == ("a", 0.25, 0.5)
    assert [(part.title, len(part.rows)) for part in sheet().split("policy")] == [("a", 2), ("b", 1)]
    assert sheet().where(policy="b", partner="x").columns == ("estimate", "p")


def test_columns_that_say_the_same_in_all_rows_are_folded_and_stay_in_the_file():
    rows = [("a", "goal", 1), ("b", "goal", 2)]
    folded = Sheet("s", ("policy", "metric", "n"), rows, folding=("metric",), hidden=("n",))
    assert cells(folded.markdown())[0] == ["policy"]
    assert "metric = goal" in folded.markdown()
    assert folded.records()[1] == {"policy": "b", "metric": "goal", "n": 2}
    assert cells(Sheet("s", ("policy", "metric"), rows[:1] and [("a", "goal")], folding=("metric",)).markdown())[0] == [
        "policy",
        "metric",
    ]


@pytest.mark.parametrize("text", ["=1+1", "a|b", "a\nb", "<|end|>", "\x1b[2J"])
def test_no_value_is_a_formula_another_cell_or_a_line_of_its_own(text):
    sheet = Sheet("s", ("name", "n"), [(text, 1)])
    (row,) = csv.reader(io.StringIO(sheet.csv().split("\r\n", 1)[1], newline=""))
    assert row[0].startswith("'") == text.startswith("=")
    assert len(sheet.text().splitlines()) == 3
    assert len(sheet.markdown().splitlines()) == 3
    assert sheet.markdown().splitlines()[2].replace(r"\|", "").count("|") == 3
    (part,) = sheet.split("name")
    for rendering in (sheet.text(), part.text(), part.markdown()):
        assert "\x1b" not in rendering
        assert len(rendering.splitlines()) <= 5


def test_a_report_writes_what_it_prints(tmp_path):
    from sotopia_env.reports.charts import Panel, forest_chart

    report = Report(
        "report",
        ["Begin.", sheet(title="Scores", notes=("(a note)",)), ""],
        [sheet()],
        {"value": None},
        lambda: {"means": forest_chart([Panel("goal", [("a", MEAN), ("b", BARE)])], "Means")},
        title="Page",
    )
    assert [path.name for path in report.write(tmp_path / "plain")] == [
        "report.txt",
        "report.json",
        "scores.csv",
        "means.png",
    ]
    assert (tmp_path / "plain" / "report.txt").read_text() == report.text()
    assert json.loads((tmp_path / "plain" / "report.json").read_text()) == {"value": None}
    assert (tmp_path / "plain" / "scores.csv").read_bytes().decode() == sheet().csv()
    report.write(tmp_path / "page", ("svg", "png"), markdown=True)
    page = (tmp_path / "page" / "report.md").read_text()
    assert page.startswith("# Page\n\nBegin.\n\n## Scores\n\n| policy |")
    assert "](means.svg)" in page
    with raises(UnknownNameError, field="format"):
        report.write(tmp_path / "none", ("gif",))
    assert not (tmp_path / "none").exists()
