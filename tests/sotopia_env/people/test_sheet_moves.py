"""What annotators read of an episode with moves."""

from __future__ import annotations

from sotopia_env.people.sheet import write_template
from tests.sotopia_env.outcome_tasks import acts, episode, sale
from tests.sotopia_env.people.annotation_doubles import cells


def test_rules_own_worth_and_effects_are_on_the_sheet(tmp_path):
    record = episode(sale(), acts("40?", {"propose": {"price": 40}}), acts("No.", {"accept": 9}))
    write_template([record], tmp_path / "sheet.csv", per_episode=1)
    header, *rows = cells(tmp_path / "sheet.csv")
    by_name = {row[header.index("participant")]: dict(zip(header, row, strict=True)) for row in rows}
    ada, bram = by_name["Ada Testa"], by_name["Bram Testa"]
    assert "only moves do" in ada["situation"]
    assert "-1 for each $ of price" in ada["participant_profile"]
    assert "1 for each $ of price" in bram["participant_profile"]
    assert 'Ada Testa said: "40?" · offers (#1): price $40.00\n' in ada["transcript"]
    assert 'Bram Testa said: "No."\n' in ada["transcript"]
