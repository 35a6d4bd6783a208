"""The agreement of attributors, on importance whose correlation is known, and from the file of a stage."""

import pytest
from sotopia_training.attribution.settings import AttributionSettings
from sotopia_training.attribution.stage import run

from sotopia_env.world.episode import write_episodes
from studies.attributor_agreement import AgreementTable, agreement, main
from studies.reward_distributions import main as draw
from tests.sotopia_training.played import ACCEPT, haggling, played


def test_agreement_of_known_ranks():
    table = AgreementTable(["a", "b", "c"])
    table.add("goal", {"a": {0: 0.0, 2: 0.5, 4: 1.0}, "b": {0: 0.1, 2: 0.2, 4: 0.3}})
    table.add("goal", {"a": {1: 0.9, 3: 0.8}, "b": {1: 0.35, 3: 0.4}})
    table.add("goal", {"a": {1: 0.0}})
    first, second, third = table.rows()
    assert (first.first, first.second, first.seats, first.turns, first.missing) == ("a", "b", 2, 5, 1)
    assert first.spearman == pytest.approx(0.6)  # ranks 1 2 5 4 3 against 1 2 3 4 5
    assert (first.within, first.ranked) == (pytest.approx((1.0 - 1.0) / 2), 2)
    assert (second.second, second.seats, second.missing, second.spearman, second.within) == ("c", 0, 3, None, None)
    assert third.missing == 2


@pytest.fixture
def attributions(tmp_path):
    write_episodes(tmp_path / "episodes.jsonl", [played(haggling(), "Hello.", 74, 62, 68, "Hm.", ACCEPT)])
    attributors = ("acts", "prospect")
    values = {"dimensions": ("goal",), "attributors": attributors, "methods": ("direct", "scaled")}
    run(AttributionSettings(runs=(str(tmp_path / "episodes.jsonl"),), output=str(tmp_path / "out"), **values))
    return str(tmp_path / "out")


def test_the_agreement_of_a_stage(attributions, capsys):
    (row,) = agreement(attributions)
    assert (row.first, row.second, row.seats, row.turns, row.missing) == ("acts", "prospect", 2, 6, 0)
    assert main([attributions]) == 0
    assert "prospect" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([attributions + "/nothing"])


def test_the_distribution_of_rewards_is_drawn(attributions, tmp_path):
    draw([attributions, "--attributor", "acts", "--methods", "direct", "scaled", "--out", str(tmp_path / "a.png")])
    assert (tmp_path / "a.png").stat().st_size > 5000
