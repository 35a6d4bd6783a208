"""What a person reads of an episode with moves."""

from __future__ import annotations

from sotopia_env.reports.transcript import to_text
from tests.sotopia_env.factories import task
from tests.sotopia_env.outcome_tasks import acts, ballot, episode, sale


def test_what_moves_did_stands_behind_the_words():
    text = to_text(episode(sale(), acts("40?", {"propose": {"price": 40}}), acts("", {"accept": 1})))
    assert 'Turn #1 | Ada Testa said: "40?" · offers (#1): price $40.0\n' in text
    assert "Turn #2 | Bram Testa · accepts #1 (price $40.0)\n" in text
    assert text.endswith("Ended: settled\n")


def test_rules_and_worths_stand_at_the_beginning():
    text = to_text(episode(sale(), "Hello."))
    assert "To be agreed on: price (a number from $0.0 to $100.0" in text
    assert "  worth: An agreement is worth to you the sum of its parts: the agreement itself is worth 100" in text
    assert "worth" not in to_text(episode(task(), "Hello."))


def test_a_move_that_did_not_count_is_remarked_upon():
    text = to_text(episode(sale(), acts("Deal!", {"accept": 4})))
    reason = "accept: offer #4 is not open; none is open to you"
    assert f'Ada Testa said: "Deal!"  (the move {{"accept": 4}} did not count: {reason})\n' in text


def test_a_person_reads_secret_votes_too():
    assert "· votes for park\n" in to_text(episode(ballot(2, secret=True), acts("I vote.", {"vote": "park"})))
