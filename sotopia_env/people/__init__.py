"""Human evaluation: annotation sheets, quality rules for annotations, agreement with judges, and spoken outcomes."""

from sotopia_env.people.against_judges import HumanAgreement, human_agreement
from sotopia_env.people.answers import Annotation, AnnotationSet, read_annotations
from sotopia_env.people.between_annotators import BINS, Statistic, bin_of, pairwise_agreement, randolph_kappa
from sotopia_env.people.quality import LENIENT, QualityRules, Removal, RemovalReason, Screening, screen
from sotopia_env.people.report import agreement_report
from sotopia_env.people.sheet import AnnotationKey, AnnotationRequest, draw, guide_path, key_path, write_template
from sotopia_env.people.spoken_outcomes import known_cases, read_case, spoken_report, spoken_summary

__all__ = [
    "BINS",
    "LENIENT",
    "Annotation",
    "AnnotationKey",
    "AnnotationRequest",
    "AnnotationSet",
    "HumanAgreement",
    "QualityRules",
    "Removal",
    "RemovalReason",
    "Screening",
    "Statistic",
    "agreement_report",
    "bin_of",
    "draw",
    "guide_path",
    "human_agreement",
    "key_path",
    "known_cases",
    "pairwise_agreement",
    "randolph_kappa",
    "read_annotations",
    "read_case",
    "screen",
    "spoken_report",
    "spoken_summary",
    "write_template",
]
