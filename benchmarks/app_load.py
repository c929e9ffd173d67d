"""How fast `visprism view` answers: one client, and a class of thirty for a minute.

A server runs in a process of its own, as a user starts it, and every client asks over HTTP.
Reactions of one client are medians of different requests, so that no answer is remembered. A
client of the class asks, reads for one to four seconds, and asks something else.

    python benchmarks/app_load.py                 # prints the tables
    python benchmarks/app_load.py --write         # and writes results/app_load.json

Claims: one client waits less than 300 ms for the small networks of the package and less than
1.5 s for ViT-Ti at 224x224; of the requests of thirty clients none is lost.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

RESULTS = Path(__file__).parent / "results" / "app_load.json"
SMALL = ("resnet20.shapes", "vit_pico_patch4_32.shapes")
LARGE = "timm:vit_tiny_patch16_224"
CLIENTS, SECONDS, REPEATS = 30, 60.0, 7
BLOCKS = {
    "resnet20.shapes": ("layer1.0", "layer1.1", "layer2.1", "layer3.1"),
    "vit_pico_patch4_32.shapes": ("blocks.0.attn", "blocks.1.mlp", "blocks.2.attn"),
    LARGE: ("blocks.0.attn", "blocks.4.mlp", "blocks.9.attn"),
}

Values = dict[str, Any]


def requests_of(model: str, size: int, rng: random.Random) -> dict[str, Values]:
    """A request for each panel, with random values."""
    blocks = BLOCKS[model]
    panels: dict[str, Values] = {
        "images": {"images": rng.sample(range(40), 1)},
        "ablation": {"blocks": rng.sample(blocks, rng.randint(1, 2))},
        "frequency_noise": {
            "frequency": rng.randint(2, 18) / 20,
            "rms": rng.randint(1, 50) / 100,
        },
        "corruption": {
            "corruption": rng.choice(["fog", "gaussian_noise", "contrast", "pixelate"]),
            "severity": rng.randint(1, 5),
        },
        "receptive_field": {"block": rng.choice(blocks), "x": rng.random(), "y": rng.random()},
        "landscape": {"direction": rng.randint(1, 8), "distance": rng.randint(-20, 20) / 20},
    }
    if model != SMALL[0]:
        panels["attention"] = {"row": rng.randrange(size), "column": rng.randrange(size)}
    subject = {"model": {"name": model}, "data": "shapes", "pretrained": model != LARGE}
    images = {"images": [rng.randrange(40)]}
    return {panel: {**subject, **images, **values} for panel, values in panels.items()}


async def reactions(client: httpx.AsyncClient) -> dict[str, dict[str, float]]:
    """Median seconds of each panel for each model, one request after another."""
    medians: dict[str, dict[str, float]] = {}
    for model in (*SMALL, LARGE):
        rng = random.Random(0)
        size = 224 if model == LARGE else 32
        seconds: dict[str, list[float]] = {}
        for _ in range(REPEATS + 1):
            for panel, values in requests_of(model, size, rng).items():
                begin = time.perf_counter()
                response = await client.post(f"api/live/{panel}", json=values)
                response.raise_for_status()
                seconds.setdefault(panel, []).append(time.perf_counter() - begin)
        # The first one loads the model.
        medians[model] = {p: statistics.median(values[1:]) for p, values in seconds.items()}
    return medians


async def student(
    client: httpx.AsyncClient, seed: int, until: float
) -> tuple[list[float], int]:
    """Seconds of each answer that one client got, and how many requests had none."""
    rng = random.Random(seed)
    seconds, lost = [], 0
    await asyncio.sleep(rng.uniform(0, 4))
    while time.monotonic() < until:
        panels = requests_of(rng.choice(SMALL), 32, rng)
        panel = rng.choice(list(panels))
        begin = time.perf_counter()
        response = await client.post(f"api/live/{panel}", json=panels[panel])
        seconds.append(time.perf_counter() - begin)
        lost += response.status_code != 200
        await asyncio.sleep(rng.uniform(1, 4))
    return seconds, lost


async def load(address: str) -> dict[str, Any]:
    """Thirty clients, and one that asks for a page and never reads it."""
    until = time.monotonic() + SECONDS
    _, stuck = await asyncio.open_connection("127.0.0.1", httpx.URL(address).port)
    path = httpx.URL(address).path
    stuck.write(f"POST {path}api/live/model HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode())
    clients = [httpx.AsyncClient(base_url=address, timeout=120) for _ in range(CLIENTS)]
    try:
        answers = await asyncio.gather(
            *(student(c, seed, until) for seed, c in enumerate(clients)), return_exceptions=True
        )
    finally:
        stuck.close()
        await asyncio.gather(*(c.aclose() for c in clients))
    complete = [a for a in answers if not isinstance(a, BaseException)]
    seconds = sorted(s for latencies, _ in complete for s in latencies)
    return {
        "clients": CLIENTS,
        "seconds": SECONDS,
        "answers": len(seconds),
        "lost": sum(lost for _, lost in complete) + len(answers) - len(complete),
        "median": statistics.median(seconds),
        "percentile_95": seconds[int(0.95 * len(seconds))],
        "maximum": seconds[-1],
    }


async def with_server(
    measure: Callable[[str], Awaitable[dict[str, Any]]],
) -> dict[str, Any]:
    """The value of `measure`, which is given the address of a server."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "visprism", "view", "--out", folder, "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            return await measure(process.stdout.readline().split()[1])
        finally:
            process.terminate()
            process.wait()


async def measured(address: str) -> dict[str, Any]:
    """Reactions of one client, then the class."""
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        alone = await reactions(client)
    return {"reactions": alone, "load": await load(address)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write results/app_load.json")
    arguments = parser.parse_args()
    result = asyncio.run(with_server(measured))
    for model, by_panel in result["reactions"].items():
        print(model)
        for panel, seconds in by_panel.items():
            print(f"  {panel:<16} {1000 * seconds:6.0f} ms")
    print(json.dumps(result["load"], indent=1))
    if arguments.write:
        result |= {
            "created": datetime.now(UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "load_average_of_the_machine": os.getloadavg()[0],
            "platform": platform.platform(),
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
