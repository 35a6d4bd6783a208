"""Reports: comparisons of runs, tables, charts and readable transcripts."""
