#!/bin/sh
# train_steps.sh BENCH_TRAIN: the bench of training steps takes samples of steps that were one graph, and of eager ones.
set -eu
for side in compiled eager; do
    answer=$(printf '0.001\n\n' | "$1" digits $side 2)
    graphs=$(test $side = compiled && echo 1 || echo 0)
    kernels=$(test $side = compiled && echo 18 || echo 0) # 24 without lists of kernels
    echo "$answer" | grep -q '^{"median_ms": [0-9.]*, "least_ms": [0-9.]*, "cpu_ms": [0-9.]*}$'
    echo "$answer" | grep -q "\"kernels\": $kernels, \"graphs\": $graphs, \"peak_mb\": "
done
! printf '' | "$1" nothing 2>/dev/null
