"""The daemon's settings: flags beat JCT_SERVER_* variables, which beat the defaults."""

import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

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
