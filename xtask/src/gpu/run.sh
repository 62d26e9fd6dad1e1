#!/usr/bin/env bash
# Runs the bundle that `cargo xtask gpu` makes, on a host with an NVIDIA driver: one line a test, a table a bench.
# It installs nothing and writes only below the output folder. It ends with 0 if all went well, and with 1 otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    cat <<'TEXT'
usage: run.sh [--tests] [--examples] [--two-gpus] [--faults] [--skew] [--ncu] [--benches | --bench 'NAME [--SIZE=N…]']… [OPTIONS]

Without a choice, everything runs.
  --tests             the GPU tests, each in a process of its own; those that need two GPUs where there are two
  --test NAME         this test alone; may stand several times
  --examples          the examples; their traces go to the output folder; two of them also recorded from outside
  --two-gpus          what needs two GPUs and NCCL: its tests, its bench, cuda_graph with captured all-reduces, nccl_all_reduce as
                      two threads and as two processes with a rank that is 10 ms late, and who was late by their traces
  --faults            faults in ranks, one rank a GPU: a late rank, a slow GPU, a slow stage, a restart, a hang, a call that differs, a cycle, and
                      clean runs; `warpline-ranks` must name the rank, the number and the line. Its table: faults.md
  --faults-repeat N   cases of each fault (default 20)
  --skew              how far apart the ends of NCCL's collectives are on two GPUs or more. Its table: skew.md
  --benches           every bench with its default sizes
  --ncu               each filter of the quickstart's catalog alone: which kernels Nsight Compute then takes
  --bench 'NAME …'    this bench, with sizes if any: --bench 'position --seconds=300'; may stand several times
  --test-limit N      seconds for each test (default 90)
  --limit N           seconds for each bench and example (default 240)
  --out DIR           the output folder (default: $OUT, or `out` beside this script)
  --list              the tests and the benches
TEXT
}

tests=0 examples=0 two_gpus=0 faults=0 repeat=20 skew=0 ncu=0 all=1 test_limit=90 limit=240
out=${OUT:-$here/out}
benches=() chosen=()
every=(calls zone mirror collector length kernels position first rest cupti-clock overlap hidden nccl skew steps decode live graph soak timeline)

needs() { [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; usage >&2; exit 2; }; }
while [ $# -gt 0 ]; do
    case $1 in
        --tests) tests=1 all=0 ;;
        --test) needs "$@"; chosen+=("$2"); tests=1 all=0; shift ;;
        --examples) examples=1 all=0 ;;
        --ncu) ncu=1 all=0 ;;
        --two-gpus) two_gpus=1 all=0 ;;
        --faults) faults=1 all=0 ;;
        --faults-repeat) needs "$@"; repeat=$2; shift ;;
        --skew) skew=1 all=0 ;;
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
if [ $all = 1 ]; then tests=1 examples=1 ncu=1 benches=("${every[@]}"); fi
gpu_count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ $all = 1 ] && [ "$gpu_count" -ge 2 ]; then two_gpus=1 faults=1; fi

export LD_LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/extras/CUPTI/lib64:${LD_LIBRARY_PATH:-}
# NCCL and NVRTC often come with PyTorch alone.
for library in /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/lib{nccl,nvrtc}.so.*; do
    if [ -e "$library" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$library"); fi
done
# NVLink multicast needs rights that a container may lack; NCCL then does not start.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} NCCL_DEBUG=${NCCL_DEBUG:-WARN}
unset WARPLINE NVTX_INJECTION64_PATH CUDA_DEVICE_MAX_CONNECTIONS

names() { "$here/gpu-tests" --ignored --list --format terse 2>/dev/null | sed -n 's/: test$//p'; }
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
skipped=0
won() { passed=$((passed + 1)); echo "ok       $1 ($took s)"; }
lost() { failed=$((failed + 1)) failures+=("$1"); echo "FAILED   $1 ($took s): $why"; }

# Those of NCCL need two GPUs; asked for by name, a test runs anyway.
if [ $tests = 1 ] && [ ${#chosen[@]} = 0 ]; then
    if [ "$gpu_count" -ge 2 ]; then
        mapfile -t chosen < <(names)
    else
        mapfile -t chosen < <(names | grep -v '^collectives')
        skipped=$(names | grep -c '^collectives')
    fi
elif [ $two_gpus = 1 ] && [ ${#chosen[@]} = 0 ]; then
    mapfile -t chosen < <(names | grep '^collectives')
fi
if [ $two_gpus = 1 ]; then
    tests=1
    case " ${benches[*]} " in *" nccl "*) ;; *) benches+=(nccl) ;; esac
fi

# First: their tables are there also if what follows takes too long. Each is a file, and stands at the end of the output as well.
tables=()
rm -f "$out/faults.md" "$out/skew.md"
table() {
    tables+=("$out/$1")
    if [ -n "${OUT:-}" ] && [ -d "${OUT:-}" ] && [ ! "$OUT" -ef "$out" ]; then cp "$out/$1" "$OUT"; fi
}

if [ $skew = 1 ]; then
    echo
    if ! part "skew" "$limit" "$here/warpline-gpu-bench" skew; then
        lost "skew"
    elif ! grep -q '^all that synchronise' "$log"; then
        why="one GPU has nothing to compare"
        lost "skew"
    else
        won "skew"
        cp "$log" "$out/skew.md" && table skew.md
    fi
    cat "$log"
fi

if [ $faults = 1 ]; then
    echo
    # Each case has a limit of its own; all together take some three minutes.
    if [ "$gpu_count" -lt 2 ]; then
        took=0 why="each rank needs a GPU, and this host has $gpu_count"
        lost "faults"
    elif ! gzip -dc "$here/warpline-ranks.gz" >"$out/warpline-ranks" || ! chmod +x "$out/warpline-ranks"; then
        took=0 why="warpline-ranks.gz cannot be unpacked"
        lost "faults"
    else
        if part "faults" $((120 + 15 * repeat)) "$here/faults" --repeat "$repeat" --judge "$out/warpline-ranks" \
            --markdown "$out/faults.md"; then
            # Without NCCL it would take in-process streams.
            if grep -q '^[0-9]* ranks on GPUs' "$log"; then won "faults"; else why="not on GPUs"; lost "faults"; fi
        else
            lost "faults"
        fi
        rm -f "$out/warpline-ranks"
        [ ! -f "$out/faults.md" ] || table faults.md
        tail -n 200 "$log" | cut -c 1-600
    fi
fi

if [ $tests = 1 ]; then
    echo
    if [ ${#chosen[@]} = 0 ]; then took=0 why="it lists no test; run gpu-tests --list to see why"; lost "gpu-tests"; fi
    for name in "${chosen[@]}"; do
        if part "test $name" "$test_limit" "$here/gpu-tests" "$name" --exact --ignored --nocapture --test-threads=1; then
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

# The captured block on so many GPUs: each rank must have held its kernels against CUPTI's.
graph() {
    local ranks=$1 name="cuda_graph, $1 GPU" trace=$out/cuda_graph_$1.pftrace
    echo
    if ! part "example cuda_graph $ranks" "$limit" "$here/cuda_graph" --ranks "$ranks" --trace "$trace" \
        --annotations "$out/cuda_graph_$ranks.json"; then
        lost "$name"
    elif lacks=$(grep -m 1 '^nothing to run' "$log"); then
        why=$lacks
        lost "$name"
    elif [ "$(grep -c '^checked: all [1-9][0-9]* kernels of 5 replays' "$log")" != "$ranks" ]; then
        why="not all kernels of all replays are checked"
        lost "$name"
    else
        won "$name, trace: $trace"
    fi
    tail -n 80 "$log"
}

if [ $examples = 1 ]; then
    graph 1
    for name in quickstart cuda_streams nccl_all_reduce; do
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

# Records a running example from outside, without its kernels and with them. It must then end as it does alone.
outside() {
    local name=$1 pid code trace
    shift
    echo
    WARPLINE=control "$here/$name" "$@" >"$out/outside_$name.txt" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 100); do "$here/warpline" status $pid >/dev/null 2>&1 && break; sleep 0.1; done
    for kernels in "" --kernels; do
        trace=$out/${name}_outside${kernels#-}.pftrace
        if ! part "record $name $kernels" 30 "$here/warpline" record $pid --for 2s $kernels -o "$trace"; then
            lost "record $name $kernels"
        elif ! grep -q ': [1-9][0-9]* zones recorded' "$log"; then
            why="no zone was recorded"
            lost "record $name $kernels"
        elif [ -n "$kernels" ] && ! grep -q ', [1-9][0-9]* kernels and copies' "$log"; then
            why="no kernel was recorded"
            lost "record $name $kernels"
        else
            won "record $name $kernels, trace: $trace"
        fi
        cat "$log"
    done
    for _ in $(seq "$limit"); do kill -0 $pid 2>/dev/null || break; sleep 1; done
    kill -9 $pid 2>/dev/null
    wait $pid
    code=$? log=$out/outside_$name.txt
    if [ $code != 0 ] || ! grep -q '^checked: ' "$log"; then
        why="exit code $code"
        lost "$name, recorded from outside"
    else
        won "$name, recorded from outside"
    fi
    tail -n 3 "$log"
}

if [ $examples = 1 ]; then
    outside quickstart --seconds 8
    outside cuda_streams --steps 8000
fi

# The kernels that ncu takes from one step of the quickstart, a line for each name. It leaves the GPU's clocks as they are.
kernels() {
    part "ncu $1" 60 ncu --clock-control none --section LaunchStats "${@:2}" "$here/quickstart" --steps 1 || return $?
    sed -n 's/^  \([A-Za-z_]*\) ([0-9, ]*)x([0-9, ]*), Context .*/\1/p' "$log" | sort | uniq -c | awk '{print $2 " " $1}'
}

if [ $ncu = 1 ]; then
    echo
    begin=$SECONDS
    if ! all_kernels=$(kernels "without a filter") || [ -z "$all_kernels" ]; then
        took=$((SECONDS - begin)) why="ncu takes no kernel of the quickstart, see $out"
        lost "ncu"
    else
        printf '%-45s %s\n' "without a filter" "$(echo $all_kernels)"
        while read -r filter; do
            if taken=$(kernels "$filter" --nvtx $filter); then
                printf '%-45s %s\n' "${filter#--nvtx-include }" "$(echo $taken)"
            else
                took=$((SECONDS - begin)) why="ncu fails, see $out"
                lost "ncu $filter"
            fi
        done < <(grep include "$here/quickstart.ncu")
        took=$((SECONDS - begin))
        won "ncu"
    fi
fi

# In which collective rank 1 is late: an all-reduce of step 20.
late_at=123
late=(--steps 48 --late-rank 1 --late-ms 10 --late-at $late_at)

# Two ranks, one of them late; then the command that reads their traces must name it. How they run, and their traces.
ranks() {
    local how=$1
    shift
    echo
    if ! part "example nccl_all_reduce $how" "$limit" "$here/nccl_all_reduce" "${ranks_options[@]}" "${late[@]}"; then
        lost "nccl_all_reduce, $how"
    elif ! grep -q '^NCCL .* a world of 2 ranks' "$log" || [ "$(grep -c '^checked: rank' "$log")" != 2 ]; then
        why="not two ranks on two GPUs"
        lost "nccl_all_reduce, $how"
    else
        won "nccl_all_reduce, $how"
    fi
    tail -n 60 "$log"
    echo
    if ! part "stragglers $how" 60 "$here/warpline" stragglers "$@"; then
        lost "stragglers, $how"
    elif ! grep -Eq "^ *all_reduce +tp0 \[0,1\] +$late_at +1 +(9|[1-9][0-9])\.[0-9]+ ms" "$log"; then
        why="rank 1 was 10 ms late to number $late_at, and is not named"
        lost "stragglers, $how"
    else
        won "stragglers, $how: rank 1 was late to number $late_at"
    fi
    cat "$log"
}

if [ $two_gpus = 1 ]; then
    if [ "$gpu_count" -ge 2 ]; then
        graph 2
        ranks_options=(--ranks 2 --trace "$out/threads.pftrace")
        ranks threads "$out/threads.pftrace"
        ranks_options=(--processes 2 --trace "$out/rank{rank}.pftrace")
        ranks processes "$out/rank0.pftrace" "$out/rank1.pftrace"
    else
        took=0 why="this host has $gpu_count"
        lost "what needs two GPUs"
    fi
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

for file in "${tables[@]}"; do
    echo
    cat "$file"
done

echo
if [ $failed -gt 0 ]; then printf 'failed: %s\n' "${failures[@]}"; fi
if [ "$skipped" -gt 0 ]; then echo "skipped: $skipped tests of NCCL, which need two GPUs"; fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
