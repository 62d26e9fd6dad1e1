"""Makes a small real trace of a CUDA graph with PyTorch's profiler, and the annotations that belong to it.

    python3 make_torch_graph_trace.py [FOLDER]         needs PyTorch 2 with CUDA and an NVIDIA GPU; takes seconds

A block of a transformer is captured into a CUDA graph and replayed five times under `torch.profiler`. FOLDER (default: here)
gets `torch_graph.json.gz`, what `export_chrome_trace` wrote, packed; and `torch_graph.annotations.json`, in the form of
docs/graph.schema.json. The annotations are made by order: each section of the block is run alone under the profiler, and has
as many nodes as it had kernels, copies and fills. Their sum must be what each replay has, or nothing is written.

    warpline annotate --annotations torch_graph.annotations.json --trace torch_graph.json.gz --by order -o torch_graph.pftrace
"""

import gzip
import json
import os
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

BATCH, SEQUENCE, DIM, HEADS = 4, 64, 256, 8
REPLAYS = 5
WORK = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def make_sections(device):
    """The block, as named sections that pass their results on in a dict."""
    generator = torch.Generator(device=device).manual_seed(0)
    weight = lambda rows, columns: torch.randn(rows, columns, generator=generator, device=device) * 0.02
    w_qkv, w_out, w_up, w_down = weight(DIM, 3 * DIM), weight(DIM, DIM), weight(DIM, 4 * DIM), weight(4 * DIM, DIM)
    x = torch.randn(BATCH, SEQUENCE, DIM, generator=generator, device=device)
    state = {"x": x}

    def qkv_proj():
        normed = torch.nn.functional.layer_norm(state["x"], (DIM,))
        state["qkv"] = normed @ w_qkv

    def attention():
        q, k, v = state["qkv"].view(BATCH, SEQUENCE, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)) * (DIM // HEADS) ** -0.5
        state["heads"] = torch.matmul(torch.softmax(scores, dim=-1), v)

    def out_proj():
        heads = state["heads"].transpose(1, 2).reshape(BATCH, SEQUENCE, DIM)
        state["residual"] = state["x"] + heads @ w_out

    def mlp():
        normed = torch.nn.functional.layer_norm(state["residual"], (DIM,))
        state["y"] = state["residual"] + torch.nn.functional.gelu(normed @ w_up) @ w_down

    return state, [
        ("block.qkv_proj", None, "Normalizes, and projects to queries, keys and values.", {"dim": DIM}, qkv_proj),
        ("block.attention", "attention", "Scaled dot products of the heads.", {"heads": HEADS}, attention),
        ("block.out_proj", None, "Projects the heads back.", {"dim": DIM}, out_proj),
        ("block.mlp", "mlp", "The feed-forward part.", {"dim": 4 * DIM}, mlp),
    ]


def trace_of(run):
    """The Chrome trace of what `run` does, as an object."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=False, with_stack=False) as prof:
        run()
        torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        prof.export_chrome_trace(path)
        with open(path, "rb") as file:
            content = file.read()
    finally:
        os.unlink(path)
    return json.loads(content, strict=False), content


def work_of(trace):
    """Kernels, copies and fills, in the order of their begins."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in WORK]
    return sorted(events, key=lambda e: float(e["ts"]))


def capture(sections):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for *_, run in sections:
            run()
    return graph


def annotations(counted):
    zones, nodes = [], []
    for number, (section, work) in enumerate(counted):
        name, lane, description, fields, _ = section
        zones.append(
            {"name": name, "kind": "gpu", "lane": lane, "color": None, "label": None, "description": description,
             "status": "complete", "fields": fields, "collective": None}
        )
        for event in work:
            kind = WORK[event["cat"]]
            nodes.append(
                {"index": len(nodes), "within": None, "kind": kind, "kernel": event["name"] if kind == "kernel" else None,
                 "tools_id": None, "cupti_id": None, "replay_ids": [None], "zones": [number]}
            )
    graph = {"graph": 1, "name": "block", "ids": "none", "graph_id": None, "execs": [{"exec_id": None}], "zones": zones,
             "nodes": nodes, "unlabelled": []}
    return {"format": "warpline-graph/1", "catalog": "0x0000000000000000", "graphs": [graph]}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    os.makedirs(folder, exist_ok=True)
    if not torch.cuda.is_available():
        sys.exit("no NVIDIA GPU that PyTorch can use")
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}")
    state, sections = make_sections("cuda")
    with torch.no_grad():
        # As a capture needs it: on a stream of its own, and with everything that libraries set up at the first call done.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                for *_, run in sections:
                    run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        # The profiler's own set-up is not to be in the traces.
        trace_of(lambda: torch.ones(1, device="cuda") + 1)

        graph = capture(sections)
        graph.replay()
        torch.cuda.synchronize()
        trace, content = trace_of(lambda: [graph.replay() for _ in range(REPLAYS)])

        # Counted section by section, each in a graph of its own: cuBLAS chooses as in the large one, on a stream that is
        # captured. The results of the sections before are still in `state`.
        counted, kept = [], []
        for section in sections:
            alone = torch.cuda.CUDAGraph()
            with torch.cuda.graph(alone):
                section[-1]()
            # The next section reads what lies in this one's memory.
            kept.append(alone)
            alone.replay()
            torch.cuda.synchronize()
            one, _ = trace_of(alone.replay)
            counted.append((section, work_of(one)))

    launches = {}
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and "GraphLaunch" in str(event.get("name")):
            launches[event.get("args", {}).get("correlation")] = []
    for event in work_of(trace):
        launches.setdefault(event.get("args", {}).get("correlation"), []).append(event)
    sizes = sorted(len(work) for work in launches.values())
    expected = sum(len(work) for _, work in counted)
    for (name, *_), work in counted:
        print(f"{name}: {len(work)}: {', '.join(event['name'][:60] for event in work)}")
    print(f"{len(launches)} launches with {sizes} kernels, copies and fills; the sections have {expected}")
    sample = next(iter(work_of(trace)), {"args": {}})
    print(f"a kernel's arguments: {json.dumps(sample.get('args'))}")
    paths = [os.path.join(folder, name) for name in ("torch_graph.json.gz", "torch_graph.annotations.json")]
    if sizes != [expected] * REPLAYS:
        # To look at; the annotations would be wrong.
        with gzip.GzipFile(paths[0] + ".rejected", "wb", 9, mtime=0) as file:
            file.write(content)
        sys.exit(f"the replays are not what the sections are; see {paths[0]}.rejected")
    with open(paths[0], "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as file:
        file.write(content)
    with open(paths[1], "w") as file:
        json.dump(annotations(counted), file, indent=1)
        file.write("\n")
    has_ids = any("graph node id" in event.get("args", {}) for event in work_of(trace))
    print(f"node ids in the trace: {'yes' if has_ids else 'no'}")
    for path in paths:
        print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
