"""A job file becomes a JobSpec, or every problem with it is told at once, with its place and a way out."""

import json

import pytest

from scheduler.core.errors import BadSpec, Code, JctError
from scheduler.jobfile import parse_document, read_text
from scheduler.protocol.spec import AdaptSpec, CheckpointSpec, JobSpec

LEAST = {"name": "a", "entrypoint": "pkg.mod:build", "workdir": "/w"}


def problems(**fields: object) -> dict[str, JctError]:
    with pytest.raises(BadSpec) as caught:
        parse_document({**LEAST, **fields})
    return {problem.field or "": problem for problem in caught.value.problems}


def spec(**fields: object) -> JobSpec:
    return parse_document({**LEAST, **fields})


def test_every_honoured_field_arrives():
    text = """
        apiVersion: v1
        name: gpt2-xl
        team: nlp
        queue: default
        priority: 60
        labels: {year: 2026, answer: no}
        note: first try
        entrypoint: pkg.mod:build
        arguments: {layers: 48, deep: [1, {x: null}]}
        workdir: /w
        env: {NCCL_DEBUG: WARN, N: 1}
        gpus: {min: 2, max: 16, allowed: [16, 2, 4, 8], type: A100}
        parallel:
          {pipeline_stages: [4, 2], micro_batches: 32, micro_batch_size: 4, global_batch: 128,
           batch_rampup: [[100, 64]], data: 2, schedule: gpipe}
        numerics: statistical
        work: {total: 300 steps}
        checkpoint: {dir: /ckpt, every: 10m, keep: 3, resume: none}
        preemptible: false
        signal: USR1
        grace: 2:00
        min_runtime: 15m
        retries: {max: 3, backoff: 30}
        profile: gpt2-xl
    """  # fmt: skip
    assert parse_document(read_text(text)) == JobSpec(
        name="gpt2-xl", team="nlp", priority=60, labels={"year": "2026", "answer": "no"}, note="first try",
        entrypoint="pkg.mod:build", arguments={"layers": 48, "deep": [1, {"x": None}]}, workdir="/w",
        env={"NCCL_DEBUG": "WARN", "N": "1"}, min_devices=2, max_devices=16, allowed_devices=(2, 4, 8, 16),
        device_kinds=("A100",), stages=(2, 4), microbatches=32, microbatch_size=4, global_batch=128,
        batch_rampup=((100, 64),), replicas=2,
        schedule="gpipe", numerics="statistical", total_steps=300, preemptible=False, signal="SIGUSR1", grace_s=120.0,
        checkpoint=CheckpointSpec(dir="/ckpt", every_s=600.0, keep=3, resume="none"), min_runtime_s=900.0,
        retries_max=3, retries_backoff_s=30.0, profile="gpt2-xl",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("adapt", "found"),
    [
        (True, AdaptSpec()),
        (False, None),
        ({"threshold": 0.5, "cooldown": "1m"}, AdaptSpec(threshold=0.5, cooldown_s=60.0)),
        ({"held": 5, "horizon": "2:00:00", "watermark": 0.8}, AdaptSpec(held_s=5.0, horizon_s=7200.0, watermark=0.8)),
    ],
)
def test_a_job_may_say_when_it_changes_its_own_cut(adapt, found):
    assert spec(adapt=adapt).adapt == found
    assert spec().adapt is None


def test_a_command_cannot_adapt():
    with pytest.raises(BadSpec) as caught:
        parse_document({"name": "a", "command": ["sleep", "1"], "workdir": "/w", "adapt": True})
    assert [problem.field for problem in caught.value.problems] == ["adapt"]


def test_a_threshold_that_noise_would_pass_is_refused():
    assert "adapt.threshold" in problems(adapt={"threshold": 0.01})


def test_json_is_accepted_and_the_least_file_is_small():
    assert parse_document(read_text(json.dumps(LEAST))) == JobSpec(name="a", entrypoint="pkg.mod:build", workdir="/w")


def test_an_int_of_gpus_means_exactly_that_many():
    assert (spec(gpus=4).min_devices, spec(gpus=4).max_devices) == (4, 4)


@pytest.mark.parametrize(
    ("gpus", "low", "high"),
    [
        ({"max": 4}, 1, 4),
        ({"min": 2}, 2, 2),
        ({"allowed": [4, 2]}, 2, 4),
        ({"min": 1, "allowed": [2, 4]}, 1, 4),
        ({}, 1, 1),
    ],
)
def test_what_gpus_leaves_out_is_filled_in(gpus, low, high):
    assert (spec(gpus=gpus).min_devices, spec(gpus=gpus).max_devices) == (low, high)


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        ({"min": 4, "max": 2}, "gpus: min 4 is more than max 2"),
        ({"min": 2, "max": 4, "allowed": [2, 8]}, "gpus: allowed names 8, which is outside 2 to 4"),
        ({"min": 0, "max": 2}, "gpus.min: must be greater than or equal to 1"),
        (-1, "gpus.min: must be greater than or equal to 1"),
        ("two", "gpus: must be a mapping"),
        (True, "gpus: must be a mapping"),
    ],
)
def test_impossible_gpu_ranges_are_told(gpus, told):
    assert told in [problem.message for problem in problems(gpus=gpus).values()]


@pytest.mark.parametrize(
    ("parallel", "told"),
    [
        ({"pipeline_stages": 8}, "parallel: 8 pipeline stages need 8 GPUs; gpus allows at most 4"),
        (
            {"pipeline_stages": 2, "data": 3},
            "parallel: 2 pipeline stages × 3 replicas need 6 GPUs; gpus allows at most 4",
        ),
        ({"batch_rampup": [[9, 4], [5, 8]]}, "parallel: batch_rampup must grow, but [5, 8] follows [9, 4]"),
        ({"batch_rampup": [[9, 16]], "global_batch": 8}, "parallel: batch_rampup ends at 16, above global_batch 8"),
        ({"micro_batches": 3, "global_batch": 8}, "parallel: global_batch 8 is no multiple of micro_batches 3"),
        (
            {"micro_batches": 2, "micro_batch_size": 2, "global_batch": 8},
            "parallel: micro_batches 2 × micro_batch_size 2 is 4, not global_batch 8",
        ),
    ],
)
def test_shapes_that_cannot_be_are_told(parallel, told):
    assert problems(gpus=4, parallel=parallel)["parallel"].message == told


def test_everything_wrong_is_told_at_once_with_its_path():
    found = problems(
        prioritty=1, time_limit="0", gpus={"min": 3, "max": 1, "maxx": 2}, grace="soon",
        parallel={"tensor": 2, "pipeline_stage": 2}, work={"total": "3 epochs"}, env={"JCT_URL": "x"},
    )  # fmt: skip
    assert found.keys() == {
        "prioritty", "time_limit", "gpus", "gpus.maxx", "parallel.tensor", "parallel.pipeline_stage", "grace",
        "work.total", "env.JCT_URL",
    }  # fmt: skip
    assert found["prioritty"].hint == "did you mean 'priority'?"
    assert found["gpus.maxx"].hint == "did you mean 'max'?"
    assert found["parallel.pipeline_stage"].hint == "did you mean 'pipeline_stages'?"


@pytest.mark.parametrize("priority", [2_000, -1, 1.5, "", [1]])
def test_a_priority_that_cannot_be_is_told_once(priority):
    told = [problem.message for problem in problems(priority=priority).values()]
    assert told == ["priority: must be from 0 to 1000, or the name of a priority class"]


@pytest.mark.parametrize("word", ["slots", "partition", "account"])
def test_words_of_other_schedulers_are_understood(word):
    assert problems(**{word: 1})[word].hint in {"did you mean 'gpus'?", "did you mean 'queue'?", "did you mean 'team'?"}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"setup": [3]}, "setup"),
        ({"gpus": {"preferred": 2}}, "gpus.preferred"),
        ({"parallel": {"staleness": "allow"}}, "parallel.staleness"),
        ({"parallel": {"schedule": "async-1f1b"}}, "parallel.schedule"),
        ({"retries": {"max": 1, "on": ["failed"]}}, "retries.on"),
        ({"work": {"total": "10 tokens"}}, "work.total"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "env.LD_PRELOAD"),
        ({"env": {"OMP_NUM_THREADS": 4}}, "env.OMP_NUM_THREADS"),
    ],
)
def test_what_is_known_but_not_honoured_is_refused_as_such(fields, where):
    found = problems(**fields)
    assert list(found) == [where]
    assert found[where].code is Code.NOT_SUPPORTED_YET
    assert "not supported yet" in found[where].message


def test_a_file_whose_only_fault_is_unsupported_says_so_by_its_code():
    with pytest.raises(BadSpec) as caught:
        spec(setup=5)
    assert caught.value.code is Code.NOT_SUPPORTED_YET
    with pytest.raises(BadSpec) as caught:
        spec(setup=5, gpus=0)
    assert caught.value.code is Code.BAD_SPEC
    assert "more problem" in caught.value.message


@pytest.mark.parametrize("ways", [{}, {"entrypoint": "a:b", "command": ["x"]}, {"command": ["x"], "script": "y"}])
def test_exactly_one_way_to_run(ways):
    with pytest.raises(BadSpec) as caught:
        parse_document({"name": "a", "workdir": "/w", **ways})
    assert caught.value.problems[0].message.startswith("exactly one of entrypoint, command and script is needed")


def test_a_command_is_an_argument_list():
    job = parse_document({"name": "a", "workdir": "/w", "command": ["python", "x.py", "; rm -rf $HOME"]})
    assert job.command == ("python", "x.py", "; rm -rf $HOME")
    with pytest.raises(BadSpec, match="no shell looks at it"):
        parse_document({"name": "a", "workdir": "/w", "command": "python x.py"})
    with pytest.raises(BadSpec, match="a command decides that itself"):
        parse_document({"name": "a", "workdir": "/w", "command": ["x"], "parallel": {"pipeline_stages": 2}})
    with pytest.raises(BadSpec, match="is for jobs with a command"):
        spec(progress_timeout=60)


@pytest.mark.parametrize("name", ["дата 🚀", "a b", "../../x", "-x", "$(touch pwned)", "12", "‏abc", "x" * 200])
def test_b45_names_are_kept_literally(name):
    assert spec(name=name, team=name).name == name


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[2J", "a\0b", "x" * 201, "\ud800", "a\u202eb", "\u200b", "a\u2028b"]
)
def test_b45_other_names_are_refused_with_the_rule(name):
    assert "1 to 200 characters" in problems(name=name)["name"].message


@pytest.mark.parametrize(
    "key", ["RANK", "JCT_TOKEN", "BASH_ENV", "a b", "1A", "A=B", "", "$(touch pwned)", "Ä", "MASTER_PORT"]
)
def test_environment_keys_follow_the_policy(key):
    assert problems(env={key: "x"})[f"env.{key}"].code is Code.BAD_SPEC


def test_values_of_the_environment_are_literal_and_never_echoed():
    value = "`id`; $(touch pwned)\n\"'"
    assert spec(env={"A": value}).env == {"A": value}
    told = problems(env={"SECRET": "zzz\0", "OTHER": ["zzz"]})
    assert not [problem for problem in told.values() if "zzz" in f"{problem.message}{problem.hint}"]


@pytest.mark.parametrize("value", [2**63, float("nan"), float("inf"), "\ud800", {"k\udfff": 1}])
def test_arguments_that_not_every_reader_can_take_are_refused(value):
    assert all(path.startswith("arguments") for path in problems(arguments={"x": [value]}))


def test_arguments_may_not_be_nested_without_end():
    nested: object = 1
    for _ in range(100):
        nested = [nested]
    assert "nested" in problems(arguments={"x": nested})["arguments"].message


def test_a_job_beyond_the_size_limit_is_refused_by_that_name():
    with pytest.raises(JctError) as caught:
        spec(env={"A": "x" * 300_000})
    assert caught.value.code is Code.TOO_LARGE
    with pytest.raises(JctError, match="262144"):
        read_text("note: " + "x" * 300_000)


def test_yaml_is_read_as_version_1_2():
    assert read_text("{a: no, b: 1:30:00, c: 2026-01-01, d: 010, e: 1_000, f: on, g: true, h: 1.5, i: ~}") == {
        "a": "no", "b": "1:30:00", "c": "2026-01-01", "d": 10, "e": "1_000", "f": "on", "g": True, "h": 1.5, "i": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "line 1"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is given twice"),
        ('{"a": 1, "a": 2}', "twice"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("[1]: x", "keys must be text"),
        ("1.5: x", "keys must be text"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: \x07", "special characters"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_files_are_told_with_their_place(text, told):
    with pytest.raises(JctError, match=told) as caught:
        read_text(text)
    assert caught.value.code is Code.BAD_SPEC
