"""Importer of NegotiationArena's logs of its game of buying and selling (Bianchi et al. 2024): ``game_state.json``.

The worth of a price is the reference's outcome: the seller gets what is above its cost, the buyer what is below its
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Foreign, Format, Identity, Product, ProductKind, Text, one_line
from sotopia_env.importers.formats.negotiation import Side, negotiation_product, negotiation_task, whole
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, utterance
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, Move, MoveKind, NumberIssue, OutcomeSpec
from sotopia_env.world.scenario import Task

PRICE, MONEY = "price", "ZUP"
_ANSWERS = {"ACCEPT": MoveKind.ACCEPT, "REJECT": MoveKind.REJECT}
_PROPOSAL = "PROPOSAL"


class Tagged(Foreign):
    """A value with its type, as the reference code writes its objects."""

    kind: str = Field(validation_alias="_type")
    value: Any = Field(validation_alias="_value")


class ArenaPlayer(Foreign):
    """A player."""

    agent_name: str
    model: Text = ""


class ArenaTurn(Foreign):
    """A state of the game: its beginning, a turn, or its end."""

    turn: int | str
    player_public_info_dict: dict[str, Any] | None = None


class SaleGame(Foreign):
    """A game of buying and selling."""

    game: Literal["BuySellGame"] = Field(validation_alias="class")
    run_epoch_time_ms: Identity
    players: tuple[ArenaPlayer, ArenaPlayer]
    game_state: list[ArenaTurn]
    player_goals: tuple[Tagged, Tagged]
    player_starting_resources: tuple[Tagged, Tagged]
    player_social_behaviour: tuple[Text, Text] = ("", "")

    def numbers(self, field: str, entry: Any) -> dict[str, int]:
        """The amounts in a tagged value, by resource; values may be tagged several times."""
        while isinstance(entry, Mapping) and "_value" in entry:
            entry = entry["_value"]
        if not isinstance(entry, Mapping):
            raise DamagedRecordError(field=field, expected="amounts by resource", got=entry)
        return {str(name): whole(field, amount) for name, amount in entry.items()}


def read(game: SaleGame, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a game."""
    kinds = [goal.value.get("_type") if isinstance(goal.value, Mapping) else None for goal in game.player_goals]
    if sorted(map(str, kinds)) != ["buyer_goal", "seller_goal"]:
        raise DamagedRecordError(field="player_goals", expected="a seller_goal and a buyer_goal", got=kinds)
    seller = kinds.index("seller_goal")
    acts = [act for n, state in enumerate(game.game_state) if (act := _act(game, seller, n, state)) is not None]
    key = f"negotiation-arena-{game.run_epoch_time_ms}"
    models = [player.model for player in game.players]
    yield negotiation_product(key, lambda: _task(key, game, seller), acts, models)


def _task(key: str, game: SaleGame, seller: int) -> Task:
    values = [game.numbers(f"player_goals.{n}", goal.value) for n, goal in enumerate(game.player_goals)]
    stock = [
        game.numbers(f"player_starting_resources.{n}", r.value) for n, r in enumerate(game.player_starting_resources)
    ]
    goods = ", ".join(f"{count} {name}" for name, count in stock[seller].items())
    money = stock[1 - seller].get(MONEY, 0)
    worth, sides = [], []
    for seat, player in enumerate(game.players):
        sign, own = (1, "cost") if seat == seller else (-1, "value to you")
        amount = sum(values[seat].values())
        aim = "Sell it for all you can" if seat == seller else "Buy it for as little as you can"
        worth.append(AdditiveWorth(constant=-sign * amount, issues={PRICE: {"per_unit": sign}}))
        info = f"The {own} is {amount} {MONEY}. {one_line(game.player_social_behaviour[seat])}".strip()
        sides.append(Side(player.agent_name, f"{aim}.", info))
    issue = NumberIssue(name=PRICE, low=Decimal(0), high=Decimal(max(1, money)), unit=MONEY)
    spec = OutcomeSpec(protocol=AgreementRules(), issues=(issue,), worth=tuple(worth))
    names = [player.agent_name for player in game.players]
    context = f"{names[seller]} has {goods} for sale, and {names[1 - seller]} has {money} {MONEY}."
    scenario = f"negotiation-arena/{content_id(context, values, game.player_social_behaviour)}"
    return negotiation_task(key, scenario, context, sides, spec, "negotiation-arena")


def _act(game: SaleGame, seller: int, number: int, state: ArenaTurn) -> Act | None:
    """The act of a turn; ``None`` for the states before the first one and after the last one."""
    public = state.player_public_info_dict
    if not isinstance(state.turn, int) or public is None:
        return None
    if state.turn not in (0, 1):
        raise DamagedRecordError(field=f"game_state.{number}.turn", expected="0 or 1", got=state.turn)
    words, answer = str(public.get("message") or ""), str(public.get("player answer") or "").strip()
    if answer in _ANSWERS:
        return utterance(state.turn, words, Move(_ANSWERS[answer], True))
    if answer != _PROPOSAL:
        return utterance(state.turn, words)
    field = f"game_state.{number}.player_public_info_dict.newly proposed trade"
    return utterance(state.turn, words, Move(MoveKind.PROPOSE, {PRICE: _price(game, seller, field, public)}))


def _price(game: SaleGame, seller: int, field: str, public: Mapping[str, Any]) -> int:
    """The price in a trade, in which the seller gives all goods and the buyer gives money."""
    trade = public.get("newly proposed trade")
    shares = trade.get("_value") if isinstance(trade, Mapping) else None
    if not isinstance(shares, Mapping) or len(shares) != len(game.players):
        raise DamagedRecordError(field=field, expected="what each player gives", got=trade)
    gifts = [game.numbers(field, share) for share in shares.values()]
    goods = game.numbers("player_starting_resources", game.player_starting_resources[seller].value)
    if gifts[seller] != goods or set(gifts[1 - seller]) != {MONEY}:
        raise DamagedRecordError(field=field, expected=f"{goods} for an amount of {MONEY}", got=str(gifts))
    return gifts[1 - seller][MONEY]


ARENA = Format("negotiation-arena", "NegotiationArena, buying and selling", ProductKind.EPISODE, SaleGame, read)
