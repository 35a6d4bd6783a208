"""How far judges agree with people, and people with each other."""

from sotopia_env.human_agreement.against_judges import HumanAgreement, human_agreement
from sotopia_env.human_agreement.between_annotators import BINS, Statistic, bin_of, pairwise_agreement, randolph_kappa
from sotopia_env.human_agreement.report import difference_chart, to_csv, to_json, to_text, write_report

__all__ = [
    "BINS",
    "HumanAgreement",
    "Statistic",
    "bin_of",
    "difference_chart",
    "human_agreement",
    "pairwise_agreement",
    "randolph_kappa",
    "to_csv",
    "to_json",
    "to_text",
    "write_report",
]
