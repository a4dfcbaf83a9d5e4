#!/usr/bin/env python3
"""Products of many shapes: eager, compiled, tuned (mode=max-autotune) and PyTorch eager, in turn, microseconds.

    python bench/compare_products.py build/bench_products [--threads 1 2] [--rounds 3] [--ms 30] [--json FILE] [PART ...]
    python bench/compare_products.py OLD/bench_products --beside build/bench_products        two builds beside each other

A shape is a text, "f32 16x1001x16" (m, k, n; with a batch in front "f32 65*16x32x16"), behind it the layout where an operand
is the transposition of what lies in memory (tn, nt). Those that contain a PART are measured; default: all. Every figure is the
least of all rounds. Ends with how many lie above 1.15 of what measuring chose, and of PyTorch (freed memory kept)."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
BEHIND = 1.15
SHAPES = """
f32 16x1001x16      f32 17x1001x17      f32 32x1024x32      f32 5x1001x5        f32 3x100003x17     f32 24x517x24
f32 33x2003x33      f32 48x1001x20      f32 64x4099x64      f32 7x333x65        f32 100x5003x12     f32 12x301x12
f32 1x1001x1003     f32 1x333x777       f32 1x2001x3003     f32 1003x1001x1     f32 1x1001x1003 nt  f32 1x17x100003
f32 2x1001x1003     f32 3x1001x1003     f32 4x1001x1003     f32 8x1001x1003     f32 2x1001x1003 nt  f32 5x333x77
f32 17x20011x33 tn  f32 33x5003x65 tn   f32 16x20011x32 tn  f32 65x20011x129 tn f32 100x3001x100 tn f32 513x2001x17 tn
f32 1001x17x1003    f32 1001x17x1003 nt f32 100003x3x17     f32 20011x33x5      f32 3001x40x40      f32 2001x65x33
f32 129x131x127     f32 65x65x65        f32 33x65x17        f32 301x303x299     f32 501x503x499     f32 1001x333x17
f32 65*16x32x16     f32 65*17x33x19     f32 65*17x33x19 nt  f32 301*7x11x5      f32 33*33x65x33     f32 12*128x64x128
f32 12*128x64x128 nt  f32 20*1x100x50   f32 257*1x64x65 nt  f32 9*31x257x31
f64 17x1001x17      f64 65*17x33x19     f64 2x1001x1003     f64 17x20011x33 tn  f64 301x303x299
bf16 1001x17x1003   bf16 65*17x33x19    bf16 2x1001x1003    bf16 17x1001x17     bf16 501x503x499    bf16 33x769x1537 nt
bf16 17x20011x33 tn bf16 20011x33x5     bf16 1x1001x1003    bf16 12*128x64x128 nt bf16 129x131x127  bf16 65x65x65
f16 129x131x127     f16 17x1001x17
"""


def shapes(parts):
    words = re.findall(r"(?:bf16|f16|f32|f64) \S+(?: [nt]{2})?", SHAPES)
    return [w for w in words if not parts or any(p in w for p in parts)]


def numbers(shape):
    """dtype, batch, m, k, n, layout"""
    dtype, sizes, layout = (shape.split() + ["nn"])[:3]
    batch, sizes = sizes.split("*") if "*" in sizes else ("1", sizes)
    return [dtype, int(batch), *(int(s) for s in sizes.split("x")), layout]


def serve(threads):
    import torch

    torch.set_num_threads(threads)
    dtypes = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}

    def operand(dtype, batch, rows, columns, turned):
        x = torch.randn((batch, columns, rows) if turned else (batch, rows, columns)).to(dtypes[dtype])
        x = x.transpose(1, 2) if turned else x
        return x[0] if batch == 1 else x

    with torch.no_grad():
        for line in sys.stdin:
            dtype, batch, m, k, n, layout, budget = line.split()
            batch, m, k, n = (int(s) for s in (batch, m, k, n))
            a, b = operand(dtype, batch, m, k, layout[0] == "t"), operand(dtype, batch, k, n, layout[1] == "t")
            least, end, runs = 1e30, time.perf_counter() + float(budget) / 1e3, 0
            while runs < 8 or time.perf_counter() < end:
                start = time.perf_counter()
                a @ b
                least, runs = min(least, time.perf_counter() - start), runs + 1
            print(json.dumps({"torch_us": round(least * 1e6, 2)}), flush=True)


class Server:
    def __init__(self, line, environment):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **environment})

    def ask(self, shape, budget):
        print(*numbers(shape), budget, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, threads, cache):
    own = {"CARBIDE_CACHE_DIR": cache}
    line = [sys.executable, __file__, "--serve", options.program, "--threads", str(threads)]
    servers = {"torch": Server(line, KEEP), "": Server([options.program, str(threads)], own)}
    if options.beside:
        servers["new "] = Server([options.beside, str(threads)], own)
    rows = {}
    for shape in shapes(options.part):
        row = rows[shape] = {"shape": shape, "threads": threads}
        for _ in range(options.rounds):
            for side, server in servers.items():
                budget = options.ms / 3 if side == "torch" else options.ms
                for key, value in server.ask(shape, budget).items():
                    key = key if side == "torch" else side + key
                    row[key] = min(row.get(key, value), value) if key.endswith("us") else value
        show(row)
    for server in servers.values():
        server.close()
    return list(rows.values())


def sides(row):
    return [""] + (["new "] if "new default_us" in row else [])


def best(row):
    return min(row[side + "tuned_us"] for side in sides(row))


def show(row):
    text = f"{row['threads']} {row['shape']:24} torch {row['torch_us']:9.2f}  tuned {best(row):9.2f} {row['tuned']:7}"
    for side in sides(row):
        default, eager = row[side + "default_us"], row[side + "eager_us"]
        text += f" | {side}{row[side + 'by']:7} {default:9.2f} eager {eager:9.2f}, of tuned {default / best(row):5.2f}"
        text += f", of torch {default / row['torch_us']:5.2f} {eager / row['torch_us']:5.2f}"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("part", nargs="*")
    parser.add_argument("--beside")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=float, default=30)
    parser.add_argument("--json")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.serve:
        return serve(options.threads[0])
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for threads in options.threads:
            rows += measure(options, threads, cache)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=0)
    for side in sides(rows[0]):
        for key, than, limit in (("default_us", "measuring", best), ("default_us", "PyTorch", lambda r: r["torch_us"]),
                                 ("eager_us", "PyTorch", lambda r: r["torch_us"])):
            behind = sum(row[side + key] > BEHIND * limit(row) for row in rows)
            print(f"{side}{key[:-3]}: {behind} of {len(rows)} above {BEHIND} of {than}")


if __name__ == "__main__":
    main()
