#!/bin/sh
# The page of `carbide explain --html` in a browser: its script runs to its end, drawings have a size, and
# the page of GPT-2 is small.
#   page.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
say() { echo "$*"; failed=1; }

"$carbide" explain softmax --batch 64 --html "$work/softmax.html" || say "explain softmax --html: exit status $?"
CARBIDE_EXPLAIN="$work/bench.html" "$carbide" bench gelu mlp --batch 64 --seconds 0.01 >/dev/null || say "CARBIDE_EXPLAIN=FILE: exit status $?"
CARBIDE_EXPLAIN="$work/gpt2.html" "$carbide" bench gpt2 --only compiled --seconds 0.01 >/dev/null || say "gpt2: exit status $?"
[ "$(wc -c <"$work/gpt2.html")" -lt 5000000 ] || say "the page of GPT-2 has $(wc -c <"$work/gpt2.html") bytes"
for page in softmax bench gpt2; do
    grep -q "</html>" "$work/$page.html" || say "$page.html is not whole"
done

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
