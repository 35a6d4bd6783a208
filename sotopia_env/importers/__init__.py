"""Importers: readers that convert files of other projects to this package's records.

Nothing here opens a socket or draws at random. A format is detected by the fields of its records
(:mod:`~sotopia_env.importers.registry`). The formats of SOTOPIA and AgentSense and training rows can also be written.
"""

from sotopia_env.importers.foreign import Format
from sotopia_env.importers.registry import detect

__all__ = [
    "Format",
    "detect",
]
