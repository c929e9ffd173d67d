"""A process that ends with the server which started it."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """End this process with the server, also where that is killed.

    This module imports little, so that a process knows it before it imports torch.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
