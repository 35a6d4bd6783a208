"""The data set of measured turns: complete, resumable, and consistent with the episodes."""

from __future__ import annotations

import polars
import pytest

from sotopia_env import naming
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.policies import LLMPolicy
from sotopia_env.testing import ScriptedChatModel
from studies import turn_data_set


class StopError(Exception):
    """Stops the script in the middle of an episode."""


def test_a_stopped_data_set_continues_and_can_be_enlarged(tmp_path, monkeypatch):
    measured, whole, most = [], turn_data_set.measure, 2

    async def measure(number, *arguments):
        if len(measured) == most:
            raise StopError
        measured.append(number)
        return await whole(number, *arguments)

    monkeypatch.setattr(turn_data_set, "measure", measure)
    monkeypatch.setattr(turn_data_set, "AT_ONCE", 2)
    arguments = ["--out", str(tmp_path), "--samples", "2", "--turns"]
    with pytest.raises(StopError):
        turn_data_set.main([*arguments, "60"])
    most = 100
    turn_data_set.main([*arguments, "60"])
    table = polars.read_parquet(tmp_path / "turns.parquet")
    assert len(table) >= 60
    assert measured == sorted(set(measured)), "no episode is measured twice"
    assert table["family"].n_unique() == 3
    for (_, _), rows in table.group_by("episode", "agent"):
        assert rows["standing"].sum() <= rows["reward"][0] + 1e-6, "what it had before its first turn comes on top"
        assert len(rows) <= rows["turns"][0]
        assert all(low <= mean <= high for low, mean, high in rows.select("low", "counterfactual", "high").iter_rows())
    other = table.filter(table["policy"] != table["acted"])
    assert 0 < len(other) < len(table)
    assert any(other["counterfactual"]), "another action than the policy's own is worth more or less"
    assert all(decode_json(text)["action_type"] for text in table["action"])
    before = table["episode"].n_unique()
    journal = tmp_path / "episodes.jsonl"  # of an earlier version
    journal.write_text(journal.read_text().replace('"counterfactual"', '"gain"'))
    turn_data_set.main([*arguments, "90"])
    assert polars.read_parquet(tmp_path / "turns.parquet")["episode"].n_unique() > before


def test_a_model_acts_in_explored_turns_alone_and_is_asked_once_for_each(tmp_path, monkeypatch):
    most, requests = 20, []

    def answer(request):
        if len(requests) == most:
            raise StopError
        requests.append(request)
        return "Hm." if len(requests) % 2 else '{"action_type": "leave", "argument": ""}'

    policies = {"model": LLMPolicy(ScriptedChatModel(answer), reasks=0)}
    real = naming.make_policy
    monkeypatch.setattr(naming, "make_policy", lambda name: policies.get(name) or real(name))
    monkeypatch.setattr(turn_data_set, "AT_ONCE", 4)
    arguments = ["--out", str(tmp_path), "--samples", "2", "--turns", "90", "--explore", "0.3"]
    arguments += ["--explorers", "model,conceder:horizon=3", "--policies", "conceder,random-walk"]
    with pytest.raises(StopError):
        turn_data_set.main(arguments)
    most = 1_000
    turn_data_set.main(arguments)
    table = polars.read_parquet(tmp_path / "turns.parquet")
    assert set(table["policy"]) == {"conceder", "random-walk"}
    assert set(table["acted"]) == {"conceder", "random-walk", "model", "conceder:horizon=3"}
    model = table.filter(table["acted"] == "model")
    # Episodes that were measured and are not needed for 90 turns are in the journals only.
    paid = [line for line in (tmp_path / "explored.jsonl").read_text().splitlines() if "usage" in line]
    assert len(model) <= len(paid) == len(requests)
    unusable = model.filter(model["failure"] != "")
    assert 0 < len(unusable) < len(model)
    assert set(unusable["answer"]) == {"Hm."}
    assert {decode_json(text)["action_type"] for text in unusable["action"]} == {"none"}
    assert any(unusable["counterfactual"]), "not to act is worth more or less than the script's action"
    assert set(table.filter(table["acted"] != "model")["answer"]) == {""}
    card = (tmp_path / "README.md").read_text()
    line = next(line for line in card.splitlines() if line.startswith("| model |"))
    assert "scripted/model" in card
    assert [cell.strip() for cell in line.split("|")[2:4]] == [str(len(model)), str(len(unusable))]


@pytest.mark.parametrize(
    "options",
    [
        ("--turns", "0"),
        ("--explore", "2"),
        ("--samples", "0"),
        ("--seed", "-1"),
        ("--families", "nosuch"),
        ("--policies", "nosuch"),
    ],
)
def test_wrong_options_are_named(tmp_path, capsys, options):
    with pytest.raises(SystemExit) as stop:
        turn_data_set.main(["--out", str(tmp_path / "out"), "--turns", "20", *options])
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        turn_data_set.main(["--out", str(tmp_path / "file")])
