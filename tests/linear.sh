#!/bin/sh
# Recording, passes, fusion and planning take instructions in proportion to the graph: from 1,000 nodes to
# 3,000 at most 3.3 times as many (callgrind counts them; the C compiler's share is bench_compile's). One
# thread: a second one would have its waiting counted, which is as long as the scheduler makes it.
#   linear.sh VALGRIND BENCH_COMPILE
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

count() { # count KIND LARGEST: of all sizes up to LARGEST
    "$valgrind" --tool=callgrind --callgrind-out-file="$work/out" "$bench" "$2" vm "$1" 2>&1 |
        sed -n 's/.*Collected *: *//p'
}
valgrind=$1
bench=$2
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

for kind in pointwise layers views; do
    small=$(count $kind 100) middle=$(count $kind 1000) large=$(count $kind 3000)
    [ -n "$small" ] && [ -n "$middle" ] && [ -n "$large" ] || { echo "$kind: no counts"; exit 1; }
    times=$(((large - middle) * 10 / (middle - small)))
    echo "$kind: $(((middle - small) / 1000)) instructions a node at 1,000 nodes, $(((large - middle) / 3000)) at 3,000"
    [ "$times" -le 33 ] || { echo "$kind: 3 times the nodes take $times / 10 times as many"; failed=1; }
done
exit $failed
