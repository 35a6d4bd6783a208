"""Solutions of games: the Pareto frontier, equilibria, security levels and the best use of a stock."""
