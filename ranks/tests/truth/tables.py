"""Writes a simulated job as the tables that its ranks would write, by docs/ranks-tables.md alone: columns, windows, sampling and clocks."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MS = 1_000_000
S = 1_000_000_000
BEGIN_UNIX_NS = 1_795_000_000 * S
WINDOW_NS = 10 * S


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def splitmix64(x):
    z = (x + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


class Clocks:
    """The clock of each host since its boot, and how wrong its wall clock is."""

    def __init__(self, hosts, seed, drift_ppm=20.0, wander_us=0.0):
        random = np.random.default_rng(seed + 11)
        self.boot = random.integers(10_000, 90_000_000, hosts) * MS
        self.drift = random.uniform(-drift_ppm, drift_ppm, hosts) * 1e-6
        self.wall = random.integers(-2_000_000, 2_000_000, hosts)
        self.phase = random.uniform(0, 6.28, hosts)
        self.wander = wander_us * 1e3

    def boottime(self, host, t):
        """What CLOCK_BOOTTIME of a host shows at a true time since the job's begin."""
        t = np.asarray(t, dtype=np.float64)
        moved = self.drift[host] * t + self.wander * np.sin(t / (40 * S) * 6.28 + self.phase[host])
        return (self.boot[host] + t + moved).astype(np.int64)

    def realtime_offset(self, host, t):
        return BEGIN_UNIX_NS + self.wall[host] + int(t) - self.boottime(host, t)


INT32 = {"rank", "idx", "size", "bucket"}


def table(columns):
    arrays, names = [], []
    for name, values in columns:
        kind = pa.int32() if name in INT32 else None
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            kind = kind or pa.int64()
            values = values.astype(np.int64)
        arrays.append(pa.array(values, type=kind or (pa.int64() if len(values) and isinstance(values[0], (int, np.integer)) else pa.string())))
        names.append(name)
    return pa.table(arrays, names=names)


class Writer:
    """One life of a job: a simulation, its clocks, and the name of the run."""

    def __init__(self, folder, sim, clocks, run="1234.0", pid=4000, at_ns=0, comm_id="", first_step=0, coarse=False, one_file=None):
        self.folder, self.sim, self.clocks, self.run, self.pid = folder, sim, clocks, run, pid
        self.at_ns, self.comm_id, self.first_step = at_ns, comm_id, first_step
        self.host_names = np.array([f"node{host:04}" for host in sim.host_of])
        self.boot_ids = np.array([f"00000000-0000-4000-8000-{host:012}" for host in sim.host_of])
        self.one_file = sim.n > 16 if one_file is None else one_file
        # What ranks did not write: (table or None for all, rank or None, window or None).
        self.missing = []
        self.labels = {}
        for groups in sim.groups:
            for row, label in enumerate(groups.labels):
                members = ",".join(str(rank) for rank in groups.members[row])
                self.labels[(id(groups), row)] = (f"{label}#{fnv1a64(members + comm_id) >> 32:08x}", members)

    def boottime(self, ranks, t):
        out = np.empty(len(ranks), dtype=np.int64)
        hosts = self.sim.host_of[ranks]
        for host in np.unique(hosts):
            of = hosts == host
            out[of] = self.clocks.boottime(host, np.asarray(t)[of] + self.at_ns)
        return out

    def window(self, t):
        """Ranks agree on it by their wall clocks."""
        return (BEGIN_UNIX_NS + np.asarray(t) + self.at_ns) // WINDOW_NS

    def write(self, mismatch=None):
        sim = self.sim
        ranks = np.arange(sim.n)
        rows = {name: [] for name in ("windows", "steps", "stages", "ranges", "collectives", "comms")}
        step_wins = []
        for step, begin, wall, compute, comm, hidden, idle in sim.step_rows:
            win = self.window(begin + wall)
            step_wins.append(win)
            rows["steps"].append(
                dict(win=win, rank=ranks, step=np.full(sim.n, step + self.first_step), begin_ns=self.boottime(ranks, begin), wall_ns=wall, compute_ns=compute,
                     comm_ns=comm, comm_hidden_ns=hidden, wait_ns=0 * wall, idle_ns=idle, uncertain_ns=0 * wall, launch_ns=0 * wall + 100_000,
                     zones=0 * wall + 20, dropped=0 * wall, clock_err_ns=0 * wall + 200))
        for (step, stages), win in zip(sim.stage_rows, step_wins):
            index = np.zeros(sim.n, dtype=np.int64)
            for name, dur, only in stages:
                who = ranks if only is None else ranks[only]
                rows["stages"].append(dict(win=win[who], rank=who, step=np.full(len(who), step + self.first_step), idx=index[who].copy(),
                                           name=np.full(len(who), name), dur_ns=dur[who], end_early_ns=0 * dur[who]))
                index[who] += 1
        begun = {}
        last, odd = {}, {}
        for groups, kind, nbytes, seq, who, begin, end, mark, step, _ in sim.calls:
            row = np.array([groups.row_of[int(rank)] for rank in who])
            names = np.array([self.labels[(id(groups), int(r))][0] for r in row])
            sizes, kinds = np.full(len(who), nbytes), np.full(len(who), kind, dtype=object)
            if mismatch is not None:
                mismatch(groups, seq, step, who, kinds, sizes)
                for rank, name in zip(who[(sizes != nbytes) | (kinds != kind)], names[(sizes != nbytes) | (kinds != kind)]):
                    # All signatures of the rank differ from then on.
                    odd[(int(rank), str(name))] = seq
            one_in = np.where((sizes >= 1 << 20) | (sizes <= 8), 1, np.where(sizes >= 1 << 16, 4, 16))
            hashes = {name: splitmix64(fnv1a64(name) ^ seq) for name in set(names)} if (one_in > 1).any() else {}
            keep = np.array([k == 1 or hashes[name] % int(k) == 0 for k, name in zip(one_in, names)])
            win = self.window(end)
            for w in np.unique(win):
                begun[int(w)] = begun.get(int(w), 0) + np.bincount(who[win == w], minlength=sim.n)
                for rank, name, r, k in zip(who[win == w], names[win == w], row[win == w], one_in[win == w]):
                    at = (int(w), int(rank), str(name))
                    last[at] = (seq, max(int(k), last.get(at, (0, 1))[1]), len(groups.members[r]), self.labels[(id(groups), int(r))][1])
            who, begin, end, win = who[keep], begin[keep], end[keep], win[keep]
            rows["collectives"].append(dict(win=win, rank=who, comm=names[keep], seq=np.full(len(who), seq), kind=kinds[keep], bytes=sizes[keep],
                                            begin_ns=self.boottime(who, begin), dur_ns=end - begin, wait_ns=0 * end, err_ns=0 * end + 200,
                                            end_early_ns=0 * end, range=np.full(len(who), mark), why=np.full(len(who), "sample")))
        joined = {name: join(found) for name, found in rows.items() if found}
        wins = np.unique(np.concatenate([np.unique(joined["steps"]["win"]), np.unique(joined["collectives"]["win"]) if "collectives" in joined else np.array([], dtype=np.int64)]))
        first = int(wins[0])
        for win in wins:
            end_t = (int(win) + 1) * WINDOW_NS - BEGIN_UNIX_NS - self.at_ns
            end_t = min(end_t, int(sim.t.max()))
            begin_t = max(int(win) * WINDOW_NS - BEGIN_UNIX_NS - self.at_ns, 0)
            of = {name: pick(columns, columns["win"] == win) for name, columns in joined.items()}
            steps = np.bincount(of["steps"]["rank"], minlength=sim.n)
            kept = np.bincount(of["collectives"]["rank"], minlength=sim.n) if "collectives" in of else np.zeros(sim.n, dtype=np.int64)
            of_begun = begun.get(int(win), np.zeros(sim.n, dtype=np.int64))
            of["windows"] = dict(rank=ranks, boot_id=self.boot_ids, pid=self.pid + ranks, begin_ns=self.boottime(ranks, np.full(sim.n, begin_t)),
                                 end_ns=self.boottime(ranks, np.full(sim.n, end_t)),
                                 realtime_offset_ns=np.array([self.clocks.realtime_offset(host, end_t + self.at_ns) for host in sim.host_of]),
                                 clock_err_ns=np.full(sim.n, 200), steps=steps, steps_dropped=0 * steps, zones_begun=20 * steps, zones_recorded=20 * steps,
                                 zones_captured=0 * steps, zones_dropped=0 * steps, collectives_begun=of_begun, collectives_kept=kept,
                                 collectives_left_out=of_begun - kept, coarsened=np.full(sim.n, ""), version=np.full(sim.n, "0.9.0"))
            comms = [(rank, name, *what) for (w, rank, name), what in last.items() if w == win]
            if comms:
                seen = int(win) == first
                of["comms"] = dict(rank=np.array([c[0] for c in comms]), comm=np.array([c[1] for c in comms]),
                                   members=[c[5] if seen else None for c in comms], size=np.array([c[4] for c in comms]),
                                   sampling=np.array([c[3] for c in comms]), last_seq=np.array([c[2] for c in comms]),
                                   signature=[signature(c[1], c[2], odd.get((c[0], c[1]))) for c in comms])
            of["ranges"] = ranges_of(of.get("stages"))
            for name, columns in of.items():
                if columns is not None and len(columns["rank"]):
                    self.files(name, int(win), columns)

    def files(self, name, win, columns):
        columns = {key: value for key, value in columns.items() if key != "win"}
        ranks = np.asarray(columns["rank"])
        for table_name, rank, window in self.missing:
            if (table_name in (None, name)) and (window is None or window == win - self.first_window()):
                keep = ranks != rank if rank is not None else np.zeros(len(ranks), dtype=bool)
                columns = pick(columns, keep)
                ranks = np.asarray(columns["rank"])
        if not len(ranks):
            return
        parts = [(None, np.ones(len(ranks), dtype=bool))] if self.one_file else [(rank, ranks == rank) for rank in np.unique(ranks)]
        for rank, of in parts:
            part = pick(columns, of)
            who = np.asarray(part["rank"]).astype(int)
            ordered = [("rank", who), ("host", self.host_names[who])] + [(key, value) for key, value in part.items() if key != "rank"]
            again = f"-{self.pid}-1" if self.at_ns else ""
            file = f"rank-{rank:05}{again}.parquet" if rank is not None else f"rank-{int(who.min()):05}-{int(who.max()):05}{again}.parquet"
            folder = os.path.join(self.folder, name, f"run={self.run}", f"win={win}")
            os.makedirs(folder, exist_ok=True)
            pq.write_table(schema_of(name, ordered), os.path.join(folder, file), compression="zstd")

    def first_window(self):
        return int(self.window(0))


def signature(comm, seq, odd_since):
    """Equal for ranks that have called the same up to this number."""
    return f"{fnv1a64(f'{comm} {seq} {odd_since is not None and seq >= odd_since}'):016x}"


MAYBE = {("ranges", "step"), ("comms", "members")}


def schema_of(name, columns):
    made = table(columns)
    fields = []
    for field in made.schema:
        fields.append(pa.field(field.name, pa.int64() if (name, field.name) == ("ranges", "step") else field.type, nullable=(name, field.name) in MAYBE))
    return made.cast(pa.schema(fields))


def ranges_of(stages):
    if stages is None:
        return None
    names, which = np.unique(stages["name"], return_inverse=True)
    out = {key: [] for key in ("rank", "step", "name", "n", "sum_ns", "min_ns", "max_ns", "launch_ns", "bounded", "bounded_sum_ns", "bounded_least_ns")}
    for rank in np.unique(stages["rank"]):
        for index, name in enumerate(names):
            of = stages["dur_ns"][(stages["rank"] == rank) & (which == index)]
            if len(of):
                for key, value in (("rank", rank), ("step", None), ("name", name), ("n", len(of)), ("sum_ns", int(of.sum())), ("min_ns", int(of.min())),
                                   ("max_ns", int(of.max())), ("launch_ns", 0), ("bounded", 0), ("bounded_sum_ns", 0), ("bounded_least_ns", 0)):
                    out[key].append(value)
    return {key: np.array(value) if key not in ("step", "name") else value for key, value in out.items()}


def join(parts):
    return {key: np.concatenate([np.asarray(part[key]) for part in parts]) for key in parts[0]}


def pick(columns, of):
    return {key: (np.asarray(value)[of] if not isinstance(value, list) else [v for v, k in zip(value, of) if k]) for key, value in columns.items()}
