"""Signals wait while a model is restored (src/visprism/core/devices.py)."""

import os
import signal
import threading

import pytest
from internals import delayed_interrupts


def test_a_signal_waits_and_is_handled_at_the_end():
    def restore():
        with delayed_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("restored")

    done = []
    with pytest.raises(KeyboardInterrupt):
        restore()
    assert done == ["restored"]
    with pytest.raises(ZeroDivisionError), delayed_interrupts():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone():
    def run():
        with delayed_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    seen = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
