"""Kinds of file by their first bytes, for files that hold records in another form than text, or none at all."""

from __future__ import annotations

from dataclasses import dataclass

_UNPACK, _TEXT = "unpack it and import the files in it", "save it as UTF-8 text"
_ROWS = "write its rows as JSON Lines, CSV or Parquet"
_PICTURE = "character cards are read from PNG and JSON files"


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file that cannot be imported.

    Attributes:
        name: the kind in words, with its article.
        mark: bytes that a file of this kind has.
        mend: how to get a file that can be imported.
        start: position of ``mark`` in the file.
        is_text: whether the mark is text, whose case and leading blanks do not matter.
    """

    name: str
    mark: bytes
    mend: str
    start: int = 0
    is_text: bool = False

    def matches(self, head: bytes) -> bool:
        """Whether the first bytes of a file have the mark."""
        if self.is_text:
            return head.lstrip().lower().startswith(self.mark)
        return head.startswith(self.mark, self.start)


KINDS = (
    FileKind("a gzip file", b"\x1f\x8b", _UNPACK),
    FileKind("a zip archive", b"PK\x03\x04", f"{_UNPACK}; save the sheet of a spreadsheet as CSV"),
    FileKind("a bzip2 file", b"BZh", _UNPACK),
    FileKind("an xz file", b"\xfd7zXZ\x00", _UNPACK),
    FileKind("a Zstandard file", b"\x28\xb5\x2f\xfd", _UNPACK),
    FileKind("a 7-Zip archive", b"7z\xbc\xaf\x27\x1c", _UNPACK),
    FileKind("a RAR archive", b"Rar!\x1a\x07", _UNPACK),
    FileKind("a tar archive", b"ustar", _UNPACK, start=257),
    FileKind("an old Office document", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save the sheet as CSV"),
    FileKind("a PDF document", b"%PDF-", "import the data that it was made from"),
    FileKind("an RTF document", b"{\\rtf", _TEXT),
    # A pickle is named and never loaded: loading one runs the program that is in it.
    *(FileKind("a pickle", bytes((0x80, version)), _ROWS) for version in (2, 3, 4, 5)),
    FileKind("a NumPy array", b"\x93NUMPY", _ROWS),
    FileKind("an HDF5 file", b"\x89HDF\r\n\x1a\n", _ROWS),
    FileKind("an SQLite database", b"SQLite format 3\x00", _ROWS),
    FileKind("a Redis dump", b"REDIS0", "load it into Redis and write its records as JSON Lines"),
    FileKind("an Arrow file", b"ARROW1", _ROWS),
    FileKind("an Arrow stream", b"\xff\xff\xff\xff", _ROWS),
    FileKind("an Avro file", b"Obj\x01", _ROWS),
    FileKind("an ORC file", b"ORC", _ROWS),
    FileKind("a JPEG picture", b"\xff\xd8\xff", _PICTURE),
    FileKind("a GIF picture", b"GIF8", _PICTURE),
    FileKind("a WebP picture", b"WEBP", _PICTURE, start=8),
    FileKind("UTF-16 text", b"\xff\xfe", _TEXT),
    FileKind("UTF-16 text", b"\xfe\xff", _TEXT),
    FileKind("a web page", b"<!doctype html", "download the file that the page links to", is_text=True),
    FileKind("a web page", b"<html", "download the file that the page links to", is_text=True),
    FileKind(
        "a Git LFS pointer", b"version https://git-lfs", "fetch the file itself with `git lfs pull`", is_text=True
    ),
)
"""Kinds that are named when they cannot be read, longer marks before shorter ones that begin alike."""
TOML = FileKind("a TOML file", b"", "write its records as JSON or YAML")
"""A kind that only the file's name shows."""
PNG, PARQUET = b"\x89PNG\r\n\x1a\n", b"PAR1"
"""Marks of the kinds that are read."""


def kind_of_file(head: bytes, suffix: str) -> FileKind | None:
    """Returns the kind of a file that cannot be imported; ``None`` for others.

    Args:
        head: its first bytes, 300 or more.
        suffix: the suffix of its name.
    """
    kind = next((kind for kind in KINDS if kind.matches(head)), None)
    return TOML if kind is None and suffix.lower() == ".toml" else kind
