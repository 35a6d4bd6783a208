"""What the proof holds out is held out, and its speakers deal by moves."""

import re
from pathlib import Path

import pytest

from sotopia_env import tasks
from sotopia_env.evaluators import default_evaluator
from sotopia_env.outcomes import MoveKind
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.world.dynamics import Rules
from training.collect.selection import BCFilter
from training.data.samples import RowMaker
from training.data.sources import source_rows
from training.models.tiny_base import make_tiny_tokenizer
from training.proof.base_model import _talk, _texts, talk_rows
from training.proof.recipe import PROMPT, SEEN, UNSEEN, Recipe
from training.proof.seed_run import SeedRun, seat_of
from training.proof.speakers import Explorer, PlainDealer
from training.proof.unseen import overlaps, prices, split_bargaining


@pytest.fixture(scope="module")
def split():
    return split_bargaining(20, 40, 10, 30, "easy", 11)


def play(situations, policy, other):
    plans = plan_episodes(situations, [(policy, other)], rules=Rules(max_turns=6), seed=0)
    return run_episodes(plans, evaluator=default_evaluator(), progress=False).episodes


def test_tests_share_no_price_person_item_or_wording_of_goals_with_training(split):
    shared = overlaps(split)
    assert [met for met, _ in shared["training"].values()] == [0, 0, 0, 0]
    assert [shared["base"][name][0] for name in ("people", "items", "goal wordings")] == [0, 0, 0]
    assert shared["base"]["prices"][0] > 0  # as numbers that it knows; and dev tasks are of the tests' kind
    assert shared["dev"]["items"][0] > 0
    tested = {price for task in split.test for price in prices(task)}
    assert shared["training"]["prices"] == (0, len(tested))
    assert {price % 2 for task in split.train for price in prices(task)} == {0}
    assert {price % 2 for task in (*split.dev, *split.test) for price in prices(task)} == {1}


def test_every_price_of_a_seat_stands_in_what_it_is_told(split):
    for task in split.test:
        for number, seat in enumerate(task.scenario.seats):
            assert f"${prices(task)[2 + 2 * number]}" in seat.goals[0]
            for name in ("target", "dream"):  # as a move writes it
                assert f'Your {name}: {{"price": {seat.private_data[f"{name}_price"]}}}.' in seat.private_info
        assert not tasks.warnings(task)


def test_a_price_follows_the_same_token_in_a_move_and_among_the_seats_prices(split):
    """A model of two layers learns to copy by the token before; behind another one it made up 77 prices of 100."""
    settings = Recipe().base.model_copy(update={"output": "nowhere"})
    episodes = _talk(split.base, settings)
    tokenizer = make_tiny_tokenizer(_texts(episodes, PROMPT), settings.vocabulary, numbers=1000)
    for task in split.test:
        for seat in task.scenario.seats:
            price = seat.private_data["dream_price"]
            before = {
                tokens[tokens.index(str(price)) - 1]
                for text in (seat.private_info.partition("dream")[2], f'"move": {{"propose": {{"price": {price}}}}}')
                for tokens in [[tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]]]
            }
            assert before == {' {"price": '}


def test_partners_in_tests_are_other_strategies_than_in_training():
    assert not {spec.split(":")[0] for spec in SEEN} & {spec.split(":")[0] for spec in UNSEEN}


def test_an_explorer_draws_one_own_turn_of_each_conversation(split):
    drawn = []
    for episode in play(split.train, Explorer(PlainDealer((9,), "target_price")), SEEN[0]):
        seat = seat_of(episode, "explorer")
        target = episode.task.scenario.seats[episode.task.seat_of[seat]].private_data["target_price"]
        moves = [item.turn.action.move for item in episode.turns if item.turn.actor == seat]
        others = [number for number, move in enumerate(moves) if move.content != {"price": target}]
        assert len(others) <= 1
        drawn += others
    assert set(drawn) == {0, 1, 2}


@pytest.mark.parametrize("partner", [*SEEN, *UNSEEN])
def test_the_expert_insists_where_it_begins_and_takes_what_it_gets_where_it_does_not(split, partner):
    accepts = {True: 0, False: 0}
    for episode in play(split.train, PlainDealer(), partner):
        seat = seat_of(episode, "plain-dealer")
        begins = episode.turns[0].turn.actor == seat
        own = [item.turn for item in episode.turns if item.turn.actor == seat]
        assert not any(turn.violation for turn in own)
        moves = [turn.action.move.kind for turn in own]
        assert set(moves[:2]) == {MoveKind.PROPOSE}
        accepts[begins] += MoveKind.ACCEPT in moves
        outcome = episode.evaluation().outcome
        assert MoveKind.ACCEPT not in moves or (outcome.agreed and outcome.shares[episode.task.seat_of[seat]] >= 0)
    assert accepts[True] == 0
    assert accepts[False] > 0 or partner in UNSEEN


def test_the_experts_recording_is_of_the_training_side(split, tmp_path):
    """The run that cloning reads: training tasks, training partners, and every row an action of the expert."""
    run = SeedRun(Recipe(expert_tasks=12), Path("no-base"), split, 7, tmp_path)
    run._record_expert()
    recorded = {episode.key: episode for episode in read_run(tmp_path / "expert")}
    names = {info.name for episode in recorded.values() for info in episode.policies}
    assert names == {"plain-dealer", *(spec.split(":")[0] for spec in SEEN)}
    assert {episode.task.id for episode in recorded.values()} <= {task.id for task in split.train}
    data = run._selected("expert", "plain-dealer", BCFilter(policies=("plain-dealer",), group="task"))
    rows = list(source_rows([data], RowMaker(PROMPT)))
    assert rows
    for row in rows:
        turn = recorded[row.episode].turns[row.turn].turn
        assert turn.actor == row.seat == seat_of(recorded[row.episode], "plain-dealer")
        assert '"move": {"' in row.completion


def test_a_seats_talk_is_one_row(split, tokenizer):
    settings = Recipe().base.model_copy(update={"output": "nowhere"})
    rows = [list(talk_rows(episode, settings.prompt, tokenizer)) for episode in _talk(split.base, settings)]
    assert [len(found) for found in rows] == [2] * len(rows)


def test_scaled_prices_stay_distinct_and_no_test_needs_a_great_number(split):
    """Two prices that are rounded to one would make another task of it; great numbers are rare in the base's talk."""
    for task in (*split.base, *split.train, *split.dev, *split.test):
        _, level, seed, number = task.id.split("-")
        drawn = prices(tasks.family("bargaining").generate(int(number), int(seed), level))
        pairs = set(zip(drawn, prices(task), strict=True))
        assert len(pairs) == len(set(drawn)) == len(set(prices(task))), task.id
    for task in (*split.dev, *split.test):
        dreams = {seat.private_data["dream_price"] for seat in task.scenario.seats}
        told = task.scenario.model_dump_json(include={"context", "seats"})
        written = {int(number.replace(",", "")) for number in re.findall(r"(?:\$|price\W+)(\d[\d,]*)", told)}
        assert set(prices(task)) | dreams >= written >= dreams
        assert max(written | set(prices(task)) | dreams) <= 221
