"""Profile files: JSON with a model's layers, as `jct plan --profile` reads them."""

import json
from pathlib import Path

from policies.model.profile_document import ProfileDocument, profile_document


def read_profile(path: Path) -> ProfileDocument:
    """Read and check a profile file.

    Raises:
        ValueError: it cannot be read, or what is wrong with it, and where.
    """
    try:
        return profile_document(json.loads(path.read_text()), path.stem)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
