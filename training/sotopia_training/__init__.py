"""Training: SOTOPIA-π and SOTOPIA-RL on episodes of :mod:`sotopia_env`, through TRL and PEFT.

Reading order: samples, filtering, attribution, reward_design, models, behavior_cloning, reward_model, grpo, policy.
Importing the package, its settings or its samples does not import torch: functions that need torch, transformers, trl
or peft import them when they are called. The extra ``train`` installs these packages.
"""
