"""Who acts and where: the policy protocol, the table that an episode is played at, and playing on from a state."""
