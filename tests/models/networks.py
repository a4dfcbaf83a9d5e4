"""AlexNet, ResNet and GPT-2 in plain torch, as torchvision writes the first two (it is not needed).

The keys of their state dicts are those that Carbide's networks load. Small ones make the files of tests/models/data
(reference.py), full ones are compared by tests/reference/full_networks.py and timed by bench/compare_networks.py.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class AlexNet(nn.Module):
    def __init__(self, c=(64, 192, 384, 256, 256), hidden=4096, classes=1000):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, c[0], 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(c[0], c[1], 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(c[1], c[2], 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(c[2], c[3], 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(c[3], c[4], 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(c[4] * 36, hidden), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))

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
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y, inplace=True)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


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
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
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


def begun(net):
    """A GPT with GPT-2's own initial values, as cb_model_gpt2 begins. Benchmarks take it: from torch's tables of deviation 1,
    logits have one of sqrt(width), and as that learns its gradients fill with subnormal numbers, which are many times slower."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            last = name.endswith(("proj.weight", "fc2.weight"))
            if parameter.dim() > 1: parameter.normal_(0, 0.02 / (2 * len(net.h)) ** 0.5 if last else 0.02)
            elif name.endswith("bias"): parameter.zero_()
    return net
