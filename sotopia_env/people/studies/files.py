"""Studies as YAML files: what the builder exports and imports."""

from __future__ import annotations

from sotopia_env.foundation.errors import Where
from sotopia_env.foundation.yaml_text import parse_document, to_yaml
from sotopia_env.people.settings_form import written
from sotopia_env.people.studies.settings import AnyStudy, study_of


def to_text(study: AnyStudy) -> str:
    """Returns a study as a YAML file: its kind, and the settings that differ from their defaults, in a fixed order.

    Equal studies give equal bytes, and :func:`read_text` returns the study. It has tasks of a library by id and hash.
    """
    names = set(written(type(study)))
    return to_yaml({"kind": study.kind} | study.model_dump(mode="json", exclude_defaults=True, include=names))


def read_text(text: str) -> AnyStudy:
    """Returns the study in a YAML file.

    Raises:
        InvalidValueError: the text is not YAML, or a setting is missing, unknown or invalid; the error has the line.
    """
    document = parse_document(text, "study")
    return study_of(document.value, lambda path: Where("study", document.line(path)))
