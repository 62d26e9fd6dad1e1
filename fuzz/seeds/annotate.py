"""Makes the seeds of the fuzz target `annotate`: pairs of annotations and a trace, in each form that is read.

    python3 fuzz/seeds/annotate.py

Small pairs are made here; the one that PyTorch's profiler wrote is that of the tests of `warpline annotate`.
"""

import gzip
import json
import pickle
from pathlib import Path

HERE = Path(__file__).resolve().parent / "annotate"
DATA = HERE.parents[2] / "annotate/tests/data"
EXEC = 14
ORDER, CHROME, PACKED = 1, 2, 4

KERNELS = ["norm", "Memset (Device)", "softmax", "ncclDevKernel_AllReduce"]


def annotations(has_ids):
    zones = [
        {"name": "block.layer", "lane": None, "label": "layer 0", "status": "complete", "fields": {"batch": 4}, "collective": None},
        {"name": "block.sync", "lane": "comm: tp0", "label": None, "status": "complete", "fields": {},
         "collective": {"Collective name": "allreduce", "In msg nelems": 1024}},
    ]
    nodes = [
        {"index": index, "within": None, "kind": "memset" if "Memset" in name else "kernel",
         "kernel": None if "Memset" in name else name,
         "replay_ids": [str(EXEC << 32 | index)] if has_ids else [], "zones": [[0], [], [0], [0, 1]][index]}
        for index, name in enumerate(KERNELS)
    ]
    graph = {"graph": 1, "name": "block", "ids": "cupti_id" if has_ids else "none", "execs": [{"exec_id": EXEC}],
             "zones": zones, "nodes": nodes, "unlabelled": []}
    return json.dumps({"format": "warpline-graph/1", "graphs": [graph]}).encode()


def of_pytorch():
    said = {"name": "attention", "heads": 8}
    return {EXEC << 32: [said], EXEC << 32 | 2: [said], EXEC << 32 | 3: [{"name": "sync", "stream": 60}]}


def trace(has_ids, replays=2):
    events = [{"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}]
    for replay in range(replays):
        begin = 1000 + 100 * replay
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 7, "tid": 8, "ts": begin,
                       "dur": 8.125, "args": {"correlation": 100 + replay}})
        events.append({"ph": "s", "id": replay, "pid": 7, "tid": 8, "ts": begin, "cat": "ac2g", "name": "ac2g"})
        for index, name in enumerate(KERNELS):
            args = {"device": 0, "stream": 7, "correlation": 100 + replay}
            if has_ids:
                node = EXEC << 32 | index
                args |= {"graph id": EXEC, "graph node id": [node, str(node), index][(replay + index) % 3]}
            events.append({"ph": "X", "cat": "gpu_memset" if "Memset" in name else "kernel", "name": name, "pid": 0, "tid": 7,
                           "ts": begin + 12 + 6.5 * index, "dur": 5.501, "args": args})
        events.append({"ph": "f", "bp": "e", "id": replay, "pid": 0, "tid": 7, "ts": begin + 12, "cat": "ac2g", "name": "ac2g"})
    events += [
        {"ph": "C", "name": "memory", "pid": 7, "ts": 5, "args": {"bytes": 17}},
        {"ph": "B", "name": "outer", "pid": 7, "tid": 9, "ts": 5, "args": {"deep": [1, {"c": -2.5}]}},
        {"ph": "E", "pid": 7, "tid": 9, "ts": 9},
        {"ph": "b", "cat": "io", "id": "0x1", "name": "read", "pid": 7, "tid": 9, "ts": 5},
        {"ph": "e", "cat": "io", "id": "0x1", "name": "read", "pid": 7, "tid": 9, "ts": 15},
        {"ph": "i", "s": "g", "name": "start", "pid": "Traces", "tid": "Trace 1", "ts": 1.5},
    ]
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events}).encode()


def packed(content):
    return gzip.compress(content, mtime=0)


def write(name, options, of_graphs, of_profiler):
    (HERE / name).write_bytes(bytes([options]) + len(of_graphs).to_bytes(2, "little") + of_graphs + of_profiler)


HERE.mkdir(exist_ok=True)
write("by_id", 0, annotations(True), trace(True))
write("by_id_chrome", CHROME, annotations(True), trace(True))
write("by_id_packed", PACKED, packed(annotations(True)), packed(trace(True)))
write("by_order", ORDER, annotations(False), trace(False))
write("by_order_chrome_packed", ORDER | CHROME | PACKED, annotations(False), trace(False))
write("pytorch_json", CHROME, json.dumps(of_pytorch()).encode(), trace(True))
for protocol in (0, 2, 4, 5):
    write(f"pytorch_pickle_{protocol}", 0, pickle.dumps(of_pytorch(), protocol), trace(True))
write("array_without_its_end", 0, annotations(True), json.dumps(json.loads(trace(True))["traceEvents"]).encode()[:-1])
write("torch", ORDER, (DATA / "torch_graph.annotations.json").read_bytes(), (DATA / "torch_graph.json.gz").read_bytes())
