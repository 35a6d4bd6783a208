"""Importer of the games of LLM-Deliberation (Abdelnabi et al. 2024): ``config.txt`` with the files beside it.

A game's issues and options become an outcome space with the labels of its texts (issue A, options A1, A2, …). A deal
needs the assent of all parties but one, and of both parties with a veto. A party that gets no deal is left with its
minimum, the score below which it must not accept one; the adversaries get 150. The bonus of the first party for
unanimity is left out.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from sotopia_env.foundation.errors import DamagedRecordError, Where
from sotopia_env.foundation.files import read_text
from sotopia_env.importers.foreign import ForeignValue, Format, Product, ProductKind, converted, one_line, plain_name
from sotopia_env.importers.formats.negotiation import whole
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, OutcomeSpec
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task

_ROLES = ("p1", "p2", "player", "target")
_VETO = ("p1", "p2")
_ADVERSARIES = ("targeted_adv", "untargeted_adv")
ADVERSARY_WITHOUT_DEAL = 150.0
"""Score of an adversary if there is no deal."""
_ROUNDS = 4  # turns of each party in the paper's runs
_MOST_BYTES = 1_000_000  # of one of the files


def _party_line(text: str) -> str:
    parts = text.split(",")
    if len(parts) != 5 or parts[2].strip() not in _ROLES:
        raise ValueError("expected a line such as 'Mayor,mayor,player,cooperative,gpt-4'")
    return text


class GameLines(ForeignValue[list[Annotated[str, AfterValidator(_party_line)]]]):
    """The lines of ``config.txt``, one for each party."""


@dataclass(frozen=True, slots=True)
class Party:
    """A party of a game.

    Attributes:
        name: its name in the texts.
        role: ``p1`` and ``p2`` have a veto.
        incentive: how it plays: cooperative, greedy or an adversary.
        scores: its score for each option of each issue.
        minimum: the score below which it must not accept a deal.
        instructions: its confidential text.
    """

    name: str
    role: str
    incentive: str
    scores: tuple[tuple[int, ...], ...]
    minimum: int
    instructions: str


def read(lines: GameLines, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a game."""
    folder = item.file.parent
    if len(lines.root) < 2:
        raise DamagedRecordError(expected="a line for each of two or more parties", got=lines.root[0])
    parties = [_party(folder, line) for line in lines.root]
    sizes = [tuple(map(len, party.scores)) for party in parties]
    if len(set(sizes)) != 1 or len(sizes[0]) > len(string.ascii_uppercase):
        raise DamagedRecordError(expected="the same issues and options in all scores_files", got=str(sizes))
    context = _text(folder, "global_instructions.txt")
    yield Product(ProductKind.TASK, converted(lambda: _task(folder, context, parties)))


def _party(folder: Path, line: str) -> Party:
    name, file, role, incentive, _ = (part.strip() for part in line.split(","))
    numbers = [row for row in _text(folder, "scores_files", f"{file}.txt").splitlines() if row.strip()]
    where = Where(folder / "scores_files" / f"{file}.txt")
    try:
        *rows, (minimum,) = [[whole("scores", cell.strip()) for cell in row.split(",")] for row in numbers]
    except ValueError as error:
        if isinstance(error, DamagedRecordError):
            raise DamagedRecordError.of(error, where=where) from None
        raise DamagedRecordError(expected="a line for each issue, then the minimum", where=where) from None
    text = _text(folder, "individual_instructions", incentive, f"{file}.txt")
    for issue, scores in zip(string.ascii_uppercase, rows, strict=False):
        text = text.replace(f"#{issue}_MAX_NUM", str(max(scores)))
        for number, score in enumerate(scores, start=1):
            text = text.replace(f"#{issue}{number}_NUM", str(score))
    return Party(plain_name(name), role, incentive, tuple(map(tuple, rows)), minimum, one_line(text))


def _text(folder: Path, *names: str) -> str:
    """The text of a file of the game; raises :class:`DamagedRecordError` for a name that leads out of its folder."""
    for name in names:
        if Path(name).name != name or name.startswith("."):
            raise DamagedRecordError(field="config.txt", expected="the name of a file without a path", got=name)
    path = folder.joinpath(*names)
    # Also a link must not lead out: the text of the file is shown to every seat of the task.
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DamagedRecordError(expected="a file in the folder of the game", got=str(path), where=path)
    if path.is_file() and path.stat().st_size > _MOST_BYTES:
        raise DamagedRecordError(expected=f"at most {_MOST_BYTES} bytes of text", got=path.stat().st_size, where=path)
    return read_text(path, DamagedRecordError).strip()


def _task(folder: Path, context: str, parties: Sequence[Party]) -> Task:
    agents = [f"agent_{seat}" for seat in range(len(parties))]
    veto = [agent for agent, party in zip(agents, parties, strict=True) if party.role in _VETO]
    needs: dict[str, Any] = {"quorum": len(parties) - 1, "veto": veto}
    issues = tuple(
        ChoiceIssue(name=letter, options=tuple(f"{letter}{number}" for number in range(1, len(scores) + 1)))
        for letter, scores in zip(string.ascii_uppercase, parties[0].scores, strict=False)
    )
    spec = OutcomeSpec(
        protocol=AgreementRules.model_validate({"needs": needs}),
        issues=issues,
        worth=tuple(_worth(party, issues) for party in parties),
    )
    key = f"llm-deliberation/{folder.resolve().name[:40]}/{content_id(context, parties)}"
    pairs = itertools.combinations(range(len(parties)), 2)
    return Task(
        id=key,
        scenario=Scenario(
            id=key,
            context=context,
            seats=tuple(Seat(goals=(_goal(party),), private_info=party.instructions) for party in parties),
            source="LLM-Deliberation",
            outcome=spec,
            max_turns=_ROUNDS * len(parties),
            tags=tuple(f"{agent}: {party.incentive}" for agent, party in zip(agents, parties, strict=True)),
        ),
        characters=tuple(map(_character, parties)),
        relationships=tuple(Relationship(seats=pair, kind=RelationshipKind.KNOW_BY_NAME) for pair in pairs),
    )


def _worth(party: Party, issues: Sequence[ChoiceIssue]) -> AdditiveWorth:
    gains = {
        issue.name: dict(zip(issue.options, map(float, scores), strict=True))
        for issue, scores in zip(issues, party.scores, strict=True)
    }
    return AdditiveWorth(issues=gains, no_agreement=_without_deal(party))


def _without_deal(party: Party) -> float:
    return ADVERSARY_WITHOUT_DEAL if party.incentive in _ADVERSARIES else float(party.minimum)


def _goal(party: Party) -> str:
    if party.incentive in _ADVERSARIES:
        return f"Prevent a deal: without one your score is {_without_deal(party):g}."
    aim = "any such deal is better than none" if party.incentive == "cooperative" else "get as much as you can"
    return f"Agree on a deal that scores at least {party.minimum} for you; {aim}."


def _character(party: Party) -> Character:
    first, _, last = party.name.partition(" ")
    return Character(first_name=first, last_name=last, gender="", pronouns="", occupation="")


DELIBERATION = Format(
    "llm-deliberation",
    "LLM-Deliberation: config.txt of a game",
    ProductKind.TASK,
    GameLines,
    read,
    joins=lambda lines, line: True,
)
