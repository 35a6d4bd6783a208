"""The pages: Jinja templates with htmx, no build step, no network but this server's."""

from sotopia_env.service.pages import episodes, home, login, participant, seat, studies

ROUTERS = (home.router, login.router, episodes.router, participant.router, seat.router, studies.router)
