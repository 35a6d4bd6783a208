"""Study: how well attributions of an episode's score agree with the measured worth of actions.

Reading order: probes (forced actions and their measured worth), worth (measured turns and the rewards that need no
attributor), accuracy (the figures and the report), study (the steps). ``four_families.yaml`` and
``within_episodes.yaml`` are the studies of ``docs/turn-rewards.md``.
"""
