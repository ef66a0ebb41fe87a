"""`jct checkpoints show DIR`, `verify DIR` and `half DIR --out FOLDER`: explain, check, copy in half precision."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worker.checkpoint import catalogue, half
from worker.checkpoint.manifest import Manifest
from worker.checkpoint.store import Store, open_store
from worker.checkpoint.verify import read_layer, read_manifest

DAMAGED = 1
BAD_USAGE = 2
NOTHING = 3


def main(arguments: list[str]) -> int:
    """0 when good, 1 when one is damaged, 2 for a request that cannot be, 3 when there is none."""
    parser = argparse.ArgumentParser(prog="jct checkpoints", description="Explain or check checkpoints.")
    parser.add_argument("what", choices=("show", "verify", "half"))
    parser.add_argument("directory")
    parser.add_argument("--out", type=Path, help="where half-precision copies go")
    parser.add_argument("--dtype", choices=tuple(half.DTYPES), default="float16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        store = open_store(options.directory)
    except ValueError as error:
        print(error, file=sys.stderr)
        return NOTHING
    if options.what == "half":
        return _half(store, options.out, options.dtype, options.json)
    found = [_examine(store, step, options.what == "verify") for step in catalogue.steps(store)]
    if options.json:
        print(json.dumps({"directory": store.place, "checkpoints": found}))
    else:
        for one in found:
            print(_text(one))
    if not found:
        print(f"no checkpoint in {store.place}", file=sys.stderr)
        return NOTHING
    return DAMAGED if any(one["damage"] for one in found) else 0


def _half(store: Store, out: Path | None, dtype: str, as_json: bool) -> int:
    """Of the newest checkpoint."""
    if out is None:
        print("half needs --out FOLDER", file=sys.stderr)
        return BAD_USAGE
    everything = catalogue.steps(store)
    if not everything:
        print(f"no checkpoint in {store.place}", file=sys.stderr)
        return NOTHING
    try:
        copies = half.halve(store, read_manifest(store, everything[0]), out, dtype)
    except half.DoesNotFit as error:
        print(error, file=sys.stderr)
        return BAD_USAGE
    except (ValueError, OSError) as error:
        print(f"step {everything[0]}: {error}", file=sys.stderr)
        return DAMAGED
    if as_json:
        print(json.dumps({"step": everything[0], "dtype": dtype, "layers": [asdict(copy) for copy in copies]}))
        return 0
    width = max(len(copy.name) for copy in copies)
    for copy in copies:
        print(f"{copy.name:{width}}  {copy.bytes:>12} of {copy.original_bytes} bytes, largest error {copy.error:.1e}")
    print(f"step {everything[0]} in {dtype}: {len(copies)} layers in {out}")
    print("errors are shares of each tensor's largest value")
    return 0


def _examine(store: Store, step: int, verify: bool) -> dict[str, Any]:
    """What one checkpoint is, newest first; damage: what is wrong with it, empty where nothing was found."""
    try:
        manifest = read_manifest(store, step)
    except ValueError as error:
        return {"step": step, "damage": [str(error)]}
    damage = []
    for entry in manifest.layers if verify else ():
        try:
            read_layer(store, entry, thoroughly=True)
        except ValueError as error:
            damage.append(str(error))
    return {**_summary(manifest), "verified": verify, "damage": damage}


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "step": manifest.step,
        "job": manifest.job or None,  # `jct train` has no number
        "attempt": manifest.attempt,
        "samples": manifest.samples,
        "global_batch": manifest.global_batch,
        "bytes": sum(layer.bytes for layer in manifest.layers),
        "layers": [{"name": layer.name, "bytes": layer.bytes, "sha256": layer.sha256} for layer in manifest.layers],
        "stages": [[stage.first, stage.stop] for stage in manifest.plan.stages],
        "ranks": [list(stage.ranks) for stage in manifest.plan.stages],
        "microbatches": manifest.plan.microbatches,
        "microbatch_size": manifest.plan.microbatch_size,
        "schedule": manifest.plan.schedule,
        "precision": manifest.plan.precision,
        "fingerprint": manifest.fingerprint,
        "torch": manifest.torch,
    }


def _writer(one: dict[str, Any]) -> str:
    return f"job {one['job']}, attempt {one['attempt']}" if one["job"] is not None else "jct train, without a daemon"


def _text(one: dict[str, Any]) -> str:
    lines = [f"step {one['step']}"]
    if "layers" in one:
        stages = ", ".join(
            f"{first}-{stop - 1} on rank {'/'.join(map(str, ranks))}"
            for (first, stop), ranks in zip(one["stages"], one["ranks"], strict=True)
        )
        lines += [
            f"  by {_writer(one)}; next sample {one['samples']}, global batch {one['global_batch']}",
            f"  {one['microbatches']} micro-batches of {one['microbatch_size']}, {one['schedule']}, {one['precision']}",
            f"  stages: layers {stages}",
            f"  {len(one['layers'])} layers, {one['bytes']} bytes, fingerprint {one['fingerprint'][:12]}",
        ]
        if one["verified"] and not one["damage"]:
            lines.append("  good: every hash matches")
    lines += [f"  DAMAGED: {what}" for what in one["damage"]]
    return "\n".join(lines)
