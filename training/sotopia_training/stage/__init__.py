"""Stages: settings, directories, access to models, and the frame of a script."""
