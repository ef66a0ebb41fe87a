"""Another distribution that brings policies along, for daemons that a test starts."""

from pathlib import Path

import pytest


def bring_policies(folder: Path, monkeypatch: pytest.MonkeyPatch, policies: dict[str, str], *paths: Path) -> None:
    """policies: `module:Class` by name. Found, with the modules in `folder` and `paths`, by processes begun later."""
    facts = folder / "others-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in policies.items()]
    (facts / "entry_points.txt").write_text("\n".join(["[jctd.policies]", *lines, ""]))
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, (folder, *paths))))
