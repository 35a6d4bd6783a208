"""Asking people to score episodes: the sheet they fill in, what came back, and which of it to believe."""

from sotopia_env.annotation.answers import Annotation, AnnotationSet, read_annotations
from sotopia_env.annotation.quality import LENIENT, QualityRules, Removal, RemovalReason, Screening, screen
from sotopia_env.annotation.sheet import AnnotationKey, AnnotationRequest, draw, guide_path, key_path, write_template

__all__ = [
    "LENIENT",
    "Annotation",
    "AnnotationKey",
    "AnnotationRequest",
    "AnnotationSet",
    "QualityRules",
    "Removal",
    "RemovalReason",
    "Screening",
    "draw",
    "guide_path",
    "key_path",
    "read_annotations",
    "screen",
    "write_template",
]
