"""Names: from a word on a command line or in YAML to a policy, an evaluator, a scorer or a set of tasks.

A policy without a language model is named by a word: ``"boulware"``, ``"boulware:exponent=0.3,horizon=8"``. A name with
a slash is a language model: ``"local/my-model"``, ``"local/my-model:temperature=0.7,reasks=1"``. Policies of other
packages are named as :mod:`sotopia_env.naming.plugins` says: ``"package.module:factory"``, or the directory of a
trained model. ``"best-of-8(local/my-model by offer-worth)"`` is made of another policy and a scorer.
"""

from sotopia_env.naming.best_of_n import SCORERS, make_scorer
from sotopia_env.naming.evaluators import EVALUATOR_NAMES, make_evaluator
from sotopia_env.naming.language_models import ModelMaker
from sotopia_env.naming.policies import POLICY_NAMES, POLICY_PLUGINS, make_policy
from sotopia_env.naming.task_sources import task_set

__all__ = [
    "EVALUATOR_NAMES",
    "POLICY_NAMES",
    "POLICY_PLUGINS",
    "SCORERS",
    "ModelMaker",
    "make_evaluator",
    "make_policy",
    "make_scorer",
    "task_set",
]
