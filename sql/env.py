"""Alembic's entry: migrations run on the connection that `drumline db upgrade` opened."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], transaction_per_migration=True
)
with context.begin_transaction():
    context.run_migrations()
