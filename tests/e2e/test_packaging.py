"""What is built is what is tested, and it holds what it should."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

import orihon


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The sdist, and the wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_the_wheel_from_the_sdist_is_the_package_under_test(built):
    """Every module and data file of the installed package is in the wheel, byte for byte, and nothing else is."""
    (wheel,) = built.glob("*.whl")
    installed = Path(orihon.__file__).parent
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist() if name.startswith("orihon/")}
    files = (path for path in installed.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert inside == {f"orihon/{path.relative_to(installed).as_posix()}": path.read_bytes() for path in files}


def test_the_wheel_is_small_and_its_classifiers_are_known(built):
    """Less than 1 MB, and every classifier is one that the package index knows."""
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < 1_000_000
    listed = metadata.metadata("orihon").get_all("Classifier")
    assert set(listed) <= classifiers
    assert "Operating System :: MacOS" not in listed  # it has not been run there


@pytest.mark.slow
def test_the_wheel_runs_without_an_installation(built, tmp_path):
    """`uvx --from WHEEL orihon demo`, as docs/release.md says."""
    (wheel,) = built.glob("*.whl")
    command = [Path(sys.executable).with_name("uvx"), "--python", sys.executable, "--from", wheel, "orihon", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_issue_forms_can_be_shown(root):
    """Each has a name, a description, and questions with an id and a label."""
    forms = [path for path in (root / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"]
        assert form["description"]
        questions = [item for item in form["body"] if item["type"] != "markdown"]
        assert len({item["id"] for item in questions}) == len(questions) >= 3
        assert all(item["attributes"]["label"] for item in questions)


def test_the_sdist_can_be_tested(built):
    """Tests, lock files and the Makefile travel with the source."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "Makefile",
        "README.md",
        "LICENSE",
        "locks/dev.txt",
        "tests/conftest.py",
        "Dockerfile",
        "pyproject.toml",
    } <= names


def test_the_sample_of_the_demo_travels(built):
    """The shop, its log and the script are in the wheel and in the source."""
    names = [
        "issue.md",
        "first.yaml",
        "second.yaml",
        "shop/orders.log",
        "shop/shop/basket.py",
        "shop/tests/test_basket.py",
    ]
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert {f"orihon/demo/sample/{name}" for name in names} <= set(archive.namelist())
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"examples/demo/sample/{name}" for name in names} <= inside


def test_the_viewer_travels(built):
    """Templates, texts and static files are in the wheel, which stays below 1 MB; the pictures of README are small."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.stat().st_size < 1_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = ("templates/call.html", "static/view.css", "static/view.js", "texts.en.txt", "texts.ja.txt")
    assert {f"orihon/view/{name}" for name in inside} <= names
    with tarfile.open(sdist) as archive:
        sizes = {member.name.partition("/")[2]: member.size for member in archive.getmembers()}
    pictures = {name: size for name, size in sizes.items() if name.startswith("docs/images/viewer-")}
    assert len(pictures) == 2
    assert max(pictures.values()) < 200_000


def test_the_version_and_the_changelog_agree(root):
    """The newest entry of the changelog is the version that is installed."""
    first = next(
        line for line in (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line.startswith("## ")
    )
    assert f"[{metadata.version('orihon')}]" in first
    assert orihon.__version__ == metadata.version("orihon")


FRAMEWORKS = {"langgraph", "openai-agents", "pydantic-ai"}  # the extras of the adapters, which `all` leaves out


def test_the_extras_are_those_that_were_promised():
    """Each extra can be asked for, and `all` is all of them but those of the adapters."""
    assert set(metadata.metadata("orihon").get_all("Provides-Extra")) - FRAMEWORKS == {
        "agent",
        "all",
        "metrics",
        "otel",
        "postgres",
        "prices",
        "tokens",
        "view",
    }


@pytest.mark.parametrize("lock", ["run", "all", "dev", "integrations"])
def test_the_lock_files_fulfil_the_project(root, lock):
    """Every direct dependency is pinned, with hashes, to a version that pyproject.toml allows."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["project"]["dependencies"])
    if lock in {"run", "dev"}:
        wanted += project["dependency-groups"]["build"]
    if lock == "dev":
        wanted += [line for line in project["dependency-groups"]["dev"] if isinstance(line, str)]
    extras = project["project"]["optional-dependencies"]
    if lock == "integrations":
        wanted += project["dependency-groups"]["integrations"]
        wanted += [line for name in FRAMEWORKS for line in extras[name]]
    elif lock != "run":
        wanted += [line for name in extras.keys() - FRAMEWORKS for line in extras[name]]
    text = (root / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    blocks = [block for block in text.split("\n") if "==" in block]
    pinned = {canonicalize_name(line.split("==")[0]): line.split("==")[1].split()[0] for line in blocks}
    for requirement in map(Requirement, wanted):
        if requirement.name != "orihon":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
    assert text.count("--hash=sha256:") >= len(blocks)
