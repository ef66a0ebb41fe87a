"""A plain document to a JobSpec, with everything that is wrong with it found in one round."""

import difflib
import math
import typing
from typing import Any

from pydantic import BaseModel, ValidationError

from scheduler.core.errors import BadSpec, Code, JctError
from scheduler.jobfile.fields import COLD_START, check_env_key
from scheduler.jobfile.model import JobFile, Part
from scheduler.jobfile.read import MAX_BYTES, encoded_size
from scheduler.protocol.spec import AdaptSpec, CheckpointSpec, JobSpec

_OTHER_WORDS = {"slots": "gpus", "account": "team", "partition": "queue", "project": "team", "cwd": "workdir"}
_SAID_PLAINLY = {
    "missing": "is required",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}
_WAYS_TO_RUN = ("entrypoint", "command", "script")
_FOR_COMMANDS = ("progress_timeout", "processes", "on_exit")
_FOR_PIPELINES = ("arguments", "parallel", "numerics", "profile", "adapt")
_MAX_INT = 2**63 - 1
_MAX_DEPTH = 64


def parse_document(document: dict[str, Any]) -> JobSpec:
    """The job that a document describes. Raises BadSpec with every problem, JctError TOO_LARGE."""
    try:
        size = encoded_size(document)
    except (TypeError, ValueError, RecursionError):
        raise BadSpec([_problem("", "the job file must hold nothing that JSON cannot")]) from None
    if size > MAX_BYTES:
        raise JctError(Code.TOO_LARGE, f"the job has {size} bytes; the limit is {MAX_BYTES}")
    problems = [*_one_way_to_run(document), *_keys(document, JobFile, ""), *_env(document), *_arguments(document)]
    problems += [*_command(document), *_env_from(document)]
    parsed, wrong = _validate(document)
    problems += wrong
    if problems or parsed is None:
        raise BadSpec(_told_once(problems))
    return _spec(parsed)


def _problem(path: str, what: str, code: Code = Code.BAD_SPEC, hint: str | None = None) -> JctError:
    return JctError(code, f"{path}: {what}" if path else what, field=path or None, hint=hint)


def _told_once(problems: list[JctError]) -> list[JctError]:
    return list({(problem.field, problem.message): problem for problem in problems}.values())


def _one_way_to_run(document: dict[str, Any]) -> list[JctError]:
    given = [way for way in _WAYS_TO_RUN if way in document]
    if len(given) == 1:
        return []
    what = f"{' and '.join(given)} are given" if given else "none of them is given"
    return [_problem("", f"exactly one of entrypoint, command and script is needed; {what}")]


def _command(document: dict[str, Any]) -> list[JctError]:
    """A command is an argument list; the shape inside it is its own business."""
    if not _is_command(document):
        return [_problem(key, "is for jobs with a command or a script") for key in _FOR_COMMANDS if key in document]
    problems = []
    if isinstance(document.get("command"), str):
        what = "must be a list of arguments: no shell looks at it"
        problems.append(_problem("command", what, hint="such as [python, train.py]"))
    found = [key for key in _FOR_PIPELINES if key in document]
    return problems + [_problem(key, "is for jobs with an entrypoint; a command decides that itself") for key in found]


def _is_command(document: dict[str, Any]) -> bool:
    return "command" in document or "script" in document


def _env_from(document: dict[str, Any]) -> list[JctError]:
    names = document.get("env_from")
    problems = []
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and (what := check_env_key(name)):
            problems.append(_problem(f"env_from: {name[:100]!r}", what))
        elif isinstance(name, str) and COLD_START.fullmatch(name):
            what = "is read when a process starts and cannot be a secret"
            problems.append(_problem(f"env_from: {name[:100]!r}", what))
    return problems


def _keys(document: dict[str, Any], model: type[Part], path: str) -> list[JctError]:
    """Unknown keys with the nearest known one, and keys that are known but not honoured yet; nested parts too."""
    known = {field.alias or name: field for name, field in model.model_fields.items()}
    problems = []
    for key, value in document.items():
        here = f"{path}.{key}" if path else str(key)
        if key in model.NOT_YET:
            problems.append(JctError(Code.NOT_SUPPORTED_YET, f"{here} is not supported yet", field=here))
        elif key not in known:
            near = _OTHER_WORDS.get(key) or next(
                iter(difflib.get_close_matches(str(key), [*known, *model.NOT_YET], 1)), None
            )
            hint = f"did you mean {near!r}?" if near else f"known are: {', '.join(sorted(known))}"
            problems.append(_problem(here, "there is no such field", hint=hint))
        elif isinstance(value, dict) and (part := _part(known[key].annotation)):
            problems += _keys(value, part, here)
    return problems


def _part(annotation: Any) -> type[Part] | None:
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Part):
            return candidate
    return None


def _env(document: dict[str, Any]) -> list[JctError]:
    env = document.get("env")
    problems = []
    for key, value in env.items() if isinstance(env, dict) else ():
        path = f"env.{key}"
        if what := check_env_key(str(key)):
            problems.append(_problem(path, what))
        elif COLD_START.fullmatch(key) and not _is_command(document):
            what = "is read when a process starts and is not supported yet: workers are forked from a warm process"
            problems.append(_problem(path, what, Code.NOT_SUPPORTED_YET))
        if isinstance(value, str) and ("\0" in value or not _is_utf8(value)):
            problems.append(_problem(path, "must not hold NUL or lone surrogates"))
    return problems


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _arguments(document: dict[str, Any]) -> list[JctError]:
    """JSON allows more than every reader can take: numbers beyond 64 bits, NaN, half characters."""
    problems: list[JctError] = []

    def visit(value: Any, path: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            problems.append(_problem("arguments", f"must not be nested more than {_MAX_DEPTH} deep"))
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(key, path, depth + 1)
                visit(item, f"{path}.{key}", depth + 1)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                visit(item, f"{path}[{index}]", depth + 1)
        elif isinstance(value, str) and not _is_utf8(value):
            problems.append(_problem(path, "must not hold lone surrogates"))
        elif isinstance(value, float) and not math.isfinite(value):
            problems.append(_problem(path, "must be a finite number"))
        elif isinstance(value, int) and not -_MAX_INT - 1 <= value <= _MAX_INT:
            problems.append(_problem(path, "must fit in 64 bits"))

    if isinstance(document.get("arguments"), dict):
        visit(document["arguments"], "arguments", 0)
    return problems


def _validate(document: dict[str, Any]) -> tuple[JobFile | None, list[JctError]]:
    """Pydantic's word on the fields that it knows; unknown ones were dealt with by `_keys`."""
    try:
        return JobFile.model_validate(_known_only(document, JobFile)), []
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    problems = []
    for item in found:
        path = _path(item["loc"])
        if path == "command" and item["type"] == "list_type":
            continue  # said already, and better
        plain = _SAID_PLAINLY.get(item["type"]) or item["msg"].removeprefix("Value error, ")
        plain = plain.replace("Input should be", "must be")
        code = Code.NOT_SUPPORTED_YET if "not supported yet" in plain else Code.BAD_SPEC
        problems.append(_problem(path, plain, code))
    return None, problems


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path.removesuffix(".[key]")


def _known_only(document: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    kept = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in document:
            continue
        value, part = document[key], _part(field.annotation)
        kept[key] = _known_only(value, part) if part and isinstance(value, dict) else value
    return kept


def _spec(job: JobFile) -> JobSpec:
    kept = job.checkpoint
    checkpoint = None
    if kept is not None:
        checkpoint = CheckpointSpec(dir=kept.dir, every_s=float(kept.every), keep=kept.keep, resume=kept.resume)
    adapt = None
    if job.adapt is not None:
        adapt = AdaptSpec(
            threshold=job.adapt.threshold, held_s=float(job.adapt.held), cooldown_s=float(job.adapt.cooldown),
            horizon_s=float(job.adapt.horizon), watermark=job.adapt.watermark,
        )  # fmt: skip
    return JobSpec(
        name=job.name,
        entrypoint=job.entrypoint or "",
        command=tuple(job.command or ()),
        script=job.script or "",
        processes=job.processes,
        on_exit={**job.on_exit},
        log_bytes=job.logs.max,
        deadline_us=job.deadline,
        progress_timeout_s=float(job.progress_timeout) if job.progress_timeout else None,
        env_from=tuple(dict.fromkeys(job.env_from)),
        time_limit_s=float(job.time_limit) if job.time_limit else None,
        begin_us=job.begin,
        after=job.after,
        array=job.array[0],
        max_parallel=job.max_parallel or job.array[1],
        workdir=job.workdir,
        arguments=job.arguments,
        env=job.env,
        team=job.team,
        queue=job.queue,
        priority=job.priority if isinstance(job.priority, int) else 0,
        priority_class=job.priority if isinstance(job.priority, str) else "",
        labels=job.labels,
        note=job.note,
        **job.gpus.counts,
        device_kinds=tuple(job.gpus.type),
        stages=tuple(sorted(set(job.parallel.pipeline_stages or ()))),
        microbatches=job.parallel.micro_batches,
        microbatch_size=job.parallel.micro_batch_size,
        global_batch=job.parallel.global_batch,
        batch_rampup=tuple((until, batch) for until, batch in job.parallel.batch_rampup),
        replicas=job.parallel.data,
        schedule=job.parallel.schedule,
        total_steps=job.work.total if job.work else None,
        checkpoint=checkpoint,
        numerics=job.numerics,
        preemptible=job.preemptible,
        signal=job.signal,
        grace_s=float(job.grace),
        min_runtime_s=float(job.min_runtime),
        max_preemptions=job.max_preemptions,
        retries_max=job.retries.max,
        retries_backoff_s=float(job.retries.backoff),
        profile=job.profile,
        adapt=adapt,
    )
