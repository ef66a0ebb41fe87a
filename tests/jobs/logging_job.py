"""A job that keeps what it is told of its training, in a file of its own."""

import json
import os
from pathlib import Path

import tiny

from worker import PipelineJob


def job(**arguments) -> PipelineJob:
    made = tiny.job(**arguments)

    def log(values) -> None:
        with open(Path(os.environ["JCT_ATTEMPT_DIR"]) / "told.jsonl", "a") as file:
            file.write(json.dumps(values) + "\n")

    made.log = log
    return made


def log_that_raises() -> PipelineJob:
    made = tiny.job()
    made.log = lambda values: values["no such thing"]
    return made
