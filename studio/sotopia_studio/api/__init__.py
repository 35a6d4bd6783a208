"""The REST and WebSocket API, for programs; everything is below ``/api/v1``."""

from sotopia_studio.api import episodes, library, reports, runs, service, simulate, studies, tokens, websocket

ROUTERS = (
    library.router,
    simulate.router,
    episodes.router,
    runs.router,
    reports.router,
    studies.router,
    tokens.router,
    service.router,
    websocket.router,
)
