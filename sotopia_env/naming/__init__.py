"""Factories by name: policies, evaluators, scorers and task sets from names on a command line or in YAML.

All names follow one grammar (:mod:`sotopia_env.naming.grammar`). A policy without a language model is a word:
``boulware``, ``boulware:exponent=0.3,horizon=8``. A name with a slash is a language model: ``local/my-model``,
``local/my-model:temperature=0.7,reasks=1``. Policies of other packages (:mod:`sotopia_env.naming.plugins`) are entry
points, ``package.module:factory``, or the directory of a trained model. ``best-of-8(local/my-model by offer-worth)``
combines another policy with a scorer. Examples of evaluators are ``verified`` and
``judge:local/my-model:per=agent``, of task sources ``everyday``, ``bargaining:level=hard,n=1000`` and the path of a
file. Evaluators and task sources of other packages are named like policies.
"""

from sotopia_env.naming.evaluators import (
    EVALUATOR_NAMES,
    EVALUATOR_PLUGINS,
    NO_EVALUATOR,
    make_evaluator,
    make_optional_evaluator,
    with_probes,
)
from sotopia_env.naming.policies import POLICY_NAMES, POLICY_PLUGINS, described_policies, make_policy
from sotopia_env.naming.task_sources import SHIPPED, TASK_PLUGINS, check_seat, pick_task, task_rules, task_set

__all__ = [
    "EVALUATOR_NAMES",
    "EVALUATOR_PLUGINS",
    "NO_EVALUATOR",
    "POLICY_NAMES",
    "POLICY_PLUGINS",
    "SHIPPED",
    "TASK_PLUGINS",
    "check_seat",
    "described_policies",
    "make_evaluator",
    "make_optional_evaluator",
    "make_policy",
    "pick_task",
    "task_rules",
    "task_set",
    "with_probes",
]
