"""Games of hidden roles with random seats against exact chances, and what the night tells those who sleep."""
