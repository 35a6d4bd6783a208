"""The studio: a REST and WebSocket API, and pages on which people design, watch, play, annotate and compare.

It needs the extra ``serve``; nothing but the command line imports it. :mod:`sotopia_studio.app` makes the server,
:mod:`sotopia_studio.worker` does its work, :mod:`sotopia_studio.settings` says what both need to know.
"""
