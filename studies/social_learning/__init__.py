"""The study of a tiny model in social games: informing in Mini-Mafia, promises in dilemmas, and transfer of both."""
