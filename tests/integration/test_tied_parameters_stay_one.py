"""Parameters tied across stages stay equal, count once, and compute the same bits on every cut."""

import pytest
import torch
from gang import Site, curve, log, plan

from scheduler.protocol.messages import Cause
from worker.checkpoint.directory import Directory
from worker.checkpoint.verify import read_layer, read_manifest
from worker.launcher import Launched


def run(site: Site, shape, **spec) -> Launched:
    launched = site.launch(shape, site.spec(**spec))
    launched.wait()
    assert {report.cause for report in launched.reports.values()} == {Cause.FINISHED}, log(launched)
    launched.hang_up()
    return launched


@pytest.mark.parametrize("entrypoint", ["tied:declared", "tied:shared"])
def test_the_same_bits_on_one_two_and_three_stages(site: Site, entrypoint: str) -> None:
    alone = curve(run(site, plan((0, 6)), entrypoint=entrypoint, directory=None))
    for bounds in ((0, 3, 6), (0, 2, 4, 6)):
        assert curve(run(site, plan(bounds, schedule="zb-h1"), entrypoint=entrypoint, directory=None)) == alone


def test_copies_are_equal_after_training_and_the_manifest_names_the_tie(site: Site) -> None:
    run(site, plan((0, 3, 6), shares=(2, 2)), entrypoint="tied:declared")
    store = Directory(site.checkpoints)
    manifest = read_manifest(store, 12)
    states = {entry.name: read_layer(store, entry)[0] for entry in manifest.layers}
    assert torch.equal(states["embed"]["parameter/token.weight"], states["head"]["parameter/weight"])
    assert manifest.ties == (("embed/token.weight", "head/weight"),)
