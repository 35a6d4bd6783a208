"""Reports on recorded episodes: comparisons of policies, sheets, charts and readable transcripts."""

from sotopia_env.reports.agreement import cohens_kappa, pearson, spearman
from sotopia_env.reports.charts import PAGE_WIDTH, Panel, forest_chart, new_figure, paper_style, save_figure
from sotopia_env.reports.compare import CompareSpec, Comparison, compare_runs
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.differences import CLOSEST
from sotopia_env.reports.intervals import METHOD, Estimate, adjusted, difference_estimate, estimate, show_number
from sotopia_env.reports.seat_results import (
    HEADLINES,
    METRICS,
    OVERALL,
    SHARE,
    SUCCESS,
    SeatResult,
    choose_evaluator,
    seat_results,
)
from sotopia_env.reports.sheet import ESTIMATE, Missing, Report, Sheet, Value, show_estimate, table

__all__ = [
    "CLOSEST",
    "ESTIMATE",
    "HEADLINES",
    "METHOD",
    "METRICS",
    "OVERALL",
    "PAGE_WIDTH",
    "SHARE",
    "SUCCESS",
    "CompareSpec",
    "Comparison",
    "Estimate",
    "Missing",
    "Panel",
    "Report",
    "SeatResult",
    "Sheet",
    "Value",
    "adjusted",
    "choose_evaluator",
    "cohens_kappa",
    "compare_runs",
    "comparison_report",
    "difference_estimate",
    "estimate",
    "forest_chart",
    "new_figure",
    "paper_style",
    "pearson",
    "save_figure",
    "seat_results",
    "show_estimate",
    "show_number",
    "spearman",
    "table",
]
