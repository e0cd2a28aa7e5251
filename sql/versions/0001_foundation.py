"""Tasks, batches, keepers, handlers, requests, pauses.

The first schema is the tables as they stood then, written out by SQLAlchemy: until the first
release it follows drumline/store/tables.py, from then on it is frozen and others come after it.
"""

from alembic import op

from drumline.store.tables import task

revision = "0001"
down_revision = None


def upgrade() -> None:
    task.metadata.create_all(op.get_bind())
