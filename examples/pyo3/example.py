"""An operation in Rust, called from PyTorch on PyTorch's stream, in one trace with PyTorch's own work.

    cargo build --release && cp target/release/librms_norm.so rms_norm.so && python3 example.py

Needs PyTorch 2.8 or newer with CUDA. Writes `rms_norm.pftrace`, warpline's trace of the calls; and `block.json`, the trace of PyTorch's
profiler of a CUDA graph that contains the operation, with `block.annotations.json`, which names the graph's nodes. Then

    warpline annotate --trace block.json --by order -o block.pftrace

writes one trace with both.
"""

import torch
from torch.profiler import ProfilerActivity, profile

import rms_norm

ROWS, WIDTH, CALLS = 1024, 4096, 20


def normalized(x):
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    rms_norm.forward(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], stream)
    return out


def main():
    rms_norm.start("perfetto=rms_norm.pftrace,summary")
    x, weight = torch.randn(ROWS, WIDTH, device="cuda"), torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5
    block = lambda: torch.relu(normalized(normalized(x) @ weight))

    side = torch.cuda.Stream()  # as a capture needs it; also warms up
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(CALLS):
            y = block()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    own = torch.nn.functional.rms_norm
    right = torch.relu(own(own(x, (WIDTH,), eps=1e-6) @ weight, (WIDTH,), eps=1e-6))
    torch.testing.assert_close(y, right, rtol=1e-3, atol=1e-3)
    print(f"{y.numel()} numbers are what PyTorch computes")

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        block()
    rms_norm.save_graph(graph.raw_cuda_graph(), "block.annotations.json")
    graph.instantiate()
    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(CALLS):
            graph.replay()
        torch.cuda.synchronize()
    profiler.export_chrome_trace("block.json")
    rms_norm.finish()


if __name__ == "__main__":
    main()
