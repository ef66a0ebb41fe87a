"""What several integration tests begin with: databases, a small cluster, clients with roles, and a command line.

Databases are SQLite always, and PostgreSQL from a cluster that the tests start, or a skip with the reason. With
JCT_TEST_REQUIRE_SERVICES=1 such a skip is a failure.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from rest_client import Client
from rows import ALL, EVENTS
from services import missing_service
from small_cluster import SmallCluster
from small_server import Living, serving

from scheduler.cli import logs, submit, wait
from scheduler.cli.main import run
from scheduler.core.effects import Effects
from scheduler.store.repository import Repository
from scheduler.store.tokens import Role

# --- databases ------------------------------------------------------------------------------------------------


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


@pytest.fixture
def store(database_url):
    opened = Repository.open(database_url)
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path):
    """A database file with a job in it, closed."""
    path = tmp_path / "jctd.db"
    store = Repository.open(f"sqlite:///{path}")
    store.commit(Effects(rows=list(ALL), events=[replace(EVENTS[0], seq=n, message="x" * 200) for n in range(1, 500)]))
    store.close()
    return path


# --- a small cluster over REST --------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SmallCluster]:
    small = SmallCluster(tmp_path)
    yield small
    small.close()


@pytest.fixture
def as_(cluster: SmallCluster) -> Callable[..., Client]:
    """A client with a role in a team."""
    return lambda user, team="nlp", role=Role.USER: Client(cluster, cluster.token(user, team, role))


@pytest.fixture
def admin(as_: Callable[..., Client]) -> Client:
    return as_("root", "ops", Role.ADMIN)


@pytest.fixture
def eva(as_: Callable[..., Client]) -> Client:
    return as_("eva", "nlp")


@pytest.fixture
def rob(as_: Callable[..., Client]) -> Client:
    return as_("rob", "vision")


# --- the same on the command line -----------------------------------------------------------------------------


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    """A small cluster behind a real server on loopback, and a command line that knows it."""
    for name in ("JCT_TEAM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for module in (logs, wait):
        monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(submit, "PAUSE_S", 0.001)
    with serving(tmp_path) as (living, url):
        monkeypatch.setenv("JCT_URL", url)
        monkeypatch.setenv("JCT_TOKEN", living.token())
        yield living


@pytest.fixture
def jct(capsysbinary):
    """Run one call in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def job_file(tmp_path):
    """Writes a job file beside a package that it names."""
    folder = tmp_path / "project"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "__init__.py").touch()
    (folder / "train" / "gpt.py").write_text("def job():\n    raise RuntimeError\n")

    def write(text: str = "", name: str = "gpt") -> Path:
        path = folder / "job.yaml"
        path.write_text(f"name: {name}\nentrypoint: train.gpt:job\ngpus: {{min: 1, max: 2}}\n{text}\n")
        return path

    return write
