"""The classes of jobs, each made by its seed: what runs, what is wrong with it, and the first sentence that is right."""

import json
import os

import numpy as np

from simulate import LAYOUTS, Faults, Link, MS, Noise, Simulation, US, run
from tables import Clocks, S, WINDOW_NS, Writer


class Job:
    def __init__(self, name, seed, layouts, sizes=(8, 16, 32, 64), steps=(60, 120), step_ms=(60, 200), noise=None, **more):
        # One stream of random numbers for each class and seed.
        self.random = np.random.default_rng([seed, sum(ord(c) * (i + 1) for i, c in enumerate(name))])
        self.name, self.seed = name, seed
        self.layout = layouts[seed % len(layouts)]
        self.ranks = int(self.random.choice(sizes))
        self.steps = int(self.random.integers(steps[0], steps[1] + 1))
        self.step_ns = float(self.random.uniform(*step_ms)) * MS
        self.per_host = min(8, max(self.ranks // 2, 1))
        self.noise_args = dict(noise or {})
        self.more = more
        self.faults = Faults(self.ranks, self.steps)
        self.link = None
        self.truth = dict(kind=name, seed=seed, layout=self.layout, ranks=[], first=[], host=None, group=None, magnitude_ns=None, faulty=False)
        self.clock_args = {}
        self.leave = None
        self.missing = []
        self.mismatch = None
        self.lives = None

    def rank(self):
        return int(self.random.integers(self.ranks))

    def span(self, least=0.2, most=0.6):
        """Steps of a part of the run."""
        length = int(self.steps * self.random.uniform(least, most))
        first = int(self.random.integers(5, max(self.steps - length, 6)))
        return range(first, min(first + length, self.steps))

    def blame(self, ranks, magnitude_ns=None, **more):
        self.truth.update(ranks=sorted(int(r) for r in ranks), first=sorted(int(r) for r in ranks), faulty=True, magnitude_ns=magnitude_ns, **more)

    def simulate(self, overlap=False):
        noise = Noise(self.ranks, self.seed, **self.noise_args)
        sim = Simulation(self.ranks, self.per_host, self.steps, self.seed * 1009 + len(self.name), noise, self.faults, self.link, overlap, self.leave)
        run(self.layout, sim, self.step_ns)
        return sim

    def write(self, folder):
        overlap = self.more.get("overlap", False)
        clocks = Clocks(self.ranks // self.per_host, self.seed, **self.clock_args)
        sim = self.simulate(overlap)
        writer = Writer(folder, sim, clocks)
        writer.missing = self.missing
        writer.write(self.mismatch)
        if self.lives:
            self.lives(folder, sim, clocks)
        with open(os.path.join(folder, "truth.json"), "w") as file:
            json.dump(self.truth, file)


SYNC = ["dp", "zero1", "zero3", "tp", "ep", "pp"]
STAGES = ["load", "forward", "backward", "optimizer"]


def late(seed, **more):
    """One rank is late in one stage of a part of the run."""
    job = Job("late", seed, SYNC, **more)
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.04, 0.25)
    job.faults.delay(STAGES[seed % 4], rank, ns, job.span())
    job.blame([rank], ns)
    return job


def large(seed):
    """The same in a job of 128 to 512 ranks."""
    job = Job("large", seed, SYNC, sizes=(128, 256, 512) if seed % 3 == 0 else (128, 256), steps=(40, 60))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.06, 0.25)
    job.faults.delay(STAGES[seed % 4], rank, ns, job.span())
    job.blame([rank], ns)
    return job


def overlapped(seed):
    """Collectives on a stream of their own, beside the work."""
    job = Job("overlapped", seed, ["dp"], overlap=True)
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.08, 0.25)
    job.faults.delay(["load", "forward", "backward"][seed % 3], rank, ns, job.span())
    job.blame([rank], ns)
    return job


def slow(seed):
    """A device that works slower from a step on, or from the begin."""
    job = Job("slow", seed, SYNC)
    rank, share = job.rank(), job.random.uniform(0.04, 0.15)
    first = 0 if seed % 2 else int(job.steps * job.random.uniform(0.2, 0.6))
    job.faults.slow_device(rank, share, range(first, job.steps))
    device = 0.6 if job.layout == "pp" else 0.85
    job.blame([rank], share * job.step_ns * device)
    return job


def few(seed):
    """Two or three ranks, of which one is late in a stage, or has a slower device, in a part of the run or in all of it."""
    job = Job("few", seed, ["dp", "zero1"], sizes=(2, 3), noise=dict(devices=0.01))
    rank, share = job.rank(), job.random.uniform(0.1, 0.4)
    span = range(job.steps) if seed % 2 else job.span()
    if seed % 3:
        job.faults.delay(STAGES[seed % 4], rank, share * job.step_ns, span)
        job.blame([rank], share * job.step_ns)
    else:
        job.faults.slow_device(rank, share, span)
        job.blame([rank], share * job.step_ns * 0.85)
    return job


def constant(seed):
    """Late in every step, by as much as the step, in groups with two kinds of calls (item 1)."""
    job = Job("constant", seed, ["zero1", "zero3"])
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.3, 1.2)
    job.faults.delay(STAGES[seed % 4], rank, ns, range(job.steps))
    job.blame([rank], ns)
    return job


def spread(seed):
    """Eight small delays in a step of tensor parallelism (item 2)."""
    job = Job("spread", seed, ["tp", "ep"], sizes=(16, 32, 64))
    rank, ns = job.rank(), 1.5 * MS
    steps = job.span(0.3, 0.9)
    job.faults.delay("forward", rank, 4 * ns, steps)
    job.faults.delay("backward", rank, 4 * ns, steps)
    job.blame([rank], 8 * ns)
    return job


def pipelines(seed):
    """A late rank in a pipeline with data parallelism (item 3)."""
    job = Job("pipelines", seed, ["pp"], sizes=(16, 32, 64))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.08, 0.25)
    job.faults.delay(["forward", "backward", "load"][seed % 3], rank, ns, job.span())
    job.blame([rank], ns)
    return job


def host(seed):
    """All ranks of a host are slow (item 4)."""
    job = Job("host", seed, ["dp", "zero1", "zero3", "tp", "ep"], sizes=(32, 64, 128))
    number, share = int(job.random.integers(job.ranks // 8)), job.random.uniform(0.06, 0.2)
    first = int(job.steps * job.random.uniform(0.0, 0.5))
    ranks = range(8 * number, 8 * number + 8)
    for rank in ranks:
        job.faults.slow_device(rank, share, range(first, job.steps))
    job.blame(ranks, share * job.step_ns * 0.85, host=f"node{number:04}")
    return job


def link(seed):
    """The link of a rank is slow: the collectives of its group across hosts take several times as long (item 6)."""
    job = Job("link", seed, ["tp", "ep"], sizes=(32, 64, 128))
    rank = job.rank()
    job.link = Link(rank, job.random.uniform(3, 8), ("dp",))
    # The links of a group are not told apart.
    job.blame([], None, group=f"dp{rank % 8}")
    return job


def restart(seed):
    """The job was started again under the same id; the fault is in the last life (item 7)."""
    job = Job("restart", seed, ["dp", "zero1", "tp"], sizes=(8, 16, 32))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.06, 0.2)
    other = (rank + 3) % job.ranks
    gap = [20 * S, 3 * WINDOW_NS, 86_400 * S][seed % 3]

    def again(folder, sim, clocks):
        second = Job("restart-b", seed, [job.layout], sizes=(job.ranks,))
        second.per_host, second.step_ns = job.per_host, job.step_ns
        second.faults.delay(STAGES[seed % 4], rank, ns, second.span(0.3, 0.6))
        later = second.simulate()
        writer = Writer(folder, later, clocks, pid=9000, at_ns=int(sim.t.max()) + gap, first_step=[0, 20][seed % 2])
        writer.write()

    job.faults.delay("backward", other, 1.5 * ns, job.span(0.3, 0.6))
    job.lives = again
    job.blame([rank], ns)
    return job


def samples(seed):
    """Small messages, of which one in sixteen is kept (item 8)."""
    job = Job("samples", seed, ["small"], sizes=(16, 32, 64), steps=(100, 200))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.04, 0.12)
    job.faults.delay(["forward", "backward", "load"][seed % 3], rank, ns, range(job.steps) if seed % 2 else job.span())
    job.blame([rank], ns)
    return job


def several(seed):
    """Two equal ones in a group, or a few that move (item 9)."""
    job = Job("several", seed, ["dp", "zero1", "zero3", "tp"], sizes=(16, 32, 64))
    ns = job.step_ns * job.random.uniform(0.06, 0.2)
    count = 2 if seed % 2 else 3
    ranks = [int(rank) for rank in job.random.choice(job.ranks, count, replace=False)]
    if seed % 2:
        steps = job.span(0.4, 0.8)
        for rank in ranks:
            job.faults.delay("backward", rank, ns, steps)
    else:
        third = job.steps // 4
        for at, rank in enumerate(ranks):
            job.faults.delay("backward", rank, ns, range((at + 1) * third - 5, min((at + 2) * third - 5, job.steps)))
    job.blame(ranks, ns)
    return job


def tails(seed):
    """A late rank where all work has heavy tails."""
    job = Job("tails", seed, SYNC, noise=dict(tails=0.01))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.12, 0.3)
    job.faults.delay(STAGES[seed % 4], rank, ns, job.span(0.3, 0.6))
    job.blame([rank], ns)
    return job


def partway(seed):
    """Last in most of the collectives since a step, by some percent of a step (item 13)."""
    job = Job("partway", seed, SYNC, steps=(100, 100))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.05, 0.1)
    first = int(job.random.integers(50, 70))
    job.faults.delay(STAGES[seed % 4], rank, ns, range(first, job.steps))
    job.blame([rank], ns)
    job.truth["since"] = first
    return job


def mismatch(seed):
    """One rank calls with another size, or another operation, and the job goes on (item 14)."""
    job = Job("mismatch", seed, ["dp", "zero1", "tp"], sizes=(2, 8, 16, 32))
    rank, step = job.rank(), int(job.random.integers(10, job.steps - 10))
    done = []

    def change(groups, seq, at, who, kinds, nbytes):
        if at == step and not done and rank in who and groups.name in ("world", "dp") and nbytes[0] >= 1 << 20:
            if seed % 2:
                nbytes[who == rank] = 4 * 123
            else:
                kinds[who == rank] = "broadcast"
            done.append(seq)
            job.truth["number"] = int(seq)

    job.mismatch = change
    job.blame([rank], None)
    return job


def checkpoint(seed):
    """A stage that only one rank has (item 15)."""
    job = Job("checkpoint", seed, ["dp", "zero1", "tp", "zero3"], step_ms=(100, 200))
    rank, ns = job.rank(), job.random.uniform(0.5, 2.0) * S
    job.faults.delay("checkpoint", rank, ns, range(20, job.steps, 20))
    job.blame([rank], ns)
    job.truth["stage"] = "app.checkpoint"
    return job


def missing(seed):
    """A late rank, and windows that others did not write."""
    job = Job("missing", seed, SYNC, sizes=(8, 16, 32), steps=(150, 200), step_ms=(150, 200))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.06, 0.2)
    job.faults.delay(STAGES[seed % 4], rank, ns, range(10, job.steps))
    other = (rank + 1) % job.ranks
    job.missing = [(None, other, 1)] if seed % 2 else [(None, other, None)]
    job.blame([rank], ns)
    return job


def stages_only(seed):
    """No collectives are in the tables (item 10)."""
    job = Job("stages_only", seed, ["dp", "zero1"])
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.06, 0.25)
    job.faults.delay(STAGES[seed % 3], rank, ns, job.span(0.3, 0.6))
    job.missing = [("collectives", None, None), ("comms", None, None)]
    job.blame([rank], ns)
    return job


def wandering(seed):
    """A late rank while clocks wander, and hosts leave collectives in a fixed order (item 11)."""
    job = Job("wandering", seed, ["dp", "zero1", "tp", "ep"], sizes=(16, 32, 64))
    job.clock_args = dict(drift_ppm=150.0, wander_us=100.0)
    hosts = job.ranks // job.per_host
    order = job.random.permutation(hosts) * int(30 * US / hosts)
    job.leave = order[np.arange(job.ranks) // job.per_host]
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.06, 0.2)
    job.faults.delay(STAGES[seed % 4], rank, ns, job.span())
    job.blame([rank], ns)
    return job


def steady_after_start(seed):
    """First steps that are long at all ranks, and a steady fault (item 5)."""
    job = Job("steady_after_start", seed, SYNC, noise=dict(warm=4, warm_ms=1500.0))
    rank, ns = job.rank(), job.step_ns * job.random.uniform(0.05, 0.2)
    job.faults.delay(STAGES[seed % 4], rank, ns, range(job.steps))
    job.blame([rank], ns)
    return job


def clean(name, layouts=SYNC, **more):
    def make(seed):
        noise = {key: value(seed) if callable(value) else value for key, value in more.get("noise", {}).items()}
        job = Job(name, seed, layouts, noise=noise, **{key: value for key, value in more.items() if key not in ("noise", "clocks")})
        job.clock_args = more.get("clocks", {})
        return job
    return make


def clean_few(seed):
    """A step, or three ranks, or nothing that compares them (item 10)."""
    kind = seed % 3
    job = Job("clean_few", seed, ["dp", "zero1"], sizes=(3,) if kind == 0 else (8,), steps=(1, 2) if kind == 1 else (60, 60), noise=dict(devices=0.01))
    if kind == 2:
        job.missing = [("collectives", None, None), ("comms", None, None)]
    return job


def clean_pair(seed):
    """Two ranks with what all ranks of clean jobs have: devices that differ, pauses, heavy tails, batches of different lengths."""
    noise = [dict(devices=0.01), dict(pauses=0.05, pause_ms=20.0), dict(tails=0.05), dict(batches=0.2)][seed % 4]
    return Job("clean_pair", seed, ["dp", "zero1"], sizes=(2,), noise=noise)


def clean_lives(seed):
    """The first life had a fault, the last one has none (item 7)."""
    job = restart(seed)
    job.name = job.truth["kind"] = "clean_lives"

    def again(folder, sim, clocks):
        second = Job("restart-b", seed, [job.layout], sizes=(job.ranks,))
        second.per_host, second.step_ns = job.per_host, job.step_ns
        later = second.simulate()
        Writer(folder, later, clocks, pid=9000, at_ns=int(sim.t.max()) + [20 * S, 3 * WINDOW_NS, 86_400 * S][seed % 3]).write()

    job.lives = again
    job.truth.update(ranks=[], first=[], faulty=False, magnitude_ns=None)
    return job


def clean_leave(seed):
    """Hosts leave collectives in a fixed order, and clocks wander (item 11)."""
    job = Job("clean_leave", seed, ["dp", "zero1", "tp", "ep"], sizes=(16, 32, 64))
    job.clock_args = dict(drift_ppm=150.0, wander_us=100.0)
    hosts = job.ranks // job.per_host
    job.leave = (job.random.permutation(hosts) * int(30 * US / hosts))[np.arange(job.ranks) // job.per_host]
    return job


FAULTY = [late, large, overlapped, slow, few, constant, spread, pipelines, host, link, restart, samples, several, tails, partway, mismatch, checkpoint,
          missing, stages_only, wandering, steady_after_start]
CLEAN = {
    "clean_plain": clean("clean_plain"),
    "clean_pauses": clean("clean_pauses", noise=dict(pauses=lambda seed: [0.01, 0.03, 0.1][seed % 3], pause_ms=lambda seed: [30.0, 15.0][seed % 2])),
    "clean_tails": clean("clean_tails", noise=dict(tails=lambda seed: [0.02, 0.05, 0.1][seed % 3])),
    "clean_batches": clean("clean_batches", noise=dict(batches=lambda seed: [0.1, 0.3][seed % 2])),
    "clean_loader": clean("clean_loader", noise=dict(stalls=lambda seed: [0.05, 0.2][seed % 2], stall_ms=40.0, stall_part=lambda seed: [1.0, 0.5, 0.2][seed % 3])),
    "clean_warm": clean("clean_warm", noise=dict(warm=4, warm_ms=1500.0)),
    "clean_devices": clean("clean_devices", noise=dict(devices=0.01)),
    "clean_drain": clean("clean_drain", layouts=["pp", "pure", "pp"], sizes=(4, 8) , steps=(60, 80)),
    "clean_small": clean("clean_small", layouts=["small"]),
    "clean_large": clean("clean_large", sizes=(128, 256), steps=(40, 60), noise=dict(devices=0.005)),
    "clean_few": clean_few,
    "clean_pair": clean_pair,
    "clean_lives": clean_lives,
    "clean_leave": clean_leave,
}
CLASSES = {make.__name__: make for make in FAULTY} | CLEAN
