"""Importer of character cards, versions 1 to 3, as JSON or in PNG pictures (:mod:`~sotopia_env.importers.pictures`).

A card describes a character to the model that enacts it, so its description becomes a private attribute: others read a
public profile, which a card does not have. The situation on a card (scenario, greetings) has no goals and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from sotopia_env.importers.foreign import Foreign, Format, Product, ProductKind, Text, converted, one_line, plain_name
from sotopia_env.importers.formats.profiles import character_id
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Character

_MOST_CHARACTERS = 200_000  # of one text; a model reads the text in every turn
_SITUATION = ("scenario", "first_mes", "alternate_greetings")
_LEFT_OUT = (*_SITUATION, "system_prompt", "post_history_instructions", "character_book")
_OTHER = "the other person"  # the partner is known only when a task is played

CardText = Annotated[Text, Field(max_length=_MOST_CHARACTERS)]


def _text(*names: str) -> Any:
    return Field(default="", validation_alias=AliasChoices(*names))


class CardFields(Foreign):
    """The fields of all versions; version 1 has them at the top, also by the names that Pygmalion's programs use."""

    name: CardText = Field(validation_alias=AliasChoices("name", "char_name"), min_length=1)
    description: CardText = _text("description", "char_persona")
    personality: CardText = ""
    scenario: CardText = _text("scenario", "world_scenario")
    first_mes: CardText = _text("first_mes", "char_greeting")
    mes_example: CardText = _text("mes_example", "example_dialogue")
    system_prompt: CardText = ""
    post_history_instructions: CardText = ""
    alternate_greetings: Any = None
    character_book: Any = None


class FlatCard(CardFields):
    """A card of version 1."""

    one_of = (("first_mes", "char_greeting"), ("description", "char_persona"))

    spec: Literal["chara_card_v1"] | None = None


class NestedCard(Foreign):
    """A card of version 2 or 3; programs that read version 1 find its fields at the top, too."""

    spec: Literal["chara_card_v2", "chara_card_v3"]
    spec_version: Any = None
    data: CardFields
    name: Any = None
    description: Any = None
    personality: Any = None
    scenario: Any = None
    first_mes: Any = None
    mes_example: Any = None


def read_flat(card: FlatCard, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the character of a card of version 1."""
    yield _character(card, library)


def read_nested(card: NestedCard, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the character of a card of version 2 or 3."""
    yield _character(card.data, library)


def _character(card: CardFields, library: Library) -> Product:
    name = plain_name(card.name)
    first, _, last = name.partition(" ")
    private = {"description": _filled(card.description, name), "example dialogue": _filled(card.mes_example, name)}
    record = converted(
        lambda: Character(
            first_name=first,
            last_name=last,
            gender="",
            pronouns="",
            occupation="",
            personality=_filled(card.personality, name),
            private_attributes={field: text for field, text in private.items() if text},
        )
    )
    library.add(library.characters, character_id(record), record)
    left_out = [field for field in _LEFT_OUT if getattr(card, field)]
    notes = [f"name: {card.name!r} is read as {name!r}"] if name != card.name else []
    notes += [f"{', '.join(left_out)}: left out; write the situation as a scenario with goals"] if left_out else []
    return Product(ProductKind.CHARACTER, record, tuple(notes))


def _filled(text: str, name: str) -> str:
    """A text of a card as one line, with its placeholders for the character and the partner filled."""
    for own in ("{{char}}", "{{Char}}", "<BOT>", "<CHAR>"):
        text = text.replace(own, name)
    for other in ("{{user}}", "{{User}}", "<USER>"):
        text = text.replace(other, _OTHER)
    return one_line(text.replace("<START>", " ")).strip()


CARDS = (
    Format(
        "character-card",
        "character cards, version 2 and 3, JSON or PNG",
        ProductKind.CHARACTER,
        NestedCard,
        read_nested,
    ),
    Format("character-card-v1", "character cards, version 1, JSON or PNG", ProductKind.CHARACTER, FlatCard, read_flat),
)
