"""Writes traces in the formats of other tools into a folder: small, and each with a case that is easily read wrong.

    python3 make.py FOLDER
"""

import json
import os
import sys


def metadata(pid, label, threads=()):
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python"}}
    if label:
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": label}}
    for tid, name in threads:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def slice_(category, name, pid, tid, begin_us, length_us, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": begin_us, "dur": length_us, "args": args}


def kernel(name, tid, begin_us, length_us, pid=0, **args):
    return slice_("kernel", name, pid, tid, begin_us, length_us, device=0, stream=tid, correlation=int(begin_us), **args)


def collective(name, tid, begin_us, length_us, pid=0, group="dp", ranks=4, **args):
    listed = list(range(ranks)) if ranks <= 30 else [*range(30), "..."]
    said = {
        "Collective name": name,
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": ranks,
        "dtype": "Float",
        "Process Group Name": group,
        "Process Group Ranks": "[" + ", ".join(map(str, listed)) + "]",
    }
    return kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", tid, begin_us, length_us, pid, **said, **args)


def kineto(events):
    """As PyTorch's profiler writes its traces: metadata first, events in the order in which their kinds are flushed."""
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": list(events), "traceName": "trace.json"}


def annotated():
    """A short annotation on the stream of much longer kernels, and one on another stream around nothing."""
    yield from metadata(0, "GPU 0")
    yield kernel("gemm", 7, 100, 500)
    yield kernel("softmax", 7, 700, 400)
    yield slice_("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 7, 1200, 50, bytes=4096)
    yield slice_("gpu_user_annotation", "block", 0, 7, 300, 5)
    yield slice_("gpu_user_annotation", "idle", 0, 9, 0, 2000)


def hidden():
    """Annotations that enclose everything, a collective that compute hides in part, and one that it does not hide."""
    yield from metadata(0, "GPU 0")
    yield slice_("gpu_user_annotation", "step", 0, 7, 0, 10000)
    yield kernel("gemm", 7, 1000, 500)
    yield kernel("gemm", 7, 1600, 56)
    yield kernel("gemm", 7, 8000, 300)
    # 156 of 1,000 us.
    yield collective("allreduce", 20, 1400, 1000)
    yield collective("broadcast", 20, 4000, 700)
    # A copy computes nothing, and a kernel of the collective's own stream hides nothing.
    yield slice_("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 0, 7, 4000, 700, bytes=4096)
    yield kernel("cast", 20, 4700, 10)


def names():
    """All names that ProcessGroupNCCL gives its collectives, one that nobody knows, and a group whose list of ranks is cut."""
    yield from metadata(0, "GPU 0")
    known = [
        "allreduce", "allreduce_coalesced", "allreduce_sparse", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop",
        "all_gather", "allgather", "_allgather_base", "allgather_into_tensor_coalesced", "reduce_scatter",
        "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "barrier", "all_to_all", "all_to_allv", "gather",
        "scatter", "send", "recv",
    ]  # fmt: skip
    for at, name in enumerate(known):
        yield collective(name, 20, 100 * at, 40 + at)
    yield collective("teleport", 20, 5000, 33)
    yield collective("allreduce", 20, 6000, 100, group="world", ranks=64)


def synchronized():
    """A synchronisation is the first event on the row of the stream, and one is on none."""
    yield from metadata(0, "GPU 0")
    yield slice_("cuda_sync", "Stream Sync", 0, 7, 10, 5, stream=7)
    yield slice_("cuda_sync", "Context Sync", 0, -1, 20, 5, stream=-1)
    yield kernel("gemm", 7, 100, 300)
    yield collective("allreduce", 7, 500, 200)


def merged():
    """Two ranks of a job in one file: the processes are texts, and both have the same device and stream."""
    for rank, length in [("[TP00] 0", 300), ("[TP01] 0", 800)]:
        yield from metadata(rank, "GPU 0")
        yield kernel("gemm", 7, 100, length, pid=rank)
        yield collective("allreduce", 20, 200, 400, pid=rank)


def steps():
    """Steps on a thread, repeated on the stream, and operators."""
    yield from metadata(4000, "CPU", [(4000, "thread 4000 (python)")])
    yield from metadata(0, "GPU 0")
    for step in range(3):
        at = 1000 * step
        yield slice_("user_annotation", f"ProfilerStep#{step}", 4000, 4000, at, 900 + step)
        yield slice_("cpu_op", "aten::mm", 4000, 4000, at + 10, 20)
        yield slice_("gpu_user_annotation", f"ProfilerStep#{step}", 0, 7, at + 100, 700)
        yield kernel("gemm", 7, at + 100, 600)


def pairs():
    """Begins and ends in place of whole slices, nested, and an end too many."""
    yield from metadata(4000, "CPU")
    yield from metadata(0, "GPU 0")

    def half(phase, at, category=None, name=None, pid=4000, tid=4000, **args):
        said = {"cat": category, "name": name} if category else {}
        return {"ph": phase, "pid": pid, "tid": tid, "ts": at, "args": args, **said}

    yield half("B", 0, "user_annotation", "ProfilerStep#0")
    yield half("B", 10, "cpu_op", "aten::linear")
    yield half("B", 20, "cpu_op", "aten::addmm")
    yield half("B", 100, "kernel", "gemm", pid=0, tid=7)
    yield half("E", 40)
    yield half("E", 60)
    yield half("E", 350, pid=0, tid=7)
    yield half("E", 500)
    yield half("E", 510)


def others():
    """Work of devices in categories that are not read, beside a kernel."""
    yield from metadata(0, "GPU 0")
    yield kernel("gemm", 7, 100, 300)
    for at in range(3):
        yield slice_("mtia_ccp_events", "dma", 0, 8, 1000 + at, 5)
    yield slice_("cuda_profiler_range", "range", 0, 9, 2000, 5)


def graphs():
    """Replays of a graph that PyTorch annotated itself: numbers are texts, and most work is on rows that it made up."""
    yield from metadata(0, "GPU 0", [(7, "stream 7 "), (13, "stream 13 ")])
    nodes = [("norm", "layer.0", 60, 13), ("gemm", "layer.0", 60, 7), ("copy", None, 7, 7), ("gemm", "layer.0", 60, 13), ("sum", "sync", 61, 13)]
    for replay in range(4):
        for node, (name, scope, lane, stream) in enumerate(nodes):
            at = 1000 * replay + 100 * node
            event = kernel(name, lane, at, 50 + node, **{"graph id": 9, "graph node id": 9 << 32 | node})
            event["args"]["correlation"] = 500 + replay
            if scope:
                event["args"].update({"name": scope, "depth": "2"})
            if lane != stream:
                event["args"]["original_stream"] = stream
            if scope == "sync":
                event["args"].update({
                    "Collective name": "allreduce", "In msg nelems": "1000", "Out msg nelems": "1000", "Group size": "4",
                    "dtype": "Float", "Process Group Name": "7", "Process Group Ranks": "[0, 1, 2, 3]",
                })
            yield event
    yield from metadata(0, None, [(60, "layers"), (61, "sync")])


def loop():
    """Steps of 45 ms in which a thread launches a kernel of 40 ms and synchronises. Nothing is in the order of time."""
    yield from metadata(4000, "CPU")
    yield from metadata(0, "GPU 0")
    for step in (step * 7 % 20 for step in range(20)):
        at = 45000 * step
        call = {"correlation": 100 + step}
        yield slice_("user_annotation", "train", 4000, 4000, at, 45000)
        yield slice_("cuda_runtime", "cudaLaunchKernel", 4000, 4000, at + 4900, 50, **call)
        yield {"ph": "s", "id": 100 + step, "pid": 4000, "tid": 4000, "ts": at + 4900, "cat": "ac2g", "name": "ac2g"}
        yield slice_("cuda_runtime", "cudaStreamSynchronize", 4000, 4000, at + 4960, 40040, correlation=500 + step)
        event = kernel("gemm", 7, at + 4990, 40000)
        event["args"].update(call)
        yield event
        yield {"ph": "f", "bp": "e", "id": 100 + step, "pid": 0, "tid": 7, "ts": at + 4990, "cat": "ac2g", "name": "ac2g"}


def loop_kernels_first():
    """The same, with the work of the device before all calls."""
    yield from sorted(loop(), key=lambda event: event.get("cat") != "kernel")


TRACES = [annotated, hidden, names, synchronized, merged, steps, pairs, others, graphs, loop, loop_kernels_first]


def main(folder):
    for trace in TRACES:
        with open(os.path.join(folder, f"{trace.__name__}.json"), "w", encoding="utf-8") as file:
            json.dump(kineto(trace()), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
