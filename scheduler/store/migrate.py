"""Brings a database to this version's schema, in one transaction: it passes whole or not at all."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

import migrations
from scheduler.core.errors import Code, JctError


def alembic_config(connection: Connection) -> Config:
    """Alembic, set up from the `migrations` package: no file in the working directory is needed."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def check_version(engine: Engine) -> str | None:
    """The database's revision, None where it is empty. Raises JctError for a newer or a foreign database."""
    with engine.connect() as connection:
        try:
            found = MigrationContext.configure(connection).get_current_revision()
            tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
        except SQLAlchemyError as error:
            raise JctError(Code.CONFLICT, f"the database cannot be read: {getattr(error, 'orig', error)}") from None
        script = ScriptDirectory.from_config(alembic_config(connection))
    if found is None and tables:
        raise JctError(
            Code.CONFLICT, f"the database is not jctd's: it has other tables ({', '.join(sorted(tables)[:3])})"
        )
    known = {revision.revision for revision in script.walk_revisions()}
    if found is not None and found not in known:
        raise JctError(
            Code.CONFLICT,
            f"the database was written by a newer jctd: its schema is {found}, this one knows up to "
            f"{script.get_current_head()}",
            hint="start the newer version; jctd changed nothing",
        )
    return found


def upgrade(engine: Engine, found: str | None) -> str:
    """Bring the database to the newest schema. The answer says what was done; it is empty where nothing was."""
    with engine.begin() as connection:
        config = alembic_config(connection)
        head = ScriptDirectory.from_config(config).get_current_head()
        if found == head:
            return ""
        command.upgrade(config, "head")
    return (
        f"created the database's schema, {head}" if found is None else f"migrated the database from {found} to {head}"
    )
