"""Which Unix account a job gets: the node's own file decides, and no system account is ever lent."""

import os
import pwd

import pytest

from agent import accounts
from agent.accounts import BadAccounts, NoAccount, choose_accounts

ENTRY = pwd.getpwuid(os.getuid())


@pytest.fixture
def people(monkeypatch):
    """This machine's accounts."""
    known = {"eva": 1500, "nlp-jobs": 1600, "root": 0, "daemon": 1}
    monkeypatch.setattr(
        accounts.pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", known[name], 50, "", f"/home/{name}", ""))
    )
    monkeypatch.setattr(accounts.os, "getgrouplist", lambda name, gid: [gid, 0, 77])
    monkeypatch.setattr(accounts, "_first_uid", lambda: 1000)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "accounts.toml"
    path.write_text("")
    path.chmod(0o644)
    if os.getuid() != 0:
        found = os.stat_result((*path.stat()[:4], 0, *path.stat()[5:]))
        monkeypatch.setattr(type(path), "stat", lambda self: found)
    return path


def test_a_user_comes_before_the_team_and_root_is_no_group(people, file):
    file.write_text('[users]\neva = "eva"\n[teams]\nnlp = "nlp-jobs"\n')
    lent = choose_accounts(file, False, uid=0)
    assert lent.of("eva", "nlp").name == "eva"
    assert lent.of("max", "nlp").option == "1600:50:50,77"
    with pytest.raises(NoAccount, match=r"no Unix account for user 'max' or team 'vision'.*--accounts"):
        lent.of("max", "vision")


@pytest.mark.parametrize("name", ["root", "daemon"])
def test_no_system_account_is_lent(people, file, name):
    file.write_text(f'[teams]\nnlp = "{name}"\n')
    with pytest.raises(BadAccounts, match="no system account"):
        choose_accounts(file, False, uid=0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[team]\nnlp = "eva"', "no table 'team'"),
        ('[teams]\nnlp = "nobody-knows"', "no account 'nobody-knows'"),
        ("teams = 3", "a table holds lines"),
        ("[teams]\nnlp = 3", "a table holds lines"),
        ("[teams", "cannot be read"),
    ],
)
def test_a_bad_file_is_told_before_the_agent_starts(people, file, text, told):
    file.write_text(text)
    with pytest.raises(BadAccounts, match=told):
        choose_accounts(file, False, uid=0)


def test_others_must_not_be_able_to_write_the_file(people, file):
    file.chmod(0o666)
    with pytest.raises(BadAccounts, match="writable by nobody else"):
        choose_accounts(file, False, uid=0)


def test_root_runs_no_jobs_unless_it_is_told_to(file):
    with pytest.raises(NoAccount, match="runs no job as root"):
        choose_accounts(None, False, uid=0).of("eva", "nlp")
    assert choose_accounts(None, True, uid=0).of("eva", "nlp") is None
    assert choose_accounts(None, False, uid=1500).of("eva", "nlp") is None, "as itself"
    with pytest.raises(BadAccounts, match="only an agent that runs as root"):
        choose_accounts(file, False, uid=1500)
    with pytest.raises(BadAccounts, match="either"):
        choose_accounts(file, True, uid=0)
