"""The same daemon on PostgreSQL: jobs run to their end, and are there after kill -9."""

from cluster import Cluster


def test_jobs_run_and_are_remembered(tmp_path, postgres_url, monkeypatch):
    monkeypatch.setenv("JCT_DATABASE_URL", postgres_url)
    cluster = Cluster(tmp_path / "state")
    try:
        cluster.begin(one="fake:2")
        quick = cluster.submit(gpus=1, work={"total": "3 steps"})
        slow = cluster.submit(gpus=1, work={"total": "100000 steps"})
        assert cluster.until_state(quick, "COMPLETED")["ended_by"] == "job"
        cluster.until_state(slow, "RUNNING")
        told = cluster.events(quick)
        cluster.kill_daemon()
        cluster.restart_daemon()
        assert cluster.job(quick)["state"] == "COMPLETED"
        assert cluster.events(quick) == told
        assert cluster.until_state(slow, "RUNNING")["attempt"] == 2
        assert not (cluster.daemon_folder / "jctd.db").exists()
        cluster.cancel_all()
    finally:
        cluster.stop()
