"""What `jct submit` and `jct wait` promise: files resolved where they lie, nothing sent that is wrong, exit codes."""

import json
import os
import subprocess
import sys

import pytest
from cli_calls import JCT, submitted

from scheduler.cli import submit


def test_submit_prints_the_id_alone_when_asked(jct, living, job_file):
    assert jct("submit", job_file(), "--parsable") == (0, "1\n", "")
    assert jct("submit", job_file(name="дата")) == (0, "Submitted job 2: дата\n", "")
    assert json.loads(jct("submit", job_file(), "--json")[1])["job"]["id"] == 3


def test_submit_names_every_job_of_an_array(jct, living, job_file):
    assert jct("submit", job_file(), "--array", "0-9:3%2")[1] == "Submitted jobs 1 to 4: gpt\n"
    assert sorted(living.state.jobs) == [1, 2, 3, 4]


def test_paths_are_resolved_where_the_file_lies(jct, living, job_file, monkeypatch, tmp_path):
    path = job_file("checkpoint: {dir: ckpt}")
    monkeypatch.chdir(tmp_path)
    spec = living.state.jobs[submitted(jct, path)].spec
    assert spec.workdir == str(path.parent)
    assert spec.checkpoint.dir == str(path.parent / "ckpt")
    relative = job_file("workdir: train/..")
    assert living.state.jobs[submitted(jct, relative)].spec.workdir == str(path.parent)


def test_flags_beat_the_environment_which_beats_the_file(jct, living, job_file, monkeypatch):
    path = job_file("team: file\npriority: 10")
    monkeypatch.setenv("JCT_TEAM", "environment")
    spec = living.state.jobs[submitted(jct, path)].spec
    assert (spec.team, spec.priority, spec.max_devices) == ("environment", 10, 2)
    flags = ("--team", "flag", "--priority", "20", "--gpus", "2-4", "--name", "x", "--note", "y")
    spec = living.state.jobs[submitted(jct, path, *flags)].spec
    assert (spec.team, spec.priority, spec.min_devices, spec.max_devices) == ("flag", 20, 2, 4)
    assert (spec.name, spec.note) == ("x", "y")
    assert living.state.jobs[submitted(jct, path, "--gpus", "3")].spec.min_devices == 3


def test_a_job_file_may_come_from_standard_input(living, job_file):
    path = job_file()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [*JCT, "submit", "-", "-q"], input=path.read_bytes(), capture_output=True, cwd=path.parent, env=environment
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"1\n", b"")


def test_everything_wrong_with_a_file_is_told_and_nothing_submitted(jct, living, job_file):
    code, out, err = jct("submit", job_file("prioritty: 3\nsetup: 3\ngrace: soon"))
    assert (code, out) == (2, "")
    assert "prioritty: there is no such field\n  did you mean 'priority'?" in err
    assert "setup is not supported yet" in err
    assert "grace: 'soon' is no duration" in err
    assert living.state.jobs == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workdir: nowhere", "nowhere is no folder"),
        ("a: [", "no valid YAML at line"),
        ("gpus: 1", "given twice"),
    ],
)
def test_what_this_machine_can_see_is_refused_before_sending(jct, living, job_file, text, told):
    code, out, err = jct("submit", job_file(text))
    assert (code, out) == (2, "")
    assert told in err
    assert living.state.jobs == {}


@pytest.mark.parametrize("module", ["train.nothing", "train.gpt.deeper", "nowhere", "nowhere.gpt"])
def test_a_missing_module_is_refused_with_its_place(jct, living, job_file, module):
    path = job_file()
    path.write_text(path.read_text().replace("train.gpt", module))
    code, _, err = jct("submit", path)
    assert code == 2
    assert f"there is no module {module!r} in {path.parent}, nor is it installed" in err


def test_a_missing_file_is_told(jct, living):
    assert jct("submit", "/nowhere.yaml") == (2, "", "jct: cannot read /nowhere.yaml: No such file or directory\n")


def test_the_spec_key_follows_the_code(jct, living, job_file):
    path = job_file()
    keys = [living.state.jobs[submitted(jct, path)].spec_key for _ in range(2)]
    assert keys[0] == keys[1]
    (path.parent / "unrelated.py").write_text("x = 1\n")
    assert living.state.jobs[submitted(jct, path)].spec_key == keys[0]
    (path.parent / "train" / "gpt.py").write_text("def job():\n    return None\n")
    assert living.state.jobs[submitted(jct, path)].spec_key != keys[0]
    assert living.state.jobs[submitted(jct, job_file("parallel: {global_batch: 8}"))].spec_key not in keys


def test_a_lost_answer_is_asked_for_again_and_makes_one_job(jct, living, job_file, monkeypatch):
    answers = iter([True, True, False])
    send = submit.Client.call

    def lossy(self, *arguments, **more):
        answer = send(self, *arguments, **more)
        if next(answers):
            raise submit.JctError(submit.Code.UNREACHABLE, "lost")
        return answer

    monkeypatch.setattr(submit.Client, "call", lossy)
    assert jct("submit", job_file(), "-q") == (0, "1\n", "")
    assert list(living.state.jobs) == [1]


# --- wait -----------------------------------------------------------------------------------------------------


def test_submit_and_wait_exit_as_the_job_does(jct, living, job_file):
    living.speed_s = 1.0
    code, out, err = jct("submit", job_file("work: {total: 20 steps}"), "--wait", "-q")
    assert (code, out) == (0, "1\n")
    assert "job 1 COMPLETED" in err


def test_wait_answers_with_the_highest_code(jct, living, job_file):
    living.speed_s = 1.0
    good = submitted(jct, job_file("work: {total: 20 steps}"))
    cancelled = submitted(jct, job_file())
    jct("cancel", cancelled)
    assert jct("wait", good)[0] == 0
    assert jct("wait", good, cancelled)[0] != 0
    assert jct("wait", good, "--exit-by-state")[0] == 0
    assert jct("wait", good, cancelled, "--exit-by-state")[0] == 103
    assert jct("wait", 99)[0] == 3
    assert jct("wait", 99, "--exit-by-state")[0] == 102


def test_wait_gives_up_when_told(jct, living, job_file):
    id = submitted(jct, job_file())
    assert jct("wait", id, "--timeout", "0")[0] == 7
    assert jct("wait", id, "--timeout", "1ms")[0] == 7
    assert "one of s, ms" in jct("wait", id, "--timeout", "soon")[2]
    assert jct("wait", id, "--timeout", "0", "--exit-by-state")[0] == 101
