"""The files of a run on disk: reading, writing and resuming them."""

from sotopia_env.storage.columns import arrow_schema, features
from sotopia_env.storage.directory import RunDirectory, check_run, is_unscored, read_failures, read_run
from sotopia_env.storage.journal import Journal
from sotopia_env.storage.manifest import (
    RUN,
    FailureRecord,
    RunConfig,
    RunManifest,
    configured_evaluator,
    configured_policies,
    read_manifest,
)
from sotopia_env.storage.recordings import Recording, recordings

__all__ = [
    "RUN",
    "FailureRecord",
    "Journal",
    "Recording",
    "RunConfig",
    "RunDirectory",
    "RunManifest",
    "arrow_schema",
    "check_run",
    "configured_evaluator",
    "configured_policies",
    "features",
    "is_unscored",
    "read_failures",
    "read_manifest",
    "read_run",
    "recordings",
]
