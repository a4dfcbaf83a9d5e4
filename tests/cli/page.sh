#!/bin/sh
# The page of `carbide explain --html` in a browser: its script runs to its end, drawings have a size, and
# the page of GPT-2 is small. What the bench says of GPT-2 is that of one side alone.
#   page.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
say() { echo "$*"; failed=1; }

"$carbide" explain softmax --batch 64 --html "$work/softmax.html" || say "explain softmax --html: exit status $?"
CARBIDE_EXPLAIN="$work/bench.html" "$carbide" bench gelu mlp --batch 64 --seconds 0.01 >/dev/null || say "CARBIDE_EXPLAIN=FILE: exit status $?"
CARBIDE_EXPLAIN="$work/gpt2.html" "$carbide" bench gpt2 --only compiled --json --seconds 0.01 >"$work/gpt2" || say "gpt2: exit status $?"
[ "$(wc -c <"$work/gpt2.html")" -lt 5000000 ] || say "the page of GPT-2 has $(wc -c <"$work/gpt2.html") bytes"
for page in softmax bench gpt2; do
    grep -q "</html>" "$work/$page.html" || say "$page.html is not whole"
done
command -v python3 >/dev/null 2>&1 && { python3 - "$work/gpt2" <<'END' || failed=1; }
import json, sys
row = json.load(open(sys.argv[1]))
assert row["eager_ms"] is None and row["max_error"] is None, row
assert abs(row["gflops"] * row["compiled_ms"] * 1e-3 / 31.6 - 1) < 0.03, row
assert row["kernels_compiled"] < row["kernels_eager"], row
assert row["bytes_compiled"] < 1.2 * row["bytes_eager"], row
assert row["compiled_ms"] > 0 and row["first_call_ms"] > 0 and row["peak_memory_mb"] > 50, row
END

browser=
for name in chromium chromium-browser google-chrome; do
    command -v $name >/dev/null 2>&1 && browser=$name && break
done
[ "$browser" ] || { echo "no Chromium is installed: pages are not opened"; exit $failed; }
for page in softmax bench gpt2; do
    HOME=$work timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --enable-logging=stderr \
        --user-data-dir="$work/profile" --dump-dom "file://$work/$page.html" >"$work/dom" 2>"$work/log"
    [ -s "$work/dom" ] || { echo "$browser does not start here: pages are not opened"; exit $failed; }
    grep -q 'data-ready="1"' "$work/dom" || say "$page.html: the script did not end"
    grep "CONSOLE" "$work/log" && say "$page.html: the console says so"
    grep -q 'class="stage live"' "$work/dom" || say "$page.html: no drawing is live"
    grep -q 'transform: translate' "$work/dom" || say "$page.html: the drawing was not placed"
done
exit $failed
