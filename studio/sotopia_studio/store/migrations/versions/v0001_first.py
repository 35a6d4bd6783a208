"""The schema of the first release: a name only, because a new database gets the current tables at once."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Changes nothing."""
