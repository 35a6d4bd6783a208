"""Human evaluation: annotation sheets, quality rules for annotations, agreement with judges, and spoken outcomes."""

from sotopia_env.people.against_judges import human_agreement
from sotopia_env.people.answers import read_annotations
from sotopia_env.people.spoken_outcomes import known_cases, read_case, spoken_report

__all__ = [
    "human_agreement",
    "known_cases",
    "read_annotations",
    "read_case",
    "spoken_report",
]
