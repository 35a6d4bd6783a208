"""Reports on recorded episodes: comparisons of policies, sheets, charts and readable transcripts."""

from sotopia_env.reports.compare import compare_runs
from sotopia_env.reports.comparison_tables import comparison_report

__all__ = [
    "compare_runs",
    "comparison_report",
]
