"""How far attacks in the transcript raise a real judge's scores: ``python -m studies.judge_attacks``."""
