"""The pages: Jinja templates with htmx, without a build step and without requests to other servers."""

from sotopia_studio.pages import (
    board,
    builder,
    episodes,
    home,
    library,
    login,
    participant,
    runs,
    seat,
    studies,
)
from sotopia_studio.pages.workbench import compare, design, simulate

MODULES = (board, home, login, simulate, design, episodes, runs, compare, library, participant, seat, builder, studies)
ROUTERS = tuple(module.router for module in MODULES)
