"""The learner: SOTOPIA-π and SOTOPIA-RL on episodes of :mod:`sotopia_env`, through TRL and PEFT.

Reading order: samples, filtering, attribution, reward_design, models, behavior_cloning, reward_model, grpo, policy.
Importing the package, its settings or its samples loads no torch; what needs torch, transformers, trl or peft imports
them when it is called. They come with ``pip install "sotopia-env[train]"``.
"""
