"""Loading of objects of other packages by entry point, import path or directory.

* ``NAME`` is an entry point of a group, declared in a package's metadata::

      [project.entry-points."sotopia.policies"]
      my-policy = "my_package.policies:MyPolicy"

* ``package.module:factory`` is imported, also from the working directory. The import runs the module's code: name only
  modules that you would run as a program. ``run.json`` lists the imported modules.
* A directory, such as that of a trained model, or a file, such as ``model.gguf``, is opened by the first entry point of
  the group whose object has an ``opens(path)`` that returns true. These objects should be quick to import; slow work
  belongs in the call. A path is written with a slash at its end, or begins with ``/``, ``./``, ``../`` or ``~``.
  Without these marks, a name with a slash is a path if it exists, and a model ``PROVIDER/MODEL`` otherwise; but
  ``local/…`` and other names that begin with a well-known provider are always models. A name without a slash is a
  path if it is a file that is opened, as ``model.gguf`` is, and no entry point has that name.

Each form may be followed by ``:key=value,…``. The object is called with these values as keyword arguments (read as the
annotations of its signature say, see :func:`~sotopia_env.naming.grammar.readers_of`), with a directory as ``path``, and
with those of the caller's arguments (such as settings of the command line and a model factory) that its signature
names.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from sotopia_env.foundation.errors import (
    InvalidValueError,
    SotopiaError,
    UnknownNameError,
    Verbatim,
    Where,
    check_members,
)
from sotopia_env.moved import present_name
from sotopia_env.naming.grammar import JSON, parameters_of, read_options, readers_of, split_options

logger = logging.getLogger(__name__)
_INSTALLED_ONLY: ContextVar[bool] = ContextVar("installed_only", default=False)
_UNBUILT: ContextVar[bool] = ContextVar("unbuilt", default=False)

T = TypeVar("T")
_IMPORT = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_MARKS = ("/", "./", "../", "~")
_MODELS = (
    *("local", "openai-compatible", "openai", "azure", "anthropic", "gemini", "vertex_ai", "bedrock", "mistral"),
    *("ollama", "hosted_vllm", "openrouter", "together_ai", "groq", "deepseek", "huggingface", "cohere", "xai"),
)
_UNIMPORTABLE = (ImportError, SyntaxError, OSError, ValueError)
# Exceptions of entry points that were not named by the user; they must not prevent the search of the others.
_BROKEN = (
    SotopiaError,
    *_UNIMPORTABLE,
    ArithmeticError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    AttributeError,
)


@contextmanager
def installed_only() -> Iterator[None]:
    """Within this context only entry points are found, so names from a network import and open nothing else."""
    token = _INSTALLED_ONLY.set(True)
    try:
        yield
    finally:
        _INSTALLED_ONLY.reset(token)


@contextmanager
def without_building() -> Iterator[None]:
    """Within this context, names and options are checked, and stand-ins are returned in place of built objects.

    Building a model in this process takes up to a minute, for which a process that answers requests has no time.
    """
    token = _UNBUILT.set(True)
    try:
        yield
    finally:
        _UNBUILT.reset(token)


@lru_cache(maxsize=32)
def _entries_of(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group; read once, since for it the metadata of every package on the path are read."""
    return entry_points(group=group)


@dataclass(frozen=True, slots=True)
class Plugins(Generic[T]):
    """A kind of object that other packages can provide.

    Attributes:
        kind: name of the kind in messages, such as ``policy``.
        group: group of the entry points.
        protocol: protocol that objects of this kind implement.
        stand_in: returns an object in place of one that is not built (:func:`without_building`), from its name without
            options and from its options; ``None`` if objects of this kind are always built.
    """

    kind: str
    group: str
    protocol: type
    stand_in: Callable[[str, Mapping[str, Any]], T] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the installed entry points."""
        return tuple(sorted({entry.name for entry in self._entries()}))

    def described(self) -> Iterator[tuple[str, str]]:
        """Yields each entry point that can be named alone, with the first line of its docstring."""
        for entry in sorted(self._entries(), key=lambda entry: entry.name):
            value = self._loaded(entry)
            # What opens directories is named by a directory, and never by its own name.
            if value is not None and not hasattr(value, "opens"):
                yield entry.name, (inspect.getdoc(value) or "").partition("\n")[0]

    def _entries(self) -> EntryPoints:
        return _entries_of(self.group, tuple(sys.path))

    def has(self, name: str) -> bool:
        """Whether ``name``, without options, is an entry point or a directory that one opens."""
        return name in self.names or (self._is_openable(name) and self._opener(Path(name).expanduser()) is not None)

    def make(self, spec: str, arguments: Mapping[str, Any]) -> T | None:
        """Returns the object that ``spec`` names; ``None`` if ``spec`` has none of the three forms.

        Args:
            spec: the name, import path or directory, optionally followed by options.
            arguments: further arguments, passed to factories that have a parameter of their name.

        Raises:
            UnknownNameError: the module does not have the name, or the factory does not have a parameter.
            InvalidValueError: the import failed, no package opens the directory, or the object is not of this kind.
        """
        head, options = split_options(spec)
        directory = {"path": Path(head).expanduser()} if self._is_path(head) else {}
        factory = self._opener(directory["path"]) if directory else self._named(head)
        if factory is None:
            self._check_unmarked(head)
            self._check_pairs(head)
            return None
        value = self._call(head, factory, options, directory, arguments)
        check_members(f"{self.kind} {head!r}", f"a {self.kind} from this factory", value, self.protocol)
        return value  # type: ignore[no-any-return]

    def _is_path(self, head: str) -> bool:
        if _INSTALLED_ONLY.get():
            return False
        path = Path(head).expanduser()
        # An unmarked name is a directory only if that is certain: "openai/…" must not change its meaning because a
        # folder "openai" exists in the working directory.
        if not (head.startswith(_MARKS) or head.endswith("/")):
            if "/" not in head:
                return head not in self.names and path.is_file() and self._opener(path) is not None
            if head.partition("/")[0] in _MODELS or not path.exists():
                return False
        elif not path.exists():
            raise InvalidValueError(field=self.kind, expected="a directory or a file", got=head)
        if self._opener(path) is None:
            raise InvalidValueError(
                f"no installed package opens this path (entry points {self.group!r})",
                field=self.kind,
                got=head,
                hint="a model is weights with config.json or adapter_config.json, or one .gguf file",
            )
        return True

    def _is_openable(self, head: str) -> bool:
        return not _INSTALLED_ONLY.get() and Path(head).expanduser().exists()

    def _check_unmarked(self, head: str) -> None:
        """Raises UnknownNameError for an unmarked path that ``./`` in front of the name would open."""
        if "/" not in head and Path(head).exists() and self._opener(Path(head)) is not None:
            raise UnknownNameError("there is no such name", field=self.kind, got=head, nearest=f"./{head}")

    def _check_pairs(self, head: str) -> None:
        """Raises InvalidValueError for an entry point that is followed by something other than options."""
        name, _, rest = head.partition(":")
        if name in self.names:
            where, hint = Where(record=f"{self.kind} {name!r}"), ""
            if Path(rest).expanduser().exists():
                hint = f"the path alone is a name, too: {rest}"
            raise InvalidValueError(expected="comma-separated key=value pairs", got=rest, hint=hint, where=where)

    def _opener(self, path: Path) -> Any:
        for entry in self._entries():
            opener = self._loaded(entry, lambda value: hasattr(value, "opens") and value.opens(path))
            if opener is not None:
                _note(entry.module)
                return opener
        return None

    def _named(self, head: str) -> Any:
        if "/" in head:
            return None
        match = _IMPORT.fullmatch(head)
        module, name = (match["module"], match["name"]) if match and not _INSTALLED_ONLY.get() else ("", "")
        for entry in self._entries().select(name=head):
            module, name = entry.module, entry.attr
        if not module:
            return None
        value = self._imported(module, name)
        _note(module)
        return value

    def _loaded(self, entry: EntryPoint, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Returns the object of an entry point that nobody has named, if it fits; ``None`` if it is broken."""
        try:
            value = self._imported(entry.module, entry.attr)
            return value if fits(value) else None
        except _BROKEN as error:
            # The user did not name this package, so its failure is not an error of the command.
            reason = f"{type(error).__name__}: {_line(error)}"
            logger.warning("skipped entry point %r of %s: %s", entry.name, self.group, reason)
            return None

    def _imported(self, module: str, name: str) -> Any:
        top = module.partition(".")[0]
        # A name may come from a configuration that the user did not write: "os:system" must not be callable.
        if top in sys.stdlib_module_names:
            raise InvalidValueError(
                field=self.kind, expected="a module outside the standard library", got=f"{module}:{name}"
            )
        try:
            here = os.getcwd()
            # ``python -m`` includes the working directory, an installed command does not. Appended, and only if the
            # module is not installed, so that a file in the working directory cannot shadow a package.
            if here not in sys.path and top not in sys.modules and importlib.util.find_spec(top) is None:
                sys.path.append(here)
            value: Any = importlib.import_module(module)
        except _UNIMPORTABLE as error:
            problem = f"the import failed ({_line(error)})"
            moved = present_name(module)
            hint = f"it is now {moved}:{name}" if moved else ""
            raise InvalidValueError(problem, field=self.kind, got=f"{module}:{name}", hint=hint) from error
        for part in name.split("."):
            if not hasattr(value, part):
                public = [attribute for attribute in dir(value) if not attribute.startswith("_")]
                where = Where(record=f"{self.kind} {module}:{name}")
                raise UnknownNameError(got=part, valid=public, where=where)
            value = getattr(value, part)
        return value

    def _call(
        self,
        head: str,
        factory: Any,
        options: str,
        directory: dict[str, Path],
        arguments: Mapping[str, Any],
    ) -> Any:
        owner = f"{self.kind} {head!r}"
        where = Where(record=owner)
        if not callable(factory):
            raise InvalidValueError(expected="a callable", got=factory, where=where)
        if _is_from_standard_library(factory):
            raise InvalidValueError(expected="a factory outside the standard library", got=factory, where=where)
        try:
            parameters = parameters_of(factory)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"the factory's signature is unknown ({_line(error)})", where=where) from error
        names = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        settings = read_options(owner, options, readers_of(factory), JSON if takes_all else None)
        # Options of the name override the caller's arguments.
        keywords = {key: value for key, value in arguments.items() if key in names} | settings | directory
        missing = _missing(parameters, keywords)
        if missing:
            raise InvalidValueError(field=missing[0], expected="a value", got=Verbatim("nothing"), where=where)
        if self.stand_in is not None and _UNBUILT.get():
            return self.stand_in(head, settings)
        try:
            return factory(**keywords)
        except TypeError as error:
            raise InvalidValueError(f"the factory failed ({_line(error)})", where=where) from error


_CODE: dict[str, Mapping[str, str]] = {}


def imported_code() -> Mapping[str, Mapping[str, str]]:
    """Returns the modules that names have imported in this process, each with the file and hash of its source.

    Files in the working directory have their relative path, others only their name. The hash consists of the first 16
    hex digits of the SHA-256. Modules imported by these modules are not included.
    """
    return dict(_CODE)


def _note(module: str) -> None:
    source = getattr(sys.modules[module], "__file__", None)
    if module in _CODE or source is None:
        return
    path = Path(source).resolve()
    # No absolute paths: records of runs are published, and paths outside differ between machines.
    inside = path.is_relative_to(Path.cwd().resolve())
    name = path.relative_to(Path.cwd().resolve()).as_posix() if inside else path.name
    _CODE[module] = {"file": name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16]}


def _is_from_standard_library(factory: Any) -> bool:
    """Whether ``factory`` comes from the standard library (never called: it might be ``os.system``)."""
    # The user's module may import such a function, so the check of the module's name is not enough.
    module = factory.__module__ if inspect.isroutine(factory) or inspect.isclass(factory) else None
    return str(module).partition(".")[0] in sys.stdlib_module_names


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _missing(parameters: Iterable[inspect.Parameter], keywords: Mapping[str, Any]) -> list[str]:
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return [p.name for p in required if p.name not in keywords]
