"""The plan of the learner's house: lazy imports, one direction, modules that can be read, nothing swallowed."""

import subprocess
import sys
from pathlib import Path

from tests.test_house import broad_handlers

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets", "matplotlib", "scipy"}
MODULES = sorted((ROOT / "training" / "sotopia_training").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
STUDIES = sorted((ROOT / "studies").rglob("*.py"))


def test_scripts_are_thin():
    assert [path.name for path in SCRIPTS if len(path.read_text(encoding="utf-8").splitlines()) > 60] == []


def test_no_module_catches_all_exceptions():
    assert [path for path in (*MODULES, *STUDIES) if broad_handlers(path)] == []


def test_settings_and_rows_load_nothing_heavy():
    stages = ("grpo.stage", "fitting.behavior_cloning", "reward.model", "models.policy")
    code = "import sys;" + "".join(f"import sotopia_training.{name};" for name in stages)
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
