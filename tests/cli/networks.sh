#!/bin/sh
# Networks: the script with both times, JSON for programs, one side alone, explain; steps of one that learns.
# (GPT-2 has page.sh.)
#   networks.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" OMP_WAIT_POLICY=passive # others may want the cores
failed=0

has() { # has FILE PATTERN...
    file=$1
    shift
    for pattern in "$@"; do
        grep -q -- "$pattern" "$file" || { echo "nothing matches '$pattern' in:"; cat "$file"; failed=1; }
    done
}

run() { # run FILE ARGUMENTS...
    file=$1
    shift
    "$carbide" "$@" >"$file" 2>"$work/err" || { echo "carbide $*: exit status $?"; cat "$work/err"; failed=1; }
    [ -s "$work/err" ] && { echo "carbide $* said: $(cat "$work/err")"; failed=1; }
}

"$carbide" bench alexnet --batch 1 --batches 2 --progress >"$work/script" 2>"$work/bar" || failed=1
has "$work/bar" "Baseline \[>" "Compiled \[>.*\]   0/2"
has "$work/script" "^alexnet, batch 1, f32, " "^Baseline time for 2 batches: [0-9.]* seconds$" \
    "^Compiled time for 2 batches: [0-9.]* seconds$" "^Speedup: [0-9.]*x$" "^Kernels: [0-9]*, compiled 1[0-9]$" \
    "^Peak memory: [0-9]* MB, compiled [0-9]* MB$" "^Outputs agree: "
[ "$(wc -l <"$work/script")" = 8 ] || { echo "not eight lines:"; cat "$work/script"; failed=1; }

run "$work/autocast" bench alexnet --batch 1 --autocast bf16 --json --seconds 0.01
run "$work/resnet50" bench resnet50 --only compiled --json --seconds 0.01

vm="--options backend=vm"
run "$work/steps" bench digits-train --batches 3 --threads 1 $vm
has "$work/steps" "^digits-train, batch 64, f32, 1 threads$" "^Baseline time for 3 batches" \
    "^Kernels: 1[0-9]*, compiled 18$" "^Outputs agree: largest error against float64 [0-9.]*e-0[6-9],"
for given in "--batch 3" "--dtype bf16" "--autocast bf16 --mode reduce-overhead"; do
    run "$work/step" bench digits-train $given --json --seconds 0.01 $vm
    cat "$work/step" >>"$work/learns"
done
run "$work/step" bench digits-train --only eager --json --seconds 0.01
cat "$work/step" >>"$work/learns"
run "$work/step" explain digits-train $vm
has "$work/step" "18 steps, eager would launch 1"

run "$work/explain" explain alexnet --batch 1 --full
has "$work/explain" "convolution f32: 1 x 3 channels into 64, kernel 11 x 11; [a-z]" \
    "matmul f32" "steps: 1[0-9], eager would launch"

command -v python3 >/dev/null 2>&1 || { echo "python3 is missing: JSON not checked"; exit $failed; }
python3 - "$work/autocast" "$work/resnet50" "$work/learns" <<'END' || failed=1
import json, sys
autocast, resnet50 = (json.loads(open(path).read()) for path in sys.argv[1:3])
small, lower, casts, eager = (json.loads(line) for line in open(sys.argv[3]))
assert small["batch"] == 3 and small["max_error"] < 1e-5 and small["kernels_compiled"] == 18, small
assert lower["dtype"] == "bf16" and casts["autocast"] == "bf16" and casts["mode"] == "reduce-overhead", (lower, casts)
assert eager["compiled_ms"] is None and eager["eager_ms"] > 0 and eager["peak_memory_mb"] > 1, eager
for row in small, lower, casts: assert row["eager_ms"] > 0 and row["compiled_ms"] > 0 and row["gflops"] > 0, row
assert autocast["dtype"] == "f32" and autocast["autocast"] == "bf16" and autocast["max_error"] < 1, autocast
assert autocast["eager_ms"] > 0, autocast
assert autocast["bytes_compiled"] < 1.1 * 2 * 62.4e6, autocast # weights, in bf16, are converted once
for row, billions in ((autocast, 1.43), (resnet50, 8.18)):
    flops = row["gflops"] * row["compiled_ms"] * 1e-3
    assert abs(flops / billions - 1) < 0.03, (flops, row)
    assert row["kernels_compiled"] < row["kernels_eager"], row
    assert row["bytes_compiled"] < 1.2 * row["bytes_eager"], row
    assert row["compiled_ms"] > 0 and row["first_call_ms"] > 0 and row["peak_memory_mb"] > 50, row
END
exit $failed
