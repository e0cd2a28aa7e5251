"""The example plug-in, installed into a new virtual environment."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import stack as stacks
from tests.stack import Stack

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin-lights"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drumline and the plug-in as wheels. A .pth file adds the packages of this environment after
    those of the new one, so that no network is needed."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--no-deps", "--no-build-isolation", "--force-reinstall", ROOT, PLUGIN],
        check=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def stack(venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setattr(stacks, "PROGRAM", venv / "bin" / "drumline")
    monkeypatch.setenv("LIGHTS_DIR", str(tmp_path))
    with Stack(workers=1) as started:
        yield started


def test_the_installed_wheels_are_imported_and_not_this_tree(venv: Path) -> None:
    code = "import drumline, drumline_lights as l; print(drumline.__file__); print(l.__file__)"
    done = subprocess.run(
        [venv / "bin" / "python", "-c", code], cwd=venv, capture_output=True, text=True, check=True
    )
    assert all(Path(line).is_relative_to(venv) for line in done.stdout.split())


def test_the_tests_of_the_plugin_pass(venv: Path) -> None:
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=PLUGIN,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_batch_of_the_plugin_runs_and_is_rolled_back(stack: Stack, tmp_path: Path) -> None:
    for name in ("hall", "kitchen", "stairs"):
        (tmp_path / f"{name}.json").write_text('{"on": true, "level": 80}')

    def levels() -> dict[str, int]:
        return {
            path.stem: json.loads(path.read_text())["level"] for path in tmp_path.glob("*.json")
        }

    shown = stack.cli("handlers", "show", "light_dim")
    assert (shown["target_type"], shown["timeout"]) == ("light", 30)
    assert shown["origin"] == "drumline_lights.handlers:Dim"
    assert (shown["captures"], shown["rolls_back"]) == (True, True)
    assert stack.cli("handlers", "show", "light_off")["timeout"] == 3

    file = str(PLUGIN / "lights.jsonl")
    submit = ("batch", "submit", "evening", "--type", "light_dim", "--targets", file)
    dry = stack.cli(*submit, "--param", '{"level": 30}', "--dry-run")
    assert [(each["before"]["level"], each["after"]["level"]) for each in dry["targets"]] == [
        (80, 30), (80, 30), (80, 10),
    ]  # fmt: skip
    assert set(levels().values()) == {80}

    batch_id = stack.cli(*submit, "--param", '{"level": 30}')["batch_id"]
    assert stack.wait_batch(batch_id)["status"] == "success"
    assert levels() == {"hall": 30, "kitchen": 30, "stairs": 10}
    stack.cli("batch", "rollback", str(batch_id))
    assert stack.wait_batch(batch_id)["status"] == "rollback_success"
    assert set(levels().values()) == {80}

    wrong = stack.run(*submit, "--param", '{"level": 300}', check=False)
    assert wrong.returncode == 2
    assert f"{file} line 1: param.level: must be <= 100, not 300" in wrong.stderr
