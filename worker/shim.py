"""The shim: one process for each attempt and node. It forks the members, guards them, and outlives the agent.

Contract with the agent
=======================

Command line::

    python -P -m worker.shim --folder .../attempts/JOB.N [--host 127.0.0.1] [--linger-s 5]

- The folder's name gives job and attempt. It exists already and holds `spec.json`: `msgspec.json.encode(AttemptSpec)`.
- `--host`: the address the generation's store binds and announces; the node's own where an attempt spans nodes.
- Start it in its own session (`start_new_session=True`), stdin from /dev/null, with `JCT_NONCE=<spec.nonce>` in its
  environment, so that strays are found through /proc/PID/environ. It sets its own thread variables.

Files in the folder (written by the shim unless said otherwise)::

    spec.json       by the agent, before the start
    shim.json       {"boot": str, "pid": int, "start_ticks": int, "nonce": str, "protocol": int, "job": int,
                    "attempt": int}; durable before the first fork
    shim.sock       Unix stream socket, mode 0600; long paths work: connect through /proc/self/fd/DIRFD/shim.sock
    exit-K.json     `msgspec.json.encode(Report)`: the last word (phase GONE) on member K; durable before it is sent
    member-K.log    by the agent: opened O_APPEND, its descriptor travels with Spawn
    metrics.jsonl   by the pilot's member: one JSON object a line, see `worker.metrics`

While it lives, the shim holds an exclusive flock on the folder itself (a directory descriptor); a second shim for the
same folder exits with code 73 and touches nothing.

On the socket: frames of `scheduler.protocol.codec` (4 bytes of length, then msgpack).

- Shim to agent (FromShim): `ShimHello` first, then the current Report of every member, then each new Report. The
  socket exists before torch is imported, so the hello may take some seconds (tens on a busy machine).
- Agent to shim (ToShim): `Spawn(target)`, with the log's descriptor as SCM_RIGHTS beside the first byte of its frame
  (`socket.send_fds`); `Target` thereafter, always the whole value. A Spawn for a member that exists is a Target.
- One agent at a time: a newer connection replaces the older. Hanging up changes nothing for the members.
- `Report.seq` is the shim's own count for each member; it grows with every change.

Members wait for `Target.store`. When the pilot's member (`Target.pilot`) is spawned here, the shim starts the
generation's TCPStore server as its own child and puts "host:port" into the `store` field of that member's Reports;
the agent's side sends it back to all members in their Targets.

Ends. A member's process end gives phase EXITED (exit_code or signal, cause, message); when every member on this node
has ended and no descendant is left, each gets GONE. Then the shim waits until the agent hangs up, at most
`--linger-s`, and exits with code 0. `Stop(grace_s=0)` is SIGKILL at once. `Stop(grace_s=G)`: the Target goes to the
member (only the pilot acts on it), then the job's signal to the member's process alone, then, G seconds of boot time
after it arrived, SIGKILL. A later Stop can shorten the grace, never lengthen it.

Environment of a member: `JobSpec.env`, PATH, HOME, LANG, USER and TMPDIR of the shim, JCT_NONCE, JCT_JOB_ID,
JCT_ATTEMPT, JCT_MEMBER, JCT_DEVICE, JCT_ATTEMPT_DIR, JCT_CHECKPOINT_DIR (where there is one), JCT_GRACE_SECONDS,
JCT_NUM_GPUS, JCT_STAGES, JCT_MICRO_BATCHES, JCT_GLOBAL_BATCH (with a plan), RANK, WORLD_SIZE, LOCAL_RANK.
Working directory: `JobSpec.workdir`. Standard output and error: the log. A session of its own.
"""
