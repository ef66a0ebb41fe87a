import os
import subprocess
import sys
from pathlib import Path

CASES = ("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipev")
TESTS = Path(__file__).parents[1]


def test_gradients_equal_those_of_a_single_process(tmp_path: Path) -> None:
    """Two ranks of torch.distributed.pipelining's runtime execute our programs, sends and receives included."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "torch_runtime", str(rank), "2", str(tmp_path / "store")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in ranks:
            out, err = process.communicate(timeout=90)
            assert process.returncode == 0, err
            assert [line.split()[0] for line in out.splitlines()] == list(CASES)
    finally:
        for process in ranks:
            process.kill()
