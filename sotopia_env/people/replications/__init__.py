"""Published experiments with people as data, and what policies do in the same design beside what people did."""

from sotopia_env.people.replications.beside import beside_people
from sotopia_env.people.replications.design import NAMES, Replication, read_replication

__all__ = ["NAMES", "Replication", "beside_people", "read_replication"]
