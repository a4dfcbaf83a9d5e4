#!/usr/bin/env python3
"""AlexNet, ResNet-18, ResNet-50 and GPT-2 124M at full size: Carbide's results beside PyTorch's, from the same weights.

    python tests/reference/full_networks.py build/infer [NET ...]

PyTorch makes weights and inputs, examples/infer.c runs them eager and compiled. The rule is that of PyTorch's own model
suites: near PyTorch's eager result, or no further from the same computation in f64 than twice (bf16: three times) as far as
that is. Needs torch; the exit status says whether all agree.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import reference  # noqa: E402
from networks import GPT, AlexNet, ResNet  # noqa: E402

PICTURES, TOKENS = (4, 3, 224, 224), (1, 128)
NETS = {
    "alexnet": (AlexNet, lambda: torch.randn(PICTURES)),
    "resnet18": (lambda: ResNet((2, 2, 2, 2), False), lambda: torch.randn(PICTURES)),
    "resnet50": (lambda: ResNet((3, 4, 6, 3), True), lambda: torch.randn(PICTURES)),
    "gpt2": (lambda: GPT(50304, 1024, 768, 12, 12), lambda: torch.randint(0, 50304, TOKENS)),
}
RULES = {  # dtype, tolerance, multiple
    "f32": (torch.float32, 1e-4, 2),
    "bf16": (torch.bfloat16, 1.6e-2, 3),
    "autocast": (torch.float32, 1.6e-2, 3),  # inside torch.autocast
}


def load(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), bytearray(file.read())
    tensors = {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        low, high = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[low:high], dtype=torch.float32).reshape(entry["shape"])
    return tensors


def rmse(a, b):
    return (a - b).square().mean().sqrt().item()


def judge(exact, torch_result, result, tolerance, multiple):
    near = torch.allclose(torch_result, result, rtol=tolerance, atol=tolerance)
    return near or rmse(exact, result) <= multiple * rmse(exact, torch_result) + tolerance / 10


def compare(infer, name, dtype_name, folder):
    dtype, tolerance, multiple = RULES[dtype_name]
    build, make_input = NETS[name]
    torch.manual_seed(2)
    model, x = build().eval(), make_input()
    reference.random_norms(model)
    reference.FOLDER = folder
    reference.save("weights", {k: v for k, v in model.state_dict().items() if k != "head.weight"})
    reference.save("input", {"x": x})
    paths = [os.path.join(folder, f) for f in ("weights.safetensors", "input.safetensors", "output.safetensors")]
    subprocess.run([infer, name, *paths, dtype_name], check=True, stdout=subprocess.DEVNULL)
    ours = {k: v.double() for k, v in load(paths[2]).items()}
    cast = x.to(dtype) if x.is_floating_point() else x
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype_name == "autocast"):
            theirs = model.to(dtype)(cast).double()
        exact = model.double()(cast.double() if x.is_floating_point() else x)
    good = all(judge(exact, theirs, ours[side], tolerance, multiple) for side in ("eager", "compiled"))
    print(f"{name:9} {dtype_name:8} error to f64: torch {rmse(exact, theirs):.2e}, carbide eager "
          f"{rmse(exact, ours['eager']):.2e}, compiled {rmse(exact, ours['compiled']):.2e}; largest value "
          f"{exact.abs().max().item():.3g}: {'agree' if good else 'DIFFER'}", flush=True)
    return good


def main():
    infer, names = sys.argv[1], sys.argv[2:] or list(NETS)
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(infer, name, dtype, folder) for name in names for dtype in RULES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
