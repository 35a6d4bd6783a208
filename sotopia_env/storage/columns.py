"""Column types of a run's files, for readers that would otherwise infer them from the first lines.

``datasets``, ``polars`` and ``pyarrow`` infer a column's type from the beginning of a file. If a run begins with
scripted episodes, whose turns have no ``generation``, or with episodes without evaluations, the inferred type is
wrong::

    datasets.load_dataset("json", data_files="runs/a/episodes.jsonl", features=storage.features())
    polars.read_ndjson("runs/a/episodes.jsonl", schema=polars.from_arrow(arrow_schema().empty_table()).schema)

``pandas.read_json(..., lines=True)`` needs no types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.records import Record
from sotopia_env.world.episode import Episode

if TYPE_CHECKING:
    import datasets
    import pyarrow

_Schema = Mapping[str, Any]


def arrow_schema(record: type[Record] = Episode) -> pyarrow.Schema:
    """Returns the Arrow schema of a file of records, by default of episodes; requires ``pyarrow``."""
    import pyarrow

    schema = record.model_json_schema(mode="serialization")
    return pyarrow.schema(list(_fields(schema, schema.get("$defs", {})).items()))


def features(record: type[Record] = Episode) -> datasets.Features:
    """Returns :func:`arrow_schema` as the ``features`` of ``datasets.load_dataset``; requires ``datasets``."""
    import datasets

    return datasets.Features.from_arrow_schema(arrow_schema(record))


def _fields(schema: _Schema, definitions: _Schema) -> dict[str, pyarrow.DataType]:
    return {name: _type(field, definitions) for name, field in schema["properties"].items()}


def _type(schema: _Schema, definitions: _Schema) -> pyarrow.DataType:
    """Returns the Arrow type of a JSON schema of this package; all Arrow types may be null."""
    import pyarrow

    if "$ref" in schema:
        return _type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        options = [_type(option, definitions) for option in schema["anyOf"] if option.get("type") != "null"]
        # Records have no unions of different types, since a column has only one; this line fails if one is added.
        (only,) = set(options)
        return only
    if schema["type"] == "object":
        return pyarrow.struct(list(_fields(schema, definitions).items()))
    if schema["type"] == "array":
        # Tuples of fixed length have ``prefixItems``; in this package, all their items have the same type.
        items = schema.get("items") or schema["prefixItems"][0]
        return pyarrow.list_(_type(items, definitions))
    simple = {"string": pyarrow.string, "integer": pyarrow.int64, "number": pyarrow.float64, "boolean": pyarrow.bool_}
    return simple[schema["type"]]()
