"""The studio: a REST and WebSocket API, and pages on which people design, watch, play, annotate and compare.

It needs the extra ``serve``; only the command line imports it. :mod:`sotopia_studio.app` creates the server,
:mod:`sotopia_studio.worker` carries out its jobs, and both use :mod:`sotopia_studio.settings`.
"""
