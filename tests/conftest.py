"""What holds for every test."""

import signal


def pytest_configure() -> None:
    """Makes Ctrl-C mean something again where a shell started the tests in the background and told them to ignore it.

    Processes inherit an ignored signal, and several tests interrupt those that they start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
