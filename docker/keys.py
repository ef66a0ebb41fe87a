"""Run once by compose: makes the keys of daemon and agent, and lets the agent in as node-0."""

import shutil
from pathlib import Path

from scheduler.transport.keys import allow_agent, own_pair

DAEMON, AGENT = Path("/var/lib/jctd"), Path("/var/lib/jct-agent")

own_pair(DAEMON, "daemon")
allow_agent(DAEMON, AGENT, "node-0")
shutil.copyfile(DAEMON / "daemon.key", AGENT / "daemon.key")
