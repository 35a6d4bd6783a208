"""Reader of character cards in PNG pictures: JSON in a text chunk, as base64.

The chunk's keyword is ``chara`` (cards of version 1 and 2) or ``ccv3`` (version 3), which counts if a picture has both.
Only text chunks are read into memory, and none inflates to more than :data:`LARGEST_CARD`.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sotopia_env.foundation.errors import DamagedRecordError, FieldError, Verbatim
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.importers.kinds import PNG
from sotopia_env.importers.source import RawRecord, RefusedRecord

LARGEST_CARD = 1 << 24
"""Maximum size of a card's text in bytes."""
KEYWORDS = (b"chara", b"ccv3")
"""Keywords of the text chunks that hold a card; a later one counts more."""
_TEXT, _COMPRESSED, _INTERNATIONAL = b"tEXt", b"zTXt", b"iTXt"


def card_records(path: Path, stream: BinaryIO) -> Iterator[RawRecord | RefusedRecord]:
    """Yields the card in a picture, or a refusal with what is wrong with it.

    Raises:
        DamagedRecordError: the picture is damaged or holds no card.
    """
    cards = {keyword: text for keyword, text in _texts(path, stream) if keyword in KEYWORDS}
    if not cards:
        hint = "export the card from the program that made it; a picture that was converted or shared may have lost it"
        raise DamagedRecordError("this is a PNG picture without a character card", hint=hint, where=path)
    keyword = max(cards, key=KEYWORDS.index)
    try:
        value = parse_json(base64.b64decode(cards[keyword], validate=True), path)
    except binascii.Error as error:
        problem = f"the card in {keyword.decode()} is not base64 ({error})"
        yield RefusedRecord(DamagedRecordError(problem, hint="export the card again", where=path))
    except FieldError as error:
        yield RefusedRecord(DamagedRecordError.of(error))
    else:
        yield RawRecord(path, 1, 0, value)


def _texts(path: Path, stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The keyword and text of every text chunk that may hold a card."""
    stream.seek(len(PNG))
    while len(start := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", start)
        if kind == b"IEND":
            return
        if kind not in (_TEXT, _COMPRESSED, _INTERNATIONAL):
            stream.seek(length + 4, 1)  # the data and its checksum
            continue
        if length > LARGEST_CARD:
            raise _too_large(path, length)
        data, checksum = stream.read(length), stream.read(4)
        if checksum != struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))):
            raise DamagedRecordError("the picture is damaged: a checksum is wrong", hint="copy it again", where=path)
        keyword, _, rest = data.partition(b"\0")
        if keyword in KEYWORDS:
            yield keyword, _text(path, kind, rest)
    raise DamagedRecordError("the picture is cut off", hint="copy it again", where=path)


def _text(path: Path, kind: bytes, rest: bytes) -> bytes:
    """The text of a chunk, from the bytes after its keyword."""
    if kind == _TEXT:
        return rest
    if kind == _COMPRESSED:
        return _inflated(path, rest[1:])  # after the method of compression, of which there is one
    # Flag, method, language, a null, the translated keyword, a null, and the text.
    text = rest[2:].split(b"\0", 2)[-1]
    return _inflated(path, text) if rest[:1] == b"\1" else text


def _inflated(path: Path, data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # The bound is on the output: a small chunk may inflate to any size.
        text = inflater.decompress(data, LARGEST_CARD + 1)
    except zlib.error as error:
        raise DamagedRecordError(f"the card cannot be unpacked ({error})", hint="copy it again", where=path) from None
    if len(text) > LARGEST_CARD:
        raise _too_large(path, len(text))
    return text


def _too_large(path: Path, size: int) -> DamagedRecordError:
    got = Verbatim(f"at least {size}")
    hint = "cut the card's texts; a character that a model enacts has thousands of characters, not millions"
    return DamagedRecordError(expected=f"a card of at most {LARGEST_CARD} bytes", got=got, hint=hint, where=path)
