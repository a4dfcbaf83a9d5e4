"""The peers of compare_networks.py: the networks of tests/models/networks.py at full size, each with one input."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "models"))
from networks import GPT, AlexNet, ResNet, begun  # noqa: E402

TOKENS, VOCABULARY = 128, 50304


def subject(case, dtype, batch):
    """The model in eval mode and one input."""
    torch.manual_seed(0)
    if case == "gpt2":
        model = begun(GPT(VOCABULARY, length=1024, width=768, layers=12, heads=12))
        return model.eval().to(dtype), torch.randint(0, VOCABULARY, (batch, TOKENS))
    model = AlexNet() if case == "alexnet" else ResNet((3, 4, 6, 3), bottleneck=True)
    return model.eval().to(dtype), torch.randn(batch, 3, 224, 224, dtype=dtype)
