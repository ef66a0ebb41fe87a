"""B59: a model file made by another version, for another machine, damaged, or by whoever is refused, and says why."""

import json
import os
import pickle
import zipfile

import msgspec
import numpy as np
import pytest
from forests import CPU, model

from agent.forest import file
from agent.forest.file import BadModel
from agent.forest.model import Hardware
from agent.forest.schema import DYNPIPE, NODE


@pytest.fixture(scope="module")
def trained():
    return model(hardware=CPU, trees=5)


@pytest.fixture
def path(tmp_path, trained):
    path = tmp_path / "model.npz"
    file.write(path, trained)
    return path


def changed(path, head=None, **arrays):
    """The same file with another head or other arrays."""
    with np.load(path) as found:
        parts = {name: found[name] for name in found}
    if head is not None:
        old = json.loads(parts["head"].tobytes())
        parts["head"] = np.frombuffer(json.dumps({**old, **head}).encode(), dtype=np.uint8)
    np.savez(path, **{**parts, **arrays})
    return path


def test_a_model_comes_back_as_it_was_written(path, trained):
    found = file.read(path, NODE, CPU)
    values = {"own_wait_percent": 40.0}
    assert found.predict(values) == trained.predict(values)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_model_that_is_missing(tmp_path):
    with pytest.raises(BadModel, match="no such file"):
        file.read(tmp_path / "model.npz")


@pytest.mark.parametrize("kept", [0, 10, 100, 0.5, 0.99])
def test_a_model_that_is_cut_off(path, kept):
    data = path.read_bytes()
    path.write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])
    with pytest.raises(BadModel, match=r"no model file|damaged"):
        file.read(path)


def test_any_flipped_byte_is_refused_or_changes_nothing(path, trained):
    data, random = path.read_bytes(), np.random.default_rng(0)
    values = {"own_wait_percent": 40.0}
    for at in random.integers(0, len(data), 60):
        broken = bytearray(data)
        broken[at] ^= 0x55
        path.write_bytes(broken)
        try:
            found = file.read(path)
        except BadModel:
            continue
        assert found.predict(values) == trained.predict(values)


def test_a_pickle_is_never_opened(path, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadModel):
        file.read(path)
    array = np.empty(1, dtype=object)
    array[0] = Evil()
    np.savez(path, head=array, feature=array)
    with pytest.raises(BadModel, match="pickle"):
        file.read(path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ({"format": 2}, "format 2"),
        ({"version": 2}, "other features"),
        ({"hash": "0" * 16}, "other features"),
        ({"features": list(reversed(NODE.names))}, "other features, or in another order"),
        ({"schema": "unheard"}, "schema unheard"),
        ({"schema": "dynpipe"}, "schema dynpipe"),
        ({"sum": ""}, "checksum"),
        ({"quantile": -1.0}, "no interval"),
        ({"depth": 10_000}, "levels"),
        ({"depth": "deep"}, "no model file"),
        ({"hardware": {"kind": "H200", "topology": "8 devices"}}, "calibrated on H200"),
        ({"hardware": {"kind": "cpu", "topology": "64 cores"}}, "calibrated on cpu .64 cores., this is"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_model_of_another_version_schema_or_machine(path, head, says):
    with pytest.raises(BadModel, match=says):
        file.read(changed(path, head), NODE, CPU)


def test_a_generic_model_is_for_every_topology_of_its_kind(path):
    changed(path, {"hardware": {"kind": "cpu", "topology": "any"}})
    assert file.read(path, NODE, CPU).hardware == Hardware("cpu", "any")
    with pytest.raises(BadModel, match="calibrated on cpu"):
        file.read(path, NODE, Hardware("H200", "8 devices"))


def test_a_schema_of_another_name_is_refused(path):
    with pytest.raises(BadModel, match="schema node"):
        file.read(path, DYNPIPE)


@pytest.mark.parametrize("name", ["feature", "threshold", "children", "value", "roots", "medians"])
def test_arrays_that_do_not_belong_to_it(path, name):
    with np.load(path) as found:
        array = found[name]
    with pytest.raises(BadModel, match="checksum"):
        file.read(changed(path, **{name: array[::-1].copy()}))
    with pytest.raises(BadModel, match="has type"):
        file.read(changed(path, **{name: array.astype(np.float32)}))


def summed(path, **arrays):
    """With a checksum that is right: what is wrong has to be found by itself."""
    with np.load(path) as found:
        parts = {**{name: found[name] for name in found if name != "head"}, **arrays}
    return changed(path, {"sum": file._sum(parts)}, **arrays)


def test_trees_that_predict_the_same_for_everything(path):
    with np.load(path) as found:
        constant = np.full_like(found["value"], 0.3)
    with pytest.raises(BadModel, match="the same for everything"):
        file.read(summed(path, value=constant))


def test_trees_that_do_not_end_or_lead_outside(path):
    with np.load(path) as found:
        children, value, feature, roots = (found[name] for name in ("children", "value", "feature", "roots"))
    back = children.copy()
    back[1] = 0
    beyond = children.copy()
    beyond[0] = len(children)
    for arrays, says in (
        ({"children": back}, "not behind it"),
        ({"children": beyond}, "not behind it"),
        ({"feature": np.full_like(feature, 32)}, "beyond its 32"),
        ({"value": np.full_like(value, np.nan)}, "no numbers"),
        ({"value": np.full_like(value, 0.1)}, "the same for everything"),
        ({"roots": roots[:0]}, "0 trees"),
        ({"value": value[:-1]}, "differ in length"),
        ({"feature": feature[:, None]}, "differ in length"),
        ({"feature": feature[0].reshape(())}, "differ in length"),
        ({"roots": roots[0].reshape(())}, "differ in length"),
        ({"roots": np.stack([roots, roots], axis=1)}, "differ in length"),
        ({"roots": np.zeros(1_000_000, dtype=np.int32)}, "1000000 trees"),
        ({"value": value * 1e6}, "logarithms beyond"),
        ({"importances": np.full(len(NODE.names), -1.0)}, "no shares of one"),
    ):
        copy = path.with_name("copy.npz")
        copy.write_bytes(path.read_bytes())
        with pytest.raises(BadModel, match=says):
            file.read(summed(copy, **arrays))


def test_a_file_that_others_may_write_or_own_is_refused(path, tmp_path):
    path.chmod(0o666)
    with pytest.raises(BadModel, match="others may write to it"):
        file.read(path)
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(BadModel, match="others may write to its folder"):
        file.read(path)
    tmp_path.chmod(0o700)
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    with pytest.raises(BadModel, match="no model file"):
        file.read(link)
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    with pytest.raises(BadModel, match="no plain file"):
        file.read(pipe)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_strangers_file_is_refused(path):
    os.chown(path, 12345, -1)
    with pytest.raises(BadModel, match="belongs to user 12345"):
        file.read(path)
    assert file.read(path, owners=(12345,)).schema is NODE


def test_a_file_that_would_unpack_to_more_than_fits_is_refused(path):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as members:
        members.writestr("filler.npy", b"\0" * (file.MAX_BYTES + 1))
    with pytest.raises(BadModel, match="unpacked"):
        file.read(path)


def test_the_head_says_what_it_was_made_with(path):
    with np.load(path) as found:
        head = msgspec.json.decode(found["head"].tobytes())
    assert head["about"].keys() == {"rows", "scikit-learn", "numpy"}
