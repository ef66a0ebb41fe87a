"""The job file: YAML or JSON in, a validated `scheduler.protocol.spec.JobSpec` out, or everything that is wrong."""

from scheduler.jobfile.check import parse_document
from scheduler.jobfile.read import read_text

__all__ = ["parse_document", "read_text"]
