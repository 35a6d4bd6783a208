"""The studio: a REST and WebSocket API, and pages on which people design, watch, play, annotate and compare.

It needs the extra ``serve``; nothing but the command line imports it. :mod:`sotopia_env.service.app` makes the server,
:mod:`sotopia_env.service.worker` does its work, :mod:`sotopia_env.service.settings` says what both need to know.
"""
