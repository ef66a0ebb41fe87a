"""Bugs that let a pipeline train on in silence, each on one rank only."""

import os

import tiny

from worker.layer import Layer
from worker.stage import Stage


def a_rate_of_an_eighth_on_the_first_stage(**arguments):
    job = tiny.job(**arguments)
    whole = job.learning_rate
    if os.environ["RANK"] == "0":
        job.learning_rate = lambda step: whole(step) / 8
    return job


def an_optimizer_that_rests_now_and_then(**arguments):
    job = tiny.job(**arguments)
    if os.environ["RANK"] == "1":
        real, calls = Layer.update, []

        def update(layer, rate, scale):
            calls.append(layer)
            if len(calls) % 7 == 0:
                return layer.drop_gradients()
            return real(layer, rate, scale)

        Layer.update = update
    return job


def a_microbatch_that_is_not_accumulated(**arguments):
    job = tiny.job(**arguments)
    if os.environ["RANK"] == "0":
        real = Stage.backward

        def backward(stage, microbatch, gradient, scale):
            if microbatch == 2:
                stage._alive.pop(microbatch)
                return None
            return real(stage, microbatch, gradient, scale)

        Stage.backward = backward
    return job
