"""Generation of tasks with a language model: characters, relationships, scenarios, templates from scripts, simulations.

Only results that pass all checks of this package are written to a file of results. A question without an acceptable
answer after a limited number of attempts is recorded with the reason.
"""

from sotopia_env.writing.drafting import MANNER, Drafter, DraftQuestion, Trusted, Written
from sotopia_env.writing.inspirations import Inspiration, read_inspirations, unused
from sotopia_env.writing.kinds import (
    CharacterWriting,
    RelationshipWriting,
    ScenarioDraft,
    ScenarioWriting,
    VerifiedDraft,
)
from sotopia_env.writing.likeness import leakage
from sotopia_env.writing.simulation import simulation_question
from sotopia_env.writing.writer import Writer, count

__all__ = [
    "MANNER",
    "CharacterWriting",
    "DraftQuestion",
    "Drafter",
    "Inspiration",
    "RelationshipWriting",
    "ScenarioDraft",
    "ScenarioWriting",
    "Trusted",
    "VerifiedDraft",
    "Writer",
    "Written",
    "count",
    "leakage",
    "read_inspirations",
    "simulation_question",
    "unused",
]
