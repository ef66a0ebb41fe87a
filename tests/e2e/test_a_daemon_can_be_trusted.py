"""What an admin hands a cluster over for: nothing in the clear off this host, streams that end, backups."""

import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from cluster import PATIENCE_S, Cluster
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from receiver import Receiver

from scheduler.cli.client import Client


def jctd(state: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "scheduler.daemon", "--state", str(state), "--port", "0", *options]
    return subprocess.Popen([*command, "--agents-port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file


def test_off_this_host_means_tls_or_no_start(tmp_path, monkeypatch):
    refused = jctd(tmp_path / "a", "--host", "0.0.0.0")
    _, said = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert b"without TLS" in said
    assert b"--tls-cert" in said
    assert not (tmp_path / "a").exists()
    agent = [sys.executable, "-P", "-m", "agent.main", "--connect", "tcp://10.0.0.9:7741"]
    done = subprocess.run([*agent, "--state", str(tmp_path / "n")], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, b"--server-key" in done.stderr) == (2, True)
    cert, key = certificate(tmp_path)
    state = tmp_path / "b"
    daemon = jctd(state, "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (state / "daemon.json").exists():
            assert daemon.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        facts = json.loads((state / "daemon.json").read_text())
        assert facts["url"].startswith("https://")
        url = facts["url"].replace("0.0.0.0", "127.0.0.1")
        token = (state / "admin-token").read_text().strip()
        monkeypatch.setenv("JCT_CA_FILE", str(cert))
        assert Client(url, token).call("GET", "nodes").json() == {"nodes": []}
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            httpx.get(url.replace("https", "http") + "/healthz")
    finally:
        daemon.terminate()
        daemon.communicate(timeout=PATIENCE_S)


def test_b63_a_stop_ends_every_stream_and_a_stuck_client_and_the_port_is_free_again(tmp_path):
    cluster = Cluster(tmp_path).begin(a="fake:1")
    port = cluster.port
    token = (cluster.daemon_folder / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    id = cluster.submit(work={"total": "1000000 steps"}, gpus=1)
    cluster.until_state(id, "RUNNING")
    ended: list[str] = []

    def follow(path: str) -> None:
        with contextlib.suppress(httpx.TransportError), httpx.stream(
            "GET", cluster.url + path, headers=headers, timeout=PATIENCE_S
        ) as stream:  # fmt: skip
            opened.release()
            for _ in stream.iter_lines():
                continue
        ended.append(path)

    for name, events in (("down", ["job"]), ("idle", ["NeverHappens"])):
        hook = {"name": name, "url": "http://127.0.0.1:9/", "events": events}
        cluster.client.call("POST", "webhooks", body=hook)
    paths = [f"/v1/jobs/{id}/logs", "/v1/events", f"/v1/jobs/{id}/events"] * 3
    opened = threading.Semaphore(0)
    threads = [threading.Thread(target=follow, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for _ in paths:
        assert opened.acquire(timeout=PATIENCE_S)
    stuck = socket.create_connection(("127.0.0.1", port))
    stuck.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert cluster.daemon is not None
    cluster.daemon.terminate()
    assert cluster.daemon.wait(PATIENCE_S) == 0
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(ended) == sorted(paths)
    stuck.close()
    assert "Traceback" not in (cluster.daemon_folder / "jctd.log").read_text()
    cluster.restart_daemon()  # on the same port
    assert cluster.port == port
    cluster.cancel_all()
    cluster.stop()


def test_a_webhook_is_told_everything_over_a_kill_of_the_daemon(tmp_path):
    cluster = Cluster(tmp_path).begin(a="fake:1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hook = {"name": "chat", "url": f"http://127.0.0.1:{port}/", "events": ["job"]}
    cluster.client.call("POST", "webhooks", body=hook)
    id = cluster.submit(work={"total": "3 steps"}, gpus=1)
    cluster.until_state(id, "COMPLETED")
    cluster.kill_daemon()
    cluster.restart_daemon()
    receiver = Receiver(port)
    try:
        expected = [event["kind"] for event in cluster.events(id)]
        assert expected[-1] == "Ended"
        cluster.eventually(lambda: set(receiver.of_job(id)) == set(expected), "everything arrives")
        once = {event["id"]: event["event"] for event in receiver.events}
        assert list(once.values()) == expected
    finally:
        receiver.close()
        cluster.stop()


def test_a_backup_of_a_living_daemon_restores_jobs_and_is_newer_than_what_was_lost(tmp_path):
    cluster = Cluster(tmp_path).begin(a="fake:2")
    done = cluster.submit(work={"total": "3 steps"}, gpus=1)
    cluster.until_state(done, "COMPLETED")
    backup = tmp_path / "backup.db"

    def admin(*arguments: str) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, "-c", "from scheduler.cli.main import main; main()", "admin", *arguments]
        return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S)

    state = str(cluster.daemon_folder)
    made = admin("backup", str(backup), "--state", state)
    assert (made.returncode, "1 jobs" in made.stderr) == (0, True), made.stderr
    assert backup.stat().st_mode & 0o777 == 0o600
    assert admin("backup", str(backup), "--state", state).returncode == 6
    refused = admin("restore", str(backup), "--state", state)
    assert (refused.returncode, "another jctd uses" in refused.stderr) == (6, True)
    epoch = cluster.facts["epoch"]
    cluster.stop()
    (cluster.daemon_folder / "jctd.db").unlink()
    broken = tmp_path / "broken.db"
    broken.write_bytes(backup.read_bytes()[:20_000])
    assert admin("restore", str(broken), "--state", state).returncode == 6
    assert not (cluster.daemon_folder / "jctd.db").exists()
    restored = admin("restore", str(backup), "--state", state)
    assert restored.returncode == 0, restored.stderr
    cluster.restart_daemon()
    assert cluster.facts["epoch"] > epoch
    assert cluster.job(done)["result"] == "COMPLETED"
    cluster.stop()
