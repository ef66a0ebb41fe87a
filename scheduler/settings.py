"""The daemon's settings: flags beat JCT_SERVER_* variables, which beat the defaults."""

import argparse
import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from policies import registry
from scheduler.durations import parse_duration


def is_loopback(host: str) -> bool:
    """Names other than localhost may mean any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _duration(value: object) -> int:
    return value if isinstance(value, int) else parse_duration(str(value), bare="seconds")


class DaemonSettings(BaseSettings):
    """Ports 0 let the system choose; `daemon.json` in the state folder tells what was chosen.

    retention: seconds, or a duration such as 90d; how long the database keeps what has ended, None for ever.
    """

    model_config = SettingsConfigDict(env_prefix="JCT_SERVER_", extra="ignore")

    state: Path
    database_url: str | None = Field(default=None, validation_alias="JCT_DATABASE_URL")
    host: str = "127.0.0.1"
    port: int = Field(default=7740, ge=0, le=65535)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_elsewhere: bool = False
    agents_host: str = "127.0.0.1"
    agents_port: int = Field(default=7741, ge=0, le=65535)
    mqtt_url: str | None = None
    policy: str = "jct"
    ended_in_memory: int = Field(default=1_000, ge=100, le=100_000)
    retention: Annotated[int, BeforeValidator(_duration)] | None = Field(default=None, ge=60)
    auto_drain_share: float = Field(default=0.2, ge=0, le=1)

    @model_validator(mode="after")
    def _encrypted_off_this_host(self) -> Self:
        """Tokens and logs never cross a network in the clear. Agents always use CURVE."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key belong together: name both, or neither")
        if self.tls_cert is None and not self.tls_elsewhere and not is_loopback(self.host):
            raise ValueError(
                f"the REST API would listen on {self.host} without TLS, so that tokens could be read on the network; "
                "name --tls-cert and --tls-key; or say --tls-elsewhere where a proxy in front, or a container's own "
                "network, keeps it from others"
            )
        return self

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.state / 'jctd.db'}"


def from_arguments() -> DaemonSettings:
    """From the command line. Raises ValidationError; argparse exits 2 by itself."""
    parser = argparse.ArgumentParser(prog="jctd", description="The central daemon of a jctd cluster.")
    parser.add_argument("--state", type=Path, required=True, help="folder for database, keys and daemon.json")
    parser.add_argument("--database-url", help="sqlite:///FILE or postgresql://..., default: a file in --state")
    parser.add_argument("--host", help="address of the REST API (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port of the REST API (default 7740; 0 lets the system choose)")
    parser.add_argument("--tls-cert", type=Path, help="certificate chain (PEM) of the REST API; needed off this host")
    parser.add_argument("--tls-key", type=Path, help="its private key (PEM)")
    parser.add_argument("--tls-elsewhere", action="store_true", default=None, help="a proxy in front speaks TLS")
    parser.add_argument("--agents-host", help="address for agents (default 127.0.0.1)")
    parser.add_argument("--agents-port", type=int, help="port for agents (default 7741; 0 lets the system choose)")
    parser.add_argument("--mqtt-url", help="broker for events; with a password, better as JCT_SERVER_MQTT_URL")
    parser.add_argument("--policy", help=f"one of {', '.join(registry.names())}")
    parser.add_argument("--ended-in-memory", type=int, metavar="N",
                        help="jobs that have ended and are kept in memory (default 1000); the database has all")
    parser.add_argument("--retention", metavar="DURATION",
                        help="how long the database keeps what has ended, e.g. 90d (default: for ever)")
    parser.add_argument("--auto-drain-share", type=float, metavar="PART",
                        help="part of the nodes that their own health checks may drain at once (default 0.2)")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    if url := given.pop("database_url", None):
        given["JCT_DATABASE_URL"] = url
    return DaemonSettings(**given)
