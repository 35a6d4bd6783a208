"""The ground floor: errors, reading and writing of files, records, settings and prompt texts.

It knows nothing of the domain: nothing here mentions tasks, actions or episodes, and nothing here imports a room of
the package. Import the modules themselves, such as ``sotopia_env.foundation.errors``.
"""
