"""Makes jobs whose truth is known, asks `warpline-ranks report` about each, and says by class how often it was right.

    python score.py WARPLINE_RANKS [--seeds 0-9] [--only CLASS,…] [--keep FOLDER] [--show] [--require]

A job is right if its first sentence names a rank, a host or a group that is at fault, or nobody in a job that is clean. Recall and precision
are of all ranks that the report names. The magnitude is the lateness of a step, or the additional device work, beside what was injected.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs import CLASSES  # noqa: E402

def first_of(sentence):
    """What the first sentence names: ("rank", {…}), ("host", name), ("group", name) or nothing."""
    found = re.match(r"ranks? (\d[\d, and]*)", sentence)
    if found:
        return "rank", {int(number) for number in re.findall(r"\d+", found.group(1))}
    found = re.match(r"host (\S+?):", sentence)
    if found:
        return "host", found.group(1)
    found = re.match(r"collectives of (?:group )?`?([\w-]+?)(?:#\w+)?`? ", sentence)
    if found:
        return "group", found.group(1)
    return None


def is_right(truth, sentence):
    named = first_of(sentence)
    if not truth["faulty"]:
        return named is None
    if named is None:
        return False
    what, who = named
    if truth["kind"] == "mismatch":
        # Of two ranks, the calls do not say which one is wrong: both are to be named.
        half = re.search(r", and rank (\d+) .*: one of the two is wrong", sentence)
        who = who | {int(half.group(1))} if half else who
        is_it = set(truth["ranks"]) < who if half else who == set(truth["ranks"])
        return what == "rank" and is_it and f"number {truth['number']}" in sentence
    if truth["host"]:
        return what == "host" and who == truth["host"]
    if what == "group":
        return who == truth["group"]
    return what == "rank" and who <= set(truth["ranks"])


def judge(binary, folder):
    done = subprocess.run([binary, "report", folder, "--json"], capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{folder}: {done.stderr}")
    return json.loads(done.stdout)


def one(binary, name, seed, keep):
    folder = os.path.join(keep, f"{name}-{seed}") if keep else tempfile.mkdtemp()
    try:
        if not os.path.exists(os.path.join(folder, "truth.json")):
            os.makedirs(folder, exist_ok=True)
            CLASSES[name](seed).write(folder)
        truth = json.load(open(os.path.join(folder, "truth.json")))
        report = judge(binary, folder)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    named = {late["rank"] for late in report["late"]} | {slow["rank"] for slow in report["slow"]}
    named |= {rank for differ in report.get("differs", []) for rank in differ["ranks"] + differ["other_half"]}
    named |= {link["rank"] for link in report.get("links", []) if link.get("rank") is not None}
    said = report["verdict"][0] if report["verdict"] else ""
    error = None
    if truth["magnitude_ns"]:
        sizes = [late["median_ns"] for late in report["late"] if late["rank"] in truth["ranks"]][:1]
        sizes = sizes or [slow["more_ns"] for slow in report["slow"] if slow["rank"] in truth["ranks"]][:1]
        if sizes:
            error = abs(sizes[0] / truth["magnitude_ns"] - 1)
    return dict(name=name, seed=seed, truth=truth, named=sorted(named), said=said, right=is_right(truth, said), error=error)


def seeds(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--seeds", type=seeds, default=range(10))
    parser.add_argument("--only")
    parser.add_argument("--keep")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--require", action="store_true", help="exit with 1 unless the goals are reached")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CLASSES)
    with concurrent.futures.ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [pool.submit(one, options.binary, name, seed, options.keep) for name in names for seed in options.seeds]
        results = []
        for job in jobs:
            results.append(job.result())
            show(results[-1]) if options.show else None
    print(f"{'class':20} {'jobs':>5} {'first':>6} {'recall':>7} {'precision':>9} {'magnitude':>9}")
    for name in names:
        report(name, [r for r in results if r["name"] == name])
    failed = report("all faulty", [r for r in results if r["truth"]["faulty"]], goal=0.97)
    failed |= report("all clean", [r for r in results if not r["truth"]["faulty"]], goal=0.98)
    return 1 if options.require and failed else 0


def show(result):
    truth, extra = result["truth"], set(result["named"]) - set(result["truth"]["ranks"])
    if not result["right"] or extra or (result["error"] or 0) > 0.25:
        what = "WRONG" if not result["right"] else "extra" if extra else f"{result['error']:.2f} off"
        print(f"{what} {result['name']}-{result['seed']} {truth['layout']} truth {truth['ranks'][:9]} named {result['named'][:9]}: {result['said']}", flush=True)


def report(name, results, goal=None):
    if not results:
        return False
    right = sum(r["right"] for r in results) / len(results)
    faults = sum(len(r["truth"]["ranks"]) for r in results)
    hits = sum(len(set(r["named"]) & set(r["truth"]["ranks"])) for r in results)
    all_named = sum(len(r["named"]) for r in results)
    errors = [r["error"] for r in results if r["error"] is not None]
    share = lambda a, b: f"{a / b:.2f}" if b else "-"
    magnitude = f"{100 * statistics.median(errors):.0f} %" if errors else "-"
    named = share(hits, all_named) if faults else f"{sum(bool(r['named']) for r in results)} named"
    print(f"{name:20} {len(results):5} {right:6.2f} {share(hits, faults):>7} {named:>9} {magnitude:>9}", flush=True)
    return goal is not None and right < goal


if __name__ == "__main__":
    sys.exit(main())
