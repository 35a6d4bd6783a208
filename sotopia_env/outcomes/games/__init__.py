"""Games of choices: their rules and payoffs as data."""
