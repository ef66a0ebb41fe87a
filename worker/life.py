"""A training member's life: import, begin or join; then train through generations to an end."""

import time

import torch

from scheduler.protocol.messages import Cause, Phase
from worker import entrypoint
from worker.adapt.baseline import hand_on
from worker.adapt.revision import Revise, revised
from worker.beginning import begin
from worker.change import Dropped, Standing, Switch, announce, join
from worker.control import Control
from worker.errors import Ended
from worker.present import Present, surrounded
from worker.setting import Setting
from worker.world import World, enter


def run(control: Control) -> Ended:
    """Live to a good end. Raises Ended for any other, and what the user's code raises."""
    target = control.target
    job = entrypoint.load(target.spec.job)
    control.report(phase=Phase.BUILDING, total_steps=job.total_steps, global_batch=job.global_batch)
    control.check_start()
    member = Member(Setting(control, job, target, torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    present = member.start() if target.generation == 1 else member.join()
    while True:
        end = present.trainer.run()
        if isinstance(end, Ended):
            present.proposal.drop("the job has ended")
            member.part(present)
            return end
        present = member.revise(present, end.number) if isinstance(end, Revise) else member.change(present, end)


class Member:
    """One member of an attempt, over all its generations."""

    def __init__(self, own: Setting) -> None:
        self.own, self.control = own, own.control

    def start(self) -> Present:
        """The attempt's first generation."""
        begun = begin(self.own)
        return surrounded(
            self.own, begun.generation, begun.layers, begun.progress, begun.model, time.perf_counter()
        )

    def join(self) -> Present:
        """A newcomer: everything that can be done beside the others' training, then the switch."""
        own = self.own
        self.control.report(phase=Phase.JOINING)
        world = enter(own.target, self.control.wait_for_store(own.timeout_s), own.timeout_s)
        own.check_layers(world.plan)
        standing = join(self.control, world, own.timeout_s)
        ready_at = time.perf_counter()
        try:
            switched = self._switch(world, standing).run({}, None, leads=False, leave=list)
        except Dropped as dropped:
            raise Ended(Cause.STOPPED, f"generation {world.generation} was dropped: {dropped}") from None
        assert switched.generation is not None
        return surrounded(own, switched.generation, switched.layers, standing.progress, standing.model, ready_at)

    def change(self, present: Present, number: int) -> Present:
        """Take over the next generation at this boundary, or go on with the present one.

        Raises:
            Ended: STOPPED in a member that has no place in the next one.
        """
        boundary = time.perf_counter()
        world = present.proposal.settle(number)
        old, standing = present.generation, present.standing
        if old.is_pilot:
            announce(world, standing)
            if present.part is not None and present.part.adapter is not None:
                hand_on(world.meet(lambda: None), present.part.adapter.baseline, old.world.members)
        try:
            switched = self._switch(world, standing).run(
                present.layers, present.arrived, old.is_pilot, present.release
            )
        except Dropped as dropped:
            if old.is_pilot:
                self.control.dropped(world.generation, str(dropped))
            present.proposal.drop(str(dropped))
            present.trainer.go_on(boundary)
            return present
        if switched.generation is None:
            raise Ended(Cause.STOPPED, f"left: generation {world.generation} does without this member")
        return surrounded(
            self.own, switched.generation, switched.layers, standing.progress, standing.model, boundary
        )

    def revise(self, present: Present, number: int) -> Present:
        """Go on with the next revision of this generation, or without it where one rank votes against.

        Raises:
            Ended: in doubt, or a peer is gone.
        """
        boundary = time.perf_counter()
        assert present.part is not None
        old, part, adapter = present.generation, present.part, present.part.adapter
        world, standing = revised(old.world, number, part.reviser.plan(number)), present.standing
        try:
            switched = self._switch(world, standing).run(
                present.layers, present.arrived, old.is_pilot, present.release
            )
        except Dropped as dropped:
            if adapter is not None:
                adapter.switched(number, old.plan, str(dropped), time.perf_counter() - boundary)
            present.trainer.go_on(boundary)
            return present
        assert switched.generation is not None
        if adapter is not None:
            adapter.switched(number, world.plan, "", time.perf_counter() - boundary)
        return surrounded(
            self.own, switched.generation, switched.layers, standing.progress, standing.model, boundary, present
        )

    def part(self, present: Present) -> None:
        """All members are at the end: hang up only when nobody takes that for a death any more."""
        self.control.close()
        world, own = present.generation.world, self.own
        world.meet(self.control.check_peers).all("end", own.number, world.members, True, own.timeout_s)
        present.generation.groups.unwatch()

    def _switch(self, world: World, standing: Standing) -> Switch:
        own = self.own
        return Switch(self.control, own.job, own.number, world, standing, own.device, own.meter)
