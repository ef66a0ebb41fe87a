"""`jct login` keeps where jctd is and who we are, `jct config` tells where each setting comes from."""

import io
import json
import sys

import pytest

from scheduler.cli import config


@pytest.fixture
def stranger(living, monkeypatch, tmp_path):
    """A shell that knows no jctd. Returns the URL and a token of the one that is there."""
    url, token = config.load()
    monkeypatch.delenv("JCT_URL")
    monkeypatch.delenv("JCT_TOKEN")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return url, token


def say(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_login_keeps_a_url_and_a_token_that_only_its_owner_can_read(jct, stranger, monkeypatch):
    url, token = stranger
    code, _, err = jct("ls")
    assert code == 5
    assert "`jct login URL`" in err
    say(monkeypatch, token + "\n")
    code, out, err = jct("login", url)
    assert (code, out) == (0, "")
    assert token not in err
    assert jct("ls")[0] == 0
    assert (config.config_dir() / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("text", "code"), [("wrong\n", 4), ("\n", 4)])
def test_a_token_that_jctd_does_not_take_is_not_kept(jct, stranger, monkeypatch, text, code):
    say(monkeypatch, text)
    assert jct("login", stranger[0])[0] == code
    assert not config.config_dir().exists()


def test_config_tells_each_setting_and_its_origin_and_never_a_token(jct, stranger, monkeypatch):
    url, token = stranger
    say(monkeypatch, token)
    jct("login", url)
    monkeypatch.setenv("JCT_TEAM", "nlp")
    code, out, _ = jct("config", "show", "--json")
    found = {one["name"]: (one["value"], one["origin"]) for one in json.loads(out)["settings"]}
    folder = config.config_dir()
    assert (code, found["JCT_URL"]) == (0, (url, f"{folder}/client.json"))
    assert found["JCT_TOKEN"] == ("set", f"{folder}/token")
    assert found["JCT_TEAM"] == ("nlp", "environment")
    assert found["JCT_CA_FILE"] == (None, "not set")
    assert token not in out + jct("config")[1]
    assert jct("config", "get")[0] == 2


def test_queues_are_managed_by_either_word_and_made_only_once(jct, living):
    assert jct("queue", "create", "night", "--max-devices", "4")[0] == 0
    assert jct("queue", "create", "night")[0] == 6
    assert jct("queue", "set", "night", "--max-devices", "none")[0] == 0
    assert "night" in jct("queues")[1]
    assert jct("queue", "rm", "night")[0] == 0
    assert jct("queue")[0] == 0
