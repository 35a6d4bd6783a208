"""An evaluator that measures GOAL alone; adapters name it ``tests.goal_alone:GoalAlone``."""

from sotopia_env.evaluators import ComputedEvaluator
from sotopia_env.world.episode import COUNTS_OF_WORDS, Evaluation, Score
from sotopia_env.world.reward import DIMENSIONS, Dimension

UNMEASURED = [dimension for dimension in DIMENSIONS if dimension is not Dimension.GOAL]


class GoalAlone(ComputedEvaluator):
    """GOAL is 4 for every seat; nothing else is measured, and counts of words beside it are not scores."""

    name = "goal-alone"

    def __init__(self, counts: bool = False) -> None:
        self.counts = counts

    def measures(self, task):
        return {Dimension.GOAL: "judged"}

    async def evaluate(self, episode):
        agents = episode.task.agents
        scores = [Score(agent=agent, dimension=Dimension.GOAL, value=4.0, source=self.name) for agent in agents]
        for dimension in UNMEASURED if self.counts else ():
            scores += [Score(agent=agent, dimension=dimension, value=0.0, source=COUNTS_OF_WORDS) for agent in agents]
        return Evaluation(evaluator=self.name, scores=tuple(scores))
