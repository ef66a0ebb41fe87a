"""What lies below a local cluster's folder is told: the log of a killed daemon, and where the database is."""

import subprocess
from pathlib import Path

import pytest

from scheduler.cli.local import LocalCluster
from scheduler.core.errors import JctError
from scheduler.store.backup import DATABASE, backup


@pytest.mark.parametrize(
    ("program", "said"), [("kill -9 $$", "was ended by signal 9"), ("exit 1", "has ended: the disk is full")]
)
def test_the_end_of_the_daemon_is_told_with_its_log(tmp_path: Path, program: str, said: str) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.daemon_folder.mkdir()
    log = cluster.daemon_folder / "jctd.log"
    log.write_text("listening\nthe disk is full\n")
    with subprocess.Popen(["sh", "-c", program]) as cluster.daemon:
        cluster.daemon.wait()
    with pytest.raises(JctError) as caught:
        cluster.check()
    assert caught.value.message == f"jctd {said}"
    assert str(log) in str(caught.value.hint)


def test_a_backup_names_the_folder_below_that_has_the_database(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon" / DATABASE).touch()
    with pytest.raises(JctError) as caught:
        backup(tmp_path, tmp_path / "copy")
    assert f"--state {tmp_path / 'daemon'}" in str(caught.value.hint)
