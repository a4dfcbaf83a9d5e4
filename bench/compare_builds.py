#!/usr/bin/env python3
"""Two builds of Carbide beside each other: what a change made slower or faster.

    python bench/compare_builds.py OLD/carbide NEW/carbide [--threads 2] [--rounds 5] [--seconds 0.3] [case ...]

Each case of `carbide bench list` runs in both builds in turn, round after round, eager and compiled apart; a figure is the
median over rounds of the median over calls; "least" is the ratio of the fastest rounds, which a busy neighbour disturbs
less. Ends with the rows whose ratios, both, lie outside of 1 +- 3 % on the same side, the median's outside of the spread of
the old build's own rounds as well, or the least one's outside of 10 %."""
import argparse
import json
import os
import statistics
import subprocess
import sys


def bench(command, *arguments):
    line = [command, "bench", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def cases(command):
    return [line.split()[0] for line in bench(command, "list").splitlines() if line.strip()]


def sample(command, case, side, options):
    out = bench(command, case, "--json", "--threads", str(options.threads), "--only", side, "--seconds", str(options.seconds))
    return [json.loads(row) for row in out.splitlines() if row.startswith("{")][-1][side + "_ms"]


def measure(case, side, options):
    """(old, new): samples of each round; None where a build lacks the case."""
    old, new = [], []
    for turn in range(options.rounds):
        pair = [(options.old, old), (options.new, new)]
        for command, into in pair if turn % 2 == 0 else pair[::-1]:
            try:
                into.append(sample(command, case, side, options))
            except (subprocess.CalledProcessError, KeyError, IndexError):
                return None
    return old, new


def has_moved(median, least, spread):
    if min(abs(median), abs(least)) < 0.03 or (median > 0) != (least > 0):
        return False
    return abs(median) > spread or abs(least) > 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("case", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_intermixed_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    print(f"{'case':24} {'side':9} {'old ms':>10} {'new ms':>10} {'new/old':>8} {'least':>6}  spread of old")
    moved = []
    for case in options.case or cases(options.new):
        for side in ("eager", "compiled"):
            samples = measure(case, side, options)
            if not samples:
                continue
            old, new = (statistics.median(s) for s in samples)
            spread = max(samples[0]) / min(samples[0]) - 1
            least = min(samples[1]) / min(samples[0])
            row = f"{case:24} {side:9} {old:10.4f} {new:10.4f} {new / old:8.3f} {least:6.3f}  {spread:6.1%}"
            print(row, flush=True)
            if has_moved(new / old - 1, least - 1, spread):
                moved.append(row)
    print("\nmoved by more than the spread:" if moved else "\nnothing moved by more than the spread", *moved, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
