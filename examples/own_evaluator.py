"""Scores episodes on a dimension of one's own, beside the verified outcome.

python examples/own_evaluator.py
"""

import asyncio

from sotopia_env import Episode, Evaluation, Score, Task, tasks
from sotopia_env.evaluators import ComputedEvaluator, VerifiedOutcome
from sotopia_env.foundation.waiting import wait
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.world.reward import CustomDimension


class Openness(ComputedEvaluator):
    """10 for a seat whose first offer came at its first turn, less for every turn it waited."""

    name = "openness"

    def measures(self, task: Task) -> dict[object, str]:
        """Returns which of the seven dimensions it scores: none."""
        return {}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Scores every agent."""
        scores = []
        for agent in episode.task.agents:
            own = [turn.action for turn in episode.plain_turns if turn.actor == agent]
            waited = next((number for number, action in enumerate(own) if action.move), len(own))
            reason = f"{waited} turns before its first move"
            scores.append(Score(agent=agent, dimension="openness", value=max(0, 10 - waited), reasoning=reason))
        dimension = CustomDimension(name="openness", low=0, high=10, instruction="How early a move was made.")
        return Evaluation(evaluator=self.name, scores=tuple(scores), dimensions=(dimension,))


def main() -> None:
    """Plays three divisions, and prints both scores of each seat."""
    plans = plan_episodes(tasks.generate("division", 3, seed=2), [("linear", "sharer")], both_seats=False)
    for episode in asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), progress=False)).episodes:
        opened = wait(Openness().evaluate(episode))
        outcome = episode.evaluations[-1].outcome
        assert outcome is not None
        for share, score in zip(outcome.shares, opened.scores, strict=True):
            print(f"{episode.task.id} {score.agent}: share {share:.2f}, openness {score.value}")


if __name__ == "__main__":
    main()
