"""Logs and games of NegotiationArena and LLM-Deliberation in the shapes of their files; the games are invented."""

from typing import Any


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {"_type": kind, "_value": value}


def _state(number: int, answer: str, price: int | None, words: str) -> dict[str, Any]:
    gifts = {"RED": _tagged("resource", {"X": 1}), "BLUE": _tagged("resource", {"ZUP": price})}
    trade = "NONE" if price is None else _tagged("trade", gifts)
    public = {"message": words, "player answer": answer, "newly proposed trade": trade}
    return {
        "current_iteration": number + 1,
        "turn": number % 2,
        "player_public_answer_string": "",
        "player_public_info_dict": public,
        "player_private_info_dict": {"reason": "I think."},
    }


def sale(*answers: tuple[str, int | None, str]) -> dict[str, Any]:
    """A ``game_state.json`` with these answers of the seller and the buyer in turn."""
    goals = [
        _tagged("goal", _tagged(f"{side}_goal", _tagged("valuation", {"X": amount})))
        for side, amount in (("seller", 40), ("buyer", 60))
    ]
    return {
        "class": "BuySellGame",
        "run_epoch_time_ms": "1700000000000",
        "players": [
            {"class": "Agent", "model": f"m{n}", "agent_name": f"Player {name}"}
            for n, name in enumerate(("RED", "BLUE"))
        ],
        "game_state": [
            {"current_iteration": "START", "turn": "None", "settings": {}},
            *(_state(number, *answer) for number, answer in enumerate(answers)),
            {"current_iteration": "END", "turn": "None", "summary": {}},
        ],
        "player_goals": goals,
        "player_starting_resources": [_tagged("resource", {"X": 1}), _tagged("resource", {"ZUP": 100})],
        "player_social_behaviour": ["", "You are in a hurry."],
        "player_conversation_roles": ["You are Player RED.", "You are Player BLUE."],
    }


SALE = sale(("PROPOSAL", 55, "Fifty-five?"), ("PROPOSAL", 45, "Less."), ("ACCEPT", None, "Fine."))
CONFIG = """Mill,mill,p1,cooperative,m
River trust,trust,p2,greedy,m
Village,village,player,untargeted_adv,m
"""
SCORES = {"mill": "30, 10, 0\n0, 70\n40\n", "trust": "0, 20, 60\n40, 0\n50", "village": "1, 2, 3\n4, 5\n6\n"}


def deliberation(folder: Any, config: str = CONFIG, scores: dict[str, str] = SCORES) -> Any:
    """Writes a game into ``folder`` and returns its ``config.txt``."""
    (folder / "scores_files").mkdir(parents=True)
    (folder / "config.txt").write_text(config, encoding="utf-8")
    (folder / "global_instructions.txt").write_text('Issue A: "Water"\nA1 "all"\nA2 "half"\nIssue B: "Path"\n')
    for name, text in scores.items():
        (folder / "scores_files" / f"{name}.txt").write_text(text)
        for incentive in ("cooperative", "greedy", "untargeted_adv"):
            path = folder / "individual_instructions" / incentive / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("Issue A (max score #A_MAX_NUM): A1 (#A1_NUM), A2 (#A2_NUM).\nIssue B: B2 (#B2_NUM).")
    return folder / "config.txt"
