"""What the proof holds out is held out, and its speakers are understood by the reader that scores them."""

import pytest

from sotopia_env.dynamics import Rules
from sotopia_env.evaluators import default_evaluator
from sotopia_env.plan import plan_episodes
from sotopia_env.rollout import run_episodes
from training.proof.held_out import is_held_out, overlaps, prices, split_bargaining, wording
from training.proof.recipe import SEEN, UNSEEN
from training.proof.seed_run import partner
from training.proof.speakers import _ASSENTS, PlainDealer


@pytest.fixture(scope="module")
def split():
    return split_bargaining(20, 40, 10, 30, "easy", 11)


def play(tasks, policy, other):
    plans = plan_episodes(tasks, [(policy, other)], rules=Rules(max_turns=6), seed=0)
    return run_episodes(plans, evaluator=default_evaluator(), progress=False).episodes


def seat_of(episode, name):
    return next(info.agent for info in episode.policies if info.name == name)


def test_tests_share_no_price_person_item_or_wording_of_goals_with_training(split):
    shared = overlaps(split)
    assert {shared[name] for name in ("prices", "people", "items", "goal wordings")} == {0}
    assert {shared[f"{name}, base model"] for name in ("people", "items", "goal wordings")} == {0}
    assert {price % 2 for task in split.train for price in prices(task)} == {0}
    assert {price % 2 for task in (*split.dev, *split.test) for price in prices(task)} == {1}


def test_every_price_of_a_seat_stands_in_what_it_is_told(split):
    for task in split.test:
        for seat in task.scenario.seats:
            for name in ("target_price", "dream_price", "walk_away_price"):
                assert f"${seat.private_data[name]}" in seat.private_info


@pytest.mark.parametrize("settings", [*SEEN, *UNSEEN])
def test_partners_in_tests_say_nothing_in_words_of_training(split, settings):
    assert not {spec.split(",")[0] for spec in SEEN} & {spec.split(",")[0] for spec in UNSEEN}
    for held_out, tasks in ((True, split.test[:6]), (False, split.train[:6])):
        other = partner(settings, held_out)
        said = [
            item.turn.action.argument
            for episode in play(tasks, PlainDealer(), other)
            for item in episode.turns
            if item.turn.actor == seat_of(episode, other.name) and item.turn.action.argument
        ]
        assert said
        assert {is_held_out(wording(text)) for text in said} == {held_out}


def test_an_assent_that_names_no_price_makes_the_deal_and_nothing_said_afterwards_breaks_it(split):
    """The speakers agree without a price, and name their price again where a deal is made already."""
    said = set()
    for episode in play(split.train, PlainDealer(2), partner(SEEN[0], False)):
        own = [
            item.turn.action.argument for item in episode.turns if item.turn.actor == seat_of(episode, "plain-dealer")
        ]
        said |= set(own) & set(_ASSENTS)
        assert own[-1] not in _ASSENTS or episode.evaluation().outcome.agreement
        assert not set(own[:2]) & set(_ASSENTS)
    assert said == set(_ASSENTS)
