"""Reads Chrome traces of warpline with HolisticTraceAnalysis 0.5.0, and compares what it finds with the traces themselves.

    python3 -m venv v && v/bin/pip install HolisticTraceAnalysis==0.5.0
    WARPLINE_GATE_DIR=/tmp/ranks cargo test -p warpline-tests --test collectives_trace
    v/bin/python tests/readers/holistic_trace_analysis.py /tmp/ranks/rank0.json /tmp/ranks/rank1.json

Kernel breakdown: the time of each name on each rank. Overlap: the share of communication that compute covers. The reader cuts
times to whole microseconds, so each event may be off by one. Too heavy for CI; run by hand.
"""

import json
import sys

from hta.trace_analysis import TraceAnalysis


def gpu_events(path):
    events = json.load(open(path))["traceEvents"]
    return [e for e in events if e["ph"] == "X" and "stream" in e.get("args", {})]


def merged(events):
    spans = []
    for begin, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([begin, end])
    return spans


def by_hand(path):
    """Time of each name; time of communication, and how much of it compute covers: all in microseconds."""
    events = gpu_events(path)
    names = {}
    for event in events:
        names[event["name"]] = names.get(event["name"], 0) + event["dur"]
    is_comm = lambda event: event["name"].startswith("nccl")
    comm, comp = merged(filter(is_comm, events)), merged(e for e in events if not is_comm(e))
    covered = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in comm for b in comp)
    return names, sum(end - begin for begin, end in comm), covered, len(events)


def main(paths):
    analysis = TraceAnalysis(trace_files=dict(enumerate(paths)), trace_dir="/")
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    faults = 0
    for rank, path in enumerate(paths):
        names, comm, covered, count = by_hand(path)
        read = kernels[kernels["rank"] == rank].set_index("name")["sum (us)"].to_dict()
        for name, us in sorted(names.items()):
            right = name in read and abs(read[name] - us) <= count
            faults += not right
            print(f"rank {rank}: {name}: {read.get(name)} us, by hand {us:.3f}: {'ok' if right else 'WRONG'}")
        share = overlap[overlap["rank"] == rank]["comp_comm_overlap_pctg"].iloc[0]
        wanted = 100 * covered / comm
        right = abs(share - wanted) <= 100 * 2 * count / comm + 0.1
        faults += not right
        print(f"rank {rank}: overlap {share} %, by hand {wanted:.2f} %: {'ok' if right else 'WRONG'}")
    return faults


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
