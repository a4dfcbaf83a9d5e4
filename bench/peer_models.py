"""AlexNet, ResNet-50 and GPT-2 124M in plain torch, as torchvision and nanoGPT write them: the peers of compare_networks.py.

torchvision itself is not needed, so that the comparison runs on machines that have torch alone.
"""
import torch
from torch import nn
from torch.nn import functional as F

TOKENS, VOCABULARY = 128, 50304


def alexnet():
    def conv(channels, filters, kernel, stride=1, padding=0):
        return nn.Conv2d(channels, filters, kernel, stride, padding), nn.ReLU(inplace=True)

    features = (*conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv(64, 192, 5, padding=2), nn.MaxPool2d(3, 2),
                *conv(192, 384, 3, padding=1), *conv(384, 256, 3, padding=1), *conv(256, 256, 3, padding=1),
                nn.MaxPool2d(3, 2))
    classifier = (nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
                  nn.ReLU(inplace=True), nn.Linear(4096, 1000))
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *classifier)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in split)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Fused qkv, sdpa, gelu in its tanh form, the head tied to the tokens."""

    def __init__(self, length=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.lnf(x))


def subject(case, dtype, batch):
    """The model in eval mode and one input."""
    torch.manual_seed(0)
    if case == "gpt2":
        return GPT().eval().to(dtype), torch.randint(0, VOCABULARY, (batch, TOKENS))
    model = {"alexnet": alexnet, "resnet50": resnet50}[case]()
    return model.eval().to(dtype), torch.randn(batch, 3, 224, 224, dtype=dtype)
