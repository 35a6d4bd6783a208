"""The tiny model and the run of scripted experts of the tests of training."""

from tests.sotopia_training.conftest import _one_thread, cloned, expert_run, tiny_model, tokenizer

__all__ = ["_one_thread", "cloned", "expert_run", "tiny_model", "tokenizer"]
