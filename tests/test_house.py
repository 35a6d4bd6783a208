"""The plan of the house: who may import whom, what importing the package may do, how large a module may grow.

What ruff and import-linter can say is in pyproject.toml.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sotopia_env"
STUDIO = ROOT / "studio" / "sotopia_studio"
PACKAGES = (PACKAGE, ROOT / "training" / "sotopia_training", STUDIO)


def modules(*folders: Path) -> list[Path]:
    """The modules of the packages, or of these folders."""
    return sorted(path for folder in folders or PACKAGES for path in folder.rglob("*.py"))


def room(path: Path) -> str:
    """The package and the room of a module."""
    (package,) = (folder for folder in PACKAGES if folder in path.parents)
    return "/".join((package.name, path.relative_to(package).parts[0])).removesuffix(".py")


def test_the_contracts_on_imports_hold():
    """Floors, circles, front doors and packages that only some may import: ``tool.importlinter`` in pyproject.toml."""
    # In a process of its own: import-linter configures logging, which disables the loggers that are there.
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


DOMAIN = {
    *("action", "agent", "dialogue", "dimension", "episode", "evaluator", "goal", "judge", "move", "observation"),
    *("outcome", "partner", "policy", "reward", "scenario", "seat", "task", "transcript", "turn", "utterance", "worth"),
}
"""Nouns of the domain."""
TREE_OF_ERRORS = {"InvalidTaskError", "InvalidActionError", "PolicyError"}
"""The classes of one hierarchy, which a reader looks for in one module."""


def spoken_names(path: Path) -> set[str]:
    """The identifiers and texts of a module, without its docstrings and comments."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings}
    names = {getattr(node, field, None) for node in nodes for field in ("id", "attr", "name", "arg", "module")}
    return {text for text in texts | names if isinstance(text, str)}


def test_the_ground_floor_knows_nothing_of_the_domain():
    for path in modules(PACKAGE / "foundation"):
        for text in spoken_names(path) - TREE_OF_ERRORS:
            words = {word.lower().removesuffix("s") for word in re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}
            assert not words & DOMAIN, (path.name, text)


def test_a_class_has_a_name_of_its_own():
    """One name for each concept in the three packages; private classes and those inside functions are not counted."""
    classes = Counter(
        node.name
        for path in modules()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, number in classes.items() if number > 1} <= {"EpisodeOptions"}


def test_no_module_outgrows_its_ceiling():
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(*PACKAGES, ROOT / "studies")}
    assert [path for path, size in sizes.items() if size > 450] == []


def test_no_folder_outgrows_its_ceiling():
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules())
    assert {folder: size for folder, size in sizes.items() if size > 15} == {}


def test_no_record_is_read_past_the_readers():
    """Pydantic's own readers take the last of two equal keys; what ruff bans by name is in pyproject.toml."""
    readers = re.compile(r"\.(?:model_)?validate_json\(|\bfrom_json\(")
    paths = [path for path in modules(*PACKAGES, ROOT / "scripts", ROOT / "studies") if path.name != "json_text.py"]
    assert [path for path in paths if readers.search(path.read_text(encoding="utf-8"))] == []


def broad_handlers(path: Path) -> list[str]:
    """Handlers for anything that do not raise it again."""
    handlers = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ExceptHandler)]
    swallowing = [node for node in handlers if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))]
    names = [ast.unparse(node.type) if node.type else "" for node in swallowing]
    return [name for name in names if name in ("", "Exception", "BaseException")]


def test_there_is_one_catch_all_handler():
    """Guards TextArena's bare handlers and S8: only the playing of one episode may catch what it does not know."""
    handlers = {room(path): broad_handlers(path) for path in modules() if broad_handlers(path)}
    assert set(handlers) == {"sotopia_env/runs"}
    assert "" not in handlers["sotopia_env/runs"]


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
heavy = [name for name in ("torch", "litellm", "transformers", "scipy", "matplotlib", "pandas")
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


LOADED = """
import json, sys
import sotopia_env
print(json.dumps({name: getattr(module, "__file__", "") for name, module in sys.modules.items()}))
"""


def test_importing_the_environment_loads_the_environment_alone():
    """At most 95 modules and 16,500 lines of ours, and none of the rooms that play, store, report or reach a model."""
    process = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    files = {
        name: Path(file) for name, file in json.loads(process.stdout).items() if name.split(".")[0] == "sotopia_env"
    }
    others = ("chat_model", "storage", "naming", "runs", "reports", "policies", "people", "writing", "concurrency")
    assert {name for name in files if name.split(".")[1:2] and name.split(".")[1] in others} == set()
    assert len(files) <= 95
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files.values()) <= 16_500


def test_the_doors_of_rooms_are_what_pages_and_examples_name():
    """At most 125 names in all ``__init__`` of rooms together; our own modules import from the module that defines."""
    names = Counter()
    for path in PACKAGE.glob("*/**/__init__.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names[path.parent.relative_to(PACKAGE).as_posix()] = len(ast.literal_eval(node.value))
    assert names.total() <= 125, names


def test_the_front_door_is_exactly_what_is_listed():
    import sotopia_env

    assert all(hasattr(sotopia_env, name) for name in sotopia_env.__all__)
    assert len(set(sotopia_env.__all__)) == len(sotopia_env.__all__)


PAGES = STUDIO / "pages"


def rules_of_the_style_sheet() -> list[tuple[str, str]]:
    """The selectors of the studio's style sheet, each with the comment above its section; without media queries."""
    text = (PAGES / "static" / "studio.css").read_text(encoding="utf-8")
    text = re.sub(r"@[^{;]+\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text)
    rules, section = [], ""
    for comment, selectors in re.findall(r"/\*(.*?)\*/|([^{}/]+)\{[^{}]*\}", text, re.DOTALL):
        section = comment or section
        rules += [(section, selector.strip()) for selector in selectors.split(",") if selector.strip()]
    return rules


def test_a_class_of_the_style_sheet_belongs_to_one_component():
    """Two components of one class name once hid the forms of participants: a rule of one applied to the other."""
    rules = rules_of_the_style_sheet()
    sections: dict[str, set[str]] = {}
    for section, selector in rules:
        if name := re.search(r"\.([a-z][\w-]*)", selector):  # the first class of a selector is the component
            sections.setdefault(name[1], set()).add(section)
    assert sections
    assert {name for name, places in sections.items() if len(places) > 1} == set()


def test_the_style_sheet_has_no_class_that_no_page_uses():
    paths = [*(PAGES / "templates").glob("*.html"), PAGES / "static" / "studio.js"]
    text = " ".join(path.read_text(encoding="utf-8") for path in paths)
    classes = {name for _, selector in rules_of_the_style_sheet() for name in re.findall(r"\.([a-z][\w-]*)", selector)}
    unused = {name for name in classes if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}
    assert {name for name in unused if not re.fullmatch(r"seat-\d", name)} == set()  # written as seat-{{ number }}
