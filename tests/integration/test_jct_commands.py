"""What `jct` promises a shell: data on stdout, talk on stderr, exit codes."""

import json
import os
import re
import subprocess
import sys

import pytest
from cli_calls import JCT, submitted

from scheduler.cli.main import ALIASES, COMMANDS
from scheduler.store.tokens import Role


def test_ls_lists_what_lives_and_all_on_demand(jct, living, job_file):
    one, two = submitted(jct, job_file(name="one")), submitted(jct, job_file(name="two"))
    jct("cancel", one)
    code, out, err = jct("ls")
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()] == [["ID", "NAME"], [str(two), "two"]]
    assert len(jct("ls", "-a")[1].splitlines()) == 3
    assert len(jct("ls", "--state", "cancelled")[1].splitlines()) == 2
    assert len(jct("ls", "-a", "--limit", "1")[1].splitlines()) == 2
    listed = json.loads(jct("ls", "-a", "--json")[1])
    assert listed["apiVersion"] == "v1"
    assert [job["id"] for job in listed["jobs"]] == [one, two]
    assert listed["now"].endswith("Z")


def test_ls_of_nothing_says_where_the_rest_is(jct, living, job_file):
    jct("cancel", submitted(jct, job_file()))
    code, out, err = jct("ls")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "jct ls -a" in err
    assert jct("ls", "-a")[2] == ""


def test_ls_fetches_every_page(jct, living, job_file, monkeypatch):
    monkeypatch.setattr("scheduler.cli.client.PAGE", 3)
    ids = [submitted(jct, job_file()) for _ in range(8)]
    assert [job["id"] for job in json.loads(jct("ls", "--json")[1])["jobs"]] == ids
    assert [job["id"] for job in json.loads(jct("ls", "--json", "--limit", "4")[1])["jobs"]] == ids[4:]


def test_ls_keeps_to_a_width_and_gives_all_on_zero(jct, living, job_file):
    submitted(jct, job_file(name="n" * 100))
    assert max(map(len, jct("ls", "-w", "80")[1].splitlines())) <= 80
    assert "n" * 100 in jct("ls", "-w", "0")[1]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_the_habits_of_others_work(jct, living, job_file, alias, name):
    if name == "submit":
        assert jct(alias, job_file(), "-q")[1] == "1\n"
    elif name == "cancel":
        assert jct(alias, submitted(jct, job_file()))[0] == 0
    elif name == "team":
        assert "nothing is limited" in jct(alias)[2]
    else:
        assert jct(alias)[1].startswith("ID")


def test_show_tells_all_and_leaves_out_what_is_unknown(jct, living, job_file):
    id = submitted(jct, job_file("work: {total: 400 steps}\nnote: try 1"))
    out = jct("show", id)[1]
    assert "State         PENDING" in out
    assert "None" not in out
    living.advance(8)
    out = jct("show", id)[1]
    assert "State         RUNNING" in out
    assert re.search(r"Pipeline      \d stages? × \d+ micro-batch(es)? of \d+ samples?", out)
    assert re.search(r"Time .* = \d+\.\d s", out)
    assert "probe_done" in out
    shown = json.loads(jct("show", id, "--json")[1])
    assert shown["apiVersion"] == "v1"
    assert shown["job"]["attempts"][0]["kind"] == "probe"


def test_show_tells_one_number_of_gpus_where_there_is_one(jct, living, job_file):
    exact, range_ = (submitted(jct, job_file(), "--gpus", gpus) for gpus in ("2", "1-4"))
    assert "GPUs          0 of 2\n" in jct("show", exact)[1]
    assert "GPUs          0 of 1 to 4\n" in jct("show", range_)[1]


def test_events_tell_the_story(jct, living, job_file):
    id = submitted(jct, job_file())
    out = jct("events", id)[1]
    assert "Submitted: 'gpt' with priority 50 (root)" in out
    assert f"[job {id}]" in jct("events")[1]
    whole = json.loads(jct("events", "--json")[1])["events"]
    assert [event["seq"] for event in whole] == sorted(event["seq"] for event in whole)
    last = whole[-1]["seq"]
    assert json.loads(jct("events", "--json", "--after", last - 1)[1])["events"] == whole[-1:]


def test_nodes_and_gpus(jct, living, job_file):
    id = submitted(jct, job_file())
    living.advance(4)
    out = jct("nodes")[1]
    assert re.search(r"n0 +UP +\d/2", out)
    assert f"job {id}" in jct("gpus")[1]
    assert [node["id"] for node in json.loads(jct("nodes", "--json")[1])["nodes"]] == ["n0", "n1"]
    assert len(json.loads(jct("gpus", "--json")[1])["devices"]) == 4


# --- act ------------------------------------------------------------------------------------------------------


def test_acts_are_said_and_safe_to_repeat(jct, living, job_file):
    id = submitted(jct, job_file())
    assert jct("hold", id)[1] == f"job {id} HELD, priority 50\n"
    assert jct("release", id)[1] == f"job {id} PENDING, priority 50\n"
    assert jct("release", id)[0] == 6
    assert jct("update", id, "--priority", "90")[1] == f"job {id} PENDING, priority 90\n"
    assert jct("cancel", id, "--reason", "enough")[:2] == (0, f"job {id} CANCELLED, priority 90\n")
    assert jct("cancel", id)[:2] == (0, f"job {id} CANCELLED, priority 90\n")
    assert "enough" in living.state.jobs[id].reason


def test_what_can_no_longer_be_changed_is_named_as_on_the_command_line(jct, living, job_file):
    id = submitted(jct, job_file())
    living.advance(8)
    code, _, err = jct("update", id, "--begin", "2030-01-01T00:00:00Z")
    assert code == 6
    assert f"job {id} has begun; its begin time can be changed only while it waits" in err
    assert f"jct hold {id}" in err


def test_the_size_of_a_job_is_changed_and_told(jct, living, job_file):
    id = submitted(jct, job_file())
    assert jct("update", id, "--gpus", "1-3")[1] == f"job {id} PENDING, priority 50, 1-3 GPUs\n"
    living.advance(8)
    assert jct("update", id, "--gpus", "2-4")[1] == f"job {id} RUNNING, priority 50, 3 of 2-4 GPUs\n"


def test_a_device_is_drained_by_the_name_that_gpus_shows(jct, living):
    assert jct("drain", "n0/1", "--device", "--reason", "dust")[2] == "n0/1 is drained: dust\n"
    devices = json.loads(jct("gpus", "--json")[1])["devices"]
    (drained,) = [device for device in devices if device["drain"]]
    assert (drained["node"], drained["index"]) == ("n0", 1)
    assert jct("resume", drained["id"], "--device")[0] == 0
    assert jct("resume", "n0/1", "--device")[0] == 6
    assert jct("drain", "n0/9", "--device", "--reason", "dust")[0] == 3


def test_the_audit_log_tells_moments_and_only_what_was_said(jct, living):
    jct("team", "set", "nlp", "--max-devices", "4")
    jct("reserve", "create", "x", "--nodes", "n0", "--for", "4h")
    reserved, limited = jct("audit")[1].splitlines()[1:3]
    assert re.search(r"until=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", reserved)
    assert "max_devices=4" in limited
    assert "None" not in reserved + limited
    assert "capped_lease" not in limited
    assert "create team nlp: " in limited


def test_a_time_that_is_none_is_told_without_words_of_the_library(jct, living):
    assert jct("reserve", "create", "x", "--nodes", "n0", "--for", "4x")[2].startswith("jct: duration: '4x' is no")


def test_of_several_each_is_tried_and_the_worst_code_given(jct, living, job_file):
    id = submitted(jct, job_file())
    code, out, err = jct("cancel", 98, id, 99, "--json")
    assert code == 3
    assert [job["id"] for job in json.loads(out)["jobs"]] == [id]
    assert "no job 98" in err
    assert "no job 99" in err


# --- what the shell sees --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(jct, command):
    code, out, err = jct(command, "--help")
    assert (code, err) == (0, "")
    assert f"jct {command}" in out


def test_help_names_every_command(jct):
    code, out, _ = jct("--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80
    assert jct()[1] == out


def test_the_version_is_that_of_the_distribution(jct):
    assert jct("version")[1].startswith("jct ")
    assert jct("--version") == jct("version")


@pytest.mark.parametrize(
    "call", [("quue",), ("ls", "--nope"), ("show",), ("show", "x"), ("show", "0"), ("update", "1"), ("submit",)]
)
def test_bad_usage_exits_2_and_says_why(jct, call):
    code, out, err = jct(*call)
    assert (code, out) == (2, "")
    assert err


def test_a_misspelt_command_gets_a_hint(jct):
    assert "did you mean `jct submit`?" in jct("submti")[2]


def test_errors_map_to_exit_codes(jct, living, monkeypatch):
    assert jct("show", 99)[0] == 3
    monkeypatch.setenv("JCT_TOKEN", "wrong")
    assert jct("ls")[0] == 4
    monkeypatch.setenv("JCT_URL", "http://127.0.0.1:1")
    code, _, err = jct("ls")
    assert code == 5
    assert "cannot reach jctd at http://127.0.0.1:1: Connection refused" in err
    monkeypatch.setenv("JCT_URL", "ftp://x")
    assert jct("ls")[0] == 2


def test_a_user_may_not_submit_for_another_team(jct, living, job_file, monkeypatch):
    monkeypatch.setenv("JCT_TOKEN", living.token("eva", "nlp", Role.USER))
    assert jct("submit", job_file("team: vision"))[0] == 4
    assert living.state.jobs[submitted(jct, job_file())].spec.team == "nlp"


def test_without_settings_it_says_how_to_get_them(jct, monkeypatch, tmp_path):
    monkeypatch.delenv("JCT_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code, _, err = jct("ls")
    assert code == 5
    assert "jct up" in err


def test_the_saved_settings_are_used_and_private(jct, living, monkeypatch, tmp_path):
    from scheduler.cli import config

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config.save(os.environ["JCT_URL"], os.environ["JCT_TOKEN"])
    config.save(os.environ["JCT_URL"], None)
    monkeypatch.delenv("JCT_URL")
    monkeypatch.delenv("JCT_TOKEN")
    assert jct("ls")[0] == 0
    assert (config.config_dir() / "token").stat().st_mode & 0o777 == 0o600


def test_a_reader_that_goes_away_is_no_error(living, jct, job_file):
    for _ in range(3):
        submitted(jct, job_file(name="x" * 150))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([*JCT, "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("variables", [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_b45_any_name_can_be_listed_in_any_locale(living, jct, job_file, variables):
    submitted(jct, job_file(name="дата 🚀"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    found = subprocess.run([*JCT, "ls"], capture_output=True, env=environment)
    assert (found.returncode, found.stderr) == (0, b"")
    assert len(found.stdout.splitlines()) == 2


def test_ls_imports_nothing_heavy(living):
    program = (
        "import sys; from scheduler.cli.main import run; run(['ls', '-a']);"
        "heavy = {'torch', 'fastapi', 'sqlmodel', 'sqlalchemy', 'matplotlib', 'numpy', 'httpx', 'zmq'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert (found.returncode, found.stderr) == (0, b"")


# --- webhooks -------------------------------------------------------------------------------------------------


def test_a_webhook_is_made_with_its_secret_on_stdout_listed_without_it_and_removed(jct, living, monkeypatch):
    code, secret, said = jct("webhook", "add", "chat", "https://example.org/hook", "--events", "Ended,node")
    assert (code, secret[:6], "webhook 1 posts to https://example.org/hook" in said) == (0, "whsec_", True)
    monkeypatch.setenv("COLUMNS", "80")
    _, table, _ = jct("webhook")
    assert secret.strip() not in table
    assert table.splitlines()[1].split()[:4] == ["1", "chat", "all", "Ended,node"]
    listed = json.loads(jct("webhook", "--json")[1])["webhooks"]
    assert (listed[0]["url"], listed[0]["secret"], listed[0]["trouble"]) == ("https://example.org/hook", None, None)
    assert jct("webhook", "add", "chat", "ftp://example.org")[0] == 2
    assert jct("webhook", "rm", "1")[0] == 0
    assert jct("webhook", "rm", "1")[0] == 3
    assert jct("webhook", "rm")[0] == 2
