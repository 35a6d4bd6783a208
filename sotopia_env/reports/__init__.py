"""Reports: comparisons of runs, tables, charts and readable transcripts."""

from sotopia_env.reports.charts import new_figure, save_png
from sotopia_env.reports.compare import Comparison, Estimate, compare_runs, estimate
from sotopia_env.reports.seat_results import (
    METRICS,
    OVERALL,
    SHARE,
    SUCCESS,
    SeatResult,
    choose_evaluator,
    seat_results,
)
from sotopia_env.reports.tables import show_estimate, show_number, table, to_json

__all__ = [
    "METRICS",
    "OVERALL",
    "SHARE",
    "SUCCESS",
    "Comparison",
    "Estimate",
    "SeatResult",
    "choose_evaluator",
    "compare_runs",
    "estimate",
    "new_figure",
    "save_png",
    "seat_results",
    "show_estimate",
    "show_number",
    "table",
    "to_json",
]
