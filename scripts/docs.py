#!/usr/bin/env python3
"""docs.py ROOT PAGES: gathers the pages of the site: docs/, those beside README.md, examples, and the reference.

On GitHub the pages of docs/ are a folder below the others; on the site they are all beside each other, so links between
the two lose their folder. Standard library only.
"""

import ast
import re
import shutil
import sys
from pathlib import Path

BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PACKAGES = ("keel", "keel.torch", "keel.jax", "keel.transformers")


def flat(text):
    """Links for a site on which every page is in one folder."""
    text = re.sub(r"\]\((?:\.\./|docs/)([\w.-]+\.(?:md|svg))", r"](\1", text)
    text = re.sub(r"\]\((?:\.\./)?examples/\)", "](examples.md)", text)
    text = re.sub(r"\]\(\.\./examples/", "](examples/", text)
    text = re.sub(r"\]\(LICENSE\)", "](license.md)", text)
    return re.sub(r"\]\(README\.md", "](index.md", text)


def parsed(root, module):
    place = root / "python" / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def exported(tree):
    """The names in __all__, or the functions without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(node.value) if name[0] != "_"]
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]


def definition(root, module, name):
    """The last definition of a name (overloads come first), in the module or in that from which it is imported."""
    tree, found = parsed(root, module), None
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            found = definition(root, node.module, name)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            found = node
    return found


def signature(function, name):
    arguments = ast.unparse(function.args).replace("self, ", "", 1).replace(", ", ",\n    ")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{name}(\n    {arguments},\n){returns}" if arguments not in ("", "self") else f"{name}(){returns}"


def entry(place, node):
    """What a docstring says, as it is: it is written for a terminal."""
    text = ast.get_docstring(node) or ""
    parts = [f"### {place} {{ #{place} }}", ""]
    methods = [m for m in node.body if isinstance(node, ast.ClassDef) and isinstance(m, ast.FunctionDef)]
    made = next((m for m in methods if m.name == "__init__"), None)
    if isinstance(node, ast.FunctionDef) or made:
        parts += ["```python", signature(made or node, node.name), "```", ""]
    if text:
        parts += ["```text", text, "```", ""]
    for method in methods:
        if method.name[0] != "_":
            parts += ["```python", signature(method, f"{node.name}.{method.name}"), "```", ""]
            parts += ["```text", ast.get_docstring(method) or "", "```", ""]
    return parts


def reference(root):
    """A page of what the package exports."""
    lines = ["# Python reference", ""]
    for package in PACKAGES:
        lines += [f"## {package}", ""]
        for name in exported(parsed(root, package)):
            lines += entry(f"{package}.{name}", definition(root, package, name))
    return "\n".join(lines)


def examples(root, pages):
    """A page that lists the examples, and their files beside it."""
    lines = ["# Examples", ""]
    for file in sorted((root / "examples").rglob("*")):
        if file.suffix in (".cc", ".h", ".ipynb", ".py"):
            name = file.relative_to(root)
            (pages / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, pages / name)
            lines.append(f"- [{name.relative_to('examples')}]({name})")
    return "\n".join(lines) + "\n"


def main(root, pages):
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    for page in [*sorted((root / "docs").glob("*.md")), *(root / name for name in BESIDE)]:
        name = "index.md" if page.name == "README.md" else page.name
        (pages / name).write_text(flat(page.read_text(encoding="utf-8")), encoding="utf-8")
    licence = (root / "LICENSE").read_text(encoding="utf-8")
    (pages / "license.md").write_text(f"# License\n\n```text\n{licence}```\n", encoding="utf-8")
    (pages / "examples.md").write_text(examples(root, pages), encoding="utf-8")
    for picture in (root / "docs").glob("*.svg"):
        shutil.copy(picture, pages)
    (pages / "reference.md").write_text(reference(root), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
