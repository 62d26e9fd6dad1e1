"""Compares the clocks that `warpline-ranks clocks` finds with the true ones, minute by minute.

    python clocks.py WARPLINE_RANKS [--seeds 0-9] [--only CLASS,…] [--require]

An estimate holds if the true difference of the two clocks is within its error at nine points of the minute. Certified bounds hold if the true
difference is between them in its middle.
"""

import argparse
import concurrent.futures
import csv
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs import CLASSES  # noqa: E402
from score import seeds  # noqa: E402
from tables import Clocks  # noqa: E402

MINUTE = 60_000_000_000
# Jobs whose hosts meet: as they mostly do, with clocks that wander, and with hosts that leave collectives in an order.
SYNCHRONOUS = "late,clean_plain,clean_tails,wandering,clean_leave"


def asked(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return done.stdout


def one(binary, name, seed):
    job = CLASSES[name](seed)
    with tempfile.TemporaryDirectory() as folder:
        job.write(folder)
        found = json.loads(asked(binary, "clocks", folder, "--json"))
        sql = "SELECT boot_id, MIN(base_ns) AS base_ns FROM placed GROUP BY boot_id"
        bases = {row["boot_id"]: int(row["base_ns"]) for row in csv.DictReader(io.StringIO(asked(binary, "query", folder, sql, "--format", "csv")))}
    truth = Clocks(job.ranks // job.per_host, job.seed, **job.clock_args)
    number = [int(boot.rsplit("-", 1)[1]) for boot in found["boots"]]
    base = [bases[boot] for boot in found["boots"]]
    known = [clock for clock in found["clocks"] if clock["host"] != clock["beside"] and clock["meetings"] > 1]

    def shown(host, t):
        return int(truth.boottime(number[host], t)) + base[host]

    def at(host, ns):
        """The true time at which the clock of a host shows this."""
        t = ns - shown(host, 0)
        for _ in range(4):
            t += ns - shown(host, t)
        return t

    estimates, bounds, errors = [], [], []
    for clock in known:
        host, beside, mid = clock["host"], clock["beside"], clock["mid_ns"]
        begin = clock["segment"] * MINUTE
        # The run may fill a part of a minute: its middle is that of the part.
        half = min(mid - begin, begin + MINUTE - mid)
        off = []
        for part in range(-4, 5):
            x = mid + part * half // 4
            t = at(host, x)
            off.append(clock["offset_ns"] + clock["drift"] * (x - mid) - (shown(host, t) - shown(beside, t)))
        estimates.append(max(map(abs, off)) <= clock["err_ns"])
        errors.append(clock["err_ns"])
        if clock["certified"]:
            t = at(host, mid)
            least, most = clock["certified"]
            bounds.append(least <= shown(host, t) - shown(beside, t) <= most)
    return name, estimates, bounds, errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--seeds", type=seeds, default=range(10))
    parser.add_argument("--only", default=SYNCHRONOUS)
    parser.add_argument("--require", action="store_true", help="exit with 1 unless 99 of 100 estimates and all bounds hold")
    options = parser.parse_args()
    names = options.only.split(",")
    with concurrent.futures.ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [pool.submit(one, options.binary, name, seed) for name in names for seed in options.seeds]
        results = [job.result() for job in jobs]
    print(f"{'class':16} {'minutes':>8} {'estimates hold':>15} {'median error':>13} {'bounds hold':>12}")
    is_good = True
    for name in names + ["all"]:
        of = [result for result in results if name in (result[0], "all")]
        estimates, bounds, errors = ([one for result in of for one in result[at]] for at in (1, 2, 3))
        median = f"{statistics.median(errors) / 1000:.1f} us" if errors else "-"
        print(f"{name:16} {len(estimates):8} {sum(estimates):7} of {len(estimates):4} {median:>13} {sum(bounds):5} of {len(bounds):4}")
        is_good &= name != "all" or (100 * sum(estimates) >= 99 * len(estimates) and all(bounds))
    return 1 if options.require and not is_good else 0


if __name__ == "__main__":
    sys.exit(main())
