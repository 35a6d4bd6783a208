"""The plug-in of verifiers with the id ``sotopia-verifiers``: its ids are names of top-level modules."""

from sotopia_env.adapters.verifiers_env import InProcessHarness, SotopiaEnv, SotopiaTaskset

__all__ = ["InProcessHarness", "SotopiaEnv", "SotopiaTaskset"]
