"""A server that also offers the partners of :mod:`tests.adapters.failing`."""

from sotopia_env.adapters.openenv_server import PARTNERS, TASKS, make_app
from tests.adapters.failing import NAMES

app = make_app(TASKS, (*PARTNERS, *NAMES))
