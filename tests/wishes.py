"""A scheduling policy that does what a file says: `{"JOB": devices}`. For tests of what a daemon then makes of it."""

import json
import os
from pathlib import Path

from distribution import bring_policies

from policies.jct.menu import build_menu
from policies.model.cluster import ClusterSnapshot
from policies.model.decision import Decisions, Resize, Start
from policies.model.device import DeviceKind

VARIABLE = "JCT_TEST_WISHES"


class Wishes:
    """Keeps what a job has, first devices first, and adds free ones."""

    def decide(self, snapshot: ClusterSnapshot, effort: int) -> Decisions:
        wishes = json.loads(Path(os.environ[VARIABLE]).read_text())
        starts, resizes = [], []
        free = [device.id for device in snapshot.devices if device.holder is None and device.promised is None]
        kind = snapshot.devices[0].kind if snapshot.devices else ""
        for job in snapshot.jobs:
            count = wishes.get(str(job.id), 0) if job.menu.profiles else 1
            if count in (0, len(job.devices)) or not (job.pending or job.preemptible):
                continue
            devices = (*job.devices, *free)[:count]
            if len(devices) < count:
                continue
            free = [device for device in free if device not in devices]
            if not job.menu.profiles:
                starts.append(Start(job.id, devices, None))
                continue
            move = Start if job.pending else Resize
            entry = build_menu(job.menu, (DeviceKind(kind),)).of(kind)[count]
            (starts if job.pending else resizes).append(move(job.id, devices, entry.plan, entry.step_time_s))
        return Decisions(snapshot.version, tuple(starts), (), (), tuple(resizes))


def install(folder: Path, monkeypatch) -> Path:
    """Makes the policy known as `wishes` to daemons that are started from here; the file to write wishes to."""
    bring_policies(folder, monkeypatch, {"wishes": "wishes:Wishes"}, Path(__file__).parent)
    wishes = folder / "wishes.json"
    wishes.write_text("{}")
    monkeypatch.setenv("JCT_SERVER_POLICY", "wishes")
    monkeypatch.setenv(VARIABLE, str(wishes))
    return wishes
