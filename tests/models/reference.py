#!/usr/bin/env python3
"""Writes the small weights, inputs and outputs that test_models.c compares with, made by PyTorch.

    /opt/peer/bin/python tests/models/reference.py [layers|training]     writes tests/models/data/*.safetensors

NAME.safetensors is a state dict, NAME_io.safetensors holds inputs x and outputs y. Where torchvision
is installed, the modules of networks.py are checked against its keys first.
"""
import json
import os
import struct
import sys

import torch
import torch.nn as nn

from networks import GPT, AlexNet, ResNet

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
    upsample_cubic=(nn.Upsample(scale_factor=(2, 1.5), mode="bicubic"), (1, 2, 3, 4)),
    upsample_area=(nn.Upsample(scale_factor=(1.5, 0.5, 1), mode="area"), (1, 2, 3, 4, 2)),
    upsample_again=(nn.Upsample(None, (1.3, 2.6), "bilinear", None, True), (1, 2, 3, 4)),
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


def read(name):
    """What save() wrote."""
    data = open(os.path.join(FOLDER, name + ".safetensors"), "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    dtypes = {text: dtype for dtype, text in NAMES.items()}
    return {k: torch.frombuffer(bytearray(data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]),
                                dtype=dtypes[v["dtype"]]).reshape(v["shape"])
            for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}


def train(name, model, x, target, optimizer, kept):
    """Twenty steps from the weights of NAME.safetensors: the losses, the norms of all gradients before clipping to 1, and
    what the kept parameters are then."""
    model.load_state_dict(read(name), strict=False)
    model.train()
    optimizer, losses, norms = optimizer(model.parameters()), [], []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), target)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    out = {f"{name}.loss": torch.tensor(losses), f"{name}.norm": torch.tensor(norms)}
    return {**out, **{f"{name}.{k}": model.state_dict()[k] for k in kept}}


def write_training():
    x = read("gpt2_io")["x"]
    gpt = train("gpt2", GPT(64, 32, 32, 2, 4), x[:, :-1], x[:, 1:].flatten(), lambda p: torch.optim.AdamW(p, lr=1e-3),
                ("wte.weight", "h.0.ln1.weight", "h.1.fc.weight"))
    resnet = train("resnet18", ResNet((2, 2, 2, 2), False, 2, 10), read("resnet18_io")["x"], torch.tensor([3, 7]),
                   lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
                   ("conv1.weight", "bn1.running_var", "fc.weight"))
    save("training", {**gpt, **resnet})


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
    if sys.argv[1:] == ["training"]:
        sys.exit(write_training())
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
    write_training()
