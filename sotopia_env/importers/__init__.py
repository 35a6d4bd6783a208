"""Importers: files of others as records of ours; nothing here opens a socket or draws at random.

A format is known by its fields (:mod:`~sotopia_env.importers.registry`). SOTOPIA's formats, AgentSense's and training
rows are also written: what our records say, in the foreign form.
"""

from sotopia_env.importers.conversion import Conversion, FileCount
from sotopia_env.importers.foreign import Format, Kind, Product
from sotopia_env.importers.registry import FORMATS, detect, format_named
from sotopia_env.importers.source import Refusal, Remark

__all__ = [
    "FORMATS",
    "Conversion",
    "FileCount",
    "Format",
    "Kind",
    "Product",
    "Refusal",
    "Remark",
    "detect",
    "format_named",
]
