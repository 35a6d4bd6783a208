"""The pages: Jinja templates with htmx, without a build step and without requests to other servers."""

from sotopia_studio.pages import (
    compare,
    episodes,
    home,
    library,
    login,
    participant,
    runs,
    seat,
    simulate,
    studies,
)

MODULES = (home, login, simulate, episodes, runs, compare, library, participant, seat, studies)
ROUTERS = tuple(module.router for module in MODULES)
