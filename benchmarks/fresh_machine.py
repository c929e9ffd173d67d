"""README's two commands on machines that have Python and make, and nothing else.

    sudo python benchmarks/fresh_machine.py [--suites bookworm sid] [--only NAME ...]

Each surrounding is a bare Debian from its package archive (`debootstrap` needs root and
Linux) with a clone of HEAD, in which one of README's commands runs. Surroundings differ in the
user, uv, real images for tests, locale, a home that cannot be written, a folder whose name has
spaces, and an environment that forbids bytecode. Package settings (PIP_*, UV_*, certificates)
come from this machine. The script merges seconds and exit codes into
benchmarks/results/fresh_machine.json.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "fresh_machine.json"
PACKAGES = "python3,python3-venv,make,ca-certificates"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
USER = 4242


@dataclass(frozen=True)
class Surrounding:
    """One command on one bare machine."""

    name: str
    target: str
    root: bool = False
    uv: bool = False
    data: bool = False
    folder: str = "/home/someone/visprism"
    home_writable: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
SURROUNDINGS = (
    Surrounding("a user, nothing set", "demo", environment={"LC_ALL": "C"}),
    Surrounding("root", "demo", root=True, environment={"LC_ALL": "C.UTF-8"}),
    Surrounding("uv, bytecode forbidden", "demo", uv=True, environment=NO_BYTECODE),
    Surrounding(
        "spaces, read-only home", "demo", folder="/srv/my networks/vis", home_writable=False
    ),
    Surrounding("a user, nothing set", "test"),
    Surrounding("root with real images", "test", root=True, data=True),
)


def shell(command: str) -> None:
    """Run a command of preparation; its failure ends the script."""
    subprocess.run(["bash", "-euc", command], check=True, stdout=subprocess.DEVNULL)


def archive() -> str:
    """The archive of Debian's packages that this machine uses."""
    paths = (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*"))
    text = "\n".join(path.read_text() for path in paths if path.is_file())
    found = re.search(r"^(?:URIs:|deb) +(?:\[.*\] +)?(\S+/debian)/?\s", text, re.MULTILINE)
    if not found:
        sys.exit("no package archive in /etc/apt; name one in sources.list")
    return found[1]


def bare_system(suite: str, folder: Path) -> Path:
    """A Debian with Python and make, made once for each suite."""
    system = folder / suite
    if not (system / "usr/bin/make").exists():
        options = f"--variant=minbase --include={PACKAGES}"
        shell(f"debootstrap {options} {suite} {system} {archive()}")
    shell(f"cp -L /etc/resolv.conf /etc/hosts {system}/etc")
    shell(f"mkdir -p {system}/etc/ssl/certs; cp -L {CERTIFICATES} {system}{CERTIFICATES}")
    return system


def copy_with_clone(one: Surrounding, system: Path) -> Path:
    """A copy of the system that holds the files of HEAD and a home."""
    copy = system.with_name(f"{system.name}-now")
    shell(f"rm -rf {copy}; cp -a {system} {copy}")
    clone, home = copy / one.folder.lstrip("/"), copy / "home/someone"
    clone.mkdir(parents=True)
    home.mkdir(parents=True, exist_ok=True)
    quoted = shlex.quote(str(clone))
    shell(f"git -C {ROOT} archive HEAD | tar -x -C {quoted}")
    shell(f"chown -R {0 if one.root else USER} {home} {quoted}")
    if not one.home_writable:
        shell(f"chown 0 {home}; chmod 555 {home}")
    return copy


def entering(one: Surrounding, copy: Path, data: str) -> str:
    """The shell command that mounts what a machine has and runs make inside."""
    variables = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_"))}
    variables |= {"SSL_CERT_FILE": CERTIFICATES, "HOME": "/home/someone"}
    variables |= {"PATH": "/usr/bin:/bin", **one.environment}
    mounts = [
        f"mount -t proc proc {copy}/proc",
        f"mount --rbind /dev {copy}/dev",
        f"mount -t tmpfs tmpfs {copy}/dev/shm",
    ]
    if one.data:
        variables["VISPRISM_DATA"] = "/data"
        mounts.append(f"mkdir -p {copy}/data; mount --bind {data} {copy}/data")
    command = f"cd {shlex.quote(one.folder)} && make {one.target}"
    if one.uv:
        install = "python3 -m venv /tmp/uv && /tmp/uv/bin/pip -q install uv"
        command = f"{install} && PATH=/tmp/uv/bin:$PATH && {command}"
    user = [] if one.root else [f"--userspec={USER}:{USER}"]
    assignments = [f"{name}={value}" for name, value in variables.items()]
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    enter = ["env", "-i", *assignments, chroot, *user, str(copy), "sh", "-c", command]
    return "; ".join(["set -e", *mounts, f"exec {shlex.join(enter)}"])


def attempt(one: Surrounding, system: Path, data: str) -> dict[str, object]:
    """Run the command on a copy of the system, and return its exit code and seconds."""
    copy = copy_with_clone(one, system)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c"]
    log = system.with_name("log.txt")
    start = time.perf_counter()
    with log.open("w") as file:
        answer = subprocess.run(
            [*command, entering(one, copy, data)], stdout=file, stderr=subprocess.STDOUT
        )
    seconds = round(time.perf_counter() - start)
    text = log.read_text(errors="replace")
    if answer.returncode:
        print(text[-3000:])
    shell(f"rm -rf {copy}")
    tests = re.findall(r"=+ (\d+ (?:passed|failed).*) =+", text)
    outcome = {"exit": answer.returncode, "seconds": seconds, "tests": "".join(tests[-1:])}
    return {"suite": system.name, **asdict(one), **outcome}


def main() -> int:
    """Try the chosen surroundings and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suites", nargs="+", default=["bookworm", "sid"])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of 'COMMAND NAME'")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/visprism-fresh"))
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("root is needed, for chroot")
    if "VISPRISM_DATA" not in os.environ:
        sys.exit("VISPRISM_DATA must be the folder of real images, for one of the surroundings")
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for suite in options.suites:
        system = bare_system(suite, options.folder)
        for one in SURROUNDINGS:
            if not any(part in f"{one.target} {one.name}" for part in options.only):
                continue
            row = attempt(one, system, os.environ["VISPRISM_DATA"])
            key = ("suite", "name", "target")
            rows = [r for r in rows if any(r[k] != row[k] for k in key)] + [row]
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
            outcome = f"exit {row['exit']} {row['seconds']:5} s {row['tests']}"
            print(f"{suite:9} make {one.target:5} {one.name:24} {outcome}")
    return int(any(row["exit"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
