"""The rules of a game of hidden roles in plain sentences, the same for every seat."""

from __future__ import annotations

from collections.abc import Iterable

from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.roles.rules import Phase, RolesRules, Win

_SEES = {"all": "", "team": " out of the others' sight", "actor": ", each out of everybody's sight"}
_BALLOTS = {"open": "", "sealed": " Votes are shown when all have voted.", "secret": " Votes are never shown."}
_TARGETS = {
    "others": " Nobody can choose themselves.",
    "foes": " Nobody can choose their own team.",
    "all": " One may choose oneself.",
}
_EFFECTS = {
    "eliminate": "is eliminated",
    "kill": "is eliminated unless protected",
    "protect": "is protected from the next kill",
}


def rules_text(rules: RolesRules) -> str:
    """Returns the rules: roles and teams, the phases, and who wins when."""
    roles = [f"{name} ({role.team})" for name, role in rules.roles.items()]
    phases = " ".join(f"{number}. {_phase_text(phase)}" for number, phase in enumerate(rules.phases, start=1))
    return (
        f"The roles and their teams: {', '.join(roles)}. Words bind nobody, only moves do. A cycle has these phases: "
        f"{phases} There are at most {rules.cycles} cycles. Whoever is eliminated acts no more and sees on; whoever "
        f"leaves is eliminated. {' '.join(map(_win_text, rules.wins))}"
    )


def _phase_text(phase: Phase) -> str:
    who = "all" if phase.who == "all" else f"each {conjunction(phase.who)}"
    since = f" from cycle {phase.since} on" if phase.since > 1 else ""
    head = f"{phase.name}{since}: {who} {_act_text(phase)}{_SEES[phase.sees]}"
    return f"{head}. {' '.join(filter(None, map(str.strip, _details(phase))))}".strip()


def _act_text(phase: Phase) -> str:
    times = "once" if phase.turns == 1 else f"{phase.turns} times"
    if phase.move == "talk":
        return f"may speak {times}"
    return "may vote for one seat" if phase.move == "vote" else f"may choose one seat to {phase.effect}"


def _details(phase: Phase) -> Iterable[str]:
    if phase.move == "talk":
        return
    if phase.move == "vote":
        tie = "a lot decides a tie" if phase.ties == "lot" else "a tie hits nobody"
        yield f"Who gets the most votes {_EFFECTS[phase.effect]}, and {tie}.{_BALLOTS[phase.ballot]}"
    elif phase.effect != "inspect":
        yield f"Whoever is chosen {_EFFECTS[phase.effect]}."
    if phase.reveal != "none":
        whom = "the actor alone" if phase.effect == "inspect" else "all"
        yield f"The {phase.reveal} of the seat is told to {whom}."
    yield _TARGETS[phase.targets]
    if not phase.repeat:
        yield "Nobody can choose the same seat in two cycles in a row."


def _win_text(win: Win) -> str:
    when = {
        "eliminated": f"no seat of {win.team} is left",
        "parity": f"at least half of those left are of {win.team}",
        "chosen": f"a seat of {win.team} is eliminated in the phase {win.phase}",
        "cycles": "the last cycle is over",
    }
    return f"{win.winner} wins when {when[win.when]}."
