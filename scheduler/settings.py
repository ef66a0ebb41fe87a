"""The daemon's settings: flags beat JCT_SERVER_* variables, which beat the defaults."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DaemonSettings(BaseSettings):
    """Ports 0 let the system choose; `daemon.json` in the state folder tells what was chosen."""

    model_config = SettingsConfigDict(env_prefix="JCT_SERVER_", extra="ignore")

    state: Path
    database_url: str | None = Field(default=None, validation_alias="JCT_DATABASE_URL")
    host: str = "127.0.0.1"
    port: int = Field(default=7740, ge=0, le=65535)
    agents_host: str = "127.0.0.1"
    agents_port: int = Field(default=7741, ge=0, le=65535)
    policy: str = "priority"

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.state / 'jctd.db'}"
