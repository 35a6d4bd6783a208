"""Adapters to other projects' trainers, evaluators and experiments.

Each module needs the extra of its library: ``pip install 'sotopia-env[inspect]'`` for Inspect.
"""

from sotopia_env.adapters.seat import Seat, rows

__all__ = ["Seat", "rows"]
