"""The house rules on imports, the environment, and the size of files, functions and signatures: a checker for the tests.

Modules stand on floors and import only from floors below. What is imported lazily or for type checkers alone counts too:
it couples all the same.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "shardtools"
FLOORS = (
    {"errors", "units"},
    {
        "keys",
        "sample",
        "extents",
        "plan",
        "partitions",
        "manifest",
        "duplicates",
        "digests",
        "plugins",
        "mosaic",
        "signals",
        "threads",
        "selection",
        "npy",
    },
    {"storage"},
    {"formats", "places"},
    {"datasets"},
    {"sources", "transforms", "engines"},
    {"build", "loaders"},
    {"verify", "bench", "explore"},
    {"cli"},
    {"__main__"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
PLAIN_PACKAGES = {"build", "loaders", "verify", "bench", "explore", "cli"}
"""Their files are parts of one thing; the files of every other package are plug-ins, unaware of each other."""

HOMES = {
    "torch": ("loaders", "verify", "bench"),
    "torchvision": ("loaders", "verify", "bench"),
    "boto3": ("storage.s3",),
    "botocore": ("storage.s3",),
    "pyarrow": ("sources.parquet", "sources.csv"),
    "tokenizers": ("transforms._tokenize_hf",),
    "gigatoken": ("transforms._tokenize_gigatoken",),
    "jinja2": ("transforms._chat_template", "bench.report.html"),
    "transformers": (),
    "PIL": ("transforms.images", "loaders", "verify", "bench", "explore._images"),
    "ray": ("engines.ray",),
    "webdataset": ("verify", "bench"),
    "streaming": ("verify", "bench"),
    "click": ("cli",),
    "tqdm": ("cli",),
    "scripts": (),
    "tests": (),
}
ENVIRONMENT_READERS = {"environ", "environb", "getenv", "getenvb"}
MAX_LINES = 250
TO_BE_SPLIT: dict[str, int] = {}
"""Modules above the limit that wait for their split, and how long they may be until then. Nothing is added here."""
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 6
KEYWORD_PASSERS = {"cli._help"}
"""Where a library's decorators leave no other way than ``**kwargs``."""


@dataclass(frozen=True)
class Import:
    """One imported name: ``shardtools.formats.Chunk`` or ``numpy``."""

    line: int
    name: str


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    """Below the package: ``formats.wds``, ``formats`` for its ``__init__``, empty for the package's own."""
    path: str
    text: str
    is_package: bool

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def imports(self) -> list[Import]:
        found: list[Import] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [Import(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                found += [Import(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
        return found

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = [PACKAGE, *self.name.split(".")] if self.name else [PACKAGE]
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, node.module] if node.module else base)


def read_modules(root: Path) -> dict[str, Module]:
    """Every module of the package below ``root``, by its name."""
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        relative = path.relative_to(root / PACKAGE)
        parts = relative.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, f"{PACKAGE}/{relative.as_posix()}", path.read_text("utf-8"), is_package)
    return modules


def breaches(root: Path) -> list[str]:
    """Every breach of the rules in the package below ``root``, each a sentence that begins with its place."""
    modules = read_modules(root)
    found: list[str] = []
    for module in modules.values():
        found += floor_breaches(module, modules)
        found += heavy_breaches(module)
        found += environment_breaches(module)
        found += length_breaches(module)
        found += function_breaches(module)
    found += cycle_breaches(modules)
    return found


def targets(module: Module, modules: dict[str, Module]) -> Iterator[tuple[int, Module]]:
    """The package's own modules that a module imports, each with the line."""
    for imported in module.imports:
        package, _, name = imported.name.partition(".")
        if package != PACKAGE:
            continue
        while name not in modules and name:
            name = name.rpartition(".")[0]
        yield imported.line, modules[name]


def floor_breaches(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    if module.name and module.room not in FLOOR_OF:
        yield f"{module.path}:1: {module.room} has no floor; give it one"
        return
    for line, target in targets(module, modules):
        if target.name and (reason := forbidden(module, target)):
            yield f"{module.path}:{line}: imports {PACKAGE}.{target.name}, {reason}"


def forbidden(module: Module, target: Module) -> str | None:
    """Why a module may not import another, None where it may."""
    if target.room not in FLOOR_OF:
        return "which has no floor"
    if not module.name:
        return "which every import of the package would then load"
    ours, theirs = FLOOR_OF[module.room], FLOOR_OF[target.room]
    if theirs > ours:
        return "which is on a higher floor"
    if module.room != target.room:
        if any(part.startswith("_") and part != "__main__" for part in target.name.split(".")):
            return "which is a private part of another package"
        if theirs == ours and ("." in target.name or target.is_package or "." in module.name or module.is_package):
            return "which is another package on the same floor"
        return None
    is_plugin = "." in target.name and not target.name.rpartition(".")[2].startswith("_")
    if is_plugin and not target.is_package and target is not module and module.room not in PLAIN_PACKAGES:
        return "which is a plug-in of the same package"
    return None


def heavy_breaches(module: Module) -> Iterator[str]:
    for imported in module.imports:
        top = imported.name.partition(".")[0]
        homes = HOMES.get(top)
        if homes is not None and not any(f"{module.name}.".startswith(f"{home}.") for home in homes):
            yield f"{module.path}:{imported.line}: imports {top}, which is at home in {', '.join(homes) or 'no module'} only"


def environment_breaches(module: Module) -> Iterator[str]:
    if module.room == "cli":
        return
    passed_on = set(passed_to_children(module.tree))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node not in passed_on:
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = [alias.name for alias in node.names]
        else:
            continue
        if ENVIRONMENT_READERS.intersection(names):
            yield f"{module.path}:{node.lineno}: reads the environment, which only cli may"


def passed_to_children(tree: ast.Module) -> Iterator[ast.AST]:
    """Mentions of ``os.environ`` that only set a variable or hand all of them to a child as its ``env``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.value
        if isinstance(node, ast.keyword) and node.arg == "env":
            read = {inner.value for inner in ast.walk(node.value) if isinstance(inner, ast.Subscript)}
            read |= {inner.value for inner in ast.walk(node.value) if isinstance(inner, ast.Attribute) and inner.attr == "get"}
            yield from (inner for inner in ast.walk(node.value) if isinstance(inner, ast.Attribute) and inner not in read)


def length_breaches(module: Module) -> Iterator[str]:
    num_lines = module.text.count("\n")
    most = TO_BE_SPLIT.get(module.name, MAX_LINES)
    if num_lines > most:
        yield f"{module.path}:{most + 1}: has {num_lines} lines, more than {most}; split it by meaning"


def function_breaches(module: Module) -> Iterator[str]:
    for name, function in functions(module.tree):
        place = f"{module.path}:{function.lineno}: {name}"
        num_lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if num_lines > MAX_FUNCTION_LINES:
            yield f"{place} has {num_lines} lines, more than {MAX_FUNCTION_LINES}; split it by meaning"
        taken = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        num_parameters = len(taken) - (taken[:1] != [] and taken[0].arg in ("self", "cls"))
        if num_parameters > MAX_PARAMETERS:
            yield f"{place} has {num_parameters} parameters, more than {MAX_PARAMETERS}; a frozen dataclass should own them"
        is_public = not any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
        if function.args.kwarg is not None and is_public and module.name not in KEYWORD_PASSERS:
            yield f"{place} takes **{function.args.kwarg.arg}, which hides what it can be called with"


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function, method and inner function with its dotted name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, outer)


def cycle_breaches(modules: dict[str, Module]) -> Iterator[str]:
    graph = {name: sorted({target.name for _, target in targets(module, modules)} - {name, ""}) for name, module in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        yield f"{modules[cycle[0]].path}:1: is in a cycle of imports: {' -> '.join(cycle)}"
