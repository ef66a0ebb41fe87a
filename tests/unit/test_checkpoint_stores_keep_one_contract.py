"""A directory and a URL are the same to a checkpoint: whole files, exclusive creates, errors that callers know."""

import itertools
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from worker.checkpoint.directory import Directory
from worker.checkpoint.remote import Remote
from worker.checkpoint.store import Store, open_store

NUMBERS = itertools.count()


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store") if request.param == "directory" else f"memory://store{next(NUMBERS)}")


def test_what_is_written_is_read_back_part_by_part(store: Store) -> None:
    seen = bytearray()
    store.write("layers/a", b"abc" * 1000, "1")
    assert bytes(store.read("layers/a", seen.extend)) == bytes(seen) == b"abc" * 1000
    assert not store.read("layers/a").readonly


def test_a_second_write_takes_the_place_of_the_first(store: Store) -> None:
    store.write("step-1/manifest.json", b"old", "1")
    store.write("step-1/manifest.json", b"new", "2")
    assert bytes(store.read("step-1/manifest.json")) == b"new"
    assert store.names("step-1") == ["manifest.json"]


def test_only_one_can_create(store: Store) -> None:
    assert store.create("claim-1.1", b"mine")
    assert not store.create("claim-1.1", b"yours")
    assert bytes(store.read("claim-1.1")) == b"mine"


def test_names_are_those_of_one_folder(store: Store) -> None:
    assert store.names() == store.names("layers") == []
    store.write("layers/b", b"", "1")
    store.write("layers/a", b"", "1")
    store.write("step-3/manifest.json", b"", "1")
    assert store.names() == ["layers", "step-3"]
    assert store.names("layers") == ["a", "b"]


def test_what_is_deleted_is_gone_and_may_be_gone_already(store: Store) -> None:
    store.write("layers/a", b"1", "1")
    assert store.exists("layers/a")
    store.delete("layers/a")
    store.delete("layers/a")
    assert not store.exists("layers/a")
    with pytest.raises(FileNotFoundError):
        store.read("layers/a")


def test_a_file_that_was_just_written_is_young(store: Store) -> None:
    store.write("layers/a", b"1", "1")
    assert abs(store.age_s("layers/a")) < 60


def test_errors_of_a_package_become_errors_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise Refused("no such bucket")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(OSError, match="Refused: no such bucket"):
        Remote("memory://refused").write("a", b"", "1")


def test_a_url_of_a_file_is_a_directory(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    assert isinstance(store, Directory)
    assert store.place == str(tmp_path)


def test_an_unknown_protocol_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nosuch://bucket.*[Pp]rotocol"):
        open_store("nosuch://bucket/x")
