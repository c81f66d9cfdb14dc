"""The package as installed: what it carries, what it needs, what it says about itself."""

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import keel
import keel._core
import pytest

FOLDER = Path(keel.__file__).parent
FOLDER_OF_THE_SOURCE = Path(__file__).parents[2]


def test_import_needs_numpy_alone():
    code = (
        "import sys; before = set(sys.modules); import keel; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(' '.join(sorted(name for name in new if name not in sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = set(done.stdout.split()) - {"keel", "numpy"}
    assert not {name for name in others if not name.startswith("_")}, done.stdout


def test_carries_the_libraries_that_it_links():
    names = {path.name for path in FOLDER.glob("lib*.so*")}
    needed = subprocess.run(["ldd", keel._core.__file__], capture_output=True, text=True, check=True).stdout
    linked = set(re.findall(r"(libtbb\S*|libhwy\S*) =>", needed))
    assert linked and linked <= names
    for line in needed.splitlines():
        if re.search(r"libtbb|libhwy", line):
            assert str(FOLDER) in line, line


def test_is_typed():
    assert (FOLDER / "py.typed").exists()
    stub = ast.parse((FOLDER / "_core.pyi").read_text())
    in_stub = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert in_stub == {name for name in dir(keel._core) if callable(getattr(keel._core, name)) and name[0] != "_"}
    for name in keel.__all__:
        if inspect.isfunction(getattr(keel, name)):
            signature = inspect.signature(getattr(keel, name))
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(p.annotation is not p.empty for p in signature.parameters.values()), name


def test_attention_has_the_signature_that_is_promised():
    promised = (
        "q k v mask causal window scale softcap alibi sinks dropout seed q_lengths k_lengths return_lse return_weights "
        "return_stats out threads"
    ).split()
    parameters = inspect.signature(keel.attention).parameters
    assert list(parameters)[:3] == promised[:3] and set(promised) <= set(parameters)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in promised[3:])


def test_metadata_says_what_it_is_and_whose():
    metadata = importlib.metadata.metadata("keel")
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Author"]
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    licences = {Path(name).name for name in metadata.get_all("License-File")}
    assert licences == {"LICENSE", "NOTICE"}
    notice = next(path for path in importlib.metadata.files("keel") if path.name == "NOTICE").read_text()
    for path in FOLDER.glob("lib*.so*"):
        assert path.name.split(".")[0] in notice, path.name


def test_show_config_says_what_is_there(capsys):
    keel.show_config()
    printed = capsys.readouterr().out
    facts = keel.show_config("dicts")
    assert [line.split()[0] for line in printed.splitlines()] == list(facts)
    assert facts["keel"] == keel.__version__ == importlib.metadata.version("keel")
    assert facts["torch"] == importlib.metadata.version("torch") and "libhwy.so.1" in facts["bundled"]
    assert facts["keel.torch"] == f"compiled part built for torch {facts['torch'].split('+')[0]}"
    with pytest.raises(ValueError, match=r"\[show_config\] mode: expected 'stdout' or 'dicts', got 'html'"):
        keel.show_config("html")


def run_without(tmp_path, files, code):
    """Runs code on a copy of the package in which these files are others, or missing where None."""
    shutil.copytree(FOLDER, tmp_path / "keel", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for pattern, text in files.items():
        for path in (tmp_path / "keel").glob(pattern):
            path.unlink()
        if text is not None:
            (tmp_path / "keel" / f"{pattern.split('.')[0]}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)


@pytest.mark.parametrize("library, names", [("libhwy.so.1", "libhwy1"), ("libtbb.so.12", "libtbb12, pip's tbb;")])
def test_a_missing_library_is_named_with_its_packages(tmp_path, library, names):
    text = f"raise ImportError('{library}: cannot open shared object file: No such file or directory')"
    done = run_without(tmp_path, {"_core.*.so": text}, "import keel")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: keel needs {library.split('.')[0]}, which") and names in last


def test_a_missing_compiled_part_is_said_once_and_quietly(tmp_path):
    code = "import keel.torch, torch; x = torch.ones(1, 1, 2, 4); keel.torch.scaled_dot_product_attention(x, x, x)"
    done = run_without(tmp_path, {"_torch.*.so": None}, code)
    assert done.returncode == 0 and done.stdout == done.stderr == "", done.stderr
    listening = f"import logging; logging.basicConfig(level=logging.INFO); {code}; keel.show_config()"
    done = run_without(tmp_path, {"_torch.*.so": None}, listening)
    assert done.stderr.count("keel.torch runs without its compiled part, since it was not built") == 1, done.stderr
    assert "pip install" in done.stderr and "without its compiled part: it was not built" in done.stdout


@pytest.mark.parametrize("missing, names", [("hwy", "Debian: libhwy-dev"), ("TBB", "libtbb-dev; pip: tbb-devel")])
def test_a_build_without_a_library_names_its_packages(tmp_path, missing, names):
    options = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{missing}=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON"]
    options += [f"-DKEEL_BUILD_{part}=OFF" for part in ("NN", "CLI", "TESTS", "CUDA")]
    command = ["cmake", "-S", str(FOLDER_OF_THE_SOURCE), "-B", str(tmp_path), "-G", "Ninja", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and names in " ".join(done.stderr.split()), done.stderr


def test_the_wheel_is_for_many_systems():
    pytest.importorskip("auditwheel")
    (wheel,) = (FOLDER_OF_THE_SOURCE / "build/wheel").glob("keel-*.whl")
    assert re.search(r"-manylinux_2_\d+_", wheel.name)


@pytest.mark.deep
def test_the_quickstart_runs_where_nothing_but_the_wheel_is_installed(tmp_path):
    (wheel,) = (FOLDER_OF_THE_SOURCE / "build/wheel").glob("keel-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--retries", "0"]
    if subprocess.run([*pip, "numpy"], capture_output=True).returncode != 0:
        pytest.skip("no package index can be reached")
    subprocess.run([*pip, wheel], check=True)
    page = (FOLDER_OF_THE_SOURCE / "README.md").read_text(encoding="utf-8")
    code, shown = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.M | re.S).groups()
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == shown, done.stderr


@pytest.mark.parametrize("module", ["_attention", "_backward", "_config", "_merge"])
def test_examples_of_the_docstrings_hold(module):
    results = doctest.testmod(importlib.import_module(f"keel.{module}"))
    assert results.attempted and not results.failed


def test_every_public_function_has_an_example():
    for name in keel.__all__:
        if inspect.isfunction(getattr(keel, name)):
            assert ">>>" in getattr(keel, name).__doc__, name


@pytest.mark.skipif(not (FOLDER / "bin/keel").exists(), reason="built without the programs")
@pytest.mark.parametrize("called", ["module", "script"])
def test_carries_the_programs(called, tmp_path):
    script = Path(sys.executable).parent / "keel"
    command = [sys.executable, "-m", "keel"] if called == "module" else [str(script)]
    run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"keel {keel.__version__}\n"
    lab = [*command, "lab", "example", "--repeats", "2", "--no-plots"]
    run = subprocess.run(lab, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "7 claims: 7 hold" in run.stdout
    assert (tmp_path / "lab-report/index.html").exists()
    # What it prints of itself can be pasted.
    shown = subprocess.run([*command, "lab", "--help"], capture_output=True, text=True, check=True).stdout
    assert f"\n  {'keel' if called == 'script' else sys.executable + ' -m keel'} lab list " in shown
    wrong = subprocess.run([*command, "lab", "nothing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("keel: ")


@pytest.mark.skipif(not (FOLDER / "bin/keel-lab").exists(), reason="built without the programs")
def test_the_programs_find_their_libraries_in_the_package():
    needed = subprocess.run(["ldd", FOLDER / "bin/keel-lab"], capture_output=True, text=True, check=True).stdout
    for line in needed.splitlines():
        if re.search(r"libtbb|libhwy|libopenblas|libfmt", line):
            assert str(FOLDER) in line, line
