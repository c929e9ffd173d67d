"""What local attention costs: forward and backward of one block, beside other ways.

Three ways take turns on the same tokens, as whole blocks (norm, attention, norm, MLP): ours;
timm's Swin block of the same width, heads and grid, with windows of 4; and the way in which the
code of "How do vision transformers work?" computes it, written anew: 1x1 convolutions on maps,
and keys and values copied to every neighbor by unfold. The table has medians of the processor's
time on one thread, and the memory that the backward pass waits for.
Denormal numbers count as 0: timm's mask of -100 gives weights of exp(-100), which some
processors multiply many times more slowly, so that the ratio would depend on the processor.

    python benchmarks/attention.py            # prints the table
    python benchmarks/attention.py --write    # and writes benchmarks/results/attention.json

Claim: a block with our local attention takes at most half the time of the other way's.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from einops import rearrange
from harness import made_with, options
from timm.layers import Mlp
from timm.models.swin_transformer import SwinTransformerBlock
from torch import Tensor, nn

from visprism.models.zoo.conv_vit import LocalAttention

RESULTS = Path(__file__).parent / "results" / "attention.json"


class LocalBlock(nn.Module):
    """The block of conv-ViT, with our attention."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = LocalAttention(width, heads, kernel=kernel)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the input and of both branches."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MapBlock(nn.Module):
    """A block on maps, as the other code has it: norms by permutation, 1x1 convolutions."""

    def __init__(self, width: int, attention: Callable[[Tensor], Tensor], heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_q = nn.Conv2d(width, width, 1, bias=False)
        self.to_kv = nn.Conv2d(width, 2 * width, 1, bias=False)
        self.to_out = nn.Conv2d(width, width, 1)
        self.attention, self.heads = attention, heads
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the input and of both branches."""
        normed = self.norm1(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        qkv = torch.cat([self.to_q(normed), self.to_kv(normed)], 1)
        x = x + self.to_out(self.attention(qkv))
        normed = self.norm2(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.mlp(normed)


def by_unfold(kernel: int, heads: int) -> Callable[[Tensor], Tensor]:
    """Local attention with a copy of every neighbor for every token."""

    def attention(qkv: Tensor) -> Tensor:
        q, k, v = qkv.chunk(3, 1)
        height = q.shape[2]
        q = rearrange(q, "b (g d) h w -> b g (h w) 1 d", g=heads)
        q = q.expand(-1, -1, -1, kernel**2, -1)
        k, v = (
            rearrange(
                nn.functional.unfold(windows, kernel, padding=kernel // 2),
                "b (g d near) n -> b g n near d",
                g=heads,
                near=kernel**2,
            )
            for windows in (k, v)
        )
        scores = torch.einsum("b g n k d, b g n k d -> b g n k", q, k) * q.shape[-1] ** -0.5
        out = torch.einsum("b g n k, b g n k d -> b g n d", scores.softmax(-1), v)
        return rearrange(out, "b g (h w) d -> b (g d) h w", h=height)

    return attention


def main() -> None:
    arguments = options(__doc__, RESULTS, repeats=15).parse_args()
    torch.set_num_threads(1)
    denormals_are_zero = torch.set_flush_denormal(True)
    torch.manual_seed(0)
    rows = []
    for kernel in (3, 5, 7):
        theirs = SwinTransformerBlock(192, (16, 16), 3, window_size=4, shift_size=2)
        ours = LocalBlock(192, 3, kernel)
        other = MapBlock(192, by_unfold(kernel, 3), 3)
        name = f"local {kernel}x{kernel}, grid 16, width 192"
        rows += measured(name, 8, 16, 192, (ours, theirs, other), arguments.repeats)
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        zero = {"denormals_are_zero": denormals_are_zero}
        content = {"setting": setting(arguments) | zero, "rows": rows}
        RESULTS.write_text(json.dumps(content, indent=2))
        print(f"wrote {RESULTS}")


def measured(
    name: str, batch: int, grid: int, width: int, blocks: tuple[nn.Module, ...], repeats: int
) -> list[dict]:
    """Median processor time of each way, which take turns, and what backward waits for."""
    tokens = torch.randn(batch, grid, grid, width)
    inputs = [tokens, tokens, tokens.permute(0, 3, 1, 2).contiguous()]
    seconds: list[list[float]] = [[] for _ in blocks]
    for repeat in range(repeats + 1):  # the first warms up
        for block, x, times in zip(blocks, inputs, seconds, strict=True):
            start = time.process_time()
            block(x.requires_grad_()).sum().backward()
            if repeat:
                times.append(time.process_time() - start)
            block.zero_grad()
            x.grad = None
    ways = ("visprism", "timm's Swin block", "the other code's way")
    return [
        {"block": name, "batch": batch, "way": way, "seconds": median(times)}
        | {"saved_mib": saved(block, x)}
        for way, block, x, times in zip(ways, blocks, inputs, seconds, strict=True)
    ]


def saved(block: nn.Module, x: Tensor) -> float:
    """MiB of distinct memory that the graph keeps for the backward pass."""
    bytes_at: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        bytes_at[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        graph = block(x)
    parameters = {p.untyped_storage().data_ptr() for p in block.parameters()}
    del graph
    return sum(size for place, size in bytes_at.items() if place not in parameters) / 2**20


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with("timm", repeats=arguments.repeats, clock="time.process_time")


def print_table(rows: list[dict]) -> None:
    print(f"{'block':<34}{'way':<22}{'ms':>8}{'ratio':>7}{'saved MiB':>11}")
    for row in rows:
        ours = next(r for r in rows if r["block"] == row["block"])
        ratio = row["seconds"] / ours["seconds"]
        text = f"{row['seconds'] * 1e3:8.1f}{ratio:7.2f}{row['saved_mib']:11.1f}"
        print(f"{row['block']:<34}{row['way']:<22}{text}")


if __name__ == "__main__":
    main()
