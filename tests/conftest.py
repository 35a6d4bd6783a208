"""What holds for every test."""

import signal
from contextlib import suppress


def pytest_configure() -> None:
    """Makes Ctrl-C mean something again where a shell started the tests in the background and told them to ignore it.

    Processes inherit an ignored signal, and several tests interrupt those that they start. Properties have no deadline:
    the time that an example takes on a busy machine is not their subject.
    """
    with suppress(ModuleNotFoundError):  # the environments of adapters do without
        from hypothesis import settings

        settings.register_profile("tests", settings(), deadline=None)
        settings.load_profile("tests")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
