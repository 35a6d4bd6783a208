"""AgentSense's interviews: goals and private information, asked of policies and judges, scored and reported.

:class:`InterviewEvaluator` asks, at the end of an episode or of a recorded one; :func:`interview_report` measures
goals by view, private information, and sensitivity to profiles and roles over recorded interviews. The questions
themselves belong to tasks (``sotopia_env.world.interview``).
"""

from sotopia_env.interviews.evaluator import InterviewEvaluator

__all__ = [
    "InterviewEvaluator",
]
