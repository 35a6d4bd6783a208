"""Writing with a language model: characters, relationships, scenarios, templates from scripts, whole simulations.

Nothing reaches a file of results that our own checks do not accept; what a model could not write in a bounded number of
attempts is recorded with the reason.
"""

from sotopia_env.writing.drafting import MANNER, Drafter, Question, Trusted, Written, read_written
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
    "Drafter",
    "Inspiration",
    "Question",
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
    "read_written",
    "simulation_question",
    "unused",
]
