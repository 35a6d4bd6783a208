"""Study: how well attributions of an episode's score agree with the measured worth of actions.

Reading order: probes (forced actions and their measured worth), accuracy (the figures and the report), study (the
steps). ``four_families.yaml`` is the study of ``docs/turn-rewards.md``.
"""
