"""Taking a port with patience: a daemon that starts again wants the one that it had a moment ago.

Somebody may still hold it: a child of the daemon before, which was killed between the child's fork and its exec; or a
connection that got it by chance, for its own end, from the range that the system gives out.
"""

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

import zmq

_T = TypeVar("_T")

TRIES, PAUSE_S = 100, 0.05


def taken(bind: Callable[[], _T], what: str, sleep: Callable[[float], None] = time.sleep) -> _T:
    """What `bind` returns, once it does. Raises OSError, with `what` in its text, where it cannot be."""
    tries = 0
    while True:
        try:
            return bind()
        except (OSError, zmq.ZMQError) as error:
            tries += 1
            if error.errno != errno.EADDRINUSE or tries == TRIES:
                why = os.strerror(error.errno or 0) if error.errno in errno.errorcode else error.strerror
                raise OSError(error.errno, f"cannot listen on {what}: {why}") from error
        sleep(PAUSE_S)
