"""Attribution: which turn earned the score."""
