"""The data set of measured turns: complete, resumable, and consistent with the episodes."""

from __future__ import annotations

import polars
import pytest

from sotopia_env.json_text import decode_json
from studies import turn_worth


def test_a_stopped_data_set_goes_on_and_a_larger_one_adds_to_it(tmp_path, monkeypatch):
    measured, whole = [], turn_worth.measure

    async def measure(number, options):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(number)
        return await whole(number, options)

    monkeypatch.setattr(turn_worth, "measure", measure)
    arguments = ["--out", str(tmp_path), "--samples", "2", "--turns"]
    with pytest.raises(KeyboardInterrupt):
        turn_worth.main([*arguments, "60"])
    monkeypatch.setattr(turn_worth, "measure", whole)
    turn_worth.main([*arguments, "60"])
    table = polars.read_parquet(tmp_path / "turns.parquet")
    assert len(table) >= 60
    assert measured == [0, 1]
    assert table["family"].n_unique() == 3
    for (_, _), rows in table.group_by("episode", "agent"):
        assert rows["standing"].sum() <= rows["reward"][0] + 1e-6, "what it had before its first turn comes on top"
        assert len(rows) <= rows["turns"][0]
        assert all(low <= gain <= high for low, gain, high in rows.select("low", "gain", "high").iter_rows())
    other = table.filter(table["policy"] != table["acted"])
    assert 0 < len(other) < len(table)
    assert any(other["gain"]), "another action than the policy's own is worth more or less"
    assert all("action_type" in decode_json(text) for text in table["action"])
    before = table["episode"].n_unique()
    turn_worth.main([*arguments, "90"])
    assert polars.read_parquet(tmp_path / "turns.parquet")["episode"].n_unique() > before
