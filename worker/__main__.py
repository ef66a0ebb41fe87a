"""`python -P -m worker train ...` and `python -P -m worker checkpoints ...`: what `jct` starts for its users."""

import sys

USAGE = "usage: python -P -m worker train SPEC [OPTIONS] | checkpoints show|verify DIR"


def main(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "train":
        from worker.shim import one_threaded

        one_threaded()  # before numpy is loaded
        from worker import train

        return train.main(rest)
    if command == "checkpoints":
        from worker.checkpoint import command as checkpoints

        return checkpoints.main(rest)
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
