"""Run commands one after another, each in a process forked from this one, for tests of signals.

This process has imported what commands import, which takes longer than they do. Each command
has a group of its own and its own signal handlers, and ends as an interpreter does, like one of
``python -m visprism``. Each line of standard input is the folder of a command, where a pipe
named `output` is, and its words, as JSON. Standard output has two lines for each command: its
process number as it starts, and its exit code once it has ended.
"""

import importlib
import json
import os
import runpy
import sys

IMPORTS = "matplotlib.pyplot", "timm", "visprism.harmonize", "visprism.report", "visprism.study"


def run(folder, words):
    """The command, in this process, which it ends."""
    os.setsid()
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open("output", os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv[1:] = words
    runpy.run_module("visprism", run_name="__main__")


if __name__ == "__main__":
    for name in IMPORTS:
        importlib.import_module(name)
    for line in sys.stdin:
        if not (process := os.fork()):
            run(*json.loads(line))
        sys.stdout.write(f"{process}\n")
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
