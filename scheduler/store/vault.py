"""Secrets at rest: encrypted with a key that lies beside the daemon's other keys, never in the database."""

import os
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from scheduler.core.errors import Code, JctError


class Vault:
    """Seals small mappings of text. Without the key, or with another one, nothing can be opened again."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    @classmethod
    def at(cls, folder: Path) -> "Vault":
        """With `folder/secrets.key`, made on first use and readable by its owner alone. Raises OSError, ValueError."""
        file = folder / "secrets.key"
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as writing:
                writing.write(Fernet.generate_key())
        return cls(file.read_bytes())

    def seal(self, values: dict[str, str]) -> str:
        return self._fernet.encrypt(msgspec.json.encode(values)).decode()

    def open(self, sealed: str) -> dict[str, str]:
        """Raises JctError where another key sealed it."""
        try:
            return msgspec.json.decode(self._fernet.decrypt(sealed.encode()), type=dict[str, str])
        except InvalidToken:
            raise JctError(Code.INTERNAL, "a secret was sealed with another secrets.key") from None
