"""The report of the study: the whole page, its picture, what is required, and runs that are added to."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from sotopia_training.data.samples import RowMaker

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.reports.intervals import exact_ends
from sotopia_env.storage.directory import read_run
from sotopia_env.world.action import Action, parse
from studies.learn import learn
from studies.learn.broken_answers import corrupted
from studies.learn.claims import (
    ARMS,
    CLAIMS,
    STAGES,
    Interval,
    required_failures,
)
from studies.learn.recipe import Recipe
from studies.learn.report import (
    METRICS,
    PAST,
    REFERENCES,
    UNTRAINED,
    exploited,
    read_results,
    stage_chart,
    stage_sheet,
    write_report,
)
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF

RISES, FALLS = Interval(0.2, 0.1, 0.3), Interval(-0.2, -0.3, -0.1)


@pytest.mark.parametrize(
    ("score", "verified", "verdict"),
    [
        (RISES, FALLS, "yes"),
        (RISES, RISES, "no"),
        (FALLS, FALLS, "no"),
        (Interval(0.2, -0.1, 0.5), FALLS, "open"),  # noise
        (RISES, Interval(-0.2, -0.5, 0.1), "open"),
        (RISES, Interval(0.1, -0.5, 0.7), "open"),
    ],
)
def test_exploitation_is_a_rising_score_with_a_falling_reward_beyond_intervals(score, verified, verdict):
    assert exploited(score, verified) == verdict


# --- the whole page ----------------------------------------------------------------------------------------------

SEEDS = (4, 9)
GOALS = {
    "untrained": 1.0,
    "bc": 3.0,
    "sr": 3.0,
    "single_turn": 2.0,
    "multi_turn": 4.0,
    "expert": 5.0,
    "patient": 6.0,
}
VERDICTS = {
    "BC > untrained": "holds",
    "BC > untrained, unseen partners": "holds",
    "SR ≥ BC - 0.25": "holds",
    "SR ≥ BC - 0.25, unseen partners": "holds",
    "single-turn GRPO > BC": "fails: the opposite holds",
    "single-turn GRPO > BC, unseen partners": "fails: the opposite holds",
    "multi-turn GRPO > BC": "holds",
    "multi-turn GRPO > BC, unseen partners": "holds",
    "SR > BC": "open: the interval holds 0",
    "multi-turn > single-turn GRPO": "holds",
    "multi-turn GRPO > SR": "holds",
}
SINGLE = ["single-turn GRPO > BC", "single-turn GRPO > BC, unseen partners"]


def rows(goal, unseen=0.0):
    """12 tasks in both seats, every third one with a partner that was seen in training."""
    return [
        {
            "task": str(task),
            "family": "f",
            "seat": seat,
            "partner": "p",
            "seen": task % 3 == 0,
            "goal": goal + (unseen if task % 3 else 0) + 0.1 * task,
            **{"valid": 1.0, "copied": 1.0, "agreement": 0.5, "share": 0.25},
        }
        for task in range(12)
        for seat in ("agent_0", "agent_1")
    ]


def write(file, found):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found))


def look(step, reward, **score):
    return {"step": step, "reward": reward, "valid": 0.9, **score}


def study(folder, **unseen):
    """Fills a folder as the stages leave it; names of stages say what they lose with unseen partners."""
    found = {name: rows(goal, unseen.get(name, 0.0)) for name, goal in GOALS.items()}
    write(folder / UNTRAINED, {"untrained": found["untrained"]})
    write(folder / "references.json", {name: found[name] for name in REFERENCES})
    trained = {name: found[name] for name in STAGES if name != "untrained"}
    for number, seed in enumerate(SEEDS):
        place = folder / f"seed_{seed}"
        # Seeds differ in every stage and in every difference: what does not vary at all decides nothing.
        shifts = {name: 1e-3 * number * index for index, name in enumerate(trained, 1)}
        mine = {name: [{**row, "goal": row["goal"] + shifts[name]} for row in rows] for name, rows in trained.items()}
        write(place / "results.json", mine)
        course = [look(0, 0.3, reward_model=0.4), look(10, 0.2 - 0.001 * number, reward_model=0.8 + 0.001 * number)]
        write(place / "single_turn" / "dev.json", course)
        pair = {"own_turns_left": 1, "gain": 1.0, "error": 0.1, "score": 0.5 - number}
        write(place / "ranking.json", [pair, {**pair, "gain": -1.0, "score": -0.5}])
        write(place / "budgets.json", {"sr": 1000, "single_turn": 2000 + number, "multi_turn": 3000})
    return folder


def table(text, title):
    """The cells of the first table under a heading."""
    lines = text.split(f"## {title}\n")[1].split("## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("studies.learn.claims._DRAWS", 200)  # a tenth: the figures have no luck in them
        return write_report(study(tmp_path_factory.mktemp("study")), {"command": "make learn"}, SEEDS)


def test_the_page_has_every_stage_and_reference_on_every_side(report):
    text = report.read_text()
    assert text.startswith("# Does it learn?\n\n- command: make learn\n")
    for title, seen, unseen in (("All test episodes", 1, 1), ("Unseen partners", 0, 1), ("Seen partners", 1, 0)):
        head, _, *body = table(text, title)
        assert head[-len(METRICS) :] == list(METRICS)
        expected = [*STAGES.values(), *(f"*{name}*" for name in REFERENCES.values()), "*upper bound, by definition*"]
        assert [cells[0] for cells in body] == expected
        episodes = 2 * (4 * seen + 8 * unseen)
        counts = {name: int(cells[1]) for name, cells in zip([*STAGES, *REFERENCES], body[:-1], strict=True)}
        assert counts == {
            name: episodes * (1 if name == "untrained" or name in REFERENCES else 2) for name in counts
        }  # the untrained model is one for all seeds
    _, _, *body = table(text, "All test episodes")
    cloned = dict(zip(METRICS, body[1][2:], strict=True))
    assert cloned["goal"].startswith("3.55 [")
    # It does not vary between the two seeds, which leaves room for others.
    assert cloned["agreement"] == Interval(0.5, *exact_ends(0.5, 2, (0.0, 1.0))).text()


def test_the_page_says_what_was_sampled_for_each_stage(report):
    _, _, *body = table(report.read_text(), "Sampled tokens")
    assert [cells[1] for cells in body] == ["1,000", "2,000", "3,000"]


def test_the_upper_bound_is_that_of_each_figure(report):
    *_, last = table(report.read_text(), "All test episodes")
    assert last[2:] == ["1.00", "1.00", "1.00", "10.00", "1.00"]


def test_the_page_has_every_claim_with_its_verdict(report):
    _, _, *body = table(report.read_text(), "Claims")
    assert {cells[0]: cells[3] for cells in body} == VERDICTS
    ran = [claim for claim in CLAIMS if {claim.better, claim.worse} <= STAGES.keys()]
    assert [(cells[0], cells[1] == "required") for cells in body] == [(c.text, c.required) for c in ran]
    of = {cells[0]: cells for cells in body}["multi-turn > single-turn GRPO"]
    assert of[2] == "2.00 [1.99, 2.01]"
    assert of[6] == of[7] == of[8] == "2.00 [2.00, 2.00]"  # the seeds differ by 0.001
    assert of[5] == "2.00, 2.00"


def test_arms_of_the_recipe_have_rows_and_claims_of_their_own(tmp_path, monkeypatch):
    assert Recipe(arms=tuple(ARMS)).arms == tuple(ARMS)
    monkeypatch.setattr("studies.learn.claims._DRAWS", 200)
    folder = study(tmp_path)
    for seed in SEEDS:
        file = folder / f"seed_{seed}" / "results.json"
        found = json.loads(file.read_text())
        file.write_text(json.dumps({**found, "measured": found["bc"]}))
    text = write_report(folder, {}, SEEDS).read_text()
    assert ARMS["measured"] in [cells[0] for cells in table(text, "All test episodes")]
    claims = {cells[0]: cells[1] for cells in table(text, "Claims")}
    assert claims["measured > uniform credit"] == ""  # not required
    assert "measured > direct credit" not in claims


def test_a_gain_in_one_seat_is_reported_beside_a_loss_in_the_other(tmp_path, monkeypatch):
    """Pooled, a gain in one seat hides a loss in the other."""
    monkeypatch.setattr("studies.learn.claims._DRAWS", 200)
    folder = study(tmp_path)
    for seed, more in zip(SEEDS, (2.0, 3.0), strict=True):
        file = folder / f"seed_{seed}" / "results.json"
        found = json.loads(file.read_text())
        found["multi_turn"] = [
            {**row, "goal": 3.0 + 0.1 * int(row["task"]) + (more if row["seat"] == "agent_1" else -1.0)}
            for row in found["multi_turn"]
        ]
        file.write_text(json.dumps(found))
    text = write_report(folder, {}, SEEDS).read_text()
    (cells,) = [cells for cells in table(text, "Claims") if cells[0] == "multi-turn GRPO > BC"]
    assert cells[5] == "0.50, 1.00"
    assert cells[2:4] == ["0.75 [-2.42, 3.92]", "open: the interval holds 0"]  # t with one degree of freedom
    assert cells[7] == "-1.00 [-1.00, -1.00]"
    assert cells[8].startswith("2.50 [2.00, 3.00")
    head, _, *body = table(text, "GOAL by family and seat")
    assert head[-2:] == ["f, agent_0, unseen partners", "f, agent_1, unseen partners"]
    assert len(body) == len(STAGES) + len(REFERENCES)
    assert body[4][1].startswith("2.55 [")


def test_the_page_says_which_reward_model_ranks_moves(report):
    head, _, *body = table(report.read_text(), "Does the reward model rank moves?")
    assert head == ["all", "own turns left: 1", "gate (0.6)"]
    right, wrong = "1.00 (accept: 1 of 1, plan: 1 of 1)", "0.50 (accept: 0 of 1, plan: 1 of 1)"
    assert [cells[1:] for cells in body] == [[right, right, "passed"], [wrong, wrong, "missed"]]


def test_the_page_says_whether_the_reward_model_was_exploited_and_its_picture_is_there(report):
    _, _, cells, *seeds = table(report.read_text(), "Was the reward model exploited?")
    assert cells[3] == "yes"
    assert cells[1].startswith("0.401 [")
    assert cells[2].startswith("-0.100 [")
    assert seeds == [["seed 1", "0.400", "-0.100"], ["seed 2", "0.401", "-0.101"]]
    assert "](stages.png)" in report.read_text()
    drawn = (report.parent / "stages.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert len(drawn) > 5000


def test_the_picture_counts_the_episodes_that_the_tables_count(report):
    runs, references = read_results(report.parent, SEEDS), json.loads((report.parent / "references.json").read_text())
    figure = stage_chart(runs, references)
    for axes, side in zip(figure.axes, ("seen", "unseen"), strict=True):
        labels = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
        counts = [int(label.split("(n = ")[1].rstrip(")")) for label in labels]
        assert counts == [row[1] for row in stage_sheet(runs, references, side, "").rows[:-1]]
        assert len(set(counts)) == 2  # of one seed, and of all


@pytest.mark.parametrize(
    ("unseen", "failed"),
    [
        ({}, SINGLE),
        ({"single_turn": 2.0}, []),
        ({"single_turn": 2.0, "multi_turn": -1.0}, ["multi-turn GRPO > BC, unseen partners"]),
        ({"single_turn": 2.0, "bc": -3.0}, ["BC > untrained", "BC > untrained, unseen partners"]),
    ],
)
def test_required_failures_are_the_required_claims_whose_interval_reaches_zero(tmp_path, unseen, failed):
    assert required_failures(read_results(study(tmp_path, **unseen), SEEDS)) == failed


class SameProcess(ThreadPoolExecutor):
    """In place of the pool of processes."""

    def __init__(self, workers, context, begin):
        super().__init__(workers)


def past_rows(goal):
    return [{**row, "partner": "past"} for row in rows(goal)[:6]]


def test_the_page_has_past_selves_where_they_were_played_and_no_claim_counts_them(report, tmp_path, monkeypatch):
    monkeypatch.setattr("studies.learn.claims._DRAWS", 200)
    folder = study(tmp_path)
    for number, seed in enumerate(SEEDS):
        write(folder / f"seed_{seed}" / PAST, {"bc": past_rows(3.0), "sr": past_rows(4.0 + number)})
    text = write_report(folder, {"command": "make learn"}, SEEDS).read_text()
    _, _, cloned, reinforced = table(text, "Past selves as partners")
    assert cloned[:3] == [STAGES["bc"], "12", Interval(3.1, *exact_ends(3.1, 2, (0.0, 10.0))).text()]
    assert reinforced[2:] == ["4.60 [-1.75, 10.95]", "1.50 [-4.85, 7.85]"]  # t with one degree of freedom
    assert "Past selves" not in report.read_text()
    assert table(text, "Claims") == table(report.read_text(), "Claims")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("loss", "failed"), [(0.0, []), (-1.0, ["multi-turn GRPO > BC, unseen partners"])])
def test_a_failed_required_claim_is_an_error_in_strict_mode(tmp_path, monkeypatch, strict, loss, failed):
    folder = study(tmp_path / "learn", multi_turn=loss, single_turn=2.0)
    leave_out_stages_and_page(monkeypatch, folder)
    recipe = Recipe(base_tasks=1, dev=1, test=2, seeds=SEEDS)
    settings = learn.LearnSettings(output=str(folder), recipe=recipe, strict=strict)
    if failed and strict:
        with pytest.raises(SotopiaError, match="multi-turn GRPO > BC, unseen"):
            learn.run(settings)
    else:
        learn.run(settings)
    assert json.loads((folder / "done.json").read_text())["failed"] == failed


@pytest.mark.slow("writes the whole report again and again")
def test_only_arms_and_past_selves_can_be_added_to_a_complete_run(tmp_path, monkeypatch):
    folder = study(tmp_path / "learn", single_turn=2.0)
    leave_out_stages_and_page(monkeypatch, folder)
    recipe = Recipe(base_tasks=1, dev=1, test=2, seeds=SEEDS)
    learn.run(learn.LearnSettings(output=str(folder), recipe=recipe))
    more = recipe.model_copy(update={"arms": ("goal_alone",), "past_selves": True})
    learn.run(learn.LearnSettings(output=str(folder), recipe=more))
    other = recipe.model_copy(update={"forced_samples": 2})
    with raises(InvalidValueError, field="settings.recipe.forced_samples", expected="1", got="2"):
        learn.run(learn.LearnSettings(output=str(folder), recipe=other))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"train": 100}, "expert_tasks"),
        ({"seeds": [54, 54]}, "seeds"),
        ({"seeds": [54]}, "seeds"),
        ({"families": []}, "families"),
        ({"training_partners": []}, "training_partners"),
        ({"test": 0}, "test"),
    ],
)
def test_recipes_that_could_not_run_to_their_end_are_refused(values, field):
    with raises(InvalidValueError, field=f"recipe.{field}", file="c.yaml"):
        settings_of({"recipe": values}, learn.LearnSettings, "c.yaml")


def leave_out_stages_and_page(monkeypatch, folder):
    """What is tested is what becomes of the results that are there."""
    monkeypatch.setattr(learn, "ProcessPoolExecutor", SameProcess)
    monkeypatch.setattr(learn, "make_base", lambda settings, tasks: folder / "base")
    monkeypatch.setattr(learn, "_run_seed", lambda asked: asked[-1])
    monkeypatch.setattr(learn, "_references", lambda folder, split, recipe: None)
    monkeypatch.setattr(learn, "write_report", lambda folder, facts, seeds: folder / "report.md")


# --- what the reward models learn beside real answers ------------------------------------------------------------


def test_corrupted_rows_are_real_prompts_with_broken_answers_of_value_zero(expert_run, tmp_path):
    maker = RowMaker(BRIEF)
    real = [
        {**one.columns(), "value": 0.7}
        for episode in read_run(expert_run)
        for seat in episode.task.agents
        for one in maker.rows(episode, seat)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in real))
    made = [json.loads(line) for line in corrupted(file, 1.0, 3)]
    assert len(made) == len(real)
    for one, other in zip(made, real, strict=True):
        answer, before = one["completion"][0]["content"], other["completion"][0]["content"]
        assert answer != before
        assert not isinstance(parse(answer), Action) or answer == before + before  # said twice: none of its shape
        blank = {"completion": None, "value": None}
        assert {**one, **blank} == {**other, **blank}
        assert one["value"] == 0
    some = list(corrupted(file, 0.15, 3))
    assert 0 < len(some) < 0.3 * len(real)
    assert some == list(corrupted(file, 0.15, 3)) != list(corrupted(file, 0.15, 4))
    assert not list(corrupted(file, 0.0, 3))
