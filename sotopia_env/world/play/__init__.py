"""The play of episodes: the policy protocol, the table at which an episode is played, and continuations of states."""
