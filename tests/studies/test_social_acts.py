"""The study of social acts on a few scenarios: exact rows, chance, and a run that is not played twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks import social
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.naming import make_policy
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.sheet import Missing, Sheet
from sotopia_env.tasks import generate
from sotopia_env.world.episode import Evaluation, Score
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import CustomDimension
from studies.social_acts.closed_forms import closed_form
from studies.social_acts.judged import verdict_table
from studies.social_acts.study import SocialActsSettings, run

CONFIG = Path(__file__).parents[2] / "studies" / "social_acts" / "social_acts.yaml"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SocialActsSettings:
    content = {**read_yaml(CONFIG), "with_models": False, "n": 2, "output": str(tmp_path_factory.mktemp("acts"))}
    return settings_of(content, SocialActsSettings, "")


@pytest.fixture(scope="module")
def sheets(settings: SocialActsSettings) -> dict[str, Sheet]:
    return {sheet.name: sheet for sheet in run(settings).sheets}


def test_every_script_has_the_value_of_its_closed_form(sheets: dict[str, Sheet]) -> None:
    """Rows without chance are exact; an act that cannot occur is missing with its reason in both tables."""
    table, forms = sheets["acts"], sheets["closed_forms"]
    acts = forms.columns[1:]
    assert set(acts) == {"truth_telling", "promise_keeping", "persuasion", "relationship", "asking", "secrecy"}
    for act in acts:
        for policy, cell, exact in zip(table.column("policy"), table.column(act), forms.column(act), strict=True):
            if policy == "guesser" or act == "relationship":
                continue
            assert isinstance(cell, Missing) is isinstance(exact, Missing), (policy, act)
            if isinstance(cell, Estimate) and act != "persuasion":
                assert cell.mean == exact, (policy, act)
                assert cell.low is not None
                assert cell.low < 1
                assert cell.high is not None
                assert cell.high > 0
    silent = dict(zip(table.columns, table.rows[1], strict=True))
    assert silent["policy"] == "mute"
    assert silent["truth_telling"] == Missing("it stated nothing")
    assert isinstance(silent["persuasion"], Estimate)
    assert silent["persuasion"].mean == 0


def test_persuasion_has_the_mean_of_its_closed_form_over_all_roles() -> None:
    """Honest speakers move beliefs by 1/18 over all roles and seatings; the liar's claims are enumerated, too."""
    assert closed_form("mini_mafia", "medium", "honest", "persuasion") == closed_form(
        "mini_mafia", "medium", "deceiver", "persuasion"
    )
    assert closed_form("mini_mafia", "medium", "uniform", "asking") is None
    assert closed_form("bargaining", "medium", "honest", "persuasion") is None


def test_the_same_command_plays_nothing_again(
    settings: SocialActsSettings, sheets: dict[str, Sheet], capsys: pytest.CaptureFixture[str]
) -> None:
    again = {sheet.name: sheet for sheet in run(settings).sheets}
    assert again["acts"].csv() == sheets["acts"].csv()
    assert ", 0 played now" in capsys.readouterr().out
    assert (Path(settings.output) / "report.md").read_text().count("| guesser |") == 2


def test_another_study_does_not_continue_in_the_directory(
    settings: SocialActsSettings, sheets: dict[str, Sheet]
) -> None:
    with pytest.raises(InvalidValueError):
        run(settings.model_copy(update={"seed": 7}))


@pytest.mark.parametrize(("family", "level"), social.CHANCE)
def test_chance_is_near_its_closed_form(family: str, level: str) -> None:
    """As the benchmark shows with 100,000 episodes within two standard errors; four here, for a test that holds."""
    for act, values in social.chance_values(family, level, 160).items():
        exact = closed_form(family, level, "guesser", act)
        assert exact is not None
        assert abs(fmean(values) - float(exact)) < 4 * stdev(values) / len(values) ** 0.5, act


def test_probes_change_no_episode_and_no_observation_depends_on_the_unknown() -> None:
    assert social.changed_by_probes(6) == 0
    assert social.leaks(200) == (0, 200)


def test_the_measure_of_leaks_sees_what_another_seat_knows() -> None:
    """The worlds differ for those who can tell them apart: a comparison that could find nothing would be none."""
    task = generate("mini_mafia", 1, 0)[0]
    table = Table(task, seed=0)
    asyncio.run(table.play(make_policy("honest")))
    states = [
        (agent, first, second)
        for agent in task.agents
        for first, second in social.in_two_worlds(table.state, agent, random.Random(0))
    ]
    assert len(states) == 20  # the detective knows everything, so that there is no other world for it
    for agent, first, second in states:
        others = [other for other in task.agents if other != agent]
        assert any(social.everything(first, other) != social.everything(second, other) for other in others)


def test_verdicts_of_a_judge_stand_beside_the_exact_measures() -> None:
    """What a judge did not score is missing; verdicts that are right agree in rank with the moves."""
    task = generate("briefing", 1, 0, "medium")[0]
    episodes = []
    for name, verdict in (("oracle", 0), ("broadcaster", 9)):
        table = Table(task)
        asyncio.run(table.play(make_policy(name)))
        scores = [
            Score(agent=agent, dimension="judged_breaches", value=verdict, source="judge") for agent in task.agents
        ]
        own = CustomDimension(name="judged_breaches", low=0, high=10, instruction="How many?")
        evaluation = Evaluation(evaluator="judge", dimensions=(own,), scores=tuple(scores))
        episodes.append(table.episode().model_copy(update={"evaluations": (evaluation,)}))
    sheet = verdict_table(episodes)
    oracle, broadcaster = (dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows)
    assert (oracle["breaches"], broadcaster["breaches"]) == (0, 1)
    assert (oracle["judged_breaches"], broadcaster["judged_breaches"]) == (0, 0.9)
    assert oracle["judged_disclosure"] == Missing("not judged")
    assert "correlation 1.00 over 6 seats" in sheet.notes[2]
