"""Default tasks of an environment: a fresh mixture of verified families."""

from __future__ import annotations

from sotopia_env.envs.options import EnvOptions
from sotopia_env.tasks import FAMILIES, TaskStream, family

DEFAULT_SEATS = 2
"""Seats of the tasks that are played when neither ``task`` nor ``seats`` is given."""


def with_defaults(options: EnvOptions) -> EnvOptions:
    """Returns the options with all families, a fresh task at every reset, where no other tasks were asked for."""
    complete = options.copy()
    if "task" not in complete:
        complete["task"] = TaskStream([family(name) for name in FAMILIES], seed=0)
        complete.setdefault("seats", DEFAULT_SEATS)
    return complete
