"""What holds for every test."""

import gc
import os
import signal
from contextlib import suppress

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Makes Ctrl-C mean something again where a shell started the tests in the background and told them to ignore it.

    Processes inherit an ignored signal, and several tests interrupt those that they start. Properties have no deadline:
    the time that an example takes on a busy machine is not their subject.
    """
    with suppress(ModuleNotFoundError):  # the environments of adapters do without
        from hypothesis import settings

        settings.register_profile("tests", settings(), deadline=None)
        settings.load_profile("tests")
    config.addinivalue_line("markers", "slow(reason): long; run by `make soak` alone, which sets SOTOPIA_SLOW")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keeps what collection leaves, ten thousand tests and their modules, out of later collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is long, unless it was asked for."""
    if (slow := item.get_closest_marker("slow")) and not os.environ.get("SOTOPIA_SLOW"):
        pytest.skip(f"{slow.args[0]}; `make soak` runs it")
