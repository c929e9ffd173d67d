"""Trainings with a monitor that are killed, run by a test.

python killed_monitors.py FOLDER
"""

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    from test_monitor import OPTIMIZERS, Killed, fitted_with_a_monitor

    for name in OPTIMIZERS:
        child = os.fork()  # before this process has computed anything
        if not child:
            fitted_with_a_monitor(name, Path(sys.argv[1]) / name, Killed)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
