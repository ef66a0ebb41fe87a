"""`jct checkpoints half`: parameters at half their size, with their error told; never more than the dtype allows."""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import pytest
import torch
from gang import Site, plan
from safetensors.torch import load_file

from worker.checkpoint import catalogue, layerfile, manifest
from worker.checkpoint.half import DoesNotFit, halve
from worker.checkpoint.store import open_store
from worker.checkpoint.verify import read_layer, read_manifest

JCT = [str(Path(sys.executable).parent / "jct"), "checkpoints", "half"]


@pytest.fixture
def trained(site: Site) -> Path:
    site.launch(plan((0, 3, 6)), site.spec(arguments={"steps": 3})).wait()
    return site.checkpoints


def half(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*JCT, *options], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("dtype", "bound"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_half_the_size_and_an_error_within_the_dtypes_bound(
    trained: Path, tmp_path: Path, dtype: str, bound: float
) -> None:
    done = half(str(trained), "--out", str(tmp_path / "out"), "--dtype", dtype, "--json")
    assert done.returncode == 0, done.stderr
    store = open_store(str(trained))
    entries = {entry.name: entry for entry in read_manifest(store, 3).layers}
    layers = json.loads(done.stdout)["layers"]
    assert [layer["name"] for layer in layers] == list(entries)
    for layer in layers:
        assert 0 < layer["error"] <= bound
        whole, _ = read_layer(store, entries[layer["name"]])
        copy = load_file(tmp_path / "out" / layer["file"])
        assert copy.keys() == {key for key in whole if not key.startswith("optimizer/")}
        assert sum(one.numel() * one.element_size() for one in copy.values()) * 2 == layer["original_bytes"]
        for key, tensor in copy.items():
            assert (tensor.float() - whole[key]).abs().max() <= layer["error"] * whole[key].abs().max() * 1.0001


def test_people_see_sizes_and_errors_in_eighty_columns(trained: Path, tmp_path: Path) -> None:
    done = half(str(trained), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert "largest error" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if str(tmp_path) not in line)


def test_a_value_that_float16_cannot_hold_is_refused(site: Site, tmp_path: Path) -> None:
    site.launch(plan((0, 6)), site.spec(arguments={"steps": 2})).wait()
    store = open_store(str(site.checkpoints))
    (step,) = catalogue.steps(store)
    made = read_manifest(store, step)
    tensors, values = read_layer(store, made.layers[0])
    large = {**tensors, "parameter/token.weight": torch.full_like(tensors["parameter/token.weight"], 1e6)}
    data = layerfile.pack(large, values)
    store.write(manifest.layer_file(made.layers[0].sha256), data, "test")
    entry = msgspec.structs.replace(made.layers[0], bytes=len(data), crc32=zlib.crc32(data))
    with pytest.raises(DoesNotFit, match=r"token\.weight of layer 'embed' has a value of 1e.06.*bfloat16"):
        halve(store, msgspec.structs.replace(made, layers=(entry,)), tmp_path / "out", "float16")
