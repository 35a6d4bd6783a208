"""Default tasks of an environment: the starter set."""

from __future__ import annotations

from sotopia_env.envs.options import EnvOptions

DEFAULT_SEATS = 2
"""Seats of the starter tasks that are played when neither ``task`` nor ``seats`` is given."""


def with_defaults(options: EnvOptions) -> EnvOptions:
    """Returns the options with the starter set where no other tasks were asked for."""
    complete = options.copy()
    if "task" not in complete:
        # Imported lazily: environments with tasks of their own do not read the starter set.
        from sotopia_env.tasks.builtin import starter_tasks

        complete["task"] = starter_tasks()
        complete.setdefault("seats", DEFAULT_SEATS)
    return complete
