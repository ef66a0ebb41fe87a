"""What an agent says of its node comes from drivers, its host's settings, and whoever holds its key.

A number that cannot be true is unknown, or where it may not be that, the nearest that can be; texts are cut. Names stay
as they are, or the node is refused: they are keys of tables, which one that is too long would stop for good.
"""

from msgspec.structs import replace

from scheduler.protocol.messages import DeviceInfo, Hello
from scheduler.protocol.plausible import MOST, MOST_SMALL

LONGEST_NAME, LONGEST_TEXT = 255, 500


def plausible_hello(hello: Hello) -> Hello:
    """The same Hello, without what cannot be true."""
    return replace(hello, address=hello.address[:LONGEST_TEXT], devices=tuple(map(_device, hello.devices)))


def unusable_name(hello: Hello) -> str | None:
    """Why a name in it cannot be used, and what to do about it; None where all can."""
    names = {"node": hello.node, "machine": hello.machine, "boot": hello.boot, "session": hello.session}
    for device in hello.devices:
        names |= {f"device {device.index}": device.id, f"kind of device {device.index}": device.kind}
    for what, name in names.items():
        if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
            return (
                f"the name of its {what} must have 1 to {LONGEST_NAME} characters, all of them printable, and has "
                f"{len(name)}; give this agent another --node name, or see what its driver calls its devices"
            )
    return None


def _device(info: DeviceInfo) -> DeviceInfo:
    known = info.memory_bytes is None or 0 < info.memory_bytes <= MOST
    return replace(
        info, memory_bytes=info.memory_bytes if known else None, index=max(0, min(info.index, MOST_SMALL)),
        name=info.name[:LONGEST_TEXT], reason=info.reason[:LONGEST_TEXT],
    )  # fmt: skip
