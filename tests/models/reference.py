#!/usr/bin/env python3
"""Writes the small weights, inputs and outputs that test_models.c compares with, made by PyTorch.

    /opt/peer/bin/python tests/models/reference.py        writes tests/models/data/*.safetensors

NAME.safetensors is a state dict, NAME_io.safetensors holds inputs x and outputs y. Where torchvision
is installed, the modules below are checked against its keys first.
"""
import json
import os
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
NAMES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}


def save(name, tensors):
    """The safetensors format, in a few lines: the package need not be installed."""
    header, data = {}, b""
    for key, value in tensors.items():
        value = value.detach().contiguous()
        bytes_ = value.numpy().tobytes()
        header[key] = dict(dtype=NAMES[value.dtype], shape=list(value.shape),
                           data_offsets=[len(data), len(data) + len(bytes_)])
        data += bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(os.path.join(FOLDER, name + ".safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class AlexNet(nn.Module):
    def __init__(self, c=(64, 192, 384, 256, 256), hidden=4096, classes=1000):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, c[0], 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(c[0], c[1], 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(c[1], c[2], 3, padding=1), nn.ReLU(),
            nn.Conv2d(c[2], c[3], 3, padding=1), nn.ReLU(),
            nn.Conv2d(c[3], c[4], 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(c[4] * 36, hidden), nn.ReLU(),
            nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class ResNetBlock(nn.Module):
    def __init__(self, bottleneck, channels, width, stride):
        super().__init__()
        out = width * 4 if bottleneck else width
        self.bottleneck = bottleneck
        if bottleneck:
            self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride if bottleneck else 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        if bottleneck:
            self.conv3 = nn.Conv2d(width, out, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, width=64, classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                stride = 2 if i == 0 and stage > 0 else 1
                layers.append(ResNetBlock(bottleneck, channels, width << stage, stride))
                channels = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        parts = self.qkv(self.ln1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.lnf(x))


def random_norms(model):
    """Statistics as after training, so that evaluation uses them visibly."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        if getattr(module, "bias", None) is not None and not isinstance(module, (nn.Linear, nn.Conv2d)):
            if isinstance(module.bias, torch.Tensor):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.1)


def write_model(name, model, x):
    random_norms(model)
    model.eval()
    with torch.no_grad():
        y = model(x)
    state = {k: v for k, v in model.state_dict().items() if name != "gpt2" or k != "head.weight"}
    save(name, state)
    save(name + "_io", dict(x=x, y=y))


def write_layers():
    """One layer each: NAME.x in, NAME.y out; norms that train leave their statistics behind."""
    layers = dict(
        conv1d=(nn.Conv1d(4, 6, 3, 2, 1, groups=2), (2, 4, 9)),
        conv2d=(nn.Conv2d(3, 5, (3, 2), (2, 1), (1, 0), (1, 2), bias=False), (2, 3, 7, 8)),
        conv3d=(nn.Conv3d(2, 3, 2, 1, 1), (1, 2, 4, 5, 3)),
        conv_transpose2d=(nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), (2, 4, 5, 4)),
        batch_norm1d=(nn.BatchNorm1d(4), (5, 4)),
        batch_norm2d=(nn.BatchNorm2d(3), (2, 3, 4, 5)),
        group_norm=(nn.GroupNorm(2, 6), (2, 6, 3, 4)),
        instance_norm2d=(nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
        max_pool2d=(nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 8, 7)),
        avg_pool2d=(nn.AvgPool2d(3, 2, 1, True, False), (1, 2, 8, 7)),
        adaptive_avg_pool2d=(nn.AdaptiveAvgPool2d((3, 2)), (2, 2, 7, 5)),
        upsample=(nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
        elu=(nn.ELU(0.7), (40,)), relu6=(nn.ReLU6(), (40,)), mish=(nn.Mish(), (40,)),
        hardswish=(nn.Hardswish(), (40,)), softplus=(nn.Softplus(2.0, 3.0), (40,)),
        attention=(nn.MultiheadAttention(8, 2, batch_first=True), (2, 5, 8)))
    state, io = {}, {}
    for name, (layer, shape) in layers.items():
        random_norms(layer)
        if name == "attention":
            nn.init.normal_(layer.in_proj_bias)
        x = torch.randn(shape) * 3
        state.update({f"{name}.{k}": v.clone() for k, v in layer.state_dict().items()})
        io[name + ".x"] = x
        if name == "attention":
            source, mask = torch.randn(2, 7, 8), torch.rand(5, 7) < 0.3
            mask[:, 0] = False
            io.update({name + ".source": source, name + ".mask": mask})
            io[name + ".self"] = layer(x, x, x, need_weights=False)[0]
            io[name + ".y"] = layer(x, source, source, attn_mask=mask, need_weights=False)[0]
            continue
        io[name + ".y"] = layer(x)
        if "batch_norm" in name:
            io.update({f"{name}.{k}": getattr(layer, k).clone()
                       for k in ("running_mean", "running_var", "num_batches_tracked")})
    save("layers", state)
    save("layers_io", io)


def check_keys():
    try:
        import torchvision.models as models
    except ImportError:
        return
    for mine, theirs in ((AlexNet(), models.alexnet()),
                         (ResNet((2, 2, 2, 2), False), models.resnet18()),
                         (ResNet((3, 4, 6, 3), True), models.resnet50())):
        shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (mine, theirs)]
        assert shapes[0] == shapes[1], "the keys are not torchvision's"
        theirs.load_state_dict(mine.state_dict())
        x = torch.randn(1, 3, 96, 96)
        with torch.no_grad():
            assert torch.allclose(mine.eval()(x), theirs.eval()(x), atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.makedirs(FOLDER, exist_ok=True)
    check_keys()
    write_layers()
    write_model("alexnet", AlexNet((2, 6, 12, 8, 8), 128, 10), torch.randn(2, 3, 95, 67))
    write_model("resnet18", ResNet((2, 2, 2, 2), False, 2, 10), torch.randn(2, 3, 40, 33))
    write_model("resnet50", ResNet((3, 4, 6, 3), True, 2, 10), torch.randn(2, 3, 33, 40))
    write_model("gpt2", GPT(64, 32, 32, 2, 4), torch.randint(0, 64, (2, 17)))
