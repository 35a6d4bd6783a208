"""Environments: PettingZoo's AEC and parallel forms, and Gymnasium for one seat."""

from sotopia_env.envs.episode_reward import EpisodeReward

__all__ = ["EpisodeReward"]
