"""The tables of the service's database, the same on SQLite and PostgreSQL.

A row holds the exact JSON of its record as text beside the columns that lists filter and sort by, so no list parses a
record and a record is read back byte for byte. Times are seconds since the epoch, UTC. Ids sort by time of creation
(:func:`new_id`), which makes them the key of paging.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def new_id() -> str:
    """Returns an id that sorts after all ids made in earlier milliseconds, with 40 random bits; 21 hex digits."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(5)}"


def _text(name: str, **options: object) -> Column[str]:
    return Column(name, Text, nullable=False, **options)  # type: ignore[arg-type]


def _time(name: str, nullable: bool = True) -> Column[float]:
    return Column(name, Float, nullable=nullable)


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=false())


def _item(name: str, *columns: Column[Any]) -> Table:
    """A kind of item in the library: identified by its content, never changed, archived instead of deleted."""
    return Table(
        name,
        metadata,
        _text("id", primary_key=True),
        _text("hash", unique=True),  # of the record's content: equal content is one item
        _text("name", index=True),
        *columns,
        _text("record"),
        _time("created", nullable=False),
        _time("archived"),
    )


character = _item(
    "character",
    Column("age", Integer, index=True),
    _text("gender", index=True, server_default=""),
    _text("occupation", index=True, server_default=""),
)
scenario = _item(
    "scenario",
    Column("seats", Integer, nullable=False, index=True),
    _text("protocol", index=True, server_default=""),
    _text("source", index=True, server_default=""),
)
relationship = _item(
    "relationship",
    _text("first", index=True),  # ids of characters, in alphabetical order
    _text("second", index=True),
    _text("kind", index=True),
)
task = _item(
    "task",
    _text("scenario", index=True),
    Column("seats", Integer, nullable=False, index=True),
    _text("rules", server_default=""),  # what a draft brought along: rules of play, as JSON …
    _text("dimensions", server_default=""),  # … and the id of a list of dimensions
)
dimension_list = _item("dimension_list")

reference = Table(
    "reference",
    metadata,
    _text("kind", primary_key=True),  # an item of the library …
    _text("item", primary_key=True),
    _text("user_kind", primary_key=True),  # … that another item in use refers to
    _text("user", primary_key=True),
    Index("ix_reference_user", "user_kind", "user"),
)

tag = Table(
    "tag",
    metadata,
    _text("kind", primary_key=True),  # the name of the table that holds the item
    _text("item", primary_key=True),
    _text("tag", primary_key=True),
    Index("ix_tag_kind", "kind", "tag", "item"),
)

run = Table(
    "run",
    metadata,
    _text("id", primary_key=True),
    _text("name", server_default=""),
    _text("kind", index=True),  # batch (its directory is the truth) or live (its episodes' events are)
    _text("spec"),
    _text("status", index=True),
    _text("directory", server_default=""),
    _count("planned"),
    _count("played"),
    _count("failed"),
    _count("unscored"),
    Column("tokens", BigInteger),
    Column("cost", Float),  # US dollars; null: unknown
    _text("error", server_default=""),
    _text("owner", server_default=""),
    _time("created", nullable=False),
    _time("started"),
    _time("finished"),
)

episode = Table(
    "episode",
    metadata,
    _text("id", primary_key=True),
    Column("run", Text, ForeignKey("run.id")),
    _text("key"),  # its identity within its run
    _text("task"),  # the task's name
    _text("task_hash"),
    _text("scenario"),
    Column("seats", Integer, nullable=False),
    _text("characters"),  # names in seat order, for lists
    _text("policies"),
    _text("status"),
    _text("stop", server_default=""),
    _text("error", server_default=""),
    _count("turns"),
    Column("seed", BigInteger, nullable=False),
    _flag("starred"),
    _count("events"),  # how many events it has: the lock of appending one
    _text("owner", server_default=""),
    _time("created", nullable=False),
    _time("deadline"),  # when the person whose turn it is runs out of time
    _time("ended"),
    UniqueConstraint("run", "key"),
    Index("ix_episode_deadline", "deadline"),
    # A list filters by a column and goes on from an id: with both in one index it reads a page and no more.
    *(Index(f"ix_episode_{name}", name, "id") for name in ("run", "task", "task_hash", "scenario", "status", "stop")),
    Index("ix_episode_starred", "starred", "id"),
)

document = Table(  # beside the rows, which lists read quickly because they are short
    "document",
    metadata,
    Column("episode", Text, ForeignKey("episode.id"), primary_key=True),
    _text("spec", server_default=""),  # of a live episode: what is needed to play it
    Column("record", Text),  # the episode's line, once it has ended
)

seat = Table(
    "seat",
    metadata,
    Column("episode", Text, ForeignKey("episode.id"), primary_key=True),
    _text("agent", primary_key=True),
    _text("character"),
    _text("policy"),
    Index("ix_seat_character", "character", "episode"),
    Index("ix_seat_policy", "policy", "episode"),
    _text("participant", index=True, server_default=""),  # id of a person; empty for a policy
)

score = Table(
    "score",
    metadata,
    Column("episode", Text, ForeignKey("episode.id"), primary_key=True),
    _text("agent", primary_key=True),
    _text("evaluator", primary_key=True),
    _text("dimension", primary_key=True),
    Column("value", Float, nullable=False),
    Index("ix_score_dimension", "dimension", "value", "episode"),
)

event = Table(
    "event",
    metadata,
    Column("episode", Text, ForeignKey("episode.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # 1, 2, … without gaps within its episode
    _text("kind"),
    _text("payload"),
    _time("at", nullable=False),
)

submission = Table(
    "submission",
    metadata,
    Column("episode", Text, ForeignKey("episode.id"), primary_key=True),
    _text("key", primary_key=True),  # chosen by the sender: the same key again has no second effect
    _text("agent"),
    _time("at", nullable=False),
)

draft = Table(
    "draft",
    metadata,
    _text("owner", primary_key=True),  # a participant's or user's id
    _text("form", primary_key=True),  # what is being filled in
    _text("content"),
    _time("at", nullable=False),
)

comment = Table(
    "comment",
    metadata,
    _text("id", primary_key=True),
    Column("episode", Text, ForeignKey("episode.id"), nullable=False, index=True),
    _text("author", server_default=""),
    _text("text"),
    _time("created", nullable=False),
)

job = Table(
    "job",
    metadata,
    _text("id", primary_key=True),  # kind:target, so a target has at most one worker
    _text("kind"),
    _text("target"),
    _text("payload", server_default=""),
    _count("requests"),  # how often it was asked for; it is due while this is more than ``done``
    _count("done"),
    _count("attempts"),  # since the last success
    _flag("stop"),
    _text("worker", server_default=""),
    _time("leased_until"),
    Column("not_before", Float, nullable=False, server_default="0"),
    _text("error", server_default=""),
    _text("result", server_default=""),  # JSON text of what a job has to say, such as a draft
    Index("ix_job_not_before", "not_before"),
)

user = Table(
    "user",
    metadata,
    _text("id", primary_key=True),
    _text("name", unique=True),
    _text("role"),
    _text("password"),  # argon2
    _time("created", nullable=False),
)

session = Table(
    "session",
    metadata,
    _text("hash", primary_key=True),  # SHA-256 of the cookie
    _text("principal"),
    _text("role"),
    _text("scope", server_default=""),  # of a participant: the study
    _time("expires", nullable=False),
)

token = Table(
    "token",
    metadata,
    _text("id", primary_key=True),
    _text("hash", unique=True),  # SHA-256: the token itself is shown once
    _text("name"),
    _text("owner"),
    _text("scopes"),
    _time("created", nullable=False),
    _time("last_used"),
)

study = Table(
    "study",
    metadata,
    _text("id", primary_key=True),
    _text("name", unique=True),
    _text("kind"),  # play, annotate or validate
    _text("settings"),
    _text("status", index=True),
    _text("owner", server_default=""),
    _time("created", nullable=False),
)

participant = Table(
    "participant",
    metadata,
    _text("id", primary_key=True),
    Column("study", Text, ForeignKey("study.id"), index=True),  # null: invited to a seat, and to no study
    Column("link", Text, unique=True),  # SHA-256 of the secret in the link; null once it is claimed
    _text("external", server_default="", index=True),  # a panel's id, such as Prolific's
    _text("state", index=True),
    _text("answers", server_default="{}"),  # consent, questionnaires
    _time("created", nullable=False),
    _time("seen"),
    _time("finished"),
)

assignment = Table(
    "assignment",
    metadata,
    _text("id", primary_key=True),
    Column("study", Text, ForeignKey("study.id"), nullable=False),
    _text("item"),  # what is to be done: an episode to annotate, a scenario to validate, a plan to play
    Column("slot", Integer, nullable=False),  # 0 … overlap - 1
    Column("participant", Text, ForeignKey("participant.id")),
    _text("state", index=True),  # open, leased, done, rejected
    _time("leased_until"),
    _text("answers", server_default="{}"),
    Column("seconds", Float),
    _time("finished"),
    Index("ix_assignment_study_state", "study", "state"),
)
