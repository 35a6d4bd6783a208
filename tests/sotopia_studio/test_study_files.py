"""Studies as files: what one exports another one imports, byte for byte; faulty files are explained."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.studies.files import read_text, to_text
from sotopia_env.people.studies.settings import KINDS, study_of

FILE = """kind: play
name: prices
title: Two talks
instructions: |
  You will talk.

  Say what you would say.
questionnaire:
- name: natural
  text: How natural?
  kind: scale
  low: 1
  high: 7
n: 2
partner: boulware
factors:
- name: partner
  varies: partner
  levels:
  - name: firm
    value: boulware
  - name: soft
    value: conceder
"""
SCALE = {"name": "natural", "text": "How natural?", "kind": "scale", "low": 1, "high": 7}
EVERY = {
    "play": {
        "interview": [SCALE],
        "factors": [
            {"name": "time", "varies": "max_turns", "levels": [{"name": "s", "value": 4}, {"name": "l", "value": "8"}]}
        ],
        "turn_seconds": 90.5,
        "only": ["aunts-piano/0"],
        "codes": {"completed": "C1", "url": "https://example.org/?cc={code}"},
    },
    "annotate": {
        "runs": ["r1"],
        "gold": [{"episode": "e1", "scores": {"agent_0": {"goal": 8}}}],
        "custom": [{"name": "courtesy", "low": 0, "high": 10, "instruction": "How polite?\n0 rude"}],
        "screening": {"min_seconds": None, "max_difference": 3},
    },
    "validate": {"per_seat": [], "questions": [SCALE]},
}


def test_a_file_in_the_form_of_an_export_is_its_own_export() -> None:
    assert to_text(read_text(FILE)) == FILE


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_imported_as_it_was_exported(kind: str) -> None:
    study = study_of({"kind": kind, "name": "one", "title": "One", **EVERY[kind]})
    text = to_text(study)
    assert read_text(text) == study
    assert to_text(read_text(text)) == text


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40), st.lists(st.text("ab \n\t'\":#-|>&*!%@`\r\x85\u2028é1.", max_size=12), max_size=3))
def test_texts_survive_whatever_is_in_them(words: str, lines: list[str]) -> None:
    study = study_of({"kind": "play", "name": "one", "title": words, "instructions": "\n".join(lines)})
    text = to_text(study)
    assert read_text(text) == study
    assert to_text(read_text(text)) == text


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("kind: play", "kind: plya", 1, "play"),  # the nearest name
        ("partner: boulware", "partnr: boulware", 15, "partner"),
        ("  low: 1", "  low: one", 12, "questionnaire.0.low"),
        ("    value: conceder", "    value: ''", 23, "factors.0.levels.1.value"),
        ("  - name: soft", "  - name: firm", 22, "factors.0.levels.1.name"),
        ("n: 2", "n: 2\nn: 3", 15, "duplicate"),
        ("title: Two talks", "title: [", 4, "YAML"),
    ],
)
def test_a_faulty_file_is_explained_with_its_line(old: str, new: str, line: int, part: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_text(FILE.replace(old, new))
    assert caught.value.where.line == line, caught.value
    assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "name_in_url: survey\nnum_demo_participants: 2", "{}", "kind: [play]"])
def test_a_foreign_file_is_not_a_study(text: str) -> None:
    with pytest.raises(InvalidValueError, match="kind"):
        read_text(text)
