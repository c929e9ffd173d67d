"""Hundreds of studies and many clients at once: how fast `visprism view` answers over HTTP.

One small study is measured and copied. A server runs in a separate process, as a user starts
it. Sixty clients ask at once for the list, a stored page and a summary, while twelve others ask
for pages that must be drawn, and one asks for a page and never reads it.

    python benchmarks/app_many.py                  # prints a table
    python benchmarks/app_many.py --write          # and writes results/app_many.json
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

RESULTS = Path(__file__).parent / "results" / "app_many.json"
CLIENTS, DRAWINGS, NUMBERS = 60, 12, (50, 500)
EXAMINE = "examine resnet20.shapes vit_pico_patch4_32.shapes --data shapes --limit 16"
ANALYSES = "anatomy,calibration,variance"


def make_studies(folder: Path, number: int, source: Path) -> None:
    """Copies of a study; the first ones have no page, so that theirs must be drawn."""
    for i in range(number):
        copy = folder / f"study-{i:03d}"
        shutil.copytree(source, copy)
        if i < DRAWINGS:
            (copy / "report.html").unlink()


def memory_of(process: int) -> float:
    """Memory of a process and of those that it started, in MB; pages they share count once."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own / 1000 + sum(memory_of(int(child)) for child in children)


async def timed(request: Awaitable[httpx.Response]) -> tuple[float, int]:
    """Seconds of a request, and its status."""
    begin = time.perf_counter()
    response = await request
    return time.perf_counter() - begin, response.status_code


def spread(answers: list[tuple[float, int]]) -> dict[str, float]:
    """Median, 95th percentile and maximum in seconds, and how many were refused."""
    seconds = sorted(s for s, status in answers if status == 200)
    refused = sum(status != 200 for _, status in answers)
    if not seconds:
        return {"answers": 0, "refused": refused}
    return {
        "answers": len(seconds),
        "refused": refused,
        "median": statistics.median(seconds),
        "percentile_95": seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))],
        "maximum": seconds[-1],
    }


async def measured(address: str, number: int, process: int) -> dict[str, Any]:
    """The list twice, then all clients at once."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        await client.get("api/catalog")  # imports what any first request imports
        first = await timed(client.get("api/studies"))
        await asyncio.sleep(2)
        again = await timed(client.get("api/studies"))
        names = [study["name"] for study in (await client.get("api/studies")).json()]
        assert len(names) == number
        before = memory_of(process)
        _, stuck = await asyncio.open_connection("127.0.0.1", httpx.URL(address).port)
        path = httpx.URL(address).path
        stuck.write(
            f"GET {path}study/study-040/report HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        )
        drawn = [
            asyncio.ensure_future(timed(client.get(f"study/study-{i:03d}/report")))
            for i in range(DRAWINGS)
        ]
        await asyncio.sleep(1)
        lists, pages, summaries = await asyncio.gather(
            asyncio.gather(*(timed(client.get("api/studies")) for _ in range(CLIENTS))),
            asyncio.gather(
                *(
                    timed(client.get(f"study/study-{20 + i % 30:03d}/report"))
                    for i in range(CLIENTS)
                )
            ),
            asyncio.gather(
                *(timed(client.get("api/studies/study-020/summary")) for _ in range(CLIENTS))
            ),
        )
        still = sum(not request.done() for request in drawn)
        pending = await asyncio.gather(*drawn)
        after = memory_of(process)
        stuck.close()
    return {
        "studies": number,
        "first_list": first[0],
        "later_list": again[0],
        "lists": spread(list(lists)),
        "stored_pages": spread(list(pages)),
        "summaries": spread(list(summaries)),
        "drawings_that_ran_meanwhile": still,
        "drawn_pages": spread(list(pending)),
        "megabytes_before": before,
        "megabytes_after": after,
    }


def scans(number: int, source: Path) -> dict[str, float]:
    """Seconds of CPU of the first scan of so many studies, and of a later one."""
    from visprism.app.listing import Listing
    from visprism.app.settings import Settings

    with TemporaryDirectory() as folder:
        for i in range(number):
            copy = Path(folder) / f"study-{i:03d}"
            copy.mkdir()
            shutil.copy(source / "study.json", copy)
        listing = Listing(Settings(Path(folder)))
        seconds = []
        for _ in range(2):
            begin = time.process_time()
            listing._scanned()
            seconds.append(time.process_time() - begin)
    return {"studies": number, "first": seconds[0], "later": seconds[1]}


def run(number: int, source: Path) -> dict[str, Any]:
    """A server with this number of studies."""
    with TemporaryDirectory() as folder:
        make_studies(Path(folder), number, source)
        command = [sys.executable, "-m", "visprism", "view", "--out", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                address = process.stdout.readline().split()[1]
                return asyncio.run(measured(address, number, process.pid))
            finally:
                process.terminate()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scans", action="store_true", help="only the scans of folders")
    parser.add_argument("--write", action="store_true", help="write results/app_many.json")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        words = [*EXAMINE.split(), "--analyses", ANALYSES, "--quiet", f"--out={source}"]
        subprocess.run([sys.executable, "-m", "visprism", *words], check=True)
        content = json.loads(RESULTS.read_text("utf-8")) if arguments.scans else {}
        content["scans"] = [scans(number, source) for number in NUMBERS]
        if not arguments.scans:
            content["runs"] = [run(number, source) for number in NUMBERS]
    of_machine = {
        "clients": CLIENTS,
        "created": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load_average_of_the_machine": os.getloadavg()[0],
        "platform": platform.platform(),
    }
    content |= {} if arguments.scans else of_machine
    print(json.dumps(content, indent=1))
    if arguments.write:
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
