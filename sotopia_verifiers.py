"""The plug-in of verifiers with the id ``sotopia-verifiers``: its ids are names of top-level modules."""

from sotopia_env.adapters.verifiers_env import SotopiaTaskset, SotopiaVerifiersEnv
from sotopia_env.adapters.verifiers_harness import InProcessHarness

__all__ = ["InProcessHarness", "SotopiaTaskset", "SotopiaVerifiersEnv"]
