"""The REST and WebSocket API, for programs; everything is below ``/api/v1``."""

from sotopia_env.service.api import episodes, studies, tokens

ROUTERS = (episodes.router, studies.router, tokens.router)
