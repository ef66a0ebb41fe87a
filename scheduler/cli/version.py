"""`jct version`."""

from scheduler.cli.options import Json
from scheduler.cli.output import print_json


def version(json: Json = False) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    if json:
        print_json(version=installed("jctd"))
    else:
        print(f"jct {installed('jctd')}")
