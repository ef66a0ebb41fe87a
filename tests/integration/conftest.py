"""Databases for tests: SQLite always; PostgreSQL from a cluster that the tests start, or a skip with the reason.

With JCT_TEST_REQUIRE_SERVICES=1 such a skip is a failure.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest
from services import missing_service


def _unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@pytest.fixture(scope="session")
def postgres():
    """The socket folder of a PostgreSQL cluster of our own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and not on_path:
        missing_service("PostgreSQL's programs are not installed; scripts/install-debian-packages installs them")
    programs = Path(on_path or found[-1]).parent
    who = _unprivileged()
    with tempfile.TemporaryDirectory(prefix="jct-pg-", ignore_cleanup_errors=True) as folder:
        if who:
            os.chown(folder, who["user"], who["group"])

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *arguments]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)

        run("initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "jctd", "-N", "-E", "UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield folder
        finally:
            run("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")


@pytest.fixture
def postgres_url(postgres):
    """An empty database."""
    name = f"t{next(_numbers)}"
    with psycopg.connect(f"host={postgres} user=jctd dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://jctd@/{name}?host={postgres}"


_numbers = iter(range(1_000_000))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jctd.db"
    return request.getfixturevalue("postgres_url")
