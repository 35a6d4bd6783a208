"""The plan of the house: who may import whom, what importing the package may do, how large a module may grow."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sotopia_env"
FLOORS = (
    ("quoting",),
    ("errors",),
    ("files", "prompts"),
    ("json_text",),
    ("records", "yaml_text"),
    ("outcomes", "settings"),
    ("world",),
    ("tasks", "chat_model", "storage", "importers"),
    ("policies", "evaluators", "reports", "concurrency"),
    ("naming", "people", "table", "writing"),
    ("continuations", "testing", "envs", "runs"),
    ("sotopia_v0", "adapters", "service"),
    ("__init__", "cli"),
)
"""The rooms of the package, lowest first: a room imports only rooms of the floors below (and itself)."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FORBIDDEN_OUTSIDE = {"torch", "transformers", "trl", "peft", "training", "tests", "scripts", "benchmarks"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_import_goes_against_the_arrows(path):
    own = room(path)
    assert own in FLOOR, f"{own}: give the new room its floor in FLOORS"
    for name in imports(path):
        top, *rest = name.split(".")
        assert top not in FORBIDDEN_OUTSIDE, f"{path.name} imports {name}"
        if top == "sotopia_env" and rest[0] != own:
            assert FLOOR[rest[0]] < FLOOR[own], f"{path.name} imports {name}"
        if top == "litellm":
            assert own == "chat_model", f"{path.name} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_outgrows_its_ceiling(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("package", [PACKAGE, ROOT / "training"], ids=lambda path: path.name)
def test_no_folder_outgrows_its_ceiling(package):
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in package.rglob("*.py"))
    assert {folder: size for folder, size in sizes.items() if size > 15} == {}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_reads_global_randomness(path):
    """Guards S13 and TextArena: no call on the modules' hidden generators."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        call = ast.unparse(node.func)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "random":
            assert call == "random.Random", f"{path.name}: {call}"
        assert not call.startswith(("np.random.", "numpy.random.")) or call.endswith(("default_rng", "SeedSequence"))


def test_one_module_writes_csv():
    """A sheet that is not written by ``files.csv_text`` may hold formulas."""
    folders = [PACKAGE, *(PACKAGE.parent / name for name in ("training", "scripts", "benchmarks"))]
    sources = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}
    writers = [path.name for path, source in sources.items() if "csv.writer" in source or "DictWriter" in source]
    assert writers == ["files.py"]


READERS = ("json_text.py", "yaml_text.py")
OTHER_READERS = ("json.load", "json.loads", "json.JSONDecoder", "model_validate_json", "validate_json", "from_json")
MODEL_TEXT = ("action.py", "move.py", "verdict.py")
"""Modules that read what a model wrote: a failure there is an event of the episode, with a reason for the model."""


@pytest.mark.parametrize(
    "path",
    [*modules(), *(ROOT / "training").rglob("*.py"), *ROOT.glob("scripts/*.py"), *ROOT.glob("benchmarks/*.py")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_json_and_yaml_from_outside_have_one_reader_each(path):
    """The readers of libraries construct, take the last of two equal keys, and raise what nobody catches."""
    if path.name in READERS:
        return
    assert not {name.split(".")[0] for name in imports(path)} & {"yaml", "pickle", "dill", "joblib", "shelve"}
    if path.name not in MODEL_TEXT and ROOT / "benchmarks" not in path.parents:
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        names = [ast.unparse(call.func) for call in calls]
        assert not [name for name in names if name.endswith(OTHER_READERS)]


def broad_handlers(path: Path) -> list[str]:
    """Handlers for anything that do not raise it again."""
    handlers = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ExceptHandler)]
    swallowing = [node for node in handlers if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))]
    names = [ast.unparse(node.type) if node.type else "" for node in swallowing]
    return [name for name in names if name in ("", "Exception", "BaseException")]


def test_there_is_one_catch_all_handler():
    """Guards TextArena's bare handlers and S8: only the playing of one episode may catch what it does not know."""
    found = {room(path): broad_handlers(path) for path in modules() if broad_handlers(path)}
    assert set(found) == {"runs"}
    assert "" not in found["runs"]


GUARD = """
import builtins, io, json, os, socket, sys
def no_socket(*args, **kwargs): raise AssertionError("a socket was opened at import")
socket.socket.connect = no_socket
socket.create_connection = no_socket
allowed = tuple(os.path.realpath(p) for p in {allowed!r})
opened = []
def audit(event, args):
    if event == "open" and isinstance(args[0], str) and not os.path.realpath(args[0]).startswith(allowed):
        opened.append(args[0])
sys.addaudithook(audit)
import sotopia_env
heavy = [name for name in ("torch", "litellm", "transformers", "scipy", "matplotlib", "pandas", "vaderSentiment")
         if name in sys.modules]
print(json.dumps({{"heavy": heavy, "opened": opened}}))
"""


def test_importing_opens_no_socket_no_file_of_the_users_and_nothing_heavy(tmp_path):
    """Guards S25 and sotopia's database ping at import."""
    allowed = [str(PACKAGE), sys.prefix, sys.base_prefix, "/dev", "/proc", "/etc", "/usr"]
    run = subprocess.run(
        [sys.executable, "-c", GUARD.format(allowed=allowed)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert json.loads(run.stdout) == {"heavy": [], "opened": []}
    assert run.stderr == ""


def test_the_front_door_is_exactly_what_is_listed():
    import sotopia_env

    assert all(hasattr(sotopia_env, name) for name in sotopia_env.__all__)
    assert len(set(sotopia_env.__all__)) == len(sotopia_env.__all__)
