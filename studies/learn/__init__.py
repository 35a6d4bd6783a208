"""``make learn``: a tiny model through every stage on verified tasks, and a report with intervals.

Reading order: tasks (and which are held out), recipe, base_model, seed_run (the stages of one training seed, each with
a YAML file of this folder), results, claims, report.
"""
