"""Generation of tasks with a language model: characters, relationships, scenarios, templates from scripts, simulations.

Only results that pass all checks of this package are written to a file of results. A question without an acceptable
answer after a limited number of attempts is recorded with the reason.
"""

from sotopia_env.writing.writer import Writer

__all__ = [
    "Writer",
]
