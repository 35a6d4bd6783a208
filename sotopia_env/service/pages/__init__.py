"""The pages: Jinja templates with htmx, no build step, no network but this server's."""

from sotopia_env.service.pages import home, login, participant, seat, studies

ROUTERS = (home.router, login.router, participant.router, seat.router, studies.router)
