"""The database of the service: tables, connections, and one module for each kind of thing in it."""
