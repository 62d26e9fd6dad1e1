"""An event-level simulator of jobs of many ranks, in true time.

It is the second source of truth for `warpline-ranks`: it shares no code and no model with `warpline-ranks generate`. What a job does is a list of
operations for each step (`layouts`): work of the device, time without work, collectives of groups, and transfers between stages of a pipeline. A
collective begins when a rank comes and ends when the last one has come and the message has been transferred. Faults are delays of single ranks in
stages. `tables` writes what the ranks would write, as docs/ranks-tables.md states it.
"""

import numpy as np

MS = 1_000_000
US = 1_000


class Groups:
    """Groups of one kind that partition the ranks: a row each."""

    def __init__(self, name, members, rank_of_row=None):
        self.name = name
        self.members = np.asarray(members, dtype=np.int64)
        self.seq = 0
        self.labels = [f"{name}{row}" if len(self.members) > 1 else name for row in range(len(self.members))]
        self.row_of = {int(rank): row for row, ranks in enumerate(self.members) for rank in ranks}


class Simulation:
    """A job that runs. `faults` changes the lengths of the work, and `noise` says how it spreads."""

    def __init__(self, ranks, per_host, steps, seed, noise, faults, link=None, overlap=False, leave=None):
        self.n, self.steps = ranks, steps
        self.random = np.random.default_rng(seed)
        self.host_of = np.arange(ranks) // per_host
        self.noise, self.faults, self.link, self.overlap = noise, faults, link, overlap
        self.t = self.random.uniform(0, 2 * MS, ranks).astype(np.int64)
        self.comm_free = self.t.copy()
        # The order in which hosts leave a collective: fixed for the run.
        self.leave = np.zeros(ranks, dtype=np.int64) if leave is None else leave
        self.calls = []  # (comm labels index, seq, kind, bytes, ranks, begin, end, range)
        self.step_rows = []
        self.stage_rows = []
        self.groups = []
        self.step = 0

    def add_groups(self, name, members):
        groups = Groups(name, members)
        self.groups.append(groups)
        return groups

    def begin_step(self, step):
        self.step = step
        self.begin = self.t.copy()
        zeros = lambda: np.zeros(self.n, dtype=np.int64)
        self.compute, self.open_comm, self.comm, self.idle = zeros(), zeros(), zeros(), zeros()
        self.asynchronous = []
        self.stages = []
        self.stage_begin = self.t.copy()

    def stage(self, name, only=None):
        """Ends a stage, which began where the last one ended."""
        dur = self.t - self.stage_begin
        self.stages.append((name, dur, only))
        self.stage_begin = self.t.copy()

    def work(self, name, base_ns, part=1.0):
        """Device work of all ranks: `part` of the stage."""
        base = np.broadcast_to(np.asarray(base_ns, dtype=np.float64), (self.n,))
        dur = base * part * self.noise.of_work(self.random, self.n, self.step)
        dur = dur * self.faults.slowdown(self.step)
        dur = dur + self.faults.extra(name, self.step) * part + self.noise.pause(self.random, self.n, part, self.step)
        dur = np.maximum(dur, 1_000).astype(np.int64)
        self.t = self.t + dur
        self.compute += dur

    def rest(self, name, base_ns):
        """Time of the host without device work."""
        dur = np.broadcast_to(np.asarray(base_ns, dtype=np.float64), (self.n,)) * self.noise.of_rest(self.random, self.n, self.step)
        dur = dur + self.faults.extra(name, self.step) + self.noise.stall(self.random, self.n, self.step)
        dur = np.maximum(dur, 1_000).astype(np.int64)
        self.t = self.t + dur
        self.idle += dur

    def transfer_ns(self, groups, kind, nbytes, gbps):
        rows, size = groups.members.shape
        factor = 2.0 if kind == "all_reduce" else 1.0
        base = 15 * US + factor * (size - 1) / size * nbytes / gbps
        base = base * (1 + np.abs(self.random.normal(0, 0.03, rows)))
        if self.link is not None and nbytes > 4096:
            base = base * self.link.factor(groups, self.step)
        return base.astype(np.int64)

    def meet(self, groups, kind, nbytes, mark, gbps=100.0, is_async=False):
        """A collective in which all wait for all."""
        members = groups.members
        came = np.maximum(self.t, self.comm_free) if is_async else self.t
        at = came[members]
        done = at.max(axis=1) + self.transfer_ns(groups, kind, nbytes, gbps)
        late = self.random.exponential(3 * US, members.shape).astype(np.int64)
        rows, size = members.shape
        # A large message of a chain leaves at each host in turn; nobody leaves before the last one has come.
        ends = done[:, None] + late + self.leave[members]
        end = np.empty(self.n, dtype=np.int64)
        end[:] = came
        end[members.ravel()] = ends.ravel()
        self.record(groups, kind, nbytes, came, end, mark)
        dur = end - came
        if is_async:
            self.asynchronous.append((came, end))
            self.comm_free = end
        else:
            self.open_comm += dur
            self.t = end
            self.comm_free = np.maximum(self.comm_free, end)
        self.comm += dur
        groups.seq += 1

    def join(self):
        """The compute stream waits for the stream of collectives."""
        wait = np.maximum(self.comm_free - self.t, 0)
        self.open_comm += wait
        self.t = self.t + wait

    def record(self, groups, kind, nbytes, begin, end, mark, seq=None, ranks=None):
        ranks = groups.members.ravel() if ranks is None else ranks
        row = np.array([groups.row_of[int(rank)] for rank in ranks]) if ranks is not groups.members.ravel() else None
        self.calls.append((groups, kind, nbytes, groups.seq if seq is None else seq, np.asarray(ranks), begin[ranks], end[ranks], mark, self.step, row))

    def send_recv(self, groups, kind_of, sources, targets, nbytes, gbps=20.0):
        """Transfers between two stages of a pipeline: the receiver waits for the sender, who goes on when it has sent."""
        dur = int(10 * US + nbytes / gbps)
        sent = self.t[sources]
        posted = self.t[targets]
        end = np.maximum(sent, posted) + dur
        begin_s, end_s = self.t.copy(), self.t.copy()
        end_s[sources] = sent + dur
        end_r = self.t.copy()
        end_r[targets] = end
        self.record(groups, "send", nbytes, begin_s, end_s, "net.send", seq=groups.seq, ranks=sources)
        self.record(groups, "recv", nbytes, begin_s, end_r, "net.recv", seq=groups.seq, ranks=targets)
        for who, until in ((sources, end_s), (targets, end_r)):
            spent = until[who] - self.t[who]
            self.comm[who] += spent
            self.open_comm[who] += spent
            self.t[who] = until[who]
        groups.seq += 1

    def end_step(self):
        self.join()
        wall = self.t - self.begin
        idle = wall - self.compute - self.open_comm
        # Idle can be negative only by a mistake here.
        assert (idle >= 0).all(), idle.min()
        self.step_rows.append((self.step, self.begin, wall, self.compute.copy(), self.comm.copy(), self.comm - self.open_comm, idle))
        self.stage_rows.append((self.step, self.stages))


class Noise:
    """How the lengths of work spread among ranks and steps that are all fine."""

    def __init__(self, ranks, seed, work=0.004, devices=0.002, tails=0.0, batches=0.0, pauses=0.0, pause_ms=0.0, stalls=0.0,
                 stall_ms=0.0, stall_part=1.0, warm=0, warm_ms=0.0):
        random = np.random.default_rng(seed + 77)
        self.speed = 1 + np.abs(random.normal(0, devices, ranks)) if devices else np.ones(ranks)
        self.sigma, self.tails, self.batches = work, tails, batches
        self.pauses, self.pause_ns, self.stalls, self.stall_ns, self.stall_part = pauses, pause_ms * MS, stalls, stall_ms * MS, stall_part
        self.warm, self.warm_ns = warm, warm_ms * MS
        self.batch = (-1, None)

    def of_work(self, random, n, step):
        of = self.speed * np.exp(random.normal(0, self.sigma, n))
        if self.tails:
            of = of * (1 + self.tails * random.pareto(1.8, n))
        if self.batches:
            if self.batch[0] != step:
                self.batch = (step, random.uniform(1 - self.batches, 1 + self.batches, n))
            of = of * self.batch[1]
        return of

    def of_rest(self, random, n, step):
        return np.exp(random.normal(0, 0.05, n))

    def pause(self, random, n, part, step):
        """Pauses of a garbage collector: any rank, any time; and first steps that compile."""
        extra = np.zeros(n)
        if self.pauses:
            extra += (random.random(n) < self.pauses * part) * random.uniform(0.5, 1.5, n) * self.pause_ns
        if step < self.warm:
            extra += random.uniform(0.3, 1.7, n) * self.warm_ns * part / (1 + step) ** 2
        return extra

    def stall(self, random, n, step):
        """A loader that all share: it stalls for all, or for a part of them."""
        if self.stalls and random.random() < self.stalls:
            return (random.random(n) < self.stall_part) * self.stall_ns * random.uniform(0.8, 1.2, n)
        return np.zeros(n)


class Faults:
    """Delays of single ranks: (stage or "*device", rank, first step, last step, ns or share)."""

    def __init__(self, ranks, steps):
        self.n = ranks
        self.extras = {}
        self.slow = np.ones((steps, ranks))
        self.steps = steps

    def delay(self, stage, rank, ns, steps):
        extra = self.extras.setdefault(stage, np.zeros((self.steps, self.n)))
        for step in steps:
            extra[step, rank] += ns

    def slow_device(self, rank, share, steps):
        for step in steps:
            self.slow[step, rank] *= 1 + share

    def extra(self, stage, step):
        found = self.extras.get(stage)
        return found[step] if found is not None else np.zeros(self.n)

    def slowdown(self, step):
        return self.slow[step]


class Link:
    """The link of one rank to its host's network is slow: so is every group in which it is, across hosts."""

    def __init__(self, rank, times, names):
        self.rank, self.times, self.names = rank, times, names

    def factor(self, groups, step):
        factor = np.ones(len(groups.members))
        if groups.name in self.names and self.rank in groups.row_of:
            factor[groups.row_of[self.rank]] = self.times
        return factor


def run(layout, sim, step_ns):
    """Runs all steps of a layout."""
    LAYOUTS[layout](sim, float(step_ns))


def data_parallel(sim, step):
    world = sim.add_groups("world", [np.arange(sim.n)])
    buckets = 4
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.03 * step)
        sim.stage("app.load")
        sim.work("forward", 0.3 * step)
        sim.stage("app.forward")
        for _ in range(buckets):
            sim.work("backward", 0.5 * step, 1 / buckets)
            sim.meet(world, "all_reduce", 16 << 20, "app.sync", is_async=sim.overlap)
        sim.join()
        sim.stage("app.backward")
        extra_stage(sim, "checkpoint")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        sim.meet(world, "all_reduce", 8, "app.loss")
        sim.stage("app.loss")
        sim.end_step()


def extra_stage(sim, name):
    """A stage that only ranks have which the fault is of."""
    extra = sim.faults.extra(name, sim.step)
    if (extra > 0).any():
        sim.t = sim.t + extra.astype(np.int64)
        sim.idle += extra.astype(np.int64)
        sim.stage(f"app.{name}", extra > 0)


def zero_one(sim, step):
    world = sim.add_groups("world", [np.arange(sim.n)])
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.03 * step)
        sim.stage("app.load")
        sim.work("forward", 0.3 * step)
        sim.stage("app.forward")
        sim.work("backward", 0.5 * step)
        sim.stage("app.backward")
        sim.meet(world, "reduce_scatter", 256 << 20, "app.reduce")
        sim.stage("app.reduce")
        extra_stage(sim, "checkpoint")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        sim.meet(world, "all_gather", 256 << 20, "app.gather")
        sim.stage("app.gather")
        sim.end_step()


def zero_three(sim, step):
    world = sim.add_groups("world", [np.arange(sim.n)])
    layers = 4
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.03 * step)
        sim.stage("app.load")
        for _ in range(layers):
            sim.meet(world, "all_gather", 32 << 20, "app.gather")
            sim.work("forward", 0.3 * step, 1 / layers)
        sim.stage("app.forward")
        for _ in range(layers):
            sim.meet(world, "all_gather", 32 << 20, "app.gather")
            sim.work("backward", 0.5 * step, 1 / layers)
            sim.meet(world, "reduce_scatter", 32 << 20, "app.reduce")
        sim.stage("app.backward")
        extra_stage(sim, "checkpoint")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        sim.end_step()


def across(sim, local):
    """The ranks at one place of each host."""
    hosts = sim.n // local
    return [[host * local + place for host in range(hosts)] for place in range(local)]


def tensor_parallel(sim, step, small=False):
    local = min(8, sim.n // 2)
    inside = [list(range(first, first + local)) for first in range(0, sim.n, local)]
    tp, dp = sim.add_groups("tp", inside), sim.add_groups("dp", across(sim, local))
    world = sim.add_groups("world", [np.arange(sim.n)])
    layers = 16 if small else 4
    nbytes = 32 << 10 if small else 4 << 20
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.03 * step)
        sim.stage("app.load")
        for _ in range(layers):
            sim.work("forward", 0.3 * step, 1 / layers)
            sim.meet(tp, "all_reduce", nbytes, "app.tp", gbps=200.0)
        sim.stage("app.forward")
        for _ in range(layers):
            sim.work("backward", 0.5 * step, 1 / layers)
            sim.meet(tp, "all_reduce", nbytes, "app.tp", gbps=200.0)
        sim.stage("app.backward")
        extra_stage(sim, "checkpoint")
        if small:
            sim.meet(dp, "all_reduce", 48 << 10, "app.dp", gbps=40.0)
        else:
            sim.meet(dp, "all_reduce", 64 << 20, "app.dp", gbps=40.0)
        sim.stage("app.dp")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        if number % 10 == 9:
            sim.meet(world, "all_reduce", 8, "app.norm")
            sim.stage("app.norm")
        sim.end_step()


def small_tensor_parallel(sim, step):
    tensor_parallel(sim, step, small=True)


def expert_parallel(sim, step):
    local = min(8, sim.n // 2)
    inside = [list(range(first, first + local)) for first in range(0, sim.n, local)]
    ep, dp = sim.add_groups("ep", inside), sim.add_groups("dp", across(sim, local))
    layers = 3
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.03 * step)
        sim.stage("app.load")
        for name, share in (("forward", 0.3), ("backward", 0.5)):
            for _ in range(layers):
                sim.work(name, share * step, 0.6 / layers)
                sim.meet(ep, "all_to_all", 8 << 20, "app.dispatch", gbps=150.0)
                sim.work(name, share * step, 0.4 / layers)
                sim.meet(ep, "all_to_all", 8 << 20, "app.combine", gbps=150.0)
            sim.stage(f"app.{name}")
        extra_stage(sim, "checkpoint")
        sim.meet(dp, "all_reduce", 64 << 20, "app.dp", gbps=40.0)
        sim.stage("app.dp")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        sim.end_step()


def pipeline(sim, step, width=None):
    """Stages of a pipeline, one after the other in the numbers of the ranks; each stage is `width` copies that reduce together."""
    stages = 4
    width = sim.n // stages if width is None else width
    stages = sim.n // width
    stage_of = np.arange(sim.n) // width
    pairs = [[stage * width + copy for stage in range(stages)] for copy in range(width)]
    pp = sim.add_groups("pp", pairs)
    dp = sim.add_groups("dp", [list(range(stage * width, (stage + 1) * width)) for stage in range(stages)]) if width > 1 else None
    world = sim.add_groups("world", [np.arange(sim.n)])
    batches = 4
    heavy = np.where(stage_of == stages - 1, 1.15, 1.0)
    members = [np.arange(stage * width, (stage + 1) * width) for stage in range(stages)]
    for number in range(sim.steps):
        sim.begin_step(number)
        sim.rest("load", 0.02 * step)
        sim.stage("app.load")
        for name, share, order in (("forward", 0.2, range(stages)), ("backward", 0.35, range(stages - 1, -1, -1))):
            # Each stage works on its own: the work of a batch is done stage by stage.
            order = list(order)
            for _ in range(batches):
                for at, stage in enumerate(order):
                    if at > 0:
                        sim.send_recv(pp, "send", members[order[at - 1]], members[stage], 4 << 20)
                    work_of(sim, name, share * step * heavy, 1 / batches, members[stage])
            sim.stage(f"app.{name}")
        if dp is not None:
            extra_stage(sim, "checkpoint")
            sim.meet(dp, "all_reduce", 64 << 20, "app.dp", gbps=40.0)
            sim.stage("app.dp")
        sim.work("optimizer", 0.05 * step)
        sim.stage("app.optimizer")
        sim.meet(world, "all_reduce", 8, "app.norm")
        sim.stage("app.norm")
        sim.end_step()


def work_of(sim, name, base, part, ranks):
    """Device work of some ranks."""
    before, computed = sim.t.copy(), sim.compute.copy()
    sim.work(name, base, part)
    others = np.ones(sim.n, dtype=bool)
    others[ranks] = False
    sim.t[others], sim.compute[others] = before[others], computed[others]


def pure_pipeline(sim, step):
    pipeline(sim, step, width=1)


LAYOUTS = {
    "dp": data_parallel,
    "zero1": zero_one,
    "zero3": zero_three,
    "tp": tensor_parallel,
    "small": small_tensor_parallel,
    "ep": expert_parallel,
    "pp": pipeline,
    "pure": pure_pipeline,
}
