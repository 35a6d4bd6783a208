"""Importers: readers that convert files of other projects to this package's records.

Nothing here opens a socket or draws at random. A format is detected by the fields of its records
(:mod:`~sotopia_env.importers.registry`). The formats of SOTOPIA and AgentSense and training rows can also be written.
"""

from sotopia_env.importers.conversion import Conversion, FileCount
from sotopia_env.importers.foreign import Format, Product, ProductKind
from sotopia_env.importers.registry import detect, format_named, formats
from sotopia_env.importers.source import RefusedRecord, Remark

__all__ = [
    "Conversion",
    "FileCount",
    "Format",
    "Product",
    "ProductKind",
    "RefusedRecord",
    "Remark",
    "detect",
    "format_named",
    "formats",
]
