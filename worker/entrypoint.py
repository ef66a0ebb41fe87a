"""From `package.module:function` to a PipelineJob, with one clear line for every way this can fail."""

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from scheduler.protocol.messages import Cause
from scheduler.protocol.spec import JobSpec
from worker import rampup
from worker.errors import Ended, one_line
from worker.sdk import PipelineJob

OURS = ("agent", "migrations", "policies", "scheduler", "worker")


def load(spec: JobSpec) -> PipelineJob:
    """Enter the work directory, import the module and call the function.

    The work directory goes to the end of sys.path: a user's `scheduler.py` cannot shadow ours.

    Raises:
        Ended: BAD_SPEC for what the job file names wrongly, USER_EXCEPTION for what the user's code raises.
    """
    enter(spec.workdir)
    function = _function(spec)
    try:
        job = function(**spec.arguments)
    except Exception as error:
        raise user_exception(error, f"{spec.entrypoint} raised") from None
    if not isinstance(job, PipelineJob):
        raise Ended(
            Cause.BAD_SPEC, f"{spec.entrypoint} returned {type(job).__name__}; it must return a worker.PipelineJob"
        )
    if spec.total_steps is not None:
        job.total_steps = spec.total_steps
    if spec.global_batch is not None:
        job.global_batch = spec.global_batch
    if spec.batch_rampup:
        job.batch_rampup = spec.batch_rampup
    try:
        rampup.check(job.batch_rampup, job.global_batch)
    except ValueError as error:
        raise Ended(Cause.BAD_SPEC, str(error)) from None
    return job


def enter(workdir: str) -> None:
    """Make the work directory current and importable, behind our own packages."""
    try:
        os.chdir(workdir)
    except OSError as error:
        raise Ended(
            Cause.BAD_SPEC, f"work directory {workdir!r}: {error.strerror}; it must exist on every node"
        ) from None
    if workdir not in sys.path:
        sys.path.append(workdir)


def user_exception(error: BaseException, what: str) -> Ended:
    """The end for an exception in the user's code: traceback to the log, one line up."""
    traceback.print_exception(error)
    sys.stderr.flush()
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return Ended(Cause.OUT_OF_MEMORY if memory else Cause.USER_EXCEPTION, f"{what} {one_line(error)}")


def _function(spec: JobSpec) -> Any:
    module_name, separator, name = spec.entrypoint.partition(":")
    if not (separator and module_name and name):
        raise Ended(Cause.BAD_SPEC, f"entrypoint {spec.entrypoint!r} must have the form package.module:function")
    _check_shadowing(module_name, spec.workdir)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise Ended(
                Cause.BAD_SPEC,
                f"entrypoint {spec.entrypoint!r}: no module {error.name!r}, neither in workdir "
                f"{spec.workdir} nor installed",
            ) from None
        raise user_exception(error, f"importing {module_name} raised") from None
    except Exception as error:
        raise user_exception(error, f"importing {module_name} raised") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise Ended(Cause.BAD_SPEC, f"entrypoint {spec.entrypoint!r}: {module_name} has no function {name!r}")
    return function


def _check_shadowing(module_name: str, workdir: str) -> None:
    """A user's top-level module with the name of one of our packages would silently never be imported."""
    top = module_name.partition(".")[0]
    if top not in OURS:
        return
    ours = importlib.util.find_spec(top)
    homes = [Path(home).resolve() for home in (ours.submodule_search_locations or ())] if ours else []
    for path in (Path(workdir) / top, Path(workdir) / f"{top}.py"):
        if path.exists() and path.resolve() not in homes:
            raise Ended(
                Cause.BAD_SPEC,
                f"entrypoint {module_name!r}: the name {top!r} belongs to jctd, so {path} can never be imported; "
                "rename it",
            )
