"""The spec key: what a measured profile belongs to. Equal keys promise the same model, and an attempt checks that."""

import hashlib
import json
from typing import Any


def spec_key(entrypoint: str, arguments: dict[str, Any], global_batch: int | None, code_digest: str) -> str:
    """code_digest: of the user's code as far as it was seen; elsewhere, where it lies."""
    parts = [entrypoint, arguments, global_batch, code_digest]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
