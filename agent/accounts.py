"""Which Unix account a job's processes run as.

Only the agent may be root. A file of the node's own names the accounts it lends, by user and by team; root and system
accounts are refused there, whatever the daemon says (LIFECYCLE 52)::

    [users]
    eva = "eva"
    [teams]
    nlp = "nlp-jobs"

An agent that is not root runs every job as itself.
"""

import os
import pwd
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_UID = 1000
_LOGIN_DEFS = Path("/etc/login.defs")
_TABLES = ("users", "teams")


class BadAccounts(Exception):
    """The file of accounts cannot be used; the text says why and what to do."""


class NoAccount(OSError):
    """This node lends no account to the job's user or team."""

    def __init__(self, text: str) -> None:
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def option(self) -> str:
        """For the shim's command line: `uid:gid:group,group`."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


class Accounts:
    """users, teams: accounts by the names of the cluster. None for both: of an agent that changes no account."""

    def __init__(self, users: Mapping[str, Account], teams: Mapping[str, Account], *, as_itself: bool = False) -> None:
        self._users = users
        self._teams = teams
        self._as_itself = as_itself

    @property
    def lends(self) -> bool:
        """Whether any job runs as somebody else."""
        return bool(self._users or self._teams)

    def of(self, user: str, team: str) -> Account | None:
        """The user's own, else the team's; None for the agent's own. Raises NoAccount."""
        if self._as_itself:
            return None
        found = self._users.get(user) or self._teams.get(team)
        if found is None:
            raise NoAccount(
                f"this node has no Unix account for user {user!r} or team {team!r}, and its agent runs no job as root; "
                "name one in the file of its --accounts option"
            )
        return found


def choose_accounts(file: Path | None, run_as_root: bool, uid: int | None = None) -> Accounts:
    """What the agent's options and its own account allow. Raises BadAccounts."""
    root = (os.geteuid() if uid is None else uid) == 0
    if file is not None:
        if not root:
            raise BadAccounts("only an agent that runs as root can lend other accounts; leave out --accounts")
        if run_as_root:
            raise BadAccounts("give either --accounts or --run-as-root")
        return _read(file)
    return Accounts({}, {}, as_itself=not root or run_as_root)


def _read(file: Path) -> Accounts:
    try:
        found = file.stat()
        document = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise BadAccounts(f"{file} cannot be read: {error}") from None
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadAccounts(f"{file} must belong to root and be writable by nobody else, since it says who is who")
    if unknown := [key for key in document if key not in _TABLES]:
        raise BadAccounts(f"{file}: there is no table {unknown[0]!r}; known are {' and '.join(_TABLES)}")
    users, teams = (_accounts(file, document.get(table, {})) for table in _TABLES)
    return Accounts(users, teams)


def _accounts(file: Path, table: object) -> dict[str, Account]:
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise BadAccounts(f"{file}: a table holds lines such as eva = \"eva\"")
    return {key: _account(file, name) for key, name in table.items()}


def _account(file: Path, name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise BadAccounts(f"{file}: this machine has no account {name!r}") from None
    if entry.pw_uid < (first := _first_uid()):
        raise BadAccounts(f"{file}: {name!r} has uid {entry.pw_uid}, below {first}: no system account is lent to jobs")
    groups = tuple(group for group in os.getgrouplist(name, entry.pw_gid) if group != 0)
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def _first_uid() -> int:
    """Where this machine's accounts of people begin."""
    try:
        for line in _LOGIN_DEFS.read_text().splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == "UID_MIN" and words[1].isdecimal():
                return max(1, int(words[1]))
    except OSError:
        pass
    return FIRST_UID
