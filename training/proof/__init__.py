"""Proof that training works: a tiny model through every stage on verified tasks, and a report with intervals.

``make learn`` runs it. Reading order: tasks (what is held out), recipe (settings), base_model,
seed_run (all stages for one training seed), results, claims, report.
"""
