#!/usr/bin/env python3
"""How long the first call of a network takes in a new process: with an empty cache of kernels, with one that
artifacts of another cache were loaded into, and with that other cache itself.

    warm_start.py build/carbide ROUNDS [CASE...]      CASE: mlp, gpt2, resnet50

Each process makes the model and calls it once more often than that; a figure is that of its first call, in
ms, the median and the least of the rounds, which take the three kinds of cache in turn. `tracing` is what
recording the graph took of it, `file` the size of the artifacts."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile


def run(command, cache):
    environment = dict(os.environ, CARBIDE_CACHE_DIR=cache)
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def first_call(carbide, case, cache):
    said = run([carbide, 'bench', case, '--only', 'compiled', '--seconds', '0.001', '--json'], cache)
    return json.loads(said)['first_call_ms']


def tracing(carbide, case, cache):
    said = run([carbide, 'explain', case, '--full'], cache)
    return float(re.search(r'traced in ([0-9.]+) ms', said).group(1))


def folder(work, name):
    path = os.path.join(work, name)
    os.mkdir(path, 0o700)
    return path


def measure(carbide, case, rounds, work):
    times = {'cold': [], 'artifacts': [], 'warm': []}
    traced = []
    for k in range(rounds):
        cold, loaded = folder(work, f'{case}-{k}-cold'), folder(work, f'{case}-{k}-loaded')
        artifacts = os.path.join(work, f'{case}-{k}.artifacts')
        times['cold'].append(first_call(carbide, case, cold))
        run([carbide, 'cache', 'export', artifacts], cold)
        run([carbide, 'cache', 'import', artifacts], loaded)
        times['artifacts'].append(first_call(carbide, case, loaded))
        times['warm'].append(first_call(carbide, case, cold))
        traced.append(tracing(carbide, case, cold))
    figures = [f'{statistics.median(t):.1f} ({min(t):.1f})' for t in (*times.values(), traced)]
    size = os.path.getsize(artifacts) / 1e3
    print(f'| {case} | ' + ' | '.join(figures) + f' | {size:.0f} |', flush=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    carbide, rounds = sys.argv[1], int(sys.argv[2])
    print('| case | cold ms | artifacts ms | warm ms | of it tracing ms | file kB |\n|---|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as work:
        for case in sys.argv[3:] or ['mlp', 'gpt2', 'resnet50']:
            measure(carbide, case, rounds, work)


if __name__ == '__main__':
    main()
