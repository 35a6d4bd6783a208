"""The work of workers, with one module for each kind of job: batch runs, evaluations, drafts."""
