"""The form of a simulation: its fields from an episode, a task or the last cast, and the simulation that they describe.

An episode that is played *again* is the source of a form, too: its task as it was, and every setting. Between an
episode and the one before it, :func:`changes` names what differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.foundation.records import read_record
from sotopia_env.foundation.validation import invalid
from sotopia_env.world import Rules, Task, TurnOrder
from sotopia_studio.api.simulate import LINK, Simulation
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import drafts, episodes, events, library
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.store.kinds import TASKS

_RULES = TypeAdapter(Rules)
_WORDS = {"me": PERSON, LINK: LINK}
_LAST = "simulate"
"""The draft that holds the form of the last simulation."""
_OF_ONE = ("task", "scenario", "again", "seats", "rules", "manner", "forecast", "turn_order", "max_turns")
"""The fields of a form that belong to what was played, and not to how the next one is cast."""


def rules_of(text: str) -> Rules:
    """Returns the rules of play in a JSON text; the default ones for an empty text."""
    try:
        return _RULES.validate_python(parse_json(text or "{}", "rules", InvalidValueError))
    except ValidationError as error:
        raise invalid(error) from None


def rules_text(rules: Rules) -> str:
    """Returns rules of play as JSON text, without default values."""
    return _RULES.dump_json(rules, exclude_defaults=True).decode()


# --- where a form's fields come from ------------------------------------------------------------------------------
async def last_cast(connection: AsyncConnection, owner: str) -> dict[str, str]:
    """Returns who played and how in the last simulation of a user; empty before the first one."""
    return await drafts.load(connection, owner, _LAST)


async def save_cast(connection: AsyncConnection, owner: str, fields: Mapping[str, str]) -> None:
    """Saves the fields of a form of which a simulation was begun."""
    cast = {name: value for name, value in fields.items() if name not in _OF_ONE}
    await drafts.save(connection, owner, _LAST, cast)


async def task_fields(connection: AsyncConnection, settings: ServiceSettings, task: str) -> dict[str, str]:
    """Returns the fields that a task of the library determines: its rules and its dimensions."""
    columns = (await library.get(connection, TASKS, task)).columns
    rules = rules_of(columns["rules"])
    fields = {"rules": columns["rules"], "turn_order": rules.turn_order.value, "max_turns": str(rules.max_turns or "")}
    # Own dimensions need a judge, so one is proposed.
    if columns["dimensions"] and settings.model_names:
        fields["evaluator"] = f"judge:{settings.model_names[0]}"
    return {**fields, "dimensions": columns["dimensions"]}


async def spec_of(connection: AsyncConnection, episode: str) -> LiveSpec:
    """Returns the settings of an episode; those of a recorded one are taken from its record.

    Raises:
        MissingError: the episode does not exist.
    """
    row = await events.row_of(connection, episode)
    if row.status != "done" or row.events:
        return read_record(LiveSpec, await episodes.spec_of(connection, episode), f"episode {episode}")
    record = await episodes.record_of(connection, episode)
    return LiveSpec(
        task=record.task,
        rules=record.rules,
        seed=row.seed,
        policies={policy.agent: policy.name for policy in record.policies},
        evaluator=next((item.evaluator for item in record.evaluations), "none"),
    )


async def again_fields(connection: AsyncConnection, episode: str) -> tuple[dict[str, str], Task]:
    """Returns the fields of the form that plays an episode again, and its task.

    Raises:
        MissingError: the episode does not exist.
    """
    spec = await spec_of(connection, episode)
    guests = await episodes.guests(connection, episode)
    people = {agent: LINK if agent in guests else "me" for agent in spec.people}
    fields = {
        "again": episode,
        "rules": rules_text(spec.rules),
        "turn_order": spec.rules.turn_order.value,
        "max_turns": str(spec.rules.max_turns or ""),
        "evaluator": spec.evaluator,
        "manner": canonical_json(dict(spec.manner)) if spec.manner else "",
        "seed": str(spec.seed),
        "minutes": f"{spec.turn_seconds / 60:g}" if spec.turn_seconds else "",
        "on_timeout": spec.on_timeout,
        # One tag for all that came of one episode, so that a list and a comparison show them together.
        "tag": spec.tag or f"again-{episode[-6:]}",
    }
    for assistance in spec.assistants.values():
        fields |= {"assistance": assistance.mode, "adviser": assistance.policy}
    for number, agent in enumerate(spec.task.agents):
        fields[f"policy_{number}"] = people.get(agent, spec.policies.get(agent, ""))
    return fields, spec.task


def changes(before: LiveSpec, after: LiveSpec) -> Iterator[str]:
    """Yields what differs between an episode and the one that was played again, in words."""
    names = before.task.names
    for agent in before.task.agents:
        pair = (before.policies.get(agent, ""), after.policies.get(agent, ""))
        if pair[0] != pair[1]:
            yield f"{names[agent]}: {pair[0]} → {pair[1]}"
    values = [
        (one.seed, one.evaluator, canonical_json(dict(one.manner)), *_RULES.dump_python(one.rules).values())
        for one in (before, after)
    ]
    labels = ("seed", "evaluator", "settings of models", *_RULES.dump_python(before.rules))
    for label, old, new in zip(labels, *values, strict=True):
        if old != new:
            yield f"{label.replace('_', ' ')}: {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


# --- what a form describes ----------------------------------------------------------------------------------------
def simulation_of(fields: Mapping[str, str], task: Task | None = None) -> Simulation:
    """Returns the simulation that a form describes.

    Args:
        fields: the form.
        task: the task of the episode that is played again; by default the library's one that the form names.

    Raises:
        InvalidValueError: a field is invalid.
    """
    seats = int(fields.get("seats", "0")) if fields.get("seats", "0").isdecimal() else 0
    seat_fields = [(fields.get(f"agent_{seat}", ""), fields.get(f"policy_{seat}", "").strip()) for seat in range(seats)]
    what = task or fields.get("task") or None
    values: dict[str, Any] = {
        "task": what,
        "scenario": None if what else fields.get("scenario") or None,
        "agents": [] if what else [agent for agent, _ in seat_fields if agent],
        # `me` in the form is the researcher who fills it in.
        "policies": [_WORDS.get(policy.casefold(), policy) for _, policy in seat_fields],
        "evaluator": fields.get("evaluator", "").strip() or None,
        "dimensions": fields.get("dimensions") or None,
        "manner": parse_json(fields.get("manner") or "{}", "manner", InvalidValueError),
        "tag": fields.get("tag", "").strip(),
        "on_timeout": fields.get("on_timeout") or "leave",
    }
    if (mode := fields.get("assistance", "none")) not in ("", "none"):
        people = [seat for seat, policy in enumerate(values["policies"]) if policy in _WORDS.values()]
        helper = {"mode": mode, "policy": fields.get("adviser", "").strip()}
        if not helper["policy"]:
            raise InvalidValueError(field="adviser", expected=f"the policy that helps people ({mode})", got="")
        values["assistants"] = {f"agent_{seat}": helper for seat in people}
    for name in ("repeats", "seed"):
        if fields.get(name, "").strip():
            values[name] = _whole(name, fields[name])
    if minutes := fields.get("minutes", "").strip():
        if not minutes.replace(".", "", 1).isdecimal():
            raise InvalidValueError(field="minutes", expected="a number of minutes", got=minutes[:40])
        values["turn_seconds"] = 60.0 * float(minutes)
    limit = fields.get("max_turns", "").strip()
    order = fields.get("turn_order") or TurnOrder.ROUND_ROBIN.value
    values["rules"] = dataclasses.replace(
        rules_of(fields.get("rules", "")),
        turn_order=TurnOrder(order),
        max_turns=_whole("max_turns", limit) if limit else None,
    )
    try:
        return Simulation(**values)
    except ValidationError as error:
        raise invalid(error) from None


def _whole(field: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 15:
        raise InvalidValueError(field=field, expected="a whole number", got=text[:40])
    return int(text)
