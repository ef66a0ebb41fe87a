"""The shim: one process for each attempt and node. It forks the members, guards them, and outlives the agent.

Contract with the agent
=======================

Command line::

    python -P -m worker.shim --folder .../attempts/JOB.N [--host 127.0.0.1] [--linger-s 5] [--account UID:GID:GROUPS]
                             [--parent PID]
    python -P -m worker.shim --spare [--wait-s 600]

- The folder's name gives job and attempt. It exists already and holds `spec.json`: `msgspec.json.encode(AttemptSpec)`.
- `--account`: whom it becomes before it does anything else. The folder is that account's own.
- `--parent`: for whom no agent watches: it stops its members, as at SIGTERM, when the process that started it ends.
- `--host`: the address the generation's store binds and announces; the node's own where an attempt spans nodes.
- Start it in its own session (`start_new_session=True`), stdin from /dev/null, with `JCT_NONCE=<spec.nonce>` in its
  environment, so that strays are found through /proc/PID/environ. It sets its own thread variables.

- A spare imports everything, prints "ready" and a newline, then waits on standard input for one line: a JSON list of
  the options above, such as `["--folder", ".../attempts/7.1"]`. From there on it is that attempt's shim, seconds
  sooner. It ends by itself after --wait-s, or when its standard input is closed. It has no JCT_NONCE in its
  environment: move it into the attempt's cgroup before the line is written. Spares are for one user and interpreter.

Files in the folder (written by the shim unless said otherwise)::

    spec.json       by the agent, before the start
    shim.json       {"boot": str, "pid": int, "start_ticks": int, "nonce": str, "protocol": int, "job": int,
                    "attempt": int}; durable before the first fork
    shim.sock       Unix stream socket, mode 0600; long paths work: connect through /proc/self/fd/DIRFD/shim.sock
    exit-K.json     `msgspec.json.encode(Report)`: the last word (phase GONE) on member K; durable before it is sent
    member-K.log    by the agent: opened O_APPEND, its descriptor travels with Spawn
    timeline.json   by the pilot's member: a measured step now and then, `policies.ir.timeline.Timeline` as JSON
    metrics.jsonl   by the pilot's member: one JSON object a line, see `worker.metrics`

While it lives, the shim holds an exclusive flock on the folder itself (a directory descriptor); a second shim for the
same folder exits with code 73 and touches nothing.

On the socket: frames of `scheduler.protocol.codec` (4 bytes of length, then msgpack).

- Shim to agent (FromShim): `ShimHello` first, then the current Report of every member, then each new Report. The
  socket exists before torch is imported, so the hello may take some seconds (tens on a busy machine).
- Agent to shim (ToShim): `Spawn(target)`, with the log's descriptor as SCM_RIGHTS beside the first byte of its frame
  (`socket.send_fds`); `Target` thereafter, always the whole value. A Spawn for a member that exists is a Target.
  `Slowdowns` of the attempt's devices here, about once a second; every training member gets them.
- One agent at a time: a newer connection replaces the older. Hanging up changes nothing for the members.
- `Report.seq` is the shim's own count for each member; it grows with every change.

Members wait for `Target.store`. When the pilot's member (`Target.pilot`) is spawned here, the shim starts the
generation's TCPStore server as its own child and puts "host:port" into the `store` field of that member's Reports;
the agent's side sends it back to all members in their Targets.

Live changes: a Target with a higher generation, for every member of the old and the new one (newcomers by Spawn).
`Report.store_generation` tells which generation's store `Report.store` is; only that goes into a Target's `store`.
A member that the decided generation does without ends by itself (cause STOPPED) and gets GONE while others live.

Ends. A member's process end gives phase EXITED (exit_code or signal, cause, message), then, when none of its
descendants is left, GONE. After the last one the shim waits until the agent hangs up, at most `--linger-s`, and exits
with code 0. `Stop(grace_s=0)` is SIGKILL at once. `Stop(grace_s=G)`: the Target goes to the
member (only the pilot acts on it), then the job's signal to the member's process alone, then, G seconds of boot time
after it arrived, SIGKILL. A later Stop can shorten the grace, never lengthen it.

Environment of a member: `JobSpec.env`, PATH, HOME, LANG, USER and TMPDIR of the shim, JCT_NONCE, JCT_JOB_ID,
JCT_ATTEMPT, JCT_MEMBER, JCT_DEVICE, JCT_ATTEMPT_DIR, JCT_CHECKPOINT_DIR (where there is one), JCT_GRACE_SECONDS,
JCT_NUM_GPUS, JCT_STAGES, JCT_MICRO_BATCHES, JCT_GLOBAL_BATCH (with a plan), RANK, WORLD_SIZE, LOCAL_RANK.
Working directory: `JobSpec.workdir`. Standard output and error: the log. A session of its own.
"""

import argparse
import json
import os
import select
import signal
import sys
from pathlib import Path

from worker import processes
from worker.zygote import Zygote

EXIT_LOCKED = 73


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or EXIT_LOCKED."""
    options = _options(arguments)
    if options.account is not None:
        processes.become_account(*options.account)
    one_threaded()
    if options.spare:
        import_ahead()
        line = _order(options.wait_s)
        return main(json.loads(line)) if line else 0
    try:
        shim = Zygote(options.folder.absolute(), options.host, options.linger_s)
    except BlockingIOError:
        print(f"shim: another one guards {options.folder}", file=sys.stderr)
        return EXIT_LOCKED
    if options.parent is not None:
        processes.tell_end_of_parent(signal.SIGTERM)
        if os.getppid() != options.parent:
            os.kill(os.getpid(), signal.SIGTERM)
    if not shim.is_command:
        import_ahead()
    shim.run()
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m worker.shim", description="Runs one attempt's processes.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--folder", type=Path, help="attempts/JOB.N with its spec.json")
    what.add_argument("--spare", action="store_true", help="import ahead and wait for the options on standard input")
    parser.add_argument("--host", default="127.0.0.1", help="address that the generation's store binds and announces")
    parser.add_argument("--account", type=_account, metavar="UID:GID:GROUPS", help="whom to become first")
    parser.add_argument("--parent", type=int, metavar="PID", help="end as at SIGTERM when this parent does")
    parser.add_argument("--linger-s", type=float, default=5.0, help="seconds to wait for an agent in the end")
    parser.add_argument("--wait-s", type=float, default=600.0, help="seconds that a spare waits for its attempt")
    return parser.parse_args(arguments)


def _account(text: str) -> tuple[int, int, list[int]]:
    uid, gid, groups = text.split(":")
    return int(uid), int(gid), [int(group) for group in groups.split(",") if group]


def _order(wait_s: float) -> str:
    """A spare's one line; "" when none comes in time."""
    print("ready", flush=True)
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return sys.stdin.readline().strip() if ready else ""


def one_threaded() -> None:
    """OpenBLAS and OpenMP start threads when they are loaded, and a fork copies just one. Call it before that."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def import_ahead() -> None:
    """All that members need, once: torch._dynamo would be imported by the first optimizer, at 1.5 s each."""
    import torch
    import torch._dynamo
    import torch.distributed

    import worker.member  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
