"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# fmt: off


def upgrade() -> None:
    """Applies the revision."""
    op.create_table("character",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("age", sa.Integer(), nullable=True),
        sa.Column("gender", sa.Text(), server_default="", nullable=False),
        sa.Column("occupation", sa.Text(), server_default="", nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_character"),
        sa.UniqueConstraint("hash", name="uq_character_hash")
    )
    op.create_index("ix_character_age", "character", ["age"])
    op.create_index("ix_character_gender", "character", ["gender"])
    op.create_index("ix_character_name", "character", ["name"])
    op.create_index("ix_character_occupation", "character", ["occupation"])
    op.create_table("dimension_list",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_dimension_list"),
        sa.UniqueConstraint("hash", name="uq_dimension_list_hash")
    )
    op.create_index("ix_dimension_list_name", "dimension_list", ["name"])
    op.create_table("draft",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "form", name="pk_draft")
    )
    op.create_table("job",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), server_default="", nullable=False),
        sa.Column("requests", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stop", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("worker", sa.Text(), server_default="", nullable=False),
        sa.Column("leased_until", sa.Float(), nullable=True),
        sa.Column("not_before", sa.Float(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("result", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job")
    )
    op.create_index("ix_job_not_before", "job", ["not_before"])
    op.create_table("reference",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("user_kind", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "item", "user_kind", "user", name="pk_reference")
    )
    op.create_index("ix_reference_user", "reference", ["user_kind", "user"])
    op.create_table("relationship",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first", sa.Text(), nullable=False),
        sa.Column("second", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_relationship"),
        sa.UniqueConstraint("hash", name="uq_relationship_hash")
    )
    op.create_index("ix_relationship_first", "relationship", ["first"])
    op.create_index("ix_relationship_kind", "relationship", ["kind"])
    op.create_index("ix_relationship_name", "relationship", ["name"])
    op.create_index("ix_relationship_second", "relationship", ["second"])
    op.create_table("run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("directory", sa.Text(), server_default="", nullable=False),
        sa.Column("planned", sa.Integer(), server_default="0", nullable=False),
        sa.Column("played", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("unscored", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_run")
    )
    op.create_index("ix_run_kind", "run", ["kind"])
    op.create_index("ix_run_status", "run", ["status"])
    op.create_table("scenario",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seats", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.Text(), server_default="", nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_scenario"),
        sa.UniqueConstraint("hash", name="uq_scenario_hash")
    )
    op.create_index("ix_scenario_name", "scenario", ["name"])
    op.create_index("ix_scenario_protocol", "scenario", ["protocol"])
    op.create_index("ix_scenario_seats", "scenario", ["seats"])
    op.create_index("ix_scenario_source", "scenario", ["source"])
    op.create_table("session",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), server_default="", nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_session")
    )
    op.create_table("study",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
        sa.UniqueConstraint("name", name="uq_study_name")
    )
    op.create_index("ix_study_status", "study", ["status"])
    op.create_table("tag",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "item", "tag", name="pk_tag")
    )
    op.create_index("ix_tag_kind", "tag", ["kind", "tag", "item"])
    op.create_table("task",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), nullable=False),
        sa.Column("seats", sa.Integer(), nullable=False),
        sa.Column("rules", sa.Text(), server_default="", nullable=False),
        sa.Column("dimensions", sa.Text(), server_default="", nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_task"),
        sa.UniqueConstraint("hash", name="uq_task_hash")
    )
    op.create_index("ix_task_name", "task", ["name"])
    op.create_index("ix_task_scenario", "task", ["scenario"])
    op.create_index("ix_task_seats", "task", ["seats"])
    op.create_table("token",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("last_used", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("hash", name="uq_token_hash")
    )
    op.create_table("user",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_user"),
        sa.UniqueConstraint("name", name="uq_user_name")
    )
    op.create_table("episode",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("task_hash", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), nullable=False),
        sa.Column("seats", sa.Integer(), nullable=False),
        sa.Column("characters", sa.Text(), nullable=False),
        sa.Column("policies", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop", sa.Text(), server_default="", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("starred", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("events", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("deadline", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name="fk_episode_run_run"),
        sa.PrimaryKeyConstraint("id", name="pk_episode"),
        sa.UniqueConstraint("run", "key", name="uq_episode_run_key")
    )
    op.create_index("ix_episode_deadline", "episode", ["deadline"])
    op.create_index("ix_episode_run", "episode", ["run", "id"])
    op.create_index("ix_episode_scenario", "episode", ["scenario", "id"])
    op.create_index("ix_episode_starred", "episode", ["starred", "id"])
    op.create_index("ix_episode_status", "episode", ["status", "id"])
    op.create_index("ix_episode_stop", "episode", ["stop", "id"])
    op.create_index("ix_episode_task", "episode", ["task", "id"])
    op.create_index("ix_episode_task_hash", "episode", ["task_hash", "id"])
    op.create_table("participant",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("study", sa.Text(), nullable=True),
        sa.Column("link", sa.Text(), nullable=True),
        sa.Column("external", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("answers", sa.Text(), server_default="{}", nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("seen", sa.Float(), nullable=True),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["study"], ["study.id"], name="fk_participant_study_study"),
        sa.PrimaryKeyConstraint("id", name="pk_participant"),
        sa.UniqueConstraint("link", name="uq_participant_link")
    )
    op.create_index("ix_participant_external", "participant", ["external"])
    op.create_index("ix_participant_state", "participant", ["state"])
    op.create_index("ix_participant_study", "participant", ["study"])
    op.create_table("assignment",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("participant", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("leased_until", sa.Float(), nullable=True),
        sa.Column("answers", sa.Text(), server_default="{}", nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["participant"], ["participant.id"], name="fk_assignment_participant_participant"),
        sa.ForeignKeyConstraint(["study"], ["study.id"], name="fk_assignment_study_study"),
        sa.PrimaryKeyConstraint("id", name="pk_assignment")
    )
    op.create_index("ix_assignment_state", "assignment", ["state"])
    op.create_index("ix_assignment_study_state", "assignment", ["study", "state"])
    op.create_table("comment",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), server_default="", nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_comment_episode_episode"),
        sa.PrimaryKeyConstraint("id", name="pk_comment")
    )
    op.create_index("ix_comment_episode", "comment", ["episode"])
    op.create_table("document",
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), server_default="", nullable=False),
        sa.Column("record", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_document_episode_episode"),
        sa.PrimaryKeyConstraint("episode", name="pk_document")
    )
    op.create_table("event",
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_event_episode_episode"),
        sa.PrimaryKeyConstraint("episode", "number", name="pk_event")
    )
    op.create_table("score",
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("evaluator", sa.Text(), nullable=False),
        sa.Column("dimension", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_score_episode_episode"),
        sa.PrimaryKeyConstraint("episode", "agent", "evaluator", "dimension", name="pk_score")
    )
    op.create_index("ix_score_dimension", "score", ["dimension", "value", "episode"])
    op.create_table("seat",
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("character", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("participant", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_seat_episode_episode"),
        sa.PrimaryKeyConstraint("episode", "agent", name="pk_seat")
    )
    op.create_index("ix_seat_character", "seat", ["character", "episode"])
    op.create_index("ix_seat_participant", "seat", ["participant"])
    op.create_index("ix_seat_policy", "seat", ["policy", "episode"])
    op.create_table("submission",
        sa.Column("episode", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episode.id"], name="fk_submission_episode_episode"),
        sa.PrimaryKeyConstraint("episode", "key", name="pk_submission")
    )


def downgrade() -> None:
    """Takes it back."""
    for name in (
        "submission",
        "seat",
        "score",
        "event",
        "document",
        "comment",
        "assignment",
        "participant",
        "episode",
        "user",
        "token",
        "task",
        "tag",
        "study",
        "session",
        "scenario",
        "run",
        "relationship",
        "reference",
        "job",
        "draft",
        "dimension_list",
        "character",
    ):
        op.drop_table(name)
