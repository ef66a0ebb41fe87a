"""`python -P -m worker train ...` and `python -P -m worker checkpoints ...`: what `jct` starts for its users."""

import os
import signal
import sys

from worker.processes import endings

USAGE = "usage: python -P -m worker train SPEC [OPTIONS] | checkpoints show|verify DIR"


def main(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "train":
        for number in endings():
            signal.signal(number, _interrupted)
        from worker.shim import one_threaded

        one_threaded()  # before numpy is loaded
        from worker import train

        try:
            return train.main(rest)
        except BrokenPipeError:  # nobody reads what is printed: it has been stopped, and that is no error worth a word
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
    if command == "checkpoints":
        from worker.checkpoint import command as checkpoints

        return checkpoints.main(rest)
    print(USAGE, file=sys.stderr)
    return 2


def _interrupted(number: int, _frame: object) -> None:
    """End by an exception, which takes all along that was started; once: a second signal must not cut that short.

    Once it trains, `worker.train` takes signals itself.
    """
    for other in endings():
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
