"""Every small change that could be made to a source file.

Not mutated: docstrings, annotations and type aliases, decorators, assertions, `__all__`, and text
for people (what an exception says, labels and looks of a figure, strings with spaces).
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from mutation_operators import LOOKS, OPERATORS, SAID, UNSEEN, statement
from mutation_source import Edit, Function, Signature, Source, called, is_text, names_of_functions

# Their strings are for people.
SAYING = {"print", "set_title", "set_xlabel", "set_ylabel", "tqdm", "warn"}


@dataclass(frozen=True)
class Mutation:
    """One change to one file."""

    file: str  # under src/bcq
    operator: str
    line: int
    function: str  # the innermost one, such as Class.method; nothing outside all of them
    edit: Edit

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.edit.start} {self.operator} {self.edit.new!r}"

    def apply(self, text: str) -> str:
        old = text.encode()
        start, end, new = self.edit
        return (old[:start] + new.encode() + old[end:]).decode()

    def lines(self, text: str) -> tuple[str, str]:
        """What the changed lines read before and after, without the indentation."""
        old, new = text.encode(), self.apply(text).encode()
        start = old.rfind(b"\n", 0, self.edit.start) + 1
        after = len(old) - old.index(b"\n", self.edit.end)
        return old[start:-after].decode().strip(), new[start:-after].decode().strip()


def is_sound(mutation: Mutation, text: str) -> bool:
    """Whether the mutant is Python, and another program."""
    try:
        mutated = ast.parse(mutation.apply(text))
    except SyntaxError:
        return False
    return ast.dump(mutated) != tree_of(text)


@cache
def tree_of(text: str) -> str:
    return ast.dump(ast.parse(text))


def is_typing(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="TypeVar" | "cast")):
            return True
    return False


def mutated_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The children that may be mutated."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (one for one in node.args.defaults + node.args.kw_defaults if one)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign(value=value):
            yield from [value] if value else []
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            pass
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            pass
        case ast.Expr(value=value) if is_text(value):
            pass
        case ast.Subscript(value=ast.Name(id="Literal")):
            pass
        case ast.Call() if is_typing(node):
            yield from node.args[1:]
        case ast.Call() if called(node) in SAYING:
            yield node.func
            yield from (one for one in [*node.args, *node.keywords] if not is_text(one))
        case ast.keyword(arg="axis"):
            pass
        case ast.keyword(arg=word, value=value) if word in LOOKS | UNSEEN or (
            word in SAID and is_text(value)
        ):
            pass
        case _:
            yield from ast.iter_child_nodes(node)


def mutations(
    file: str, text: str, signatures: Mapping[str, Signature] | None = None
) -> list[Mutation]:
    """Every mutation of a file, each edit once, in the order of the text."""
    source = Source(text, signatures)
    names = names_of_functions(source.tree)
    found: dict[Edit, Mutation] = {}
    removed: set[tuple[int, int]] = set()  # statements, of which each has one mutant as a whole

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, Function):
            function = names[node.lineno]
        for operator in () if is_typing(node) else OPERATORS:
            for edit in operator(source, node):
                if edit[:2] not in removed:
                    line = source.bytes.count(b"\n", 0, edit.start) + 1
                    found.setdefault(edit, Mutation(file, operator.__name__, line, function, edit))
                if operator is statement:
                    removed.add(edit[:2])
        for part in mutated_parts(node):
            visit(part, function)

    visit(source.tree, "")
    return sorted(found.values(), key=lambda one: one.edit)
