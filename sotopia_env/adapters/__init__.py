"""Adapters to other projects' trainers, evaluators and experiments.

Each module needs the extra of its library: ``pip install -e '.[inspect]'`` in a checkout, for Inspect.
"""

from sotopia_env.adapters.rows import rows
from sotopia_env.adapters.seat import Seats, TextSeat

__all__ = ["Seats", "TextSeat", "rows"]
