"""What `jct` promises a shell: data on stdout, talk on stderr, exit codes, and files resolved where they lie."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_server import serving

from scheduler.cli import logs, submit, wait
from scheduler.cli.main import ALIASES, COMMANDS, run
from scheduler.store.tokens import Role

JCT = [sys.executable, "-c", "from scheduler.cli.main import main; main()"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A small cluster behind a real server on loopback, and a CLI that knows it."""
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


def submitted(jct, path: Path, *flags: str) -> int:
    code, out, err = jct("submit", path, "-q", *flags)
    assert (code, err) == (0, "")
    return int(out)


# --- submit ---------------------------------------------------------------------------------------------------


def test_submit_prints_the_id_alone_when_asked(jct, cluster, job_file):
    assert jct("submit", job_file(), "--parsable") == (0, "1\n", "")
    assert jct("submit", job_file(name="дата")) == (0, "Submitted job 2: дата\n", "")
    assert json.loads(jct("submit", job_file(), "--json")[1])["job"]["id"] == 3


def test_paths_are_resolved_where_the_file_lies(jct, cluster, job_file, monkeypatch, tmp_path):
    path = job_file("checkpoint: {dir: ckpt}")
    monkeypatch.chdir(tmp_path)
    spec = cluster.state.jobs[submitted(jct, path)].spec
    assert spec.workdir == str(path.parent)
    assert spec.checkpoint.dir == str(path.parent / "ckpt")
    relative = job_file("workdir: train/..")
    assert cluster.state.jobs[submitted(jct, relative)].spec.workdir == str(path.parent)


def test_flags_beat_the_environment_which_beats_the_file(jct, cluster, job_file, monkeypatch):
    path = job_file("team: file\npriority: 10")
    monkeypatch.setenv("JCT_TEAM", "environment")
    spec = cluster.state.jobs[submitted(jct, path)].spec
    assert (spec.team, spec.priority, spec.max_devices) == ("environment", 10, 2)
    flags = ("--team", "flag", "--priority", "20", "--gpus", "2-4", "--name", "x", "--note", "y")
    spec = cluster.state.jobs[submitted(jct, path, *flags)].spec
    assert (spec.team, spec.priority, spec.min_devices, spec.max_devices) == ("flag", 20, 2, 4)
    assert (spec.name, spec.note) == ("x", "y")
    assert cluster.state.jobs[submitted(jct, path, "--gpus", "3")].spec.min_devices == 3


def test_a_job_file_may_come_from_standard_input(cluster, job_file):
    path = job_file()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [*JCT, "submit", "-", "-q"], input=path.read_bytes(), capture_output=True, cwd=path.parent, env=environment
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"1\n", b"")


def test_everything_wrong_with_a_file_is_told_and_nothing_submitted(jct, cluster, job_file):
    code, out, err = jct("submit", job_file("prioritty: 3\nsetup: 3\ngrace: soon"))
    assert (code, out) == (2, "")
    assert "prioritty: there is no such field\n  did you mean 'priority'?" in err
    assert "setup is not supported yet" in err
    assert "grace: 'soon' is no duration" in err
    assert cluster.state.jobs == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workdir: nowhere", "nowhere is no folder"),
        ("a: [", "no valid YAML at line"),
        ("gpus: 1", "given twice"),
    ],
)
def test_what_this_machine_can_see_is_refused_before_sending(jct, cluster, job_file, text, told):
    code, out, err = jct("submit", job_file(text))
    assert (code, out) == (2, "")
    assert told in err
    assert cluster.state.jobs == {}


@pytest.mark.parametrize("module", ["train.nothing", "train.gpt.deeper", "nowhere", "nowhere.gpt"])
def test_a_missing_module_is_refused_with_its_place(jct, cluster, job_file, module):
    path = job_file()
    path.write_text(path.read_text().replace("train.gpt", module))
    code, _, err = jct("submit", path)
    assert code == 2
    assert f"there is no module {module!r} in {path.parent}, nor is it installed" in err


def test_a_missing_file_is_told(jct, cluster):
    assert jct("submit", "/nowhere.yaml") == (2, "", "jct: cannot read /nowhere.yaml: No such file or directory\n")


def test_the_spec_key_follows_the_code(jct, cluster, job_file):
    path = job_file()
    keys = [cluster.state.jobs[submitted(jct, path)].spec_key for _ in range(2)]
    assert keys[0] == keys[1]
    (path.parent / "unrelated.py").write_text("x = 1\n")
    assert cluster.state.jobs[submitted(jct, path)].spec_key == keys[0]
    (path.parent / "train" / "gpt.py").write_text("def job():\n    return None\n")
    assert cluster.state.jobs[submitted(jct, path)].spec_key != keys[0]
    assert cluster.state.jobs[submitted(jct, job_file("parallel: {global_batch: 8}"))].spec_key not in keys


def test_a_lost_answer_is_asked_for_again_and_makes_one_job(jct, cluster, job_file, monkeypatch):
    answers = iter([True, True, False])
    send = submit.Client.call

    def lossy(self, *arguments, **more):
        answer = send(self, *arguments, **more)
        if next(answers):
            raise submit.JctError(submit.Code.UNREACHABLE, "lost")
        return answer

    monkeypatch.setattr(submit.Client, "call", lossy)
    assert jct("submit", job_file(), "-q") == (0, "1\n", "")
    assert list(cluster.state.jobs) == [1]


# --- wait -----------------------------------------------------------------------------------------------------


def test_submit_and_wait_exit_as_the_job_does(jct, cluster, job_file):
    cluster.speed_s = 1.0
    code, out, err = jct("submit", job_file("work: {total: 20 steps}"), "--wait", "-q")
    assert (code, out) == (0, "1\n")
    assert "job 1 COMPLETED" in err


def test_wait_answers_with_the_highest_code(jct, cluster, job_file):
    cluster.speed_s = 1.0
    good = submitted(jct, job_file("work: {total: 20 steps}"))
    cancelled = submitted(jct, job_file())
    jct("cancel", cancelled)
    assert jct("wait", good)[0] == 0
    assert jct("wait", good, cancelled)[0] != 0
    assert jct("wait", good, "--exit-by-state")[0] == 0
    assert jct("wait", good, cancelled, "--exit-by-state")[0] == 103
    assert jct("wait", 99)[0] == 3
    assert jct("wait", 99, "--exit-by-state")[0] == 102


def test_wait_gives_up_when_told(jct, cluster, job_file):
    id = submitted(jct, job_file())
    assert jct("wait", id, "--timeout", "0")[0] == 7
    assert jct("wait", id, "--timeout", "0", "--exit-by-state")[0] == 101


# --- look -----------------------------------------------------------------------------------------------------


def test_ls_lists_what_lives_and_all_on_demand(jct, cluster, job_file):
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


def test_ls_fetches_every_page(jct, cluster, job_file, monkeypatch):
    monkeypatch.setattr("scheduler.cli.client.PAGE", 3)
    ids = [submitted(jct, job_file()) for _ in range(8)]
    assert [job["id"] for job in json.loads(jct("ls", "--json")[1])["jobs"]] == ids
    assert [job["id"] for job in json.loads(jct("ls", "--json", "--limit", "4")[1])["jobs"]] == ids[4:]


def test_ls_keeps_to_a_width_and_gives_all_on_zero(jct, cluster, job_file):
    submitted(jct, job_file(name="n" * 100))
    assert max(map(len, jct("ls", "-w", "80")[1].splitlines())) <= 80
    assert "n" * 100 in jct("ls", "-w", "0")[1]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_the_habits_of_others_work(jct, cluster, job_file, alias, name):
    if name == "submit":
        assert jct(alias, job_file(), "-q")[1] == "1\n"
    elif name == "cancel":
        assert jct(alias, submitted(jct, job_file()))[0] == 0
    elif name == "team":
        assert "nothing is limited" in jct(alias)[2]
    else:
        assert jct(alias)[1].startswith("ID")


def test_show_tells_all_and_leaves_out_what_is_unknown(jct, cluster, job_file):
    id = submitted(jct, job_file("work: {total: 400 steps}\nnote: try 1"))
    out = jct("show", id)[1]
    assert "State         PENDING" in out
    assert "None" not in out
    cluster.advance(8)
    out = jct("show", id)[1]
    assert "State         RUNNING" in out
    assert re.search(r"Pipeline      \d stages? × \d+ micro-batch(es)? of \d+ samples?", out)
    assert re.search(r"Time .* = \d+\.\d s", out)
    assert "probe_done" in out
    shown = json.loads(jct("show", id, "--json")[1])
    assert shown["apiVersion"] == "v1"
    assert shown["job"]["attempts"][0]["kind"] == "probe"


def test_events_tell_the_story(jct, cluster, job_file):
    id = submitted(jct, job_file())
    out = jct("events", id)[1]
    assert "Submitted 'gpt' with priority 50 (root)" in out
    assert f"[job {id}]" in jct("events")[1]
    whole = json.loads(jct("events", "--json")[1])["events"]
    assert [event["seq"] for event in whole] == sorted(event["seq"] for event in whole)
    last = whole[-1]["seq"]
    assert json.loads(jct("events", "--json", "--after", last - 1)[1])["events"] == whole[-1:]


def test_nodes_and_gpus(jct, cluster, job_file):
    id = submitted(jct, job_file())
    cluster.advance(4)
    out = jct("nodes")[1]
    assert re.search(r"n0 +UP +\d/2", out)
    assert f"job {id}" in jct("gpus")[1]
    assert [node["id"] for node in json.loads(jct("nodes", "--json")[1])["nodes"]] == ["n0", "n1"]
    assert len(json.loads(jct("gpus", "--json")[1])["devices"]) == 4


# --- act ------------------------------------------------------------------------------------------------------


def test_acts_are_said_and_safe_to_repeat(jct, cluster, job_file):
    id = submitted(jct, job_file())
    assert jct("hold", id)[1] == f"job {id} HELD, priority 50\n"
    assert jct("release", id)[1] == f"job {id} PENDING, priority 50\n"
    assert jct("release", id)[0] == 6
    assert jct("update", id, "--priority", "90")[1] == f"job {id} PENDING, priority 90\n"
    assert jct("cancel", id, "--reason", "enough")[:2] == (0, f"job {id} CANCELLED, priority 90\n")
    assert jct("cancel", id)[:2] == (0, f"job {id} CANCELLED, priority 90\n")
    assert "enough" in cluster.state.jobs[id].reason


def test_of_several_each_is_tried_and_the_worst_code_given(jct, cluster, job_file):
    id = submitted(jct, job_file())
    code, out, err = jct("cancel", 98, id, 99, "--json")
    assert code == 3
    assert [job["id"] for job in json.loads(out)["jobs"]] == [id]
    assert "no job 98" in err
    assert "no job 99" in err


# --- logs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def training(jct, cluster, job_file):
    """A job on two devices, with logs of its members."""
    id = submitted(jct, job_file("work: {total: 500 steps}"), "--gpus", "2")
    cluster.advance(4)
    attempt = cluster.state.jobs[id].last_attempt
    assert len(cluster.state.members_of(id, attempt)) == 2
    return id, attempt


def test_an_empty_log_is_told_beside_the_data(jct, training):
    id, _ = training
    code, out, err = jct("logs", id)
    assert (code, out) == (0, "")
    assert f"`jct show {id}`" in err


def test_logs_of_one_rank_are_the_bytes_that_were_written(cluster, training, capsysbinary):
    id, attempt = training
    written = b"".join(b"line %d\r\x1b[2K\n" % n for n in range(100_000)) + bytes(range(256)) + b"no newline"
    cluster.logs[id, attempt, 0] = written
    capsysbinary.readouterr()
    assert run(["logs", str(id), "--rank", "0"]) == 0
    assert capsysbinary.readouterr().out == written


def test_several_ranks_are_labelled_line_by_line(jct, cluster, training):
    id, attempt = training
    cluster.logs |= {(id, attempt, 0): b"a\nb", (id, attempt, 1): b"c\n", (id, 1, 0): b"probe\n"}
    assert jct("logs", id)[1] == "[rank 0] a\n[rank 0] b\n[rank 1] c\n"
    assert jct("logs", id, "--rank", "1")[1] == "c\n"
    assert jct("logs", id, "--tail", "1")[1] == "[rank 0] b\n[rank 1] c\n"
    assert jct("logs", id, "--attempt", "1")[1] == "probe\n"
    assert jct("logs", id, "--rank", "7")[0] == 3
    assert jct("logs", id, "--attempt", "7")[0] == 3


def test_follow_ends_when_the_job_ends_and_misses_nothing(jct, cluster, job_file):
    id = submitted(jct, job_file("work: {total: 20 steps}"), "--gpus", "1")
    cluster.speed_s = 0.2
    read_log, written = cluster.read_log, {}

    async def growing(job, attempt, member, offset, limit):
        """Every look finds one more line, until the process is gone."""
        key = (job, attempt, member)
        if cluster.state.members[key].gone_us is None or key not in written:
            cluster.logs[key] = cluster.logs.get(key, b"") + b"attempt %d line\n" % attempt
            written[key] = cluster.logs[key].decode()
        return await read_log(job, attempt, member, offset, limit)

    cluster.read_log = growing
    code, out, err = jct("logs", "-f", id)
    assert code == 0, err
    assert out == "".join(written.values())
    assert len(written) == 2


def test_a_log_that_is_not_there_yet_is_told(jct, cluster, job_file):
    code, out, err = jct("logs", submitted(jct, job_file()))
    assert (code, out) == (3, "")
    assert "has not started" in err


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


def test_errors_map_to_exit_codes(jct, cluster, monkeypatch):
    assert jct("show", 99)[0] == 3
    monkeypatch.setenv("JCT_TOKEN", "wrong")
    assert jct("ls")[0] == 4
    monkeypatch.setenv("JCT_URL", "http://127.0.0.1:1")
    code, _, err = jct("ls")
    assert code == 5
    assert "cannot reach jctd at http://127.0.0.1:1: Connection refused" in err
    monkeypatch.setenv("JCT_URL", "ftp://x")
    assert jct("ls")[0] == 2


def test_a_user_may_not_submit_for_another_team(jct, cluster, job_file, monkeypatch):
    monkeypatch.setenv("JCT_TOKEN", cluster.token("eva", "nlp", Role.USER))
    assert jct("submit", job_file("team: vision"))[0] == 4
    assert cluster.state.jobs[submitted(jct, job_file())].spec.team == "nlp"


def test_without_settings_it_says_how_to_get_them(jct, monkeypatch, tmp_path):
    monkeypatch.delenv("JCT_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code, _, err = jct("ls")
    assert code == 5
    assert "jct up" in err


def test_the_saved_settings_are_used_and_private(jct, cluster, monkeypatch, tmp_path):
    from scheduler.cli import config

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config.save(os.environ["JCT_URL"], os.environ["JCT_TOKEN"])
    config.save(os.environ["JCT_URL"], None)
    monkeypatch.delenv("JCT_URL")
    monkeypatch.delenv("JCT_TOKEN")
    assert jct("ls")[0] == 0
    assert (config.config_dir() / "token").stat().st_mode & 0o777 == 0o600


def test_a_reader_that_goes_away_is_no_error(cluster, jct, job_file):
    for _ in range(3):
        submitted(jct, job_file(name="x" * 150))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([*JCT, "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("variables", [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_any_name_can_be_listed_in_any_locale(cluster, jct, job_file, variables):
    submitted(jct, job_file(name="дата 🚀"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    found = subprocess.run([*JCT, "ls"], capture_output=True, env=environment)
    assert (found.returncode, found.stderr) == (0, b"")
    assert len(found.stdout.splitlines()) == 2


def test_ls_imports_nothing_heavy(cluster):
    program = (
        "import sys; from scheduler.cli.main import run; run(['ls']);"
        "heavy = {'torch', 'fastapi', 'sqlmodel', 'sqlalchemy', 'matplotlib', 'numpy', 'httpx', 'zmq'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert (found.returncode, found.stderr) == (0, b"")


# --- webhooks -------------------------------------------------------------------------------------------------


def test_a_webhook_is_made_with_its_secret_on_stdout_listed_without_it_and_removed(jct, cluster, monkeypatch):
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
