#!/bin/sh
# Every case runs, eager and compiled results agree, and --json prints one object a line with the fields
# that bench/compare_cpu.py and others read.
#   bench.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
failed=0

# Networks have a script of their own (networks.sh).
cases=$("$carbide" bench list | cut -d' ' -f1 | grep -v '^alexnet$\|^resnet50$\|^gpt2$\|-train$')
[ "$(echo "$cases" | wc -l)" -ge 12 ] || { echo "bench list names too few cases: $cases"; exit 1; }

# Small batches: this is about the command, not about speed.
for case in $cases; do
    batch="--batch 64"
    [ "$case" = photo ] && batch=
    "$carbide" bench "$case" $batch --json --seconds 0.01 >>"$work/out" 2>"$work/err" ||
        { echo "bench $case: exit status $?: $(cat "$work/err")"; failed=1; }
    [ -s "$work/err" ] && { echo "bench $case said: $(cat "$work/err")"; failed=1; }
done
for dtype in f64 bf16 f16; do
    "$carbide" bench softmax --batch 16 --dtype $dtype --json --seconds 0.01 >>"$work/out" ||
        { echo "bench softmax --dtype $dtype: exit status $?"; failed=1; }
done
ls "$work" | grep -q carbide-bench && { echo "bench left its folder behind"; failed=1; }

"$carbide" bench gelu softmax --batch 16 --threads 1 --seconds 0.01 >"$work/table" || failed=1
grep -q '^gelu .* -> 1 ' "$work/table" || { echo "no row of gelu in:"; cat "$work/table"; failed=1; }

command -v python3 >/dev/null 2>&1 || { echo "python3 is missing: JSON not checked"; exit $failed; }
python3 - "$work/out" <<'END' || failed=1
import json, sys
text = "case device mode dtype"
number = ("threads eager_ms compiled_ms speedup kernels_eager kernels_compiled bytes_eager bytes_compiled gb_per_s "
          "compile_cold_ms compile_warm_ms max_error")
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) >= 15, f"{len(rows)} rows"
for row in rows:
    for name in text.split():
        assert isinstance(row[name], str), (name, row)
    for name in number.split():
        missing = name == "compile_warm_ms" and row[name] is None  # nothing came from the disk
        assert isinstance(row[name], (int, float)) or missing, (name, row)
    assert row["eager_ms"] > 0 and row["compiled_ms"] > 0, row
    assert 0 < row["bytes_compiled"] <= 1.01 * row["bytes_eager"], row
    assert 0 < row["kernels_compiled"] <= row["kernels_eager"], row
    assert row["max_error"] < 1.5, row
    assert row["first_call_ms"] > 0 and row["peak_memory_mb"] > 1, row
    assert (row["gflops"] is not None) == (row["case"] == "mlp"), row
kernels = {row["case"]: row["kernels_compiled"] for row in rows}
one = ["copy", "gelu", "muladd_relu_sum", "softmax", "layernorm_gelu", "photo"]
assert all(kernels[name] == 1 for name in one), kernels
assert kernels["mlp"] == 3, kernels
END
exit $failed
