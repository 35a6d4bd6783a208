"""The pages: Jinja templates with htmx, no build step, no network but this server's."""

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
