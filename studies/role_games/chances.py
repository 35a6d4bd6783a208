"""The chance of the Mafia among random seats, exact by recursion and in episodes of the protocol.

    python -m studies.role_games.chances --episodes 100000

The recursions know nothing of the protocol. By day a seat of those left is eliminated, each with the same chance,
because all vote at random and a lot decides ties; by night one of the town. Sources: Migdał (2010) for one mafioso;
Braverman, Etesami and Mossel (2008) for why nothing is better than random votes against an informed minority.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache

from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.outcomes.facts import Facts, Variable
from sotopia_env.outcomes.move import MoveKind
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol

DAY = {"name": "day", "move": "vote", "effect": "eliminate", "ties": "lot", "ballot": "sealed"}
NIGHT = {
    "name": "night",
    "who": ["mafioso"],
    "move": "vote",
    "effect": "kill",
    "sees": "team",
    "ties": "lot",
    "targets": "foes",
}
WATCH = {"name": "watch", "who": ["doctor"], "move": "target", "effect": "protect", "sees": "actor"}
SIGHT = {
    "name": "sight",
    "who": ["seer"],
    "move": "target",
    "effect": "inspect",
    "sees": "actor",
    "reveal": "role",
}
UNTIL_ONE_SIDE_IS_GONE = [
    {"winner": "town", "when": "eliminated", "team": "mafia"},
    {"winner": "mafia", "when": "eliminated", "team": "town"},
]


@cache
def mafia_chance(mafiosi: int, town: int, doctor: bool = False, by_night: bool = False) -> Fraction:
    """Returns the chance that the Mafia wins until one side is gone.

    Args:
        mafiosi: how many of the Mafia are left.
        town: how many others are left, the doctor among them.
        doctor: whether one of them protects a random seat other than itself every night.
        by_night: whether it is night; the first elimination is by day otherwise.
    """
    if not mafiosi or not town:
        return Fraction(not town)
    if by_night:
        return _night(mafiosi, town, doctor)
    everybody = mafiosi + town
    villagers = town - doctor
    total = Fraction(mafiosi, everybody) * mafia_chance(mafiosi - 1, town, doctor, True)
    total += Fraction(villagers, everybody) * mafia_chance(mafiosi, town - 1, doctor, True) if villagers else 0
    return total + (Fraction(1, everybody) * mafia_chance(mafiosi, town - 1, False, True) if doctor else 0)


def _night(mafiosi: int, town: int, doctor: bool) -> Fraction:
    villagers = town - doctor
    # A doctor chooses the victim, who is another, with the same chance as anybody else who is left.
    saved = Fraction(villagers, town) * Fraction(1, mafiosi + town - 1) if doctor else Fraction(0)
    total = saved * mafia_chance(mafiosi, town, doctor)
    total += (Fraction(villagers, town) - saved) * (mafia_chance(mafiosi, town - 1, doctor) if villagers else 0)
    return total + (Fraction(1, town) * mafia_chance(mafiosi, town - 1, False) if doctor else 0)


def double_factorials(seats: int) -> Fraction:
    """Returns (n − 1)!!/n!!, Migdał's chance of one mafioso among ``seats``."""
    return Fraction(math.prod(range(seats - 1, 0, -2)), math.prod(range(seats, 0, -2)))


def game(deal: Mapping[str, int]) -> AnyProtocol:
    """Returns the protocol of a game that goes on until one side is gone, day first, with these roles."""
    roles = [role for role, count in deal.items() for _ in range(count)]
    agents = {f"agent_{seat}": f"Seat {seat}" for seat in range(len(roles))}
    phases = [DAY, *([WATCH] if "doctor" in deal else []), *([SIGHT] if "seer" in deal else []), NIGHT]
    rules = {
        "kind": "roles",
        "roles": {role: {"team": "mafia" if role == "mafioso" else "town"} for role in deal},
        "phases": phases,
        "wins": UNTIL_ONE_SIDE_IS_GONE,
        "cycles": 50,
    }
    worths = [{"options": {"town": float(role != "mafioso"), "mafia": float(role == "mafioso")}} for role in roles]
    options = tuple(deal)
    variables = tuple(
        Variable(name=f"role of {agents[f'agent_{seat}']}", options=options, value=role, kind="role",
                 of=f"agent_{seat}", known_by=(f"agent_{seat}",))
        for seat, role in enumerate(roles)
    )  # fmt: skip
    spec = OutcomeSpec.model_validate({"protocol": rules, "worth": worths})
    return make_protocol(spec, agents, Facts(variables=variables))


def random_winner(protocol: AnyProtocol, generator: random.Random) -> str:
    """Plays one game in which every seat chooses at random, and returns the team that wins."""
    state = protocol.initial()
    while (due := protocol.due(state)) is not None:
        for agent in due.agents:
            menu = protocol.menu(state, agent)
            moves = [move for move in menu.moves() if move.kind in (MoveKind.VOTE, MoveKind.CHOOSE)]
            if moves:
                state, _ = protocol.apply(state, agent, generator.choice(moves))
            state = protocol.advance(state, agent)
    return str(protocol.outcome(state).terms["option"])


def mafia_share(deal: Mapping[str, int], episodes: int, seed: int = 0) -> tuple[float, float]:
    """Returns the share of games that the Mafia wins among random seats, and its standard error under no bias."""
    protocol, generator = game(deal), random.Random(seed)
    wins = sum(random_winner(protocol, generator) == "mafia" for _ in range(episodes))
    chance = float(exact(deal))
    return wins / episodes, math.sqrt(chance * (1 - chance) / episodes)


def exact(deal: Mapping[str, int]) -> Fraction:
    """Returns the exact chance of the Mafia; what a seer learns does not change random votes."""
    return mafia_chance(deal["mafioso"], sum(deal.values()) - deal["mafioso"], "doctor" in deal)


GAMES: tuple[Mapping[str, int], ...] = (
    {"mafioso": 1, "villager": 4},
    {"mafioso": 1, "villager": 5},
    {"mafioso": 1, "villager": 8},
    {"mafioso": 2, "villager": 5},
    {"mafioso": 2, "villager": 7},
    {"mafioso": 2, "seer": 1, "doctor": 1, "villager": 4},
)


def rows(episodes: int) -> Iterator[str]:
    """Yields a line for each game: the exact chance, the share in episodes, and the distance in standard errors."""
    for deal in GAMES:
        share, error = mafia_share(deal, episodes)
        chance = float(exact(deal))
        names = ", ".join(f"{count} {role}" for role, count in deal.items())
        yield f"{names}: exact {exact(deal)} = {chance:.5f}, played {share:.5f}, {(share - chance) / error:+.2f} SE"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    for row in rows(parser.parse_args().episodes):
        sys.stdout.write(f"{row}\n")
