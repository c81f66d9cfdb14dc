"""The package as installed: what it carries, what it needs, what it says about itself."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import keel
import keel._core
import pytest

FOLDER = Path(keel.__file__).parent


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


@pytest.mark.parametrize("module", ["_attention", "_backward", "_merge"])
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
