"""Prints the figures of a Chrome trace of another tool as JSON: what `warpline report` must say of it. Shares nothing with warpline.

    python3 truth.py TRACE

Work is kernels, copies and memory sets. A stream is busy while work of it runs. A collective is hidden while a kernel that is none of a
collective runs on another stream of its device.
"""

import json
import sys

WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
KINDS = {
    "all_reduce": {"allreduce", "allreduce_coalesced", "allreduce_sparse", "barrier"},
    "broadcast": {"broadcast", "_broadcast_oop"},
    "reduce": {"reduce", "_reduce_oop"},
    "all_gather": {"all_gather", "allgather", "_allgather_base", "allgather_into_tensor_coalesced"},
    "reduce_scatter": {"reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"},
    "all_to_all": {"all_to_all", "all_to_allv"},
    "gather": {"gather"},
    "scatter": {"scatter"},
    "send": {"send"},
    "recv": {"recv"},
}


def span(event):
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def union(spans):
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def length(spans):
    return sum(end - begin for begin, end in union(spans))


def overlap(spans, of):
    return length([(max(begin, of[0]), min(end, of[1])) for begin, end in spans if begin < of[1] and of[0] < end])


def kind(event):
    name = event["args"].get("Collective name")
    return next((kind for kind, names in KINDS.items() if name in names), None)


def stream(event):
    """PyTorch moves work of graphs to rows that it makes up."""
    return str(event["pid"]), str(event["args"].get("original_stream", event["tid"]))


def scopes(work):
    """The zones of replays: work of one scope, whose nodes follow one another."""
    replays, zones = {}, {}
    for event in work:
        if "graph node id" in event["args"]:
            replays.setdefault((event["pid"], event["args"]["correlation"]), []).append(event)
    for events in replays.values():
        before = None
        for event in sorted(events, key=lambda event: event["args"]["graph node id"]):
            node, name = event["args"]["graph node id"], event["args"].get("name")
            if name is not None and before is not None and before[0] == node - 1 and before[1] == name:
                before[2].append(span(event))
            elif name is not None:
                before = [node, name, [span(event)]]
                zones.setdefault(name, []).append(before[2])
            if name is not None:
                before[0] = node
    return {
        name: {"count": len(all_), "total_ns": sum(max(e for _, e in spans) - min(b for b, _ in spans) for spans in all_)}
        for name, all_ in zones.items()
    }


def whole(events):
    """The slices, those of a begin and an end included."""
    open_ = {}
    for event in events:
        thread = (event.get("pid"), event.get("tid"))
        if event.get("ph") == "X":
            yield event
        elif event.get("ph") == "B":
            open_.setdefault(thread, []).append(event)
        elif event.get("ph") == "E" and open_.get(thread):
            begin = open_[thread].pop()
            yield {**begin, "ph": "X", "dur": event["ts"] - begin["ts"]}


def figures(events):
    slices = list(whole(events))
    work = [event for event in slices if event["cat"] in WORK]
    kernels = [event for event in work if event["cat"] == "kernel"]
    computes = [event for event in kernels if not kind(event) and not event["name"].startswith("nccl")]
    streams, collectives, by_name = {}, {}, {}
    for event in work:
        streams.setdefault(stream(event), []).append(span(event))
        entry = by_name.setdefault(event["name"], {"count": 0, "total_ns": 0})
        entry["count"] += 1
        entry["total_ns"] += span(event)[1] - span(event)[0]
    for event in filter(kind, kernels):
        beside = [span(other) for other in computes if other["pid"] == event["pid"] and stream(other) != stream(event)]
        entry = collectives.setdefault(
            (kind(event), event["args"]["Process Group Name"]),
            {"count": 0, "total_ns": 0, "hidden_ns": 0, "group_size": int(event["args"]["Group size"])},
        )
        entry["count"] += 1
        entry["total_ns"] += span(event)[1] - span(event)[0]
        entry["hidden_ns"] += overlap(beside, span(event))
    steps = [event for event in slices if event["cat"] == "user_annotation" and event["name"].startswith("ProfilerStep#")]
    return {
        "streams": [{"pid": pid, "tid": tid, "busy_ns": length(spans)} for (pid, tid), spans in streams.items()],
        "collectives": [{"kind": kind, "group": group, **entry} for (kind, group), entry in collectives.items()],
        "kernels": [{"name": name, **entry} for name, entry in by_name.items()],
        "scopes": [{"name": name, **entry} for name, entry in scopes(work).items()],
        "steps": {"count": len(steps), "total_ns": sum(span(step)[1] - span(step)[0] for step in steps)},
    }


def main(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    print(json.dumps(figures(trace["traceEvents"] if isinstance(trace, dict) else trace), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
