"""Reports: comparisons of runs, tables, charts and readable transcripts."""

from sotopia_env.reports.charts import new_figure, save_figure, save_png
from sotopia_env.reports.compare import Comparison, compare_runs
from sotopia_env.reports.intervals import METHOD, Estimate, adjusted, difference_estimate, estimate
from sotopia_env.reports.seat_results import (
    HEADLINES,
    METRICS,
    OVERALL,
    SHARE,
    SUCCESS,
    SeatResult,
    choose_evaluator,
    metric_bounds,
    seat_results,
)
from sotopia_env.reports.tables import show_estimate, show_number, table, to_json

__all__ = [
    "HEADLINES",
    "METHOD",
    "METRICS",
    "OVERALL",
    "SHARE",
    "SUCCESS",
    "Comparison",
    "Estimate",
    "SeatResult",
    "adjusted",
    "choose_evaluator",
    "compare_runs",
    "difference_estimate",
    "estimate",
    "metric_bounds",
    "new_figure",
    "save_figure",
    "save_png",
    "seat_results",
    "show_estimate",
    "show_number",
    "table",
    "to_json",
]
