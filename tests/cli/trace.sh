#!/bin/sh
# CARBIDE_TRACE writes the trace event format: every stage of compiling, and every step that ran.
#   trace.sh CARBIDE
carbide=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
CARBIDE_TRACE="$work/trace.json" "$carbide" explain mlp --batch 4 >/dev/null || { echo "explain: exit status $?"; exit 1; }
CARBIDE_TRACE=/nonexistent/trace "$carbide" explain gelu --batch 4 2>&1 | grep -q "/nonexistent/trace cannot be written" ||
    { echo "a trace that cannot be written is not told of"; exit 1; }
CARBIDE_TRACE=/dev/full "$carbide" explain gelu --batch 4 2>&1 | grep -q "/dev/full is not whole: No space" ||
    { echo "a trace that does not fit is not told of"; exit 1; }
mkfifo "$work/fifo"
CARBIDE_TRACE="$work/fifo" timeout 20 "$carbide" explain gelu --batch 4 2>&1 | grep -q "fifo cannot be written: " ||
    { echo "a FIFO that nobody reads is waited for"; exit 1; }
# A reader that leaves as soon as somebody writes may still come too late, or leave too late: it is tried again.
said="" tries=0
while case $said in *"is not whole: "*) false ;; *) true ;; esac; do
    tries=$((tries + 1))
    [ $tries -le 100 ] || { echo "nothing says that the trace is not whole"; exit 1; }
    : <"$work/fifo" &
    said=$(CARBIDE_TRACE="$work/fifo" timeout 20 "$carbide" explain gelu --batch 4 2>&1) ||
        { echo "a reader that leaves ends the program"; exit 1; }
    kill $! 2>/dev/null # of a try that never met it
    wait $! 2>/dev/null
done
command -v python3 >/dev/null 2>&1 || { echo "python3 is missing: JSON not checked"; exit 0; }
python3 - "$work/trace.json" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))
assert events[-1]["ph"] == "M" and events[-1]["args"]["name"] == "carbide", events[-1]
spans = events[:-1]
assert all(e["ph"] == "X" and e["dur"] >= 0 and e["tid"] and e["pid"] for e in spans), spans
names = [e["name"] for e in spans]
for name in ("recording mlp", "passes and constants", "schedule", "code and weights"):
    assert names.count(name) == 1, (name, names)
assert names.count("matmul") == 3, names
at = {e["name"]: e for e in spans}
assert at["recording mlp"]["ts"] < at["schedule"]["ts"] < at["matmul"]["ts"], at
END
