"""How a member ends: every end has one cause and one line that says what, why and what to do."""

from scheduler.protocol.messages import Cause


class Ended(Exception):
    """The member ends for this cause. Raised anywhere in the member, turned into its last Report in `member`."""

    def __init__(self, cause: Cause, message: str = "", exit_code: int | None = None) -> None:
        """exit_code: of the process; None for 0 after a good end and 1 after any other."""
        super().__init__(message)
        self.cause = cause
        self.message = message
        good = cause in (Cause.FINISHED, Cause.STOPPED, Cause.PROBE_DONE)
        self.exit_code = exit_code if exit_code is not None else int(not good)


class PeerLost(Ended):
    """Another member of the generation closed its connections."""

    def __init__(self, message: str = "a peer closed its connection") -> None:
        super().__init__(Cause.PEER_LOST, message)


def one_line(error: BaseException) -> str:
    """`Type: message`, first line only: the traceback is in the log."""
    text = str(error).encode(errors="backslashreplace").decode().strip().splitlines()  # messages are UTF-8
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
