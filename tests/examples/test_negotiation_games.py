"""Games of language models that the example package reads: NegotiationArena and LLM-Deliberation."""

import json

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.importing import import_files
from sotopia_env.outcomes import Move, MoveKind
from sotopia_env.storage import read_run
from sotopia_env.world import Rules, TaskSet
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.episode import replay
from sotopia_env.world.outcome import outcome_of
from tests.errors import raises
from tests.examples.negotiation_games import CONFIG, SALE, SCORES, deliberation, sale

pytestmark = pytest.mark.usefixtures("negotiation_package")


def imported(folder, record):
    path = folder / "game_state.json"
    path.write_text(json.dumps(record, indent=1))
    import_files([path], folder / "out", progress=False)
    (episode,) = read_run(folder / "out")
    replay(episode)
    return episode, outcome_of(episode.task, [item.turn for item in episode.turns])


def test_a_sale_has_the_payoffs_of_the_reference(tmp_path):
    episode, outcome = imported(tmp_path, SALE)
    # The reference's outcome of a deal at 45: 45 - 40 for the seller, 60 - 45 for the buyer.
    assert (outcome.agreed, outcome.payoffs) == (True, (5, 15))
    assert [item.turn.action.argument for item in episode.turns] == ["Fifty-five?", "Less.", "Fine."]
    assert [policy.name for policy in episode.policies] == ["m0", "m1"]
    assert "You are in a hurry." in episode.task.scenario.seats[1].private_info


def test_a_rejection_is_no_deal(tmp_path):
    _, outcome = imported(tmp_path, sale(("PROPOSAL", 55, "?"), ("REJECT", None, "No.")))
    assert (outcome.agreed, outcome.payoffs) == (False, (0, 0))


TWO = {"_type": "resource", "_value": {"X": 2}}
BAD_SALES = [
    ({**SALE, "class": "TradingGame"}, {"field": "class"}),
    ({**SALE, "player_goals": [SALE["player_goals"][0]] * 2}, {"field": "player_goals"}),
    (sale(("PROPOSAL", "much", "?")), {"field": "game_state.1.player_public_info_dict.newly proposed trade"}),
    ({**SALE, "player_starting_resources": [TWO, SALE["player_starting_resources"][1]]},
     {"field": "game_state.1.player_public_info_dict.newly proposed trade"}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "fields"), BAD_SALES, ids=range(len(BAD_SALES)))
def test_what_is_wrong_with_a_sale_is_one_sentence(tmp_path, record, fields):
    with raises(DamagedRecordError, **fields):
        imported(tmp_path, record)


def test_a_game_of_three_parties_is_a_task_with_its_scores(tmp_path):
    import_files([deliberation(tmp_path / "game")], tmp_path / "out")
    (task,) = TaskSet.load(tmp_path / "out" / "tasks.jsonl")
    assert [person.name for person in task.characters] == ["Mill", "River trust", "Village"]
    assert "A1 (30), A2 (10)" in task.scenario.seats[0].private_info
    assert "max score 60" in task.scenario.seats[1].private_info
    assert task.scenario.max_turns == 12

    def payoffs(*acceptances):
        state = initial_state(task, Rules(), 0)
        offer = Move(MoveKind.PROPOSE, {"A": "A3", "B": "B2"})
        for move in (offer, *(Move(MoveKind.ACCEPT, True) if accepts else None for accepts in acceptances)):
            if state.stop is None:
                state = transition(state, Action(ActionType.SPEAK, "Well.", (), move))
        return outcome_of(task, state.turns).payoffs

    # Two of three suffice if both parties with a veto are among them; else the minimum, or 150 for the adversary.
    assert payoffs(True, False) == (70, 60, 8)
    assert payoffs(False, True) == (40, 50, 150)


UP = CONFIG.replace("Mill,mill", "Mill,../secret")
BAD_GAMES = [
    (UP, SCORES, {"field": "config.txt", "got": "../secret.txt"}),
    (CONFIG.replace("cooperative", ".."), SCORES, {"field": "config.txt", "got": ".."}),
    (CONFIG.replace("Mill,mill", "Mill,none"), SCORES, {"file": "none.txt"}),
    (CONFIG, {**SCORES, "mill": "30, x, 0\n0, 70\n40\n"}, {"file": "mill.txt"}),
    (CONFIG, {**SCORES, "mill": "30, 10, 0\n0, 70\n"}, {"file": "mill.txt"}),
    (CONFIG, {**SCORES, "mill": "30, 10\n0, 70\n40\n"}, {"field": ""}),
    (CONFIG, {**SCORES, "mill": "1" * 1_100_000}, {"file": "mill.txt"}),
    (CONFIG.splitlines()[0], SCORES, {"line": 1}),
]


@pytest.mark.parametrize(("config", "scores", "fields"), BAD_GAMES, ids=range(len(BAD_GAMES)))
def test_what_is_wrong_with_a_game_is_one_sentence(tmp_path, config, scores, fields):
    (tmp_path / "secret.txt").write_text("1, 2, 3\n4, 5\n6\n")
    with raises(DamagedRecordError, **fields):
        import_files([deliberation(tmp_path / "game", config, scores)], tmp_path / "out")


def test_a_link_does_not_lead_out_of_a_game(tmp_path):
    config = deliberation(tmp_path / "game")
    (tmp_path / "secret.txt").write_text("1, 2, 3\n4, 5\n6\n")
    scores = tmp_path / "game" / "scores_files" / "mill.txt"
    scores.unlink()
    scores.symlink_to(tmp_path / "secret.txt")
    with raises(DamagedRecordError, file="mill.txt"):
        import_files([config], tmp_path / "out")
