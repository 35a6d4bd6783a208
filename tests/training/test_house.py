"""The plan of the learner's house: lazy imports, one direction, modules that can be read, nothing swallowed."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_house import broad_handlers, imports

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets", "matplotlib", "scipy"}
MODULES = sorted((ROOT / "training").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
FLOORS = (
    ("stage", "prompts"),
    ("data", "evaluation"),
    ("models", "collect", "attribution"),
    ("fitting",),
    ("reward", "pi"),
    ("grpo",),
    ("commands",),
    ("__main__",),
)
"""The rooms of training, lowest first: a room imports only rooms of the floors below (and itself)."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
STUDIES = sorted((ROOT / "studies").rglob("*.py"))
"""Outside the packages; they keep the rules of a module, and go where users go."""


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*MODULES, *STUDIES], ids=name)
def test_no_module_outgrows_its_ceiling(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_are_thin(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def at_import(tree):
    """Import statements that run when the module is imported: not in functions, not for type checkers alone."""
    for node in tree.body if isinstance(tree, ast.Module | ast.ClassDef) else []:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from at_import(node)


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS, *STUDIES], ids=name)
def test_what_is_heavy_is_imported_where_it_is_used(path):
    """TRL's config classes alone take six seconds: a misspelt key must not wait for them."""
    for node in at_import(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        assert not {found.split(".")[0] for found in names} & HEAVY, ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_the_learner_uses_public_names_and_imports_neither_tests_nor_scripts(path):
    for found in imports(path):
        assert found.split(".")[0] not in {"tests", "scripts", "benchmarks"}, found
        if found.startswith("sotopia_env."):
            assert not any(part.startswith("_") for part in found.split(".")), found


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_import_goes_against_the_arrows(path):
    own = path.relative_to(ROOT / "training").parts[0].removesuffix(".py")
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "training" and rest[0] != own:
            assert FLOOR[rest[0]] < FLOOR[own], name


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=name)
def test_names_of_the_environment_come_from_front_doors(path):
    """A room's door is its ``__init__``; a module directly in the package is a door of its own."""
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "sotopia_env" and len(rest) > 1:
            door = importlib.import_module(f"sotopia_env.{rest[0]}")
            assert len(rest) == 2, name
            assert rest[1] in getattr(door, "__all__", vars(door)), name
            assert not inspect.ismodule(getattr(door, rest[1])), name


@pytest.mark.parametrize("path", [*MODULES, *STUDIES], ids=name)
def test_nothing_reads_global_randomness(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            call = ast.unparse(node.func)
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "random":
                assert call == "random.Random", call
            assert not call.startswith(("np.random.", "numpy.random.")) or call.endswith("default_rng"), call


@pytest.mark.parametrize("path", [*MODULES, *STUDIES], ids=name)
def test_nothing_is_swallowed(path):
    assert not broad_handlers(path)


def test_settings_and_rows_load_nothing_heavy():
    code = "import sys, training.grpo.stage, training.fitting.behavior_cloning, training.reward.model;"
    code += "import training.models.policy;"
    code += f"print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_make_soak_installs_what_training_has_in_another_version_beside_vllm():
    plain, beside = (
        dict(line.lower().replace("_", "-").split("==") for line in (ROOT / name).read_text().splitlines())
        for name in ("constraints.txt", "constraints-vllm.txt")
    )
    other = {name for name, version in beside.items() if plain.get(name, version) != version}
    (line,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "--target" in line and "vllm" in line)
    assert set(line.split("-c constraints-vllm.txt")[1].split()) == other
