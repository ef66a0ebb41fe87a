"""Keeps what libraries print out of our data."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def stdout_is_ours() -> Iterator[TextIO]:
    """Meanwhile what others write to descriptor 1 (the solver does) goes to stderr, and ours to what is yielded."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w") as ours:
            yield ours
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # C libraries hold back what they print
        os.dup2(kept, 1)
        os.close(kept)
