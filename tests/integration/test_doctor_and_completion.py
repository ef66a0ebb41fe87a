"""`jct doctor` names what is wrong and what to do; a shell completes commands, ids and names."""

import json
import shutil
import subprocess
import sys

import pytest
from rest_client import Client

from scheduler.cli import doctor
from scheduler.cli.completion import SCRIPTS, words
from scheduler.cli.main import COMMANDS, run


@pytest.fixture
def cluster(living):
    return living


def findings(capsys, *arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    code = run(["doctor", "--json", *arguments])
    by_check: dict[str, list[dict[str, str]]] = {}
    for item in json.loads(capsys.readouterr().out)["findings"]:
        by_check.setdefault(item["check"], []).append(item)
    return code, by_check


def test_doctor_looks_at_everything_and_finds_keys_that_others_can_read(cluster, capsys, tmp_path):
    code, found = findings(capsys, "--state", str(tmp_path))
    wanted = {"nvml", "daemon", "clock", "port", "shared memory", "disk", "broker", "database", "keys", "packages"}
    assert wanted <= found.keys()
    assert "the check itself failed" not in str(found)
    assert found["database"][0]["result"] == "ok"
    assert {item["result"] for item in found["keys"]} == {"ok"}
    (tmp_path / "secrets.key").chmod(0o644)
    code, found = findings(capsys, "--state", str(tmp_path))
    assert code == 1
    assert any("chmod 600" in item["text"] for item in found["keys"])


def test_b58_doctor_names_clashing_packages(monkeypatch):
    versions = {"pynvml": "11.5", "paho-mqtt": "1.6.1", "asyncio-mqtt": "0.16"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    found = {item.text.split(" ")[0]: item.result for item in doctor.packages()}
    assert found == {"pynvml": "warning", "asyncio-mqtt": "warning", "paho-mqtt": "FAILED"}


def test_words_complete_commands_ids_and_names(cluster):
    admin = Client(cluster, cluster.token())
    id = admin.submit()
    admin("POST", "/v1/queues", json={"name": "night"})
    assert set(COMMANDS) <= set(words(["s"]))
    assert words(["show", ""]) == [str(id)]
    assert words(["submit", "--queue", ""]) == ["default", "night"]
    assert words(["queues", "set", "n"]) == ["default", "night"]
    assert words(["drain", ""]) == ["n0", "n1"]
    assert words(["plan", ""]) == []


def test_without_a_daemon_nothing_is_completed_and_nothing_said(monkeypatch, capsys):
    monkeypatch.setenv("JCT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("JCT_TOKEN", "x")
    assert run(["completion", "words", "show", ""]) == 0
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize("shell", [shell for shell in SCRIPTS if shutil.which(shell)])
def test_scripts_are_accepted_by_their_shells(shell, tmp_path, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    (tmp_path / "script").write_text(script)
    flag = "--no-execute" if shell == "fish" else "-n"
    subprocess.run([shell, flag, str(tmp_path / "script")], check=True)


def test_bash_completes_through_the_script(cluster, capsys, tmp_path):
    id = Client(cluster, cluster.token()).submit()
    run(["completion", "bash"])
    jct = tmp_path / "jct"
    jct.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from scheduler.cli.main import main; main()' \"$@\"\n")
    jct.chmod(0o755)
    script = capsys.readouterr().out + 'COMP_WORDS=(jct show ""); COMP_CWORD=2; _jct; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"PATH={tmp_path}:$PATH; {script}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(id), done.stderr
