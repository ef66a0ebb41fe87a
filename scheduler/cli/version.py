"""`jct version`."""

from scheduler.cli.options import Json
from scheduler.cli.output import print_json


def version(json: Json = False) -> None:
    """Print the version."""
    from scheduler.version import VERSION

    if json:
        print_json(version=VERSION)
    else:
        print(f"jct {VERSION}")
