"""Judges against people: checked by hand, against published numbers, and against other packages."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from sotopia_env.cli.app import _Commands
from sotopia_env.cli.people import register
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.people import human_agreement
from sotopia_env.people.against_judges import HumanAgreement, JudgeOnDimension
from sotopia_env.people.answers import AnnotationSet
from sotopia_env.people.between_annotators import BINS, bin_of, pairwise_agreement, randolph_kappa
from sotopia_env.people.between_judges import judge_agreement
from sotopia_env.people.correlations import correlations, mean_with_interval
from sotopia_env.people.krippendorff import coincidences, ordinal_alpha
from sotopia_env.people.quality import LENIENT
from sotopia_env.people.report import agreement_report
from sotopia_env.people.sheet import AnnotationRequest
from sotopia_env.reports.intervals import UNBOUNDED, critical_value
from sotopia_env.world.episode import Episode, Evaluation, Score, write_episodes
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension
from tests.errors import raises
from tests.sotopia_env.people.annotation_doubles import CHARM, SEVEN, annotated, episode, fill_in, full, judged


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Objects of earlier tests are collected here by chance, with warnings of their own.
        warnings.simplefilter("ignore", ResourceWarning)
        yield


# --- people among each other -----------------------------------------------------------------------------------------

KAPPAS: list[tuple[list[list[int]], int, float, float]] = [
    ([[1, 1], [2, 2], [3, 3]], 5, 1.0, 1.0),
    ([[1, 2], [2, 3], [3, 1]], 5, 0.0, -1 / 4),
    ([[1, 2]], 2, 0.0, -1.0),
    ([[1, 1], [1, 2]], 2, 0.5, 0.0),
    ([[1, 1, 2], [2, 2, 2]], 3, 2 / 3, 0.5),
    ([[1, 1, 2], [2, 2]], 3, 2 / 3, 0.5),
    ([[0, 1, 2, 3]], 4, 0.0, -1 / 3),
    ([[7, 7, 7, 7]], 11, 1.0, 1.0),
]


@pytest.mark.parametrize(("ratings", "categories", "agreement", "kappa"), KAPPAS)
def test_kappa_by_hand(ratings: list[list[int]], categories: int, agreement: float, kappa: float) -> None:
    assert pairwise_agreement(ratings) == pytest.approx(agreement)
    assert randolph_kappa(ratings, categories) == pytest.approx(kappa)


@pytest.mark.parametrize(
    ("agreeing", "categories", "agreement", "kappa"),
    [(155, 2, 0.7908, 0.5816), (161, 3, 0.8214, 0.7321), (170, 2, 0.8673, 0.7347), (195, 2, 0.9949, 0.9898)],
)
def test_kappa_gives_what_sotopia_pi_reports(agreeing: int, categories: int, agreement: float, kappa: float) -> None:
    """Table 8 of arXiv 2403.08715: 196 seats, two annotators each."""
    ratings = [[0, 0]] * agreeing + [[0, 1]] * (196 - agreeing)
    assert round(pairwise_agreement(ratings), 4) == agreement
    assert round(randolph_kappa(ratings, categories), 4) == kappa


def test_kappa_is_that_of_statsmodels() -> None:
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    generator = random.Random(3)
    for categories, raters in itertools.product((2, 3, 5, 11), (2, 3, 5)):
        ratings = [[generator.randrange(categories) for _ in range(raters)] for _ in range(20)]
        table, _ = aggregate_raters(ratings, n_cat=categories)
        assert randolph_kappa(ratings, categories) == pytest.approx(fleiss_kappa(table, method="randolph"))


@pytest.mark.parametrize("ratings", [[], [[1]], [[1, 1], [2]]])
def test_kappa_needs_two_raters_and_two_categories(ratings: list[list[int]]) -> None:
    with raises(InvalidValueError, field="ratings"):
        randolph_kappa(ratings, 5)
    with raises(InvalidValueError, field="categories", got=1):
        randolph_kappa([[1, 1]], 1)


ALPHAS = [
    # Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability": example C with missing scores, ordinal .815.
    (["123321412...", "1233224125.3", ".3332342251.", "12332441251."], 5, 0.815),
    # The same, example B: for two values, ordinal distances are nominal ones.
    (["0100000010", "1110010000"], 1, 0.095),
    # By hand: scores 0, 0, 1, 2 have middle ranks 1, 1, 2.5, 3.5; 1 - 3 * 2 * 1 / (2 * (2 * 2.25 + 2 * 6.25 + 1)).
    (["01", "02"], 2, 1 - 6 / 36),
    (["012", "012"], 2, 1.0),
]


@pytest.mark.parametrize(("raters", "high", "alpha"), ALPHAS)
def test_alpha_gives_published_values(raters: list[str], high: int, alpha: float) -> None:
    items = [[int(score) for score in column if score != "."] for column in zip(*raters, strict=True)]
    assert ordinal_alpha(coincidences(items, range(high + 1))) == pytest.approx(alpha, abs=6e-4)


def test_alpha_is_zero_for_independent_raters_who_mostly_agree_by_chance() -> None:
    generator = random.Random(2)
    ratings = [[0 if generator.random() < 0.95 else 1 for _ in range(2)] for _ in range(4_000)]
    assert randolph_kappa(ratings, 2) > 0.75
    assert ordinal_alpha(coincidences(ratings, (0, 1))) == pytest.approx(0, abs=0.05)
    assert ordinal_alpha(coincidences([[3, 3], [3, 3]], range(11))) is None


@pytest.mark.parametrize("scale", [*set(RANGES.values()), (1, 11)])
def test_bins_are_in_order_equally_wide_and_all_used(scale: tuple[int, int]) -> None:
    points = range(scale[0], scale[1] + 1)
    for bins in BINS:
        result = [bin_of(score, scale, bins) for score in points]
        sizes = [result.count(index) for index in range(bins)]
        assert result == sorted(result)
        assert sum(sizes) == 11
        assert max(sizes) - min(sizes) <= 1
    assert [bin_of(score, scale, 5) for score in points] == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [bin_of(score, scale, 11) for score in points] == list(range(11))


@pytest.mark.parametrize(("score", "bins"), [(3, 4), (4, 3), (0, 2)])
def test_no_bin_is_invented(score: int, bins: int) -> None:
    with pytest.raises(InvalidValueError):
        bin_of(score, (1, 3), bins)


# --- judges and people -----------------------------------------------------------------------------------------------

People = list[tuple[object, ...]]


def study(
    folder: Path,
    ours: list[float | None],
    people: People,
    *,
    dimension: str = "goal",
    custom: tuple[CustomDimension, ...] = (),
    per_episode: int = 2,
) -> tuple[list[Episode], AnnotationSet]:
    """Episodes in which seat 0 has the scores given: the judge's (``None`` is unscored), and each annotator's."""
    episodes = []
    for number, value in enumerate(ours):
        scores = {"agent_0": {dimension: value}} if value is not None else {}
        record = episode(f"e{number}", scores=scores, custom=custom)
        if value is None:
            record = judged(record, {"agent_0": {dimension: 0}}, custom=custom)
            broken = record.evaluations[0].model_copy(update={"unscored": "the judge wrote no JSON"})
            record = record.with_evaluation(broken)
        episodes.append(record)

    def filling(request: AnnotationRequest) -> dict[str, object] | None:
        seat_scores = people[int(request.episode[1:])]
        if request.agent != "agent_0" or request.slot >= len(seat_scores):
            return None
        return full({dimension: seat_scores[request.slot]}, f"ann{request.slot}")

    return episodes, annotated(folder, episodes, filling, per_episode)


def agreement_of(folder: Path, ours: list[float | None], people: People, **options: object) -> HumanAgreement:
    episodes, result = study(folder, ours, people, **options)  # type: ignore[arg-type]
    return human_agreement(episodes, result, rules=LENIENT)


def row(result: HumanAgreement, dimension: str = "goal", judge: str = "judge") -> JudgeOnDimension:
    (only,) = [r for r in result.by_dimension if (r.dimension, r.judge) == (dimension, judge)]
    return only


def test_statistics_by_hand(tmp_path: Path) -> None:
    # Human scores 2, 1, 4, 3: r = rho = 0.6. Differences -1, 1, -1, 1.
    result = row(agreement_of(tmp_path, [1, 2, 3, 4], [(1, 3), (1, 1), (3, 5), (0, 6)]))
    assert result.n == result.n_range == 4
    assert result.pearson.value == pytest.approx(0.6)
    assert result.spearman.value == pytest.approx(0.6)
    # Without any one of the scenarios, r is 0.65 each time.
    assert (result.pearson.low, result.pearson.p) == (None, None)
    assert result.pearson.no_interval == "no variation between scenarios; others are needed"
    assert result.mean_difference.value == 0
    assert result.sd_difference.value == pytest.approx(math.sqrt(4 / 3))
    assert result.sd_human.value == pytest.approx(math.sqrt(5 / 3))
    assert result.within_sd.value == 1.0
    # 1 in [1, 3]; 2 above [1, 1]; 3 in [3, 5]; 4 in [0, 6].
    assert [result.inside.value, result.above.value, result.below.value] == [0.75, 0.25, 0.0]


def test_a_lenient_and_a_strict_judge(tmp_path: Path) -> None:
    people: People = [(2, 3), (4, 5), (6, 7), (7, 8)]
    (tmp_path / "a").mkdir()
    lenient = row(agreement_of(tmp_path / "a", [5, 7, 9, 10], people))
    (tmp_path / "b").mkdir()
    strict = row(agreement_of(tmp_path / "b", [0, 2, 4, 5], people))
    assert lenient.mean_difference.value == 2.5
    assert strict.mean_difference.value == -2.5
    assert (lenient.above.value, strict.below.value) == (1.0, 1.0)
    # The human scores 2.5, 4.5, 6.5, 7.5 deviate by 2.22: nothing 2.5 away lies within.
    assert lenient.within_sd.value == strict.within_sd.value == 0.0
    assert lenient.pearson.value == pytest.approx(1.0)
    assert (lenient.pearson.p, lenient.pearson.no_interval) == (
        None,
        "no variation between scenarios; others are needed",
    )


def test_a_standard_deviation_off_is_still_within(tmp_path: Path) -> None:
    result = row(agreement_of(tmp_path, [5, 6, 7], [(4, 4), (5, 5), (6, 6)]))
    assert (result.sd_human.value, result.mean_difference.value, result.within_sd.value) == (1.0, 1.0, 1.0)


def test_a_mean_over_seats_has_the_cluster_robust_interval_over_scenarios() -> None:
    import numpy as np
    import statsmodels.api as sm

    generator = np.random.default_rng(2)
    scenarios = [f"s{i % 7}" for i in range(20)]
    values = [float(generator.normal() + int(name[1]) % 3) for name in scenarios]
    fit = sm.OLS(values, np.ones(20)).fit(cov_type="cluster", cov_kwds={"groups": [int(s[1]) for s in scenarios]})
    result = mean_with_interval(values, scenarios, UNBOUNDED, "")
    assert result.low is not None
    assert result.high is not None
    assert result.value == pytest.approx(float(np.mean(values)))
    error = float(fit.bse[0])
    assert (result.high - result.low) / 2 == pytest.approx(critical_value(0.05, 6) * error)


def test_the_report_has_intervals_of_the_difference_and_the_shares_and_q(tmp_path: Path) -> None:
    people: People = [(2, 3), (4, 5), (6, 7), (7, 8), (3, 4), (5, 6)]
    result = agreement_of(tmp_path, [5, 6, 9, 10, 4, 8], people)
    lenient = row(result)
    for item in (lenient.mean_difference, lenient.within_sd, lenient.inside, lenient.above, lenient.below):
        assert item.value is not None
        assert item.low is not None
        assert item.high is not None
        assert item.low <= item.value <= item.high
        assert item.low < item.high
    columns = agreement_report(result).csv()["judges"].splitlines()[0].split(",")
    assert {"mean_difference_low", "within_sd_high", "inside_low", "pearson_p", "pearson_q"} <= set(columns)


def test_correlations_are_those_of_numpy(tmp_path: Path) -> None:
    import numpy as np

    generator = random.Random(5)
    humans = [generator.randrange(11) for _ in range(40)]
    ours = [float(min(10, max(0, h + generator.randrange(-3, 4)))) for h in humans]
    result = row(agreement_of(tmp_path, list(ours), [(h,) for h in humans], per_episode=1))
    assert result.pearson.value == pytest.approx(float(np.corrcoef(ours, humans)[0, 1]))
    assert result.mean_difference.value == pytest.approx(float(np.mean(np.subtract(ours, humans))))
    assert result.sd_difference.value == pytest.approx(float(np.std(np.subtract(ours, humans), ddof=1)))


def test_what_the_judge_left_out_is_counted_and_never_zero(tmp_path: Path) -> None:
    people: People = [(2, 2), (4, 4), (6, 6), (8, 8), (10, 10)]
    result = agreement_of(tmp_path, [2, 4, 6, None, None], people)
    assert (row(result).n, row(result).unscored) == (3, 2)
    assert row(result).mean_difference.value == 0
    (overall,) = result.overall
    assert overall.unscored == 2
    assert overall.reasons == (("the judge wrote no JSON", 2),)
    assert "unscored, left out of the scores: 2 × the judge wrote no JSON" in agreement_report(result).text()


def test_an_episode_the_judge_never_saw_is_counted_too(tmp_path: Path) -> None:
    episodes, answers = study(tmp_path, [1, 2, 3, 4], [(1, 2)] * 4)
    episodes[3] = episodes[3].model_copy(update={"evaluations": ()})
    scores = episodes[2].evaluations[0].scores
    evaluation = Evaluation(evaluator="judge", scores=tuple(s.model_copy(update={"agent": "agent_1"}) for s in scores))
    episodes[2] = episodes[2].with_evaluation(evaluation)
    (overall,) = human_agreement(episodes, answers, rules=LENIENT).overall
    assert dict(overall.reasons) == {"not evaluated by judge": 1, "judge: no score for agent_0": 1}
    assert overall.n_range == 2


SAME_JUDGE, SAME_PEOPLE = "the judge's scores are all the same", "the human scores are all the same"
NOT_AVAILABLE: list[tuple[list[float | None], People, dict[str, str]]] = [
    ([5, 5, 5], [(1, 2), (3, 4), (5, 6)], {"pearson": SAME_JUDGE, "spearman": SAME_JUDGE}),
    ([1, 2, 3], [(5, 5), (4, 6), (3, 7)], {"pearson": SAME_PEOPLE, "within_sd": SAME_PEOPLE}),
    ([1, 2], [(1, 2), (3, 4)], {"pearson": "2 seats, at least 3 are needed"}),
    ([1], [(1, 2)], {"sd_human": "1 seats, at least 2 are needed", "within_sd": "1 seats, at least 2 are needed"}),
    ([None, None], [(1, 2), (3, 4)], dict.fromkeys(("pearson", "inside"), "no seat was scored by both")),
    ([1, 2, 3], [(1,), (2,), (4,)], {"inside": "no seat was scored by the judge and two annotators"}),
    ([1.0000000000001, 1, 1], [(1, 2), (3, 4), (5, 6)], {"pearson": SAME_JUDGE}),
]


@pytest.mark.parametrize(("ours", "people", "reasons"), NOT_AVAILABLE)
def test_what_cannot_be_computed_has_a_reason(
    tmp_path: Path, ours: list[float | None], people: People, reasons: dict[str, str]
) -> None:
    result = agreement_of(tmp_path, ours, people)
    for name, reason in reasons.items():
        statistic = getattr(row(result), name)
        assert (statistic.value, statistic.p, statistic.reason) == (None, None, reason)
    text = agreement_report(result).text()
    assert "n/a" in text
    assert all(f"goal: {reason}" in text for reason in reasons.values())
    for document in (text, agreement_report(result).json(), *agreement_report(result).csv().values()):
        assert "nan" not in document.casefold().replace("financial", "")


def test_without_any_score(tmp_path: Path) -> None:
    result = agreement_of(tmp_path, [1, 2], [(), ()])
    assert result.annotations.blank == 8
    assert all(r.same.value is None for r in result.annotators)
    assert "no seat was scored by two annotators; hand every episode to two or more" in agreement_report(result).text()
    assert json.loads(agreement_report(result).json())["overall"][0]["within_sd"]["reason"] == "no dimension has one"
    assert len(agreement_report(result).write(tmp_path / "report")) == 11


def test_a_run_without_evaluations_still_tells_how_annotators_agree(tmp_path: Path) -> None:
    episodes = [episode(f"e{n}") for n in range(3)]
    answers = annotated(tmp_path, episodes, lambda request: full(SEVEN, f"ann{request.slot}"))
    result = human_agreement(episodes, answers, rules=LENIENT)
    assert (result.judges, result.by_dimension) == ((), ())
    assert [r.at(5).kappa.value for r in result.annotators] == [1.0] * 8
    assert "(the annotated episodes are not evaluated)" in agreement_report(result).text()
    assert agreement_report(result).write(tmp_path / "report")[-1].stat().st_size > 1_000


def test_annotators_by_hand(tmp_path: Path) -> None:
    # Bins of five: 0-2, 3-4, 5-6, 7-8, 9-10. Pairs: same bin, same bin, other bin, same score.
    result = agreement_of(tmp_path, [1, 2, 3, 4, 5], [(0, 2), (3, 4), (4, 5), (9, 9), (7,)])
    (goal,) = [r for r in result.annotators if r.dimension == "goal"]
    assert (goal.seats, goal.pairs, goal.same.value) == (4, 4, 0.25)
    assert goal.at(5).agreement.value == 0.75
    assert goal.at(5).kappa.value == pytest.approx((0.75 - 0.2) / 0.8)
    assert goal.at(11).kappa.value == pytest.approx((0.25 - 1 / 11) / (10 / 11))
    assert [item.bins for item in goal.by_bins] == list(BINS) == list(range(2, 12))
    mean = result.annotators[-1]
    assert (mean.dimension, mean.at(5).kappa.value) == ("mean", goal.at(5).kappa.value)


def test_the_mean_weighs_dimensions_alike(tmp_path: Path) -> None:
    """Table E.1 of SOTOPIA: its overall kappa 0.503 is the plain mean of the seven."""
    episodes = [episode(f"e{n}") for n in range(2)]

    def filling(request: AnnotationRequest) -> dict[str, object]:
        apart = {"goal": 0, "knowledge": 9} if request.slot else {}
        return full({**SEVEN, **apart}, f"ann{request.slot}")

    *rows, mean = human_agreement(episodes, annotated(tmp_path, episodes, filling), rules=LENIENT).annotators
    kappas = [r.at(5).kappa.value for r in rows]
    assert sorted(kappas) == pytest.approx([-0.25, -0.25, 1, 1, 1, 1, 1])  # type: ignore[type-var]
    assert mean.at(5).kappa.value == pytest.approx(4.5 / 7)


def test_custom_dimensions_are_treated_alike(tmp_path: Path) -> None:
    result = agreement_of(tmp_path, [1, 2, 3, 3], [(1, 1), (2, 2), (3, 3), (3, 2)], dimension="charm", custom=(CHARM,))
    assert result.dimensions[-1] == "charm"
    assert row(result, "charm").n == 4
    assert row(result, "charm").pearson.value == pytest.approx(2.375 / math.sqrt(2.75 * 2.1875))
    (charm,) = [r for r in result.annotators if r.dimension == "charm"]
    assert charm.at(3).kappa.value == pytest.approx((0.75 - 1 / 3) / (2 / 3))
    assert charm.at(5).kappa.value is None
    assert charm.at(5).kappa.reason == "the scale has 3 points"
    assert "n/a in charm: the scale has 3 points" in agreement_report(result).text()


def test_similar_perceived_ranges_are_grouped(tmp_path: Path) -> None:
    result = agreement_of(tmp_path, [1, 3, 9, 4], [(0, 4), (2, 3), (7, 10), (5, 5)])
    goal = [(r.n, r.low, r.high, r.judge_mean) for r in result.ranges if r.dimension == "goal"]
    assert goal == [(2, 1.0, 3.5, 2.0), (1, 5.0, 5.0, 4.0), (1, 7.0, 10.0, 9.0)]


def test_the_distribution_of_differences_is_complete(tmp_path: Path) -> None:
    result = agreement_of(tmp_path, [5, 5, 5, 10], [(5, 5), (4, 5), (5, 4), (0, 0)])
    bins = [(b.low, b.high, b.n) for b in result.differences if b.dimension == "goal"]
    assert bins == [(-0.25, 0.25, 1), (0.25, 0.75, 2), (9.75, 10.25, 1)]


def all_seven(folder: Path) -> tuple[list[Episode], AnnotationSet]:
    """Two judges, twelve episodes, three annotators of whom one writes nothing of use, one formula of a name."""
    generator = random.Random(11)
    episodes = []
    for number in range(12):
        record = episode(f"e{number}")
        for judge in ("kind", "harsh"):
            scores = {
                agent: {d.value: generator.randint(*RANGES[d]) for d in DIMENSIONS} for agent in record.task.agents
            }
            record = judged(record, scores, judge)
        episodes.append(record)

    def filling(request: AnnotationRequest) -> dict[str, object]:
        wild = {d.value: generator.randint(*RANGES[d]) for d in DIMENSIONS}
        seat_scores = {**wild, "goal": 5, "secret": 0} | ({} if request.episode != "e3" else {"knowledge": ""})
        text = "Fine." if request.slot == 2 else "these are some words of mine"
        return full(seat_scores, ("=ann", "bo", "cy")[request.slot], text)

    return episodes, annotated(folder, episodes, filling, 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Episode], HumanAgreement]:
    episodes, answers = all_seven(tmp_path_factory.mktemp("whole"))
    return episodes, human_agreement(episodes, answers)


def test_several_judges_are_shown_side_by_side(whole: tuple[list[Episode], HumanAgreement]) -> None:
    episodes, result = whole
    assert result.judges == ("kind", "harsh")
    assert [(r.judge, r.dimension) for r in result.by_dimension] == [
        (judge, d.value) for judge in ("kind", "harsh") for d in DIMENSIONS
    ]
    assert result.between_judges == judge_agreement(episodes)
    only = human_agreement(episodes, result.annotations, judges=["harsh"])
    assert (only.judges, only.between_judges) == (("harsh",), ())
    assert only.by_dimension == result.by_dimension[7:]


def test_two_judges_of_one_model_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    plain, bands = "judge(m)#aaaaaa", "judge(m)#bbbbbb"
    episodes, answers = study(tmp_path, [1, 2, 3, 4], [(1, 2)] * 4)
    for name, value in ((plain, False), (bands, True)):
        settings = {"model": "m", "bands": value, "per": "episode", "prompt": name}
        score = Score(agent="agent_0", dimension="goal", value=3)
        evaluation = Evaluation(evaluator=name, parameters=settings, scores=(score,))
        episodes = [e.with_evaluation(evaluation) for e in episodes]
    result = human_agreement(episodes, answers, rules=LENIENT)
    assert result.labels == {"judge": "judge", plain: f"{plain} (bands=false)", bands: f"{bands} (bands=true)"}
    both = human_agreement(episodes, answers, rules=LENIENT, judges=["aaaaaa", "#bbbbbb"])
    assert both.judges == (plain, bands)
    options = human_agreement(episodes, answers, rules=LENIENT, judges=["judge:m:bands=true", "judge"])
    assert options.judges == (bands, "judge")
    with raises(UnknownNameError, field="judge"):
        human_agreement(episodes, answers, rules=LENIENT, judges=["judge:m"])
    assert [r.dimension for r in both.between_judges] == ["goal"]
    assert f"{bands} (bands=true) and people" in agreement_report(both).text()


def test_agreement_between_judges_has_intervals_over_scenarios(whole: tuple[list[Episode], HumanAgreement]) -> None:
    episodes, result = whole
    rows = {row.dimension: row for row in result.between_judges}
    row = next(row for row in rows.values() if row.pearson.low is not None)
    pairs = [
        (e.evaluation("kind").by_agent[a][row.dimension].value, e.evaluation("harsh").by_agent[a][row.dimension].value)  # type: ignore[union-attr]
        for e in episodes
        for a in e.task.agents
    ]
    scenarios = [e.task.scenario.vignette for e in episodes for _ in e.task.agents]
    r, rho = correlations([x for x, _ in pairs], [y for _, y in pairs], scenarios)
    assert (row.pearson, row.spearman) == (r, rho)
    assert row.pearson.low < row.pearson.value < row.pearson.high  # type: ignore[operator]
    gap = row.mean_difference
    assert 0 <= gap.low < gap.value < gap.high  # type: ignore[operator]
    table = list(csv.DictReader(io.StringIO(agreement_report(result).csv()["between_judges"])))
    assert {float(line["pearson_low"]) for line in table if line["pearson_low"]} == {
        item.pearson.low for item in rows.values() if item.pearson.low is not None
    }


def test_shares_over_all_dimensions_weigh_every_score_alike(whole: tuple[list[Episode], HumanAgreement]) -> None:
    _, result = whole
    for overall in result.overall:
        rows = [r for r in result.by_dimension if r.judge == overall.judge]
        counts = [r for r in rows if r.within_sd.value is not None]
        assert {r.dimension for r in rows} - {r.dimension for r in counts} == {"goal", "secret"}
        hits = sum(round(r.within_sd.value * r.n) for r in counts)  # type: ignore[operator]
        assert overall.n == sum(r.n for r in counts)
        assert overall.within_sd.value == pytest.approx(hits / overall.n)
        assert overall.inside.value + overall.above.value + overall.below.value == pytest.approx(1)  # type: ignore[operator]


def test_agreement_before_the_quality_rules_is_beside_that_after_them(tmp_path: Path) -> None:
    """The rule on disagreement makes two random raters agree, so that agreement after it alone would mislead."""
    generator = random.Random(8)
    episodes = [episode(f"e{n}", scores=dict.fromkeys(("agent_0", "agent_1"), SEVEN)) for n in range(60)]

    def filling(request: AnnotationRequest) -> dict[str, object]:
        wild = {d.value: generator.randint(*RANGES[d]) for d in DIMENSIONS}
        return full(wild, f"ann{request.slot}", "these are some words of mine")

    result = human_agreement(episodes, annotated(tmp_path, episodes, filling))
    before, after = ({r.dimension: r for r in rows}["goal"] for rows in (result.all_annotators, result.annotators))
    assert (before.seats, after.seats < 100) == (120, True)
    assert before.alpha.low < 0 < before.alpha.high  # type: ignore[operator]
    assert after.alpha.low > 0.2  # type: ignore[operator]
    assert before.at(5).kappa.low < 0.05 < after.at(5).kappa.value  # type: ignore[operator]
    text = agreement_report(result).text()
    assert "alpha before" in text
    rows = list(csv.DictReader(io.StringIO(agreement_report(result).csv()["alpha"])))
    assert [r["annotations"] for r in rows if r["dimension"] == "goal"] == ["used", "all"]


def test_the_report_counts_what_was_removed(whole: tuple[list[Episode], HumanAgreement]) -> None:
    text = agreement_report(whole[1]).text()
    assert text.startswith("12 episodes, 72 rows handed out, 72 filled in by 3 annotators, 0 left empty, 48 used\n")
    assert "\n  removed: 24 × reasoning too short\n" in text
    assert "\n  filled in without a score: knowledge 6\n" in text
    assert "\n  12 episodes have fewer annotations left than planned\n" in text
    assert "\nkind and people; 0 annotated seats unscored\n" in text
    assert "\nn/a in secret, goal: the human scores are all the same\n" in text
    assert [line for line in text.splitlines() if len(line) > 132] == []


def test_reports_hold_the_same_numbers(whole: tuple[list[Episode], HumanAgreement]) -> None:
    _, result = whole
    content = json.loads(agreement_report(result).json())
    tables = {name: list(csv.DictReader(io.StringIO(text))) for name, text in agreement_report(result).csv().items()}
    assert set(tables) == {"judges", "annotators", "alpha", "ranges", "differences", "between_judges", "removed"}
    for plain, record in zip(tables["judges"], content["by_dimension"], strict=True):
        for name in ("pearson", "within_sd", "inside"):
            assert (float(plain[name]) if plain[name] else None) == record[name]["value"]
        assert bool(plain["reason"]) == (plain["dimension"] in ("goal", "secret"))
    assert len(tables["annotators"]) == 2 * 8 * len(BINS)
    assert sum(int(r["n"]) for r in tables["differences"]) == sum(r["n"] for r in content["by_dimension"])
    assert {r["reason"] for r in tables["removed"]} == {"reasoning too short"}
    assert content["annotations"]["removed"] == {"vague": len(tables["removed"])}


def test_an_annotators_name_is_no_formula_in_the_report(tmp_path: Path) -> None:
    episodes = [episode(f"e{n}") for n in range(2)]
    answers = annotated(tmp_path, episodes, lambda request: full(SEVEN, "=1+1"))
    assert {a.annotator for a in answers.annotations} == {"=1+1"}
    removals = list(csv.DictReader(io.StringIO(agreement_report(human_agreement(episodes, answers)).csv()["removed"])))
    assert [r["annotator"] for r in removals] == ["'=1+1"] * 4


def test_files_of_the_report(whole: tuple[list[Episode], HumanAgreement], tmp_path: Path) -> None:
    paths = agreement_report(whole[1]).write(tmp_path / "report")
    assert [path.name for path in paths][:2] == ["human_agreement.txt", "human_agreement.json"]
    assert sorted(tmp_path.joinpath("report").iterdir()) == sorted(paths)
    assert paths[-1].name == "differences.png"
    assert paths[-1].read_bytes().startswith(b"\x89PNG")


def later(episodes: list[Episode]) -> None:
    episodes[0] = episode("e0", text="Good evening.", scores={"agent_0": {"goal": 1}})


def wider(episodes: list[Episode]) -> None:
    other = CustomDimension(name="charm", low=0, high=9, instruction="Was it charming?")
    episodes[0] = episode("e0", scores={"agent_0": {"goal": 1, "charm": 9}}, custom=(other,))


MISUSE: list[tuple[Callable[[list[Episode]], object], dict[str, object], dict[str, object]]] = [
    (lambda episodes: episodes.pop(), {}, {"field": "annotations"}),
    (later, {}, {"field": "episode", "got": "e0"}),
    (wider, {}, {"field": "dimension", "got": "charm"}),
    (lambda episodes: None, {"judges": ["jugde"]}, {"field": "judge", "nearest": "judge", "got": "jugde"}),
    (lambda episodes: None, {"bins": 12}, {"field": "bins", "got": 12}),
    (lambda episodes: None, {"bins": 1}, {"field": "bins", "got": 1}),
]


@pytest.mark.parametrize(("change", "options", "fields"), MISUSE)
def test_what_does_not_belong_together_is_refused(
    tmp_path: Path, change: Callable[[list[Episode]], object], options: dict[str, object], fields: dict[str, object]
) -> None:
    episodes, answers = study(tmp_path, [1, 2, 3], [(1, 2)] * 3, custom=(CHARM,))
    change(episodes)
    with raises(InvalidValueError, **fields):
        human_agreement(episodes, answers, **options)  # type: ignore[arg-type]


def test_other_episodes_of_the_run_are_passed_over(tmp_path: Path) -> None:
    episodes, answers = study(tmp_path, [1, 2, 3], [(1, 2)] * 3)
    more = human_agreement([episode("more"), *episodes], answers, rules=LENIENT)
    assert more == human_agreement(episodes, answers, rules=LENIENT)


# --- the commands ----------------------------------------------------------------------------------------------------

app = typer.Typer(cls=_Commands)
register(app)


def sotopia(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_from_run_to_report_on_the_command_line(tmp_path: Path) -> None:
    run, sheet = tmp_path / "run.jsonl", tmp_path / "people.csv"
    write_episodes(run, [episode(f"e{n}", scores=dict.fromkeys(("agent_0", "agent_1"), SEVEN)) for n in range(6)])
    output = sotopia("annotation-template", run, "-n", 4, "--out", sheet).output
    assert "people.csv: 16 rows to fill in, 4 episodes; for annotators: " in output
    assert "people.key.json: undoes the blinding" in output

    def filling(request: AnnotationRequest) -> dict[str, object]:
        return full({**SEVEN, "goal": 3 + int(request.episode[1:])}, f"ann{request.slot}", "Fine.")

    fill_in(sheet, filling)
    text = sotopia("judge-agreement", run, "--human", sheet, "--no-filters", "--out", tmp_path / "report").output
    assert "4 episodes, 16 rows handed out, 16 filled in by 2 annotators, 0 left empty, 16 used" in text
    assert f"wrote {tmp_path / 'report' / 'differences.png'}" in text
    assert "removed: 16 × reasoning too short" in sotopia("judge-agreement", run, "--human", sheet).output
    unfiltered = sotopia("judge-agreement", run, "--human", sheet, "--min-words", 1, "--json", "--bins", 3).output
    assert json.loads(unfiltered)["annotations"]["used"] == 16
    assert json.loads(unfiltered)["bins"] == 3


@pytest.mark.parametrize(("annotator", "also"), [("", "annotator, "), ("ann", "")])
def test_an_empty_sheet_is_refused(tmp_path: Path, annotator: str, also: str) -> None:
    run, sheet = tmp_path / "run.jsonl", tmp_path / "people.csv"
    write_episodes(run, [episode("e0", scores=dict.fromkeys(("agent_0", "agent_1"), SEVEN))])
    sotopia("annotation-template", run, "--out", sheet)
    fill_in(sheet, lambda request: {"annotator": annotator})
    output = sotopia("judge-agreement", run, "--human", sheet, "--out", tmp_path / "report", code=2).output
    columns = f"{also}{', '.join(d.value for d in DIMENSIONS)}"
    assert output.startswith("sotopia: ")
    assert output.count("\n") == 1
    assert columns in output
    assert str(sheet) in output
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["annotation-template", "no/run", "--out", "p.csv"], "no/run"),
        (["judge-agreement", "no/run", "--human", "no.csv"], "no.key.json"),
        (["judge-agreement", "no/run", "--human", ""], "--human: "),
    ],
)
def test_misuse_is_one_sentence_and_code_2(arguments: list[str], message: str) -> None:
    output = sotopia(*arguments, code=2).output
    assert output.startswith("sotopia: ")
    assert message in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("command", ["annotation-template", "judge-agreement"])
def test_help_has_an_example(command: str) -> None:
    assert f"sotopia {command} runs/a" in sotopia(command, "--help").output
