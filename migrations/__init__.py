"""The database's history: an Alembic environment that travels inside the wheel. `scheduler.store.migrate` runs it."""
