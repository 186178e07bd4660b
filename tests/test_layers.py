"""The architecture as a test: imports go one way, and `search` knows no Hugging Face."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mgs

SOURCE = Path(mgs.__file__).parent

#: Each layer imports only from those before it, or from itself. Those in one string are one layer.
ORDER = (
    "types errors ranks",
    "kernels",
    "data",
    "models",
    "decoding",
    "costs",
    "metrics",
    "search",
    "candidates",
    "methods",
    "training",
    "experiments",
    "report",
    "cli __main__",
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names.split()}
HUGGING_FACE = {
    "accelerate",
    "datasets",
    "diffusers",
    "evaluate",
    "huggingface_hub",
    "optimum",
    "peft",
    "safetensors",
    "tokenizers",
    "transformers",
    "trl",
}


def layer(module: str) -> str:
    """`mgs.search.weights` → `search`; the package itself is ''."""
    return module.split(".")[1] if "." in module else ""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = sorted(SOURCE.rglob("*.py"))
    names = [".".join(("mgs", *path.relative_to(SOURCE).with_suffix("").parts)) for path in paths]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names of everything imported anywhere in the file: in functions, under TYPE_CHECKING, by importlib."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            # `from mgs import search` names a module, `from mgs import __version__` does not.
            yield from (f"{base}.{alias.name}" if base == "mgs" else base for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mgs":
            yield f"mgs.{node.attr}"  # `import mgs` and then `mgs.something`
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def imports_of(module: str, path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return set(imported(tree, module, path.name == "__init__.py")) - {"mgs", "mgs.__version__"}


def violations(module: str, names: set[str]) -> list[str]:
    """Imports from a later layer; the package's own public names count as the layer they come from."""
    where = {name: mgs._PUBLIC[layer(name)] if layer(name) in mgs._PUBLIC else layer(name) for name in names}
    ours = {name: target for name, target in where.items() if name.split(".")[0] == "mgs"}
    unknown = [name for name, target in ours.items() if target not in RANK]
    return sorted(unknown + [name for name, target in ours.items() if RANK.get(target, 0) > RANK[layer(module)]])


def reached_from(start: str) -> set[str]:
    """All modules of the package that importing these would import, packages on the way included."""
    known = modules()
    open_, seen = [name for name in known if layer(name) == start], set()
    while open_:
        module = open_.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in imports_of(module, known[module]):
            parts = name.split(".")
            open_ += [prefix for i in range(2, len(parts) + 1) if (prefix := ".".join(parts[:i])) in known]
    return seen


def test_every_module_belongs_to_a_layer():
    assert {layer(module) for module in modules()} - {""} <= set(RANK)


@pytest.mark.parametrize("module", [module for module in modules() if module != "mgs"])
def test_a_layer_imports_only_from_those_before_it(module):
    assert violations(module, imports_of(module, modules()[module])) == []


def test_the_package_imports_nothing_of_its_own_when_it_is_imported():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in at_once for name in imported(node, "mgs", True)}
    assert not any(name.startswith("mgs") for name in names)


def test_the_table_of_public_names_is_right():
    assert sorted(mgs._PUBLIC) == mgs.__all__ == sorted(mgs.__all__)
    assert {name: getattr(mgs, name).__name__ for name in mgs.__all__} == {name: name for name in mgs.__all__}
    assert set(mgs._PUBLIC.values()) <= set(RANK)


def test_search_reaches_no_hugging_face():
    known = modules()
    found = {module: {n.split(".")[0] for n in imports_of(module, known[module])} for module in reached_from("search")}
    assert "mgs.search.proposal" in found
    assert {module: names & HUGGING_FACE for module, names in found.items() if names & HUGGING_FACE} == {}


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("mgs.search.weights", "from mgs.methods import MGS", ["mgs.methods"]),
        ("mgs.search.weights", "def f():\n    import mgs.training.config", ["mgs.training.config"]),
        ("mgs.search.weights", "from ..candidates import Task", ["mgs.candidates"]),
        ("mgs.search.weights", "from mgs import cli", ["mgs.cli"]),
        ("mgs.search.weights", "from mgs import MGSTrainer", ["mgs.MGSTrainer"]),
        ("mgs.search.weights", "import mgs\nmgs.Decoder, mgs.MGSTrainer", ["mgs.MGSTrainer"]),
        ("mgs.search.weights", "import importlib\nimportlib.import_module('mgs.report')", ["mgs.report"]),
        ("mgs.search.weights", "from mgs.nowhere import x", ["mgs.nowhere"]),
        (
            "mgs.search.weights",
            "import mgs\nfrom . import proposal\nfrom mgs.errors import UserError\nmgs.__version__",
            [],
        ),
        ("mgs.types", "from mgs import errors", []),
    ],
)
def test_the_check_itself_sees_every_way_of_importing(module, source, found):
    names = set(imported(ast.parse(source), module, False)) - {"mgs", "mgs.__version__"}
    assert violations(module, names) == found
