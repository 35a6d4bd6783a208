"""The schema of the first release: a new database gets the present tables at once, so this revision only names it."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Changes nothing."""
