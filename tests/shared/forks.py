"""Processes of tests, forked from one that imports the package once."""

import multiprocessing
import runpy
from functools import cache


@cache
def forks():
    """A context of multiprocessing whose processes have imported the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["timm", "visprism.study", "visprism.app.renderer"])
    return context


def forked(path, function, *arguments):
    """A process that calls a function of a file."""
    process = forks().Process(target=_call, args=(str(path), function, arguments))
    process.start()
    return process


def _call(path, function, arguments):
    runpy.run_path(path)[function](*arguments)
