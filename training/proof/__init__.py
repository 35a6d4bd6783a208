"""Proof that training works: a tiny model through every stage on verified tasks, and a report with intervals.

``make learn`` runs it. Reading order: held_out (what the model never sees in training), recipe (frozen settings),
seed_run (all stages for one training seed), report.
"""
