"""Suites, runs, cards and merging, by the command line and the library."""

import asyncio
import itertools
import json
import re

import pytest
from typer.testing import CliRunner

from sotopia_env.arena import Suite, freeze, load_suite, read_card
from sotopia_env.arena.card import CARD_FILE, Card, FailedEpisode, merged_cards
from sotopia_env.arena.page import card_report
from sotopia_env.arena.reading import card_of_runs
from sotopia_env.arena.suites import SUITE_FILE, SUITES
from sotopia_env.cli.app import app
from sotopia_env.foundation.errors import InvalidValueError, PolicyError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world import TaskSet
from tests.errors import raises
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.interviewed import fair

POOL = ("boulware", "conceder", "liar")


def arena(*words, code=0):
    result = CliRunner().invoke(app, ["arena", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def suite():
    return freeze(Suite(name="small", tasks="bargaining,division,group_decision", n=6, seed=3, pool=POOL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, suite):
    """Two runs of a small suite: of micro and linear, and of the random policy."""
    folder = tmp_path_factory.mktemp("arena")
    suite.save(folder / "small.json")
    arena("run", folder / "small.json", "--policy", "micro,linear", "--out", folder / "first")
    arena("run", folder / "small.json", "--policy", "random", "--out", folder / "second")
    return folder


@pytest.mark.parametrize("name", SUITES)
def test_the_suites_of_the_package_are_as_they_were_frozen(name):
    suite = load_suite(name)
    suite.check()
    assert len(suite.hashes) == len(suite.seats) == suite.n
    pools = {"social": {"honest", "deceiver", "mute"}, "games": {"promiser", "cheater", "grim"}}
    pools["roles"] = {"honest", "deceiver", "bayesian"}
    assert pools.get(name, {"liar", "presser", "prober"}) <= set(suite.pool)


def test_the_suite_of_social_acts_counts_acts_and_invents_none(tmp_path):
    """Whoever states nothing has no truthfulness, and nobody's beliefs were asked; what was won is there for both."""
    whole = load_suite("social")
    suite = freeze(Suite(name="few", tasks=whole.tasks, n=4, pool=("mute", "asker"), evaluator=whole.evaluator))
    suite.save(tmp_path / "few.json")
    arena("run", tmp_path / "few.json", "--policy", "uniform,honest", "--out", tmp_path / "run")
    card = read_card(tmp_path / "run")
    assert all(row.payoff is not None for row in card.rows)
    sheet = next(sheet for sheet in card_report(card).sheets if sheet.name == "dimensions")
    acts = {row["policy"]: row for row in sheet.records()}
    assert acts["uniform"]["truth_telling"] is None
    assert acts["honest"]["truth_telling"] == 1
    assert acts["uniform"]["asking"] == acts["honest"]["asking"] == 0
    assert not {"knowledge", "persuasion"} & acts["honest"].keys()


def test_a_run_plays_every_seat_against_the_pool_itself_and_the_others(folder, suite):
    card = read_card(folder / "first")
    names = [json.loads(identity)[0] for identity in card.rated]
    assert names == ["linear", "micro"]
    for identity in card.rated:
        own = [row for row in card.of_play("pool") if row.policy == identity]
        assert len(own) == suite.expected(identity) == len({(row.task, row.seat, row.opponent) for row in own})
        assert all(row.payoff is not None for row in own)
    assert card.of_play("mirror")
    assert card.of_play("cross")
    assert not card.of_play("human")


def test_a_stopped_run_goes_on_and_takes_more_policies(folder, tmp_path):
    run = tmp_path / "run"
    arena("run", folder / "small.json", "--policy", "micro", "--out", run)
    lines = (run / "episodes.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "episodes.jsonl").write_text("".join(lines[:10]), encoding="utf-8")
    arena("run", folder / "small.json", "--policy", "micro", "--out", run)
    arena("run", folder / "small.json", "--policy", "linear", "--out", run)
    keys = [episode.key for episode in read_run(run)]
    assert len(keys) == len(set(keys)) > len(lines)
    assert len(read_card(run).rated) == 2


def test_a_card_holds_what_was_rated(folder, tmp_path):
    arena("rate", folder / "first", folder / "second", "--power", "--out", tmp_path)
    assert {"card.md", "card.html", CARD_FILE, "ratings.svg", "matrix.svg", "ratings.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    page = (tmp_path / "card.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org/", "").replace("http://purl.org/", "").replace(
        "http://creativecommons.org/", ""
    )
    card = read_card(tmp_path)
    assert card == card_of_runs([folder / "first", folder / "second"])
    assert len(card.rated) == 3
    failed = {row.policy: row.illegal for row in card.rows if row.illegal}
    assert not failed or set(failed) <= {identity for identity in card.rated if "random" in identity}


def test_one_policy_has_a_mean_and_no_strength(folder, recwarn):
    report = card_report(read_card(folder / "second"), power=True)
    (row,) = next(sheet for sheet in report.sheets if sheet.name == "ratings").records()
    assert row["mean_low"] < row["mean_mean"] < row["mean_high"]
    assert row["strength"] is None is row["elo"]
    assert set(report.charts()) == {"ratings", "matrix"}
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_results_merge_in_any_order_and_only_once(folder, tmp_path):
    first, second = (read_card(folder / name) for name in ("first", "second"))
    both = merged_cards([first, second, first])
    assert {(row.key, row.seat) for row in both.rows} == {(row.key, row.seat) for row in (*first.rows, *second.rows)}
    arena("add", folder / "second", folder / "first", "--out", tmp_path)
    assert {row.key for row in read_card(tmp_path).rows} == {row.key for row in both.rows}
    # To the last byte, of which costs and times are not the same on two machines.
    slower = first.model_copy(update={"rows": tuple(row.model_copy(update={"seconds": 9.0}) for row in first.rows)})
    orders = itertools.permutations([first, second, slower])
    assert len({merged_cards(order).model_dump_json() for order in orders}) == 1


def test_results_that_do_not_belong_together_are_refused(folder):
    card = read_card(folder / "first")
    other = card.model_copy(update={"suite": card.suite.model_copy(update={"version": 2})})
    with raises(InvalidValueError, field="suite.version"):
        merged_cards([card, other])
    played_otherwise = card.rows[0].model_copy(update={"payoff": 0.123})
    with raises(InvalidValueError, field=f"episode {card.rows[0].key!r}.payoff"):
        merged_cards([card, card.model_copy(update={"rows": (played_otherwise, *card.rows[1:])})])


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"behaviour": "0" * 16}, {"hashes": ("0" * 16,) * 6}],
    ids=["other tasks", "other behaviour", "other hashes"],
)
def test_a_suite_that_changed_is_refused(suite, tmp_path, change):
    changed = suite.model_copy(update=change)
    with raises(InvalidValueError, field="suite 'small'"):
        changed.check()
    changed.save(tmp_path / "small.json")
    arena("run", tmp_path / "small.json", "--policy", "micro", "--out", tmp_path / "run", code=2)
    assert not (tmp_path / "run").exists()


def test_a_suite_of_somebody_else_runs_no_code(folder, suite, tmp_path, monkeypatch):
    (tmp_path / "pool_of_theirs.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    theirs = suite.model_copy(update={"pool": ("linear", "pool_of_theirs:Policy")})
    with raises(UnknownNameError, field="policy"):
        freeze(theirs)
    theirs.save(tmp_path / "theirs.json")
    arena("run", tmp_path / "theirs.json", "--policy", "micro", "--out", tmp_path / "run", code=2)
    card = read_card(folder / "first").model_copy(update={"suite": theirs})
    (tmp_path / CARD_FILE).write_text(card.model_dump_json(), encoding="utf-8")
    arena("rate", tmp_path / CARD_FILE, code=2)


def test_bad_names_and_places(folder, suite, tmp_path):
    with raises(UnknownNameError, field="suite", nearest="quick"):
        load_suite("quik")
    arena("run", folder / "small.json", "--policy", "mirco", "--out", tmp_path / "run", code=2)
    arena("run", folder / "small.json", "--policy", "micro", "--set", "seed=1", "--out", tmp_path / "run", code=2)
    arena("run", "quick", "--policy", "micro", "--out", folder / "first", code=2)
    arena("rate", tmp_path, code=2)
    arena("rate", folder / "first", "--out", folder / "small.json", code=2)
    arena("run", folder / "small.json", "--policy", "micro", "--out", folder / "small.json", code=2)
    arena("run", folder / "small.json", "--policy", "micro", "--out", folder / "small.json" / "run", code=2)
    arena("freeze", "quick", "--tasks", "bargaining", "-n", 2, "--pool", "linear", "--out", tmp_path / "q.json", code=2)
    models = ("--tasks", "bargaining", "-n", 2, "--pool", "local/tiny", "--out", tmp_path / "q.json")
    arena("freeze", "models", *models, code=2)
    arena("run", folder / "small.json", "--policy", "micro", "--dry-run", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def edited(card, name, value):
    *path, last = name.split(".")
    item = card
    for part in path:
        item = item[int(part) if part.isdecimal() else part]
    item[last] = value
    return card


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows.0.payoff", 1e308),
        ("rows.0.payoff", "NaN"),
        ("rows.0.seat", -1),
        ("rows.0.policy", "micro"),
        ("rows.0.policy", '["micro"]'),
        ("rows.0.policy", '["a\\nb",{}]'),
        ("rows.0.values", {"goal": 1e300}),
        ("rows", []),
        ("suite.hashes", []),
        ("suite.seats", [-2] * 6),
        ("suite.pool", []),
        ("suite.pool", ["openai/gpt-4o"]),
        ("suite.name", "quick"),
        ("suite.about", "one\n# two"),
        ("left_out", [{"source": "\x1b[31m", "reason": "none", "episodes": 1}]),
    ],
)
def test_a_card_that_was_edited_is_refused_in_a_sentence(folder, tmp_path, name, value):
    card = json.loads(read_card(folder / "first").model_dump_json())
    (tmp_path / CARD_FILE).write_text(json.dumps(edited(card, name, value)), encoding="utf-8")
    arena("rate", tmp_path, "--out", tmp_path / "out", code=2)


@pytest.mark.parametrize(
    "name", ['"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "a|b", '=1+"2"', "$\\frac{", "../../x"]
)
def test_names_of_policies_are_only_text(folder, tmp_path, name):
    text = read_card(folder / "first").model_dump_json()
    identity = json.dumps(json.dumps([name, {}], separators=(",", ":")))
    (tmp_path / CARD_FILE).write_text(text.replace(json.dumps('["micro",{}]'), identity), encoding="utf-8")
    arena("rate", tmp_path, "--out", tmp_path / "out")
    page, notes, table = ((tmp_path / "out" / file).read_text() for file in ("card.html", "card.md", "ratings.csv"))
    assert "<img" not in page
    assert not re.search(r"(?<!\\)<img|\]\(javascript", notes)
    assert "\n=" not in table
    assert {line.count("|") - line.count("\\|") for line in notes.splitlines() if line.startswith("| ")} <= {
        table.count("|") for table in notes.splitlines() if table.startswith("| ---")
    }
    assert {path.parent for path in (tmp_path / "out").rglob("*")} == {tmp_path / "out"}


def test_a_policy_with_less_than_half_of_its_episodes_is_not_rated(folder):
    card = read_card(folder / "second")
    (policy,) = card.rated
    lost = [row for row in card.rows if row.policy != policy or int(row.key[-2:], 16) < 64]
    with raises(InvalidValueError, field="policy 'random'"):
        _ = Card(suite=card.suite, code=card.code, rows=tuple(lost)).rated


def test_seats_whose_opponent_failed_can_be_left_out(folder):
    card = read_card(folder / "first")
    failed = {row.key for row in card.of_play("pool")[::3]}
    rows = tuple(row.model_copy(update={"opponent_failed": row.key in failed}) for row in card.rows)
    marked = Card(suite=card.suite, code=card.code, rows=rows)
    clean = marked.of_play("pool", clean=True)
    assert {row.key for row in marked.of_play("pool")} - {row.key for row in clean} == failed


def reader_of_words(body):
    """A stand-in for a model: the last turn that says yes to the price in the turn before it."""
    text = body["messages"][-1]["content"]
    turns = json.loads(text[text.index("{\n") : text.rindex("\n}") + 2])["turns"]
    prices = [re.findall(r"\$(\d+)", turn["argument"]) for turn in turns]
    for earlier, later in reversed(list(itertools.pairwise(range(len(turns))))):
        yes = re.search("deal|accept|agreed|done|works for me", turns[later]["argument"], re.IGNORECASE)
        if yes and prices[later] and prices[earlier][-1:] == prices[later][-1:]:
            cited = {turns[number]["agent"]: turns[number]["turn"] for number in (earlier, later)}
            terms = {"price": int(prices[later][-1])}
            return json.dumps({"reasoning": "They agreed.", "agreement": {"terms": terms, "turns": cited}})
    return json.dumps({"reasoning": "They did not agree.", "agreement": None})


def test_a_liar_says_otherwise_and_its_honest_opponents_do_not(tmp_path):
    freeze(Suite(name="words", tasks="bargaining", n=6, pool=("boulware", "linear"))).save(tmp_path / "words.json")
    run = tmp_path / "run"
    arena("run", tmp_path / "words.json", "--policy", "liar,conceder", "--out", run)
    before = read_card(run)
    with LoopbackServer(reply=reader_of_words) as server:
        words = ["evaluate", run, "--evaluator", "spoken-outcome:local/tiny:words_only=true"]
        result = CliRunner().invoke(app, [*map(str, words), "--api-base", server.api_base])
        assert result.exit_code == 0, result.output
        assert server.served == len(list(read_run(run)))
    card = read_card(run)
    report = card_report(card)
    process = {row["policy"]: row for sheet in report.sheets if sheet.name == "process" for row in sheet.records()}
    assert process["liar"]["said_otherwise"] == 1.0
    assert process["conceder"]["said_otherwise"] == 0.0
    # Words change no payoff.
    assert [row.payoff for row in card.rows] == [row.payoff for row in before.rows]
    assert not any("said_otherwise" in row.values for row in before.rows)


def test_secrets_by_interview_in_a_suite_of_ones_own(tmp_path):
    TaskSet([fair(f"fair/{n}") for n in range(3)]).save(tmp_path / "tasks.jsonl")
    arena("freeze", "secrets", "--tasks", tmp_path / "tasks.jsonl", "--pool", "linear", "--out", tmp_path / "s.json")
    run = tmp_path / "run"
    arena("run", tmp_path / "s.json", "--policy", "sharer", "--out", run)
    assert CliRunner().invoke(app, ["evaluate", str(run), "--evaluator", "interview"]).exit_code == 0
    report = card_report(read_card(run))
    (row,) = next(sheet for sheet in report.sheets if sheet.name == "process").records()
    assert 0 <= row["disclosure"] <= 1
    assert 0 <= row["discovery"] <= 1


class Failing:
    """Plays like linear, and fails in its second turn if it has the second seat and is not robust."""

    name = "failing"

    def __init__(self, robust=False):
        self.parameters = {"robust": robust}

    async def act(self, observation, seed):
        if observation.own_turns and observation.agent == "agent_1" and not self.parameters["robust"]:
            raise PolicyError("the server is down")
        return await make_policy("linear").act(observation, seed)


def test_a_failure_counts_for_the_policy_whose_turn_it_was(tmp_path, suite):
    small = freeze(suite.model_copy(update={"tasks": "bargaining", "n": 4, "pool": ("boulware", "conceder")}))
    rated = (Failing(), Failing(robust=True), "micro")
    pairs = [(focal, other) for focal in rated for other in (*small.pool, *rated)]
    plans = plan_episodes(small.spec(small.pool).task_set(), pairs, seed=small.seed, orders=small.orders)
    result = asyncio.run(
        run_episodes(plans, evaluator=make_evaluator(small.evaluator), run_dir=tmp_path, progress=False)
    )
    assert result.failures
    small.save(tmp_path / SUITE_FILE)
    card = read_card(tmp_path)
    (sheet,) = [sheet for sheet in card_report(card).sheets if sheet.name == "failures"]
    failed = {row["policy"]: row["failed"] for row in sheet.records()}
    assert failed == {"failing:robust=false": len(result.failures), "failing:robust=true": 0, "micro": 0}
    (ratings,) = [sheet for sheet in card_report(card).sheets if sheet.name == "ratings"]
    lost = {row["policy"]: row["mean_mean"] - row["worst_mean"] > 1e-6 for row in ratings.records()}
    assert lost == {"failing:robust=false": True, "failing:robust=true": False, "micro": False}


def test_a_failed_episode_counts_once_and_not_after_it_was_played(folder):
    card = read_card(folder / "second")
    failures = tuple(
        FailedEpisode(key=key, policies=("random", "liar"), kind="Timeout") for key in ("lost", card.rows[0].key)
    )
    failed = card.model_copy(update={"failures": failures})
    assert merged_cards([failed, failed]).failures_of('["random",{}]') == {"Timeout": 1}
