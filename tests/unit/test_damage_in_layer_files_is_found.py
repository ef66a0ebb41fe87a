"""A layer file is read back as it was written, or not at all; by CRC-32, and by SHA-256 where a manifest is older."""

import zlib
from pathlib import Path

import pytest
import torch

from worker.checkpoint import layerfile, manifest
from worker.checkpoint.directory import PART_BYTES, Directory
from worker.checkpoint.manifest import BrokenCheckpoint, LayerEntry
from worker.checkpoint.verify import read_layer

TENSORS = {"parameter/weight": torch.arange(PART_BYTES // 2, dtype=torch.float32), "buffer/empty": torch.empty(0)}


@pytest.fixture(params=["CRC-32", "SHA-256"])
def check(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def entry(tmp_path: Path, check: str) -> LayerEntry:
    data = layerfile.pack(TENSORS, {"weight": {"step": 3}})
    made = LayerEntry(
        name="block",
        sha256=layerfile.digest(data),
        bytes=len(data),
        crc32=zlib.crc32(data) if check == "CRC-32" else None,
        parameters={},
        buffers={},
    )
    Directory(tmp_path).write(manifest.layer_file(made.sha256), data, "test")
    return made


def test_what_is_whole_comes_back(tmp_path: Path, entry: LayerEntry) -> None:
    tensors, values = read_layer(Directory(tmp_path), entry)
    assert values == {"weight": {"step": 3}}
    assert all(torch.equal(tensors[key], wanted) for key, wanted in TENSORS.items())


@pytest.mark.parametrize("place", [0.0, 0.3, 0.9999])
def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, entry: LayerEntry, check: str, place: float) -> None:
    path = tmp_path / manifest.layer_file(entry.sha256)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 4
    path.write_bytes(data)
    with pytest.raises(BrokenCheckpoint, match=f"'block' is damaged: its {check} does not match"):
        read_layer(Directory(tmp_path), entry)


def test_a_thorough_look_is_not_satisfied_with_a_sum(tmp_path: Path, entry: LayerEntry) -> None:
    """Bytes that another file of the same CRC-32 would have: here the name promises another content."""
    other = manifest.layer_file("0" * 64)
    Directory(tmp_path).write(other, (tmp_path / manifest.layer_file(entry.sha256)).read_bytes(), "test")
    forged = LayerEntry(name="block", sha256="0" * 64, bytes=entry.bytes, crc32=entry.crc32, parameters={}, buffers={})
    with pytest.raises(BrokenCheckpoint, match="SHA-256"):
        read_layer(Directory(tmp_path), forged, thoroughly=True)
