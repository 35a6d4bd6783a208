"""Defaults of an environment: the starter set and the evaluator that needs no model."""

from __future__ import annotations

from sotopia_env.envs.options import EnvOptions

DEFAULT_SEATS = 2
"""Seats of the starter tasks that are played when neither ``task`` nor ``seats`` is given."""


def with_defaults(options: EnvOptions) -> EnvOptions:
    """Returns the options with the starter set and the default evaluator where nothing else was asked for."""
    complete = options.copy()
    if "task" not in complete:
        from sotopia_env.tasks.builtin import starter_tasks

        complete["task"] = starter_tasks()
        complete.setdefault("seats", DEFAULT_SEATS)
    if "evaluator" not in complete:
        from sotopia_env.evaluators import default_evaluator

        complete["evaluator"] = default_evaluator()
    return complete
