"""Studies with people: who plays, who annotates, who checks scenarios; one machine of participants and assignments."""
