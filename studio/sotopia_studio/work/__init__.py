"""What workers do, one module for each kind of job: batch runs, evaluations, drafts."""
