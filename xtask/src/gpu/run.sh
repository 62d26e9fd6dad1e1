#!/usr/bin/env bash
# Runs the bundle that `cargo xtask gpu` makes, on a host with an NVIDIA driver: one line a test, a table a bench.
# It installs nothing and writes only below the output folder. It ends with 0 if all went well, and with 1 otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'TEXT'
usage: run.sh [--tests] [--examples] [--benches | --bench 'NAME [--SIZE=N…]']… [OPTIONS]

Without a choice, everything runs.
  --tests             the GPU tests, each in a process of its own
  --test NAME         this test alone; may stand several times
  --examples          the examples; their traces go to the output folder
  --benches           every bench with its default sizes
  --bench 'NAME …'    this bench, with sizes if any: --bench 'position --seconds=300'; may stand several times
  --test-limit N      seconds for each test (default 90)
  --limit N           seconds for each bench and example (default 240)
  --out DIR           the output folder (default: $OUT, or `out` beside this script)
  --list              the tests and the benches
TEXT
}

tests=0 examples=0 all=1 test_limit=90 limit=240
out=${OUT:-$here/out}
benches=() chosen=()
every=(calls zone mirror collector length kernels position overlap hidden steps graph soak)

needs() { [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; usage >&2; exit 2; }; }
while [ $# -gt 0 ]; do
    case $1 in
        --tests) tests=1 all=0 ;;
        --test) needs "$@"; chosen+=("$2"); tests=1 all=0; shift ;;
        --examples) examples=1 all=0 ;;
        --benches) benches=("${every[@]}") all=0 ;;
        --bench) needs "$@"; benches+=("$2"); all=0; shift ;;
        --test-limit) needs "$@"; test_limit=$2; shift ;;
        --limit) needs "$@"; limit=$2; shift ;;
        --out) needs "$@"; out=$2; shift ;;
        --list) list=1 ;;
        -h | --help) usage; exit 0 ;;
        *) echo "error: unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
if [ $all = 1 ]; then tests=1 examples=1 benches=("${every[@]}"); fi

export LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64:${LD_LIBRARY_PATH:-}
# NCCL and NVRTC often come with PyTorch alone.
for library in /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/lib{nccl,nvrtc}.so.*; do
    if [ -e "$library" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$library"); fi
done
unset WARPLINE NVTX_INJECTION64_PATH CUDA_DEVICE_MAX_CONNECTIONS

names() { "$here/cuda-tests" --ignored --list --format terse 2>/dev/null | sed -n 's/: test$//p'; }
if [ "${list:-0}" = 1 ]; then
    names | sed 's/^/test  /'
    printf 'bench %s\n' "${every[@]}"
    exit 0
fi

mkdir -p "$out" || exit 2
echo "date     $(date -u '+%Y-%m-%d %H:%M:%S UTC')"
echo "commit   $(cat "$here/commit" 2>/dev/null || echo unknown)"
echo "machine  $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(uname -sr)"
if gpus=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>&1); then
    echo "$gpus" | sed 's/^/GPU      /'
else
    echo "GPU      nvidia-smi fails: $gpus"
fi

passed=0 failed=0 failures=()
# Runs a command: its name, its limit, itself. What it says goes to $log, how long it took to $took, what failed to $why.
part() {
    local name=$1 most=$2 begin=$SECONDS code
    shift 2
    log=$out/$(echo "$name" | tr -c 'A-Za-z0-9_\n' '-').txt
    timeout --kill-after=10 "$most" "$@" >"$log" 2>&1 </dev/null
    code=$?
    took=$((SECONDS - begin))
    why="exit code $code"
    if [ $code = 124 ] || [ $code = 137 ]; then why="over its limit of $most s"; fi
    return $code
}
won() { passed=$((passed + 1)); echo "ok       $1 ($took s)"; }
lost() { failed=$((failed + 1)) failures+=("$1"); echo "FAILED   $1 ($took s): $why"; }

if [ $tests = 1 ]; then
    echo
    if [ ${#chosen[@]} = 0 ]; then mapfile -t chosen < <(names); fi
    if [ ${#chosen[@]} = 0 ]; then took=0 why="it lists no test; run cuda-tests --list to see why"; lost "cuda-tests"; fi
    for name in "${chosen[@]}"; do
        if part "test $name" "$test_limit" "$here/cuda-tests" "$name" --exact --ignored --nocapture --test-threads=1; then
            # A name that matches none runs no test, and is no success.
            if grep -q '^test result: ok. 1 passed' "$log"; then
                won "$name"
            else
                why="there is no such test; --list shows them"
                lost "$name"
            fi
        else
            lost "$name"
            tail -n 25 "$log" | cut -c 1-400 | sed 's/^/           /'
        fi
    done
fi

if [ $examples = 1 ]; then
    for name in quickstart cuda_streams; do
        echo
        export WARPLINE=perfetto=$out/$name.pftrace,summary
        if ! part "example $name" "$limit" "$here/$name"; then
            lost "$name"
        elif lacks=$(grep -m 1 '^nothing to run\|^in-process streams' "$log"); then
            # Well on a machine without a GPU, not on this one.
            why=$lacks
            lost "$name"
        else
            won "$name, trace: $out/$name.pftrace"
        fi
        unset WARPLINE
        tail -n 40 "$log"
    done
fi

for bench in "${benches[@]}"; do
    read -r -a words <<<"$bench"
    echo
    if part "bench ${words[0]}" "$limit" "$here/warpline-gpu-bench" "${words[@]}"; then
        won "bench $bench"
    else
        lost "bench $bench"
    fi
    cat "$log"
done

echo
if [ $failed -gt 0 ]; then printf 'failed: %s\n' "${failures[@]}"; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
