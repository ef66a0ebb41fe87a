"""Sequences cut into token slices give the losses of whole ones, on any number of stages."""

import math
from dataclasses import replace

import pytest
from gang import Site, curve, log, metrics, plan

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Cause
from worker.launcher import Launched

GPT = {"width": 32, "blocks": 2, "context": 30, "steps": 8, "global_batch": 8, "validate_every": 4}


def run(site: Site, shape: ParallelPlan, dropout: float = 0.0, entrypoint: str = "") -> Launched:
    entrypoint = entrypoint or "worker.models.gpt_stdlib:pipeline_job"
    arguments = {**GPT, "dropout": dropout} if "gpt" in entrypoint else {}
    launched = site.launch(shape, site.spec(entrypoint=entrypoint, arguments=arguments, directory=None))
    launched.wait()
    launched.hang_up()
    return launched


def sliced(bounds: tuple[int, ...], slices: int, precision: str = "float32") -> ParallelPlan:
    return replace(plan(bounds, schedule="sliced-1f1b", precision=precision), slices=slices)


@pytest.mark.parametrize("slices", [2, 4])
@pytest.mark.parametrize("bounds", [(0, 4), (0, 2, 4)], ids=["one stage", "two stages"])
def test_equal_to_whole_sequences(site: Site, bounds: tuple[int, ...], slices: int) -> None:
    """4 slices of 30 tokens are uneven: 7, 8, 7 and 8."""
    whole = run(site, plan((0, 4), precision="float64"))
    cut = run(site, sliced(bounds, slices, "float64"))
    assert {report.cause for report in cut.reports.values()} == {Cause.FINISHED}, log(cut)
    for wanted, found in zip(metrics(whole), metrics(cut), strict=True):
        for name in ("loss", "grad_norm", "validation_loss"):
            if name in wanted:
                assert math.isclose(wanted[name], found[name], rel_tol=1e-10), (name, wanted["step"])


def test_the_cut_into_stages_changes_no_bit_with_dropout_on(site: Site) -> None:
    curves = [curve(run(site, sliced(bounds, 3), dropout=0.1)) for bounds in ((0, 4), (0, 2, 4), (0, 1, 3, 4))]
    assert curves[0] == curves[1] == curves[2]


@pytest.mark.parametrize("slices", [2, 5])
def test_packed_rows_cut_into_slices_equal_whole_ones(site: Site, slices: int) -> None:
    """5 slices of 24 tokens are uneven, and cut documents anywhere."""

    def packed(shape: ParallelPlan) -> Launched:
        spec = site.spec(entrypoint="packed:job", arguments={"dropout": 0.0}, directory=None)
        launched = site.launch(shape, spec)
        launched.wait()
        assert launched.pilot.cause is Cause.FINISHED, log(launched)
        return launched

    whole, cut = packed(plan((0, 4), precision="float64")), packed(sliced((0, 2, 4), slices, "float64"))
    for wanted, found in zip(metrics(whole), metrics(cut), strict=True):
        assert math.isclose(wanted["loss"], found["loss"], rel_tol=1e-10)
        assert math.isclose(wanted["grad_norm"], found["grad_norm"], rel_tol=1e-10)


def test_packed_rows_lose_no_bit_on_more_stages(site: Site) -> None:
    curves = []
    for bounds in ((0, 4), (0, 1, 3, 4)):
        launched = site.launch(plan(bounds), site.spec(entrypoint="packed:job", directory=None))
        launched.wait()
        curves.append(curve(launched))
    assert curves[0] == curves[1] != {}


def test_data_without_a_token_dimension_is_refused(site: Site) -> None:
    launched = run(site, sliced((0, 5), 2), entrypoint="mlp_job:job")
    assert launched.pilot.cause is Cause.NOT_SUPPORTED
    assert "tokens along dimension 1" in launched.pilot.message
