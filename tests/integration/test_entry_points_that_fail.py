"""Every way an entry point can fail gives one clear line up, the traceback in the log, and the right cause."""

from pathlib import Path

import pytest
from gang import JOBS, Site, log, plan

from scheduler.protocol.messages import Cause
from worker.launcher import Launched


def run(site: Site, shape=None, **spec) -> Launched:
    launched = site.launch(shape or plan((0, 6)), site.spec(**spec))
    launched.wait()
    launched.hang_up()
    return launched


@pytest.mark.parametrize(
    ("entrypoint", "cause", "words"),
    [
        ("nowhere:job", Cause.BAD_SPEC, "no module 'nowhere'"),
        ("tiny.deeper:job", Cause.BAD_SPEC, "no module"),
        ("tiny:nothing", Cause.BAD_SPEC, "no function 'nothing'"),
        ("tiny", Cause.BAD_SPEC, "package.module:function"),
        ("awkward:not_a_job", Cause.BAD_SPEC, "returned int"),
        ("awkward:raises", Cause.USER_EXCEPTION, "RuntimeError: the dataset is not there"),
        ("awkward:raises_what_is_not_utf8", Cause.USER_EXCEPTION, r"no file \udcff"),
        ("awkward:exits", Cause.USER_EXCEPTION, "sys.exit(3)"),
        ("awkward:dies", Cause.USER_EXCEPTION, "exit code 7"),
        ("awkward:allocates_too_much", Cause.OUT_OF_MEMORY, "MemoryError"),
        ("awkward:diverges", Cause.USER_EXCEPTION, "step 1: loss is nan"),
        ("awkward:shares_a_parameter", Cause.BAD_SPEC, "share a parameter"),
    ],
)
def test_one_clear_line(site: Site, entrypoint: str, cause: Cause, words: str) -> None:
    report = run(site, entrypoint=entrypoint).pilot
    assert report.cause is cause
    assert words in report.message
    assert "\n" not in report.message
    assert report.exit_code not in (0, None)


def test_a_signal_without_a_name_is_told_by_its_number(site: Site) -> None:
    report = run(site, entrypoint="awkward:dies_of_a_realtime_signal").pilot
    assert (report.cause, report.signal, report.message) == (Cause.SIGNAL, 40, "killed by signal 40")


def test_the_traceback_is_in_the_log_and_the_exit_code_is_the_users(site: Site) -> None:
    raised = run(site, entrypoint="awkward:raises")
    assert "Traceback" in log(raised)
    assert "and a second line" in log(raised)
    assert run(site, entrypoint="awkward:exits").pilot.exit_code == 3
    assert run(site, entrypoint="awkward:dies").pilot.exit_code == 7


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("awkward:passes_two_tensors", "'pair' returned a tuple"),
        ("awkward:raises_in_forward", "shape 3 does not fit 4"),
    ],
)
def test_layers_that_cannot_run_in_a_pipeline(site: Site, entrypoint: str, words: str) -> None:
    launched = run(site, plan((0, 3, 7)), entrypoint=entrypoint)
    blamed = [report for report in launched.reports.values() if report.cause is Cause.USER_EXCEPTION]
    assert blamed
    assert words in blamed[0].message


def test_a_work_directory_that_is_not_there(site: Site) -> None:
    report = run(site, workdir=str(site.folder / "gone")).pilot
    assert report.cause is Cause.BAD_SPEC
    assert "gone" in report.message


def test_arguments_that_do_not_fit(site: Site) -> None:
    report = run(site, arguments={"wdith": 3}).pilot
    assert report.cause is Cause.USER_EXCEPTION
    assert "wdith" in report.message


def test_a_users_scheduler_cannot_shadow_ours(site: Site) -> None:
    work = site.folder / "work"
    work.mkdir()
    (work / "scheduler.py").write_text("raise RuntimeError('the wrong scheduler')\n")
    (work / "tiny.py").write_text((JOBS / "tiny.py").read_text())
    assert run(site, workdir=str(work), arguments={"steps": 2}).pilot.cause is Cause.FINISHED
    refused = run(site, workdir=str(work), entrypoint="scheduler:job").pilot
    assert refused.cause is Cause.BAD_SPEC
    assert str(Path(work) / "scheduler.py") in refused.message


def test_a_plan_that_does_not_fit_the_model(site: Site) -> None:
    assert run(site, plan((0, 9))).pilot.cause is Cause.PLAN_MISMATCH
    assert run(site, plan((0, 6), microbatches=3)).pilot.cause is Cause.PLAN_MISMATCH
    changed = run(site, fingerprint="0" * 64).pilot
    assert changed.cause is Cause.PLAN_MISMATCH
    assert "fingerprint" in changed.message
