"""Charts at the width of a paper: nothing overlaps or is clipped, and what has no interval says why."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.compare import compare
from sotopia_env.reports.comparison_charts import heat_map
from sotopia_env.reports.intervals import CASTINGS, Estimate
from sotopia_env.reports.seat_results import policy_labels
from sotopia_env.runs import plan_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_env.reports.test_compare import scored
from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task

LONG = "best-of-8(runs/behaviour-cloning/final by runs/reward-model) - local/some-model:temperature=0.7"
SHORT = "need: none - urgent"


def estimate(mean: float, n: int = 20) -> Estimate:
    return Estimate(n, 10, mean, mean - 0.4, mean + 0.5, 0.01, CASTINGS)


def texts(figure: Figure) -> list[Text]:
    """Labels of lines, titles, units and the heading, after the layout."""
    figure.draw_without_rendering()
    parts = [[*axes.get_yticklabels(), axes.title, axes.xaxis.label] for axes in figure.axes]
    return [text for part in [*parts, figure.texts] for text in part if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("panels", [1, 2, 5])
@pytest.mark.parametrize("labels", [[SHORT] * 3, [LONG, SHORT, LONG], [SHORT] * 20], ids=["short", "long", "many"])
def test_no_text_of_a_forest_plot_is_clipped_or_covers_another(panels: int, labels: list[str]) -> None:
    lines = [(f"{label} {number}", estimate(number - 1.0, 20 + number)) for number, label in enumerate(labels)]
    figure = forest_chart([Panel("goal (scale 0 to 10)", lines, f"policy {i}", 0) for i in range(panels)], "Means")
    assert figure.get_figwidth() <= 7.0
    boxes = [text.get_window_extent() for text in texts(figure)]
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.width + 1
        assert box.y1 <= figure.bbox.height + 1
    assert not [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]


def test_a_chart_says_what_its_intervals_are_over_or_why_they_are_missing() -> None:
    bare = Estimate(20, 1, 1.0, None, None, None, CASTINGS)
    headings = [
        texts(forest_chart([Panel("x", [("a", item)])], "Means"))[-1].get_text() for item in (estimate(1), bare)
    ]
    assert "10 castings" in headings[0]
    assert bare.missing in " ".join(headings[1].split())  # a legend is wrapped
    assert "95 %" not in headings[1]


def test_the_numbers_in_a_heat_map_do_not_cover_one_another() -> None:
    policies = [Speaker(f"policy-{number}") for number in range(9)]
    plans = plan_episodes([make_task()], all_matchups(policies), both_seats=False)
    figure = heat_map(compare([scored(plan, (7.0, 3.0)) for plan in plans], metrics=["goal"]))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 81
    assert not [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]


def test_variants_of_a_policy_are_labelled_by_what_differs() -> None:
    variants = [("linear", '{"floor":0.02,"horizon":10}'), ("linear", '{"floor":0.02,"horizon":4}'), ("micro", "{}")]
    assert list(policy_labels(variants).values()) == ["linear:horizon=10", "linear:horizon=4", "micro"]
