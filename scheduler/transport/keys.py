"""CURVE keys on disk. A node is its key: the daemon talks only to keys in its `agents/` folder."""

import os
import shutil
from pathlib import Path

import structlog
import zmq.auth

log = structlog.get_logger()


def own_pair(folder: Path, name: str) -> tuple[bytes, bytes]:
    """(public, secret) in Z85 from `folder/name.key_secret`, made on first use and readable by the owner alone."""
    secret_file = folder / f"{name}.key_secret"
    if not secret_file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = os.umask(0o077)
        try:
            zmq.auth.create_certificates(folder, name)
        finally:
            os.umask(old)
    public, secret = zmq.auth.load_certificate(secret_file)
    assert secret is not None
    return public, secret


def allow_agent(daemon_folder: Path, agent_folder: Path, node: str) -> None:
    """Let the agent with this folder's key register as a node: copies its public key to the daemon's side."""
    own_pair(agent_folder, "agent")
    agents = daemon_folder / "agents"
    agents.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(agent_folder / "agent.key", agents / f"{node}.key")


class AllowedAgents:
    """Looks at the folder at every handshake, so that a node can be let in or out without a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the authenticator with the peer's public key in Z85."""
        known = any(zmq.auth.load_certificate(file)[0] == key for file in self._folder.glob("*.key"))
        if not known:
            log.warning("an unknown key was refused", key=key.decode(errors="replace"), folder=str(self._folder))
        return known
