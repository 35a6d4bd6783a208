"""The server. Name here the task sets and partners that clients may choose; models as partners cost you money."""

import uvicorn

from sotopia_env.adapters.openenv_server import PARTNERS, TASKS, make_app

# The default reward alone: openenv.yaml promises rewards from 0 to 1, and others, such as `share`, exceed that.
app = make_app(TASKS, PARTNERS, max_sessions=64, scalarisations=())


def main() -> None:
    """Serves on port 8000."""
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
