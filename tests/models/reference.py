#!/usr/bin/env python3
"""Writes the small weights, inputs and outputs that test_models.c compares with, made by PyTorch.

    /opt/peer/bin/python tests/models/reference.py [layers]     writes tests/models/data/*.safetensors

NAME.safetensors is a state dict, NAME_io.safetensors holds inputs x and outputs y. Where torchvision
is installed, the modules below are checked against its keys first.
"""
import json
import os
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
NAMES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}


def save(name, tensors, metadata=None):
    """The safetensors format, in a few lines: the package need not be installed."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
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
        if getattr(module, "running_mean", None) is not None:
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        if "Norm" in type(module).__name__:
            for parameter in module.parameters(False):
                nn.init.uniform_(parameter, 0.5, 1.5)


def write_model(name, model, x):
    random_norms(model)
    model.eval()
    with torch.no_grad():
        y = model(x)
    state = {k: v for k, v in model.state_dict().items() if name != "gpt2" or k != "head.weight"}
    save(name, state)
    save(name + "_io", dict(x=x, y=y))


LAYERS = dict(
    conv1d=(nn.Conv1d(4, 6, 3, 2, 1, groups=2), (2, 4, 9)),
    conv1d_same=(nn.Conv1d(2, 3, 4, padding="same", dilation=3), (2, 2, 9)),
    conv1d_circular=(nn.Conv1d(2, 3, 3, 2, 2, padding_mode="circular"), (2, 7)),
    conv2d=(nn.Conv2d(3, 5, (3, 2), (2, 1), (1, 0), (1, 2), bias=False), (2, 3, 7, 8)),
    conv2d_same=(nn.Conv2d(2, 3, (4, 3), 1, "same", (1, 2)), (2, 2, 5, 6)),
    conv2d_reflect=(nn.Conv2d(2, 3, 3, 1, (2, 1), padding_mode="reflect"), (2, 2, 5, 6)),
    conv2d_replicate=(nn.Conv2d(2, 4, 3, 2, (1, 2), 1, 2, padding_mode="replicate"), (2, 2, 5, 6)),
    conv2d_reflect_same=(nn.Conv2d(2, 3, (2, 4), 1, "same", padding_mode="reflect"), (1, 2, 5, 6)),
    conv3d=(nn.Conv3d(2, 3, 2, 1, 1), (1, 2, 4, 5, 3)),
    conv3d_circular=(nn.Conv3d(1, 2, 3, 1, (1, 2, 0), padding_mode="circular"), (1, 1, 4, 3, 4)),
    conv_transpose1d=(nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2), (2, 4, 5)),
    conv_transpose2d=(nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), (2, 4, 5, 4)),
    conv_transpose3d=(nn.ConvTranspose3d(2, 3, (2, 3, 1), 2, 0, dilation=2), (1, 2, 2, 3, 2)),
    batch_norm1d=(nn.BatchNorm1d(4), (5, 4)),
    batch_norm1d_bare=(nn.BatchNorm1d(4, 1e-3, affine=False, track_running_stats=False), (5, 4, 3)),
    batch_norm2d=(nn.BatchNorm2d(3), (2, 3, 4, 5)),
    batch_norm2d_average=(nn.BatchNorm2d(3, momentum=None), (2, 3, 4, 5)),
    batch_norm3d=(nn.BatchNorm3d(2, affine=False), (2, 2, 2, 3, 2)),
    instance_norm1d=(nn.InstanceNorm1d(3), (3, 6)),
    instance_norm2d=(nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    instance_norm2d_tracks=(nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 4, 5)),
    instance_norm3d=(nn.InstanceNorm3d(2, affine=True, track_running_stats=True), (2, 2, 3, 2, 2)),
    group_norm=(nn.GroupNorm(2, 6), (2, 6, 3, 4)),
    group_norm_bare=(nn.GroupNorm(3, 6, 0.1, affine=False), (2, 6, 3)),
    layer_norm=(nn.LayerNorm((3, 4)), (2, 3, 4)),
    layer_norm_unbiased=(nn.LayerNorm(4, bias=False), (2, 3, 4)),
    layer_norm_bare=(nn.LayerNorm(4, 0.01, elementwise_affine=False), (2, 3, 4)),
    rms_norm=(nn.RMSNorm(4, 1e-6), (2, 3, 4)),
    linear=(nn.Linear(5, 3), (2, 4, 5)),
    embedding=(nn.Embedding(7, 3, padding_idx=2), torch.tensor([[1, 2, 6], [0, 2, 2]])),
    max_pool1d=(nn.MaxPool1d(3, 2, 1), (2, 3, 9)),
    max_pool2d=(nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 8, 7)),
    max_pool3d=(nn.MaxPool3d((1, 2, 3), dilation=(1, 2, 1)), (1, 2, 3, 5, 6)),
    avg_pool1d=(nn.AvgPool1d(4, 3, 2, True), (2, 2, 11)),
    avg_pool2d=(nn.AvgPool2d(3, 2, 1, True, False), (1, 2, 8, 7)),
    avg_pool3d=(nn.AvgPool3d(2, 2, 1, divisor_override=3), (2, 2, 3, 4, 5)),
    adaptive_avg_pool1d=(nn.AdaptiveAvgPool1d(4), (2, 2, 7)),
    adaptive_avg_pool2d=(nn.AdaptiveAvgPool2d((3, 2)), (2, 2, 7, 5)),
    adaptive_avg_pool3d=(nn.AdaptiveAvgPool3d((2, 3, 1)), (2, 2, 3, 4, 5)),
    adaptive_max_pool1d=(nn.AdaptiveMaxPool1d(3), (2, 2, 7)),
    adaptive_max_pool2d=(nn.AdaptiveMaxPool2d((3, 2)), (2, 2, 7, 5)),
    adaptive_max_pool3d=(nn.AdaptiveMaxPool3d(2), (2, 3, 4, 5)),
    zero_pad1d=(nn.ZeroPad1d(2), (2, 2, 4)),
    zero_pad2d=(nn.ZeroPad2d((1, -1, 0, 2)), (2, 2, 3, 4)),
    zero_pad3d=(nn.ZeroPad3d(1), (2, 3, 2, 3)),
    constant_pad1d=(nn.ConstantPad1d((3, 1), 0.5), (2, 4)),
    constant_pad2d=(nn.ConstantPad2d(1, -1.5), (2, 3, 4)),
    constant_pad3d=(nn.ConstantPad3d(1, 2.0), (1, 2, 3, 2)),
    reflection_pad1d=(nn.ReflectionPad1d((3, 1)), (2, 2, 4)),
    reflection_pad2d=(nn.ReflectionPad2d((1, 2, 0, 2)), (2, 2, 3, 4)),
    reflection_pad3d=(nn.ReflectionPad3d(1), (2, 3, 2, 3)),
    replication_pad1d=(nn.ReplicationPad1d((3, 7)), (2, 2, 4)),
    replication_pad2d=(nn.ReplicationPad2d(2), (2, 2, 3, 4)),
    replication_pad3d=(nn.ReplicationPad3d((1, 0, 2, 1, 0, 3)), (2, 3, 2, 3)),
    circular_pad1d=(nn.CircularPad1d((4, 1)), (2, 2, 4)),
    circular_pad2d=(nn.CircularPad2d((1, 2, 3, 0)), (2, 2, 3, 4)),
    circular_pad3d=(nn.CircularPad3d(1), (2, 3, 2, 3)),
    upsample=(nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
    upsample_nearest=(nn.Upsample((5, 7)), (1, 2, 3, 4)),
    upsample_corners=(nn.Upsample(7, mode="linear", align_corners=True), (1, 2, 3)),
    upsample_exact=(nn.Upsample(scale_factor=1.5, mode="nearest-exact"), (1, 2, 3, 4)),
    unfold=(nn.Unfold((2, 3), 1, (1, 0), 2), (2, 2, 4, 5)),
    fold=(nn.Fold((4, 5), 2), (2, 8, 12)),
    pixel_shuffle=(nn.PixelShuffle(2), (2, 8, 2, 3)),
    pixel_unshuffle=(nn.PixelUnshuffle(2), (2, 2, 4, 6)),
    channel_shuffle=(nn.ChannelShuffle(2), (2, 6, 2, 2)),
    flatten=(nn.Flatten(), (2, 3, 4)),
    unflatten=(nn.Unflatten(1, (2, 3)), (2, 6, 2)),
    relu=(nn.ReLU(), (40,)), silu=(nn.SiLU(), (40,)), tanh=(nn.Tanh(), (40,)),
    sigmoid=(nn.Sigmoid(), (40,)), relu6=(nn.ReLU6(), (40,)), selu=(nn.SELU(), (40,)),
    hardswish=(nn.Hardswish(), (40,)), hardsigmoid=(nn.Hardsigmoid(), (40,)),
    mish=(nn.Mish(), (40,)), softsign=(nn.Softsign(), (40,)), logsigmoid=(nn.LogSigmoid(), (40,)),
    tanhshrink=(nn.Tanhshrink(), (40,)), elu=(nn.ELU(0.7), (40,)), celu=(nn.CELU(1.5), (40,)),
    leaky_relu=(nn.LeakyReLU(), (40,)), hardtanh=(nn.Hardtanh(-2.0, 0.5), (40,)),
    hardshrink=(nn.Hardshrink(), (40,)), softshrink=(nn.Softshrink(0.25), (40,)),
    softplus=(nn.Softplus(2.0, 3.0), (40,)), threshold=(nn.Threshold(0.5, 20.0), (40,)),
    glu=(nn.GLU(), (3, 8)), softmax=(nn.Softmax(-1), (3, 8)), softmin=(nn.Softmin(0), (3, 8)),
    log_softmax=(nn.LogSoftmax(1), (3, 8)), gelu=(nn.GELU(), (40,)),
    gelu_tanh=(nn.GELU("tanh"), (40,)), prelu=(nn.PReLU(), (40,)),
    prelu_channels=(nn.PReLU(3, 0.5), (2, 3, 4)))


def write_layers():
    """One layer each, as it trains: NAME.x in, NAME.y out; the metadata NAME is what repr prints.
    Norms that track leave their statistics behind."""
    state, io, texts = {}, {}, {}
    for name, (layer, shape) in LAYERS.items():
        random_norms(layer)
        x = shape if isinstance(shape, torch.Tensor) else torch.randn(shape) * 3
        state.update({f"{name}.{k}": v.clone() for k, v in layer.state_dict().items()})
        texts[name] = repr(layer)
        io[name + ".x"], io[name + ".y"] = x, layer(x)
        if getattr(layer, "running_mean", None) is not None:
            io.update({f"{name}.{k}": getattr(layer, k).clone()
                       for k in ("running_mean", "running_var", "num_batches_tracked")})
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    nn.init.normal_(layer.in_proj_bias)
    nn.init.normal_(layer.out_proj.bias)
    state.update({f"attention.{k}": v.clone() for k, v in layer.state_dict().items()})
    texts["attention"] = repr(layer)
    x, source, mask = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.rand(5, 7) < 0.3
    mask[:, 0] = False
    io.update({"attention.x": x, "attention.source": source, "attention.mask": mask,
               "attention.self": layer(x, x, x, need_weights=False)[0],
               "attention.y": layer(x, source, source, attn_mask=mask, need_weights=False)[0]})
    layer.batch_first = False
    io["attention.rows"] = layer(x, x, x, need_weights=False)[0]
    save("layers", state)
    save("layers_io", io, texts)


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
    if sys.argv[1:] == ["layers"]:
        sys.exit()
    write_model("alexnet", AlexNet((2, 6, 12, 8, 8), 128, 10), torch.randn(2, 3, 95, 67))
    write_model("resnet18", ResNet((2, 2, 2, 2), False, 2, 10), torch.randn(2, 3, 40, 33))
    write_model("resnet50", ResNet((3, 4, 6, 3), True, 2, 10), torch.randn(2, 3, 33, 40))
    write_model("gpt2", GPT(64, 32, 32, 2, 4), torch.randint(0, 64, (2, 17)))
