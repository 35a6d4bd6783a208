"""The world: situations, actions, rules, observations, rewards and episodes; pure functions and frozen records."""
