"""`jct ls --watch` draws the queue on a terminal until it is interrupted."""

import os
import pty
import signal
import subprocess
import sys

from small_server import serving


def test_the_queue_is_drawn_until_interrupted(tmp_path):
    with serving(tmp_path) as (cluster, url):
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JCT_URL": url, "JCT_TOKEN": cluster.token(),
            "TERM": "xterm", "COLUMNS": "100", "LINES": "30",
        }  # fmt: skip
        ours, theirs = pty.openpty()
        program = "from scheduler.cli.main import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, "ls", "--watch"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        shown = b""
        while b"WHERE/WHY" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        os.close(ours)
