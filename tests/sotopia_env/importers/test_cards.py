"""Character cards as JSON and in pictures; the people and pictures are made here."""

import base64
import json
import struct
import tracemalloc
import zlib

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.importing import import_files
from sotopia_env.importers.pictures import LARGEST_CARD
from sotopia_env.world.taskset import Cast
from tests.errors import raises
from tests.sotopia_env.importers.samples import CARD, FLAT_CARD, PYGMALION_CARD


def chunk(kind, data):
    return struct.pack(">I4s", len(data), kind) + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def encoded(card):
    return base64.b64encode(json.dumps(card).encode())


def picture(path, *chunks):
    """A picture of one grey point with these chunks."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\0"))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + body + b"".join(chunks) + chunk(b"IEND", b""))
    return path


def characters(folder, *files):
    import_files(files, folder, progress=False)
    return Cast.model_validate_json((folder / "cast.json").read_text()).characters


@pytest.mark.parametrize("card", [CARD, FLAT_CARD, PYGMALION_CARD], ids=["nested", "flat", "pygmalion"])
def test_a_card_becomes_a_character(tmp_path, card):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card, indent=1))
    (person,) = characters(tmp_path / "out", path)
    assert person.name == "Tova Brandt"
    assert person.private_attributes["description"] == "Tova Brandt repairs radios and teases the other person."
    assert person.public_info == ""  # others read nothing of what a card tells the model that enacts it


WAYS = {
    "tEXt": lambda card: chunk(b"tEXt", b"chara\0" + encoded(card)),
    "zTXt": lambda card: chunk(b"zTXt", b"chara\0\0" + zlib.compress(encoded(card))),
    "iTXt": lambda card: chunk(b"iTXt", b"ccv3\0\0\0en\0\0" + encoded(card)),
    "packed iTXt": lambda card: chunk(b"iTXt", b"ccv3\0\1\0\0\0" + zlib.compress(encoded(card))),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_card_is_read_from_a_picture(tmp_path, way):
    (person,) = characters(tmp_path / "out", picture(tmp_path / "card.png", WAYS[way](CARD)))
    assert person.name == "Tova Brandt"


def test_of_two_cards_in_a_picture_the_later_version_counts(tmp_path):
    later = {**CARD, "spec": "chara_card_v3", "data": {**CARD["data"], "name": "Uma Brandt"}}
    chunks = [chunk(b"tEXt", b"ccv3\0" + encoded(later)), chunk(b"tEXt", b"chara\0" + encoded(CARD))]
    assert [person.name for person in characters(tmp_path / "out", picture(tmp_path / "a.png", *chunks))] == [
        "Uma Brandt"
    ]


def test_a_name_never_becomes_a_path_or_a_turn(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps({**CARD, "data": {**CARD["data"], "name": '../../up: "Tova" (old)'}}))
    (person,) = characters(tmp_path / "out", path)
    assert person.name == "../../up Tova old"
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["card.json", "cast.json", "import.json", "out"]


BAD = {
    "no card": ([], "problem"),
    "not base64": ([chunk(b"tEXt", b"chara\0{!}")], "problem"),
    "not JSON": ([chunk(b"tEXt", b"chara\0" + base64.b64encode(b"{"))], "problem"),
    "a broken checksum": ([chunk(b"tEXt", b"chara\0" + encoded(CARD))[:-1] + b"\0"], "problem"),
    "not compressed": ([chunk(b"zTXt", b"chara\0\0" + encoded(CARD))], "problem"),
    "a bomb": ([chunk(b"zTXt", b"chara\0\0" + zlib.compress(bytes(20 * LARGEST_CARD)))], "expected"),
    "a large card": ([chunk(b"tEXt", b"chara\0" + b"A" * (3 * LARGEST_CARD))], "expected"),
}


@pytest.mark.parametrize(("chunks", "part"), BAD.values(), ids=BAD)
def test_a_picture_that_cannot_be_read_is_one_sentence_in_bounded_memory(tmp_path, chunks, part):
    path = picture(tmp_path / "card.png", *chunks)
    tracemalloc.start()
    with raises(DamagedRecordError, file="card.png") as caught:
        import_files([path], tmp_path / "out", progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert getattr(caught.value, part)
    assert peak < 3 * LARGEST_CARD
    assert not (tmp_path / "out").exists()


def test_of_many_pictures_those_without_a_card_are_left_out_on_request(tmp_path):
    card, avatar = picture(tmp_path / "card.png", WAYS["tEXt"](CARD)), picture(tmp_path / "avatar.png")
    with raises(DamagedRecordError, file="avatar.png"):
        import_files([card, avatar], tmp_path / "out", progress=False)
    report = import_files([card, avatar], tmp_path / "out", keep_going=True, progress=False)
    assert report.written["cast.json"] == 1
    assert [count.left_out for count in report.counts] == [1, 0]


def test_a_picture_that_is_cut_off_is_one_sentence(tmp_path):
    path = picture(tmp_path / "card.png", WAYS["tEXt"](CARD))
    path.write_bytes(path.read_bytes()[:200])
    with raises(DamagedRecordError, file="card.png"):
        import_files([path], tmp_path / "out")


def test_a_card_of_fifty_megabytes_is_one_sentence(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps({**CARD, "data": {**CARD["data"], "description": "a" * 50_000_000}}))
    with raises(DamagedRecordError, field="data.description") as caught:
        import_files([path], tmp_path / "out")
    assert len(str(caught.value)) < 500


def test_the_length_of_a_text_is_in_characters(tmp_path):
    card = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Ann", "description": "x" * 300_000}}
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card))
    with raises(DamagedRecordError) as caught:
        import_files([path], tmp_path / "out", progress=False)
    assert "characters" in str(caught.value)
    assert "entries" not in str(caught.value)
