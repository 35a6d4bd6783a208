"""The filters of SOTOPIA-π, B.2: worked examples, and what its predecessors get wrong."""

import json
import random

import pytest
from sotopia_training.collect.filtering import FilteringSettings, run, select, selection_path
from sotopia_training.collect.selection import BCFilter, SRFilter
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import read_selection
from sotopia_training.stage.directory import StageDirectory

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.tasks.people import draw_characters, draw_relationship
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Evaluation, PolicyInfo, RecordedTurn, Score, write_episodes
from sotopia_env.world.reward import RANGES, CustomDimension, Dimension
from tests.errors import raises

TASKS = {name: tasks.generate("bargaining", 1, seed=seed)[0] for seed, name in enumerate("AB")}
COURTESY = CustomDimension(name="courtesy", low=0, high=10, instruction="How courteous?")


def evaluation(goals, *, judge="judge", others=(0.0, 0.0), lacking=(), custom=None):
    """Scores of both seats; ``others`` goes on FIN, which moves the mean of the seven."""
    scores = []
    for seat, (goal, other) in enumerate(zip(goals, others, strict=True)):
        values = dict.fromkeys(RANGES, 0.0) | {Dimension.GOAL: goal, Dimension.FINANCIAL_AND_MATERIAL_BENEFITS: other}
        scores += [Score(agent=f"agent_{seat}", dimension=d, value=v) for d, v in values.items() if d not in lacking]
        if custom is not None:
            scores.append(Score(agent=f"agent_{seat}", dimension="courtesy", value=custom[seat]))
    dimensions = () if custom is None else (COURTESY,)
    return Evaluation(evaluator=judge, scores=tuple(scores), dimensions=dimensions)


FAILED = Evaluation(evaluator="judge", unscored="the call failed")


def episode(key, verdict, task="A", policies=("p", "p")):
    if isinstance(verdict, tuple):
        verdict = evaluation(verdict)
    infos = tuple(PolicyInfo(agent=f"agent_{seat}", name=name) for seat, name in enumerate(policies))
    return Episode(key=key, task=TASKS[task], policies=infos, evaluations=(verdict,) if verdict else ())


def episode_with_turn(silent):
    """The same plan with another turn."""
    turn = Turn(index=0, round=0, actor="agent_0", action=Action(ActionType.SPEAK, "Hello."))
    return silent.model_copy(update={"turns": (RecordedTurn(turn=turn),)})


def entries_of(selection):
    return {(item.episode, item.seat.removeprefix("agent_"), item.why) for item in selection.entries}


def data(goals, task="A"):
    """The episodes D1, D2, … with these (seat 0, seat 1) goals."""
    return [episode(f"{task}{number}", pair, task) for number, pair in enumerate(goals, start=1)]


TOP = {("A1", "0", "top"), ("A1", "1", "top"), ("A2", "0", "top"), ("A2", "1", "top")}
BC_EXAMPLES = {
    # The example of B.2: the best two are D4 and D5 for one seat, D5 and D6 for the other: 4 seats of 3 episodes.
    "paper": (
        data([(1, 1), (1, 1), (1, 1), (9, 1), (8, 8), (1, 9), (1, 1), (1, 1), (1, 1), (1, 1)]),
        {("A4", "0", "top"), ("A5", "0", "top"), ("A5", "1", "top"), ("A6", "1", "top")},
    ),
    # Seat 0: mean 5, ranks 9 8 6 2 0; seat 1: mean 5, ranks 8 8 7 1 1. Rank 3 passes for both.
    "third rank passes": (
        data([(9, 8), (8, 8), (6, 7), (2, 1), (0, 1)]),
        TOP | {("A3", "0", "rank"), ("A3", "1", "rank")},
    ),
    # Each seat has its own ranks: rank 3 is another episode for each.
    "third rank of different episodes": (
        data([(9, 8), (8, 8), (6, 1), (2, 7), (0, 1)]),
        TOP | {("A3", "0", "rank"), ("A4", "1", "rank")},
    ),
    # Rank 3: seat 0 has 6 above its mean of 5, seat 1 has 4 below its mean of 4.4: none is taken.
    "one seat fails": (data([(9, 8), (8, 8), (6, 4), (2, 1), (0, 1)]), TOP),
    # Rank 3 fails for seat 1, so rank 4 cannot pass either: ranks are sorted.
    "equal to the mean is not above it": (data([(5, 5)] * 4), TOP),
    "one only": (data([(0, 0)]), {("A1", "0", "top"), ("A1", "1", "top")}),
    "two only": (data([(0, 0), (0, 0)]), TOP),
    # Equal scores: the episode with the greater mean of seven first, then the smaller key.
    "ties": (
        [
            episode("c", evaluation((5, 5), others=(1, 0))),
            episode("b", (5, 5)),
            episode("a", (5, 5)),
            episode("d", evaluation((5, 5), others=(0, 1))),
        ],
        {("c", "0", "top"), ("a", "0", "top"), ("d", "1", "top"), ("a", "1", "top")},
    ),
    # B raises the global mean to 6.25 (seat 0) and 6 (seat 1), A's own stays 3: rank 3 of A must be above 3, not 6.
    "local mean is the lesser": (
        [*data([(4, 4), (4, 4), (4, 4), (0, 0)]), *data([(9, 9), (9, 9)], "B")],
        TOP
        | {("A3", "0", "rank"), ("A3", "1", "rank")}
        | {(key, seat, "top") for key in ("B1", "B2") for seat in "01"},
    ),
    # The other way round: A's own mean is 7, over all tasks it is 5: A's 6 at rank 3 is above 5.
    "global mean is the lesser": (
        [*data([(9, 9), (9, 9), (6, 6), (4, 4)]), *data([(3, 3), (3, 3), (1, 1)], "B")],
        TOP
        | {("A3", "0", "rank"), ("A3", "1", "rank")}
        | {(key, seat, "top") for key in ("B1", "B2") for seat in "01"},
    ),
}


@pytest.mark.parametrize("name", BC_EXAMPLES)
def test_bc_filter(name):
    episodes, expected = BC_EXAMPLES[name]
    assert entries_of(select(episodes, BCFilter())) == expected
    shuffled = random.Random(0).sample(episodes, len(episodes))
    assert select(shuffled, BCFilter()) == select(episodes, BCFilter()), "the order of finishing decides nothing"


SR_EXAMPLES = [
    (10, 0.2, 2),
    (15, 0.2, 3),
    (9, 0.2, 1),
    (4, 0.2, 1),
    (5, 1.0, 5),
]


@pytest.mark.parametrize(("episodes", "ratio", "expected"), SR_EXAMPLES)
def test_sr_filter_takes_the_best_share_of_every_seat(episodes, ratio, expected):
    goals = [(number % 11, (7 * number) % 11) for number in range(episodes)]
    selection = select(data(goals), SRFilter(ratio=ratio))
    assert len(selection.entries) == 2 * expected
    for seat in (0, 1):
        scores = {f"A{number}": pair[seat] for number, pair in enumerate(goals, start=1)}
        top_scores = [scores[item.episode] for item in selection.entries if item.seat == f"agent_{seat}"]
        assert sorted(top_scores) == sorted(scores.values())[len(scores) - expected :]


def test_sr_ranks_within_each_task_only():
    """The whole share does not come from the easier task."""
    selection = select([*data([(1, 1)] * 5), *data([(9, 9)] * 5, "B")], SRFilter())
    assert entries_of(selection) == {(key, seat, "share") for key in ("A1", "B1") for seat in "01"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Seat 0 has 9 8 7 5 1 (mean 6), seat 1 the same; B makes the mean over all tasks 5.
        ({}, {"A3"}),
        ({"threshold": "local"}, {"A3"}),
        ({"threshold": "global"}, {"A3"}),
        ({"threshold": "max"}, {"A3"}),
        ({"threshold": 4.5}, {"A3", "A4"}),
        ({"threshold": 0}, {"A3", "A4", "A5"}),
        ({"threshold": 7}, set()),
        ({"threshold": 0, "minimum": 5}, {"A3", "A4"}),
        ({"top": 0}, {"A1", "A2", "A3"}),
    ],
)
def test_bc_thresholds(options, expected):
    episodes = [*data([(goal, goal) for goal in (9, 8, 7, 5, 1)]), *data([(2.5, 2.5)] * 2, "B")]
    selection = select(episodes, BCFilter(**options))
    assert {item.episode for item in selection.entries if item.why == "rank" and item.episode < "B"} == expected


def test_local_and_global_thresholds_differ():
    episodes = [*data([(4, 4), (4, 4), (4, 4), (0, 0)]), *data([(9, 9), (9, 9)], "B")]
    ranks = {
        threshold: sum(item.why == "rank" for item in select(episodes, BCFilter(threshold=threshold)).entries)
        for threshold in ("min", "local", "global", "max")
    }
    assert ranks == {"min": 2, "local": 2, "global": 0, "max": 0}


def test_a_minimum_also_excludes_the_best_seats_and_is_counted():
    selection = select(data([(3, 9), (2, 9)]), SRFilter(ratio=1, minimum=3))
    assert entries_of(selection) == {("A1", "0", "share"), ("A1", "1", "share"), ("A2", "1", "share")}
    assert [line.below_minimum for line in selection.report.seats] == [1, 0]


@pytest.mark.parametrize("dimension", ["financial_and_material_benefits", "FIN", "overall", "courtesy"])
def test_other_dimensions(dimension):
    """By GOAL the first would be best; by everything else asked here it is the second."""
    episodes = [
        episode("first", evaluation((5, 5), others=(0, 0), custom=(1, 1))),
        episode("second", evaluation((4, 4), others=(5, 5), custom=(2, 2))),
    ]
    assert {item.episode for item in select(episodes, SRFilter(dimension=dimension)).entries} == {"second"}
    assert {item.episode for item in select(episodes, SRFilter()).entries} == {"first"}


def test_seven_dimensions_are_needed_for_overall_but_not_for_goal():
    lacking = evaluation((5, 5), lacking=(Dimension.SECRET,))
    assert len(select([episode("a", lacking)], SRFilter()).entries) == 2
    with raises(InvalidValueError, field="filter"):
        select([episode("a", lacking)], SRFilter(dimension="overall"))


@pytest.mark.parametrize("kind", [BCFilter, SRFilter])
def test_the_reasons_of_failed_evaluations_are_in_the_error(kind):
    with raises(InvalidValueError, field="filter") as caught:
        select([episode("a", FAILED)], kind())
    assert "2 × the call failed" in caught.value.problem


# --- unscored ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [BCFilter(), SRFilter(ratio=1)])
def test_unscored_episodes_are_dropped_and_counted_and_enter_no_mean(settings):
    """Guards P: a failed evaluation counted as 0 there, and the mean was divided by all episodes, failed ones too."""
    goals = [(9, 9), (8, 8), (5, 5), (2, 2)]
    selection = select([*data(goals), episode("x", FAILED), episode("y", FAILED)], settings)
    assert selection.report.episodes == 6
    assert selection.report.unscored_episodes == 2
    assert selection.report.reasons == {"the call failed": 4}
    assert selection.report.global_means == {"agent_0": 6, "agent_1": 6}
    assert [(line.scored, line.unscored, line.local_mean) for line in selection.report.seats] == [(4, 2, 6)] * 2
    assert not {"x", "y"} & {item.episode for item in selection.entries}
    assert {item for item in entries_of(selection) if item[0] != "x"} == entries_of(select(data(goals), settings))
    assert "4 × the call failed" in selection.report.text()


def test_a_task_whose_episodes_all_failed_is_reported_not_fatal():
    """Guards P: an IndexError for an environment whose episodes had all failed."""
    for settings in (BCFilter(), SRFilter()):
        selection = select([*data([(9, 9)]), episode("x", FAILED, "B")], settings)
        assert {item.episode for item in selection.entries} == {"A1"}
        lines = [line for line in selection.report.seats if line.task == TASKS["B"].scenario.id]
        assert [(line.scored, line.unscored, line.local_mean, line.lowest) for line in lines] == [
            (0, 1, None, None)
        ] * 2


@pytest.mark.parametrize(
    ("episodes", "settings", "error", "fields"),
    [
        ([], {}, InvalidValueError, {"field": "filter"}),
        ([episode("a", None)], {}, InvalidValueError, {"field": "filter"}),
        (
            [episode("a", (1, 1)), episode_with_turn(episode("a", (1, 1)))],
            {},
            InvalidValueError,
            {"field": "episode", "got": "a"},
        ),
        (
            [episode("a", (1, 1)), episode("b", evaluation((1, 1), judge="other"))],
            {},
            InvalidValueError,
            {"field": "evaluator"},
        ),
        (
            [episode("a", (1, 1))],
            {"evaluator": "jugde"},
            UnknownNameError,
            {"field": "evaluator", "nearest": "judge"},
        ),
        (
            [episode("a", (1, 1))],
            {"dimension": "gaol"},
            UnknownNameError,
            {"field": "filter.dimension", "nearest": "goal"},
        ),
        (
            [episode("a", (1, 1))],
            {"dimension": "courtesy"},
            UnknownNameError,
            {"field": "filter.dimension", "got": "courtesy"},
        ),
        (
            [episode("a", (1, 1))],
            {"policies": ("q",)},
            UnknownNameError,
            {"field": "filter.policies", "got": "q", "expected": 'one of "p"'},
        ),
    ],
)
@pytest.mark.parametrize("kind", [BCFilter, SRFilter])
def test_impossible_filters_are_refused_in_one_line(kind, episodes, settings, error, fields):
    with raises(error, **fields) as caught:
        select(episodes, kind(**settings))
    assert "\n" not in str(caught.value)


def test_unevaluated_episodes_are_dropped_and_counted_where_one_evaluator_has_seen_the_others():
    for kind in (BCFilter, SRFilter):
        selection = select([*data([(9, 8), (1, 2)]), episode("A0", None)], kind())
        assert selection.report.evaluator == "judge"
        assert (selection.report.episodes, selection.report.unscored_episodes) == (3, 1)
        assert selection.report.reasons == {"not evaluated by judge": 2}
        assert selection.report.global_means == {"agent_0": 5, "agent_1": 5}
        assert "A0" not in {item.episode for item in selection.entries}


def test_scores_of_one_evaluator_only():
    both = [
        episode("a", evaluation((9, 9))).with_evaluation(evaluation((1, 1), judge="other")),
        episode("b", evaluation((2, 2))).with_evaluation(evaluation((8, 8), judge="other")),
    ]
    for judge, best in (("judge", "a"), ("other", "b")):
        assert {item.episode for item in select(both, SRFilter(evaluator=judge)).entries} == {best}
        assert {item.episode for item in select(both, SRFilter(), preferred=[judge]).entries} == {best}


def test_options_choose_among_judges_of_one_model():
    both = []
    for key, scores in (("a", {"aaaaaa": 9, "bbbbbb": 1}), ("b", {"aaaaaa": 2, "bbbbbb": 8})):
        item = episode(key, evaluation((0, 0), judge="other"))
        for digits, goal in scores.items():
            own = evaluation((goal, goal), judge=f"judge(m)#{digits}")
            item = item.with_evaluation(own.model_copy(update={"parameters": {"bands": digits == "bbbbbb"}}))
        both.append(item)
    for bands, best in (("false", "a"), ("true", "b")):
        selection = select(both, SRFilter(evaluator=f"judge:m:bands={bands}"))
        assert {item.episode for item in selection.entries} == {best}
    with raises(UnknownNameError, field="evaluator"):
        select(both, SRFilter(evaluator="judge:m"))


def test_an_episode_that_runs_share_counts_once_with_all_its_evaluations():
    first, later = [episode(key, evaluation((goal, goal))) for key, goal in (("a", 9), ("b", 2))], []
    for item, goal in zip(first, (1, 8), strict=True):
        later.append(item.model_copy(update={"evaluations": (evaluation((goal, goal), judge="other"),)}))
    assert select([*first, *first], SRFilter()) == select(first, SRFilter())
    for judge, best in (("judge", "a"), ("other", "b")):
        selection = select([*first, *later], SRFilter(evaluator=judge))
        assert ({item.episode for item in selection.entries}, selection.report.episodes) == ({best}, 2)


# --- whose seats -------------------------------------------------------------------------------------------------
def test_each_seat_brings_its_own_episode():
    """Guards P: seat 1 was given the episode ranked for seat 0."""
    selection = select(data([(9, 1), (1, 9), (8, 8), (7, 2), (2, 7)]), BCFilter(top=1))
    assert {("A1", "0", "top"), ("A2", "1", "top")} <= entries_of(selection)
    assert not {("A1", "1", "top"), ("A2", "0", "top")} & entries_of(selection)


def test_only_the_agents_seats_are_selected():
    """The agent sits in seat 0 of four episodes and in seat 1 of four; the partner's scores are higher throughout."""
    goals = (6, 5, 4, 1)
    episodes = [episode(f"a{goal}", (goal, 10), policies=("agent", "partner")) for goal in goals]
    episodes += [episode(f"b{goal}", (10, goal), policies=("partner", "agent")) for goal in goals]
    selection = select(episodes, BCFilter(top=1, policies=("agent",)))
    # Means of 4 for both seats: rank 2 (5 and 5) passes, rank 3 (4 and 4) does not.
    assert entries_of(selection) == {("a6", "0", "top"), ("b6", "1", "top"), ("a5", "0", "rank"), ("b5", "1", "rank")}
    assert selection.report.not_focal == 8
    assert selection.report.global_means == {"agent_0": 4, "agent_1": 4}


def test_a_seat_that_the_agent_never_takes_is_not_asked():
    episodes = [episode(f"a{goal}", (goal, 0), policies=("agent", "partner")) for goal in (9, 8, 1)]
    assert entries_of(select(episodes, BCFilter(top=1, policies=("agent",)))) == {
        ("a9", "0", "top"),
        ("a8", "0", "rank"),
    }


def recast(task, seed):
    rng = random.Random(seed)
    people = draw_characters(rng, 2)
    relationship = draw_relationship(rng, people)
    return task.model_copy(update={"id": f"t{seed}", "characters": people, "relationships": (relationship,)})


def test_a_task_is_a_scenario_with_any_characters():
    """Ten pairs of one scenario are ten ranks, not ten tasks of one episode each."""
    episodes = [episode(f"e{n}", (n, n)).model_copy(update={"task": recast(TASKS["A"], n)}) for n in range(10)]
    assert len({task_key(item.task) for item in episodes}) == 1
    assert {item.episode for item in select(episodes, SRFilter()).entries} == {"e9", "e8"}
    assert len(select(episodes, SRFilter(group="task")).entries) == 20


# --- what is left on disk ------------------------------------------------------------------------------------------
def test_the_stage_writes_a_selection_for_rows(expert_run, tmp_path):
    """Guards P: the rows without action were removed from another file than the one trained on."""
    settings = FilteringSettings(runs=(str(expert_run),), filter={"kind": "bc", "top": 1}, output=str(tmp_path / "f"))
    run(settings)
    pairs = read_selection(selection_path(settings.output))
    lines = [json.loads(line) for line in (tmp_path / "f" / "selection.jsonl").read_text().splitlines()]
    assert {(line["episode"], line["seat"]) for line in lines} == pairs
    assert {line["why"] for line in lines} <= {"top", "rank"}
    episodes = {item.key: item for item in read_run(expert_run)}
    maker = RowMaker()
    rows = [row for key, seat in pairs for row in maker.rows(episodes[key], seat)]
    assert rows
    assert not [row for row in rows if json.loads(row.completion)["action_type"] == "none"]
    assert {(row.episode, row.seat) for row in rows} <= pairs
    report = (tmp_path / "f" / "report.txt").read_text()
    assert report.count("\n") > 15 * 2
    assert "bc filter by goal (verified)" in report
    assert not (tmp_path / "f" / "sr").exists()
    done = (tmp_path / "f" / "done.json").stat().st_mtime_ns
    run(settings)
    assert (tmp_path / "f" / "done.json").stat().st_mtime_ns == done
    with raises(InvalidValueError, field="settings.filter.top", got="3"):
        run(settings.model_copy(update={"filter": BCFilter(top=3)}))


def test_several_runs_are_ranked_together_and_selected_separately(expert_run, tmp_path):
    """Every line of a run's selection is in that run (sources refuse it otherwise)."""
    halves = list(read_run(expert_run))
    runs = []
    for number, part in enumerate((halves[::2], halves[1::2])):
        runs.append(str(tmp_path / f"{number}.jsonl"))
        write_episodes(runs[-1], part)
    output = str(tmp_path / "f")
    run(FilteringSettings(runs=tuple(runs), filter=SRFilter(ratio=1), output=output))
    for number, part in enumerate((halves[::2], halves[1::2])):
        assert {key for key, _ in read_selection(selection_path(output, number))} == {item.key for item in part}


def test_an_episode_of_two_runs_is_selected_from_the_first(expert_run, tmp_path):
    episodes = list(read_run(expert_run))
    runs = [str(tmp_path / f"{number}.jsonl") for number in (0, 1)]
    write_episodes(runs[0], episodes[:20])
    write_episodes(runs[1], episodes[10:])
    output = str(tmp_path / "f")
    run(FilteringSettings(runs=tuple(runs), filter=SRFilter(ratio=1), output=output))
    for number, part in enumerate((episodes[:20], episodes[20:])):
        assert {key for key, _ in read_selection(selection_path(output, number))} == {item.key for item in part}
    with raises(InvalidValueError, file="0.jsonl"):
        run(FilteringSettings(runs=(runs[0], runs[0]), filter=SRFilter(), output=str(tmp_path / "twice")))


def test_an_empty_selection_is_an_error_and_leaves_the_stage_incomplete(expert_run, tmp_path):
    settings = FilteringSettings(runs=(str(expert_run),), filter=SRFilter(minimum=11), output=str(tmp_path / "f"))
    with raises(InvalidValueError, file=expert_run.name):
        run(settings)
    assert StageDirectory(tmp_path / "f", "filtering", settings).figures is None
