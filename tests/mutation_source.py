"""A source file as text and as tree."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

ATOMS = (
    *(ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.JoinedStr),
    *(ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp),
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """Bytes of the source to replace."""

    start: int
    end: int
    new: str


class Signature(NamedTuple):
    """Of a function or a class."""

    optional: set[str]  # arguments that may be left out
    kinds: list[str]  # annotations of arguments that may be given by place


class Source:
    """A file's text, its tree, and where in the text a node is."""

    def __init__(self, text: str, signatures: Mapping[str, Signature] | None = None) -> None:
        self.signatures = signatures or {}
        self.bytes, self.tree = text.encode(), ast.parse(text)
        self.lines = [0]  # offset of each line's first byte
        for line in self.bytes.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.imported = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.expr | ast.keyword) -> str:
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def operand(self, node: ast.expr) -> str:
        """Its text, in parentheses where it may need them."""
        return self.text(node) if isinstance(node, ATOMS) else f"({self.text(node)})"

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Edit]:
        """Replaces an operator: it has no place in the tree, but stands between its operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        place = self.bytes[start:end].find(old.encode())
        if place >= 0:
            yield Edit(start + place, start + place + len(old), new)

    def replace(self, node: ast.expr | ast.stmt, new: str) -> Edit:
        return Edit(*self.span(node), new)


def names_of_functions(tree: ast.AST, within: str = "") -> dict[int, str]:
    """By the line of its `def`, what a function is called, after its classes and functions."""
    found = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{within}{node.name}." if isinstance(node, Function | ast.ClassDef) else within
        if isinstance(node, Function):
            found[node.lineno] = name.removesuffix(".")
        found |= names_of_functions(node, name)
    return found


def function_at(text: str, line: int) -> str:
    """The innermost function around a line, by the name that it is called by; or nothing."""
    tree = ast.parse(text)
    names = names_of_functions(tree)
    around = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return names[max(around)] if around else ""


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def called(node: ast.Call) -> str:
    """The last word of what is called."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def signatures_in(texts: Iterable[str]) -> dict[str, Signature]:
    """By name; of two with the same name, what holds for both."""
    found: dict[str, Signature] = {}
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        match node:
            case ast.FunctionDef(args=args):
                by_place = [*args.posonlyargs, *args.args]
                last = len(by_place) - len(args.defaults)
                optional = {one.arg for one in by_place[last:]}
                for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
                    if default:
                        optional.add(one.arg)
                kinds = [annotation(one) for one in by_place if one.arg not in ("self", "cls")]
            case ast.ClassDef(body=body):
                fields = [one for one in body if isinstance(one, ast.AnnAssign)]
                optional = {ast.unparse(one.target) for one in fields if one.value}
                kinds = [annotation(one) for one in fields]
            case _:
                continue
        before = found.get(node.name, Signature(optional, kinds))
        found[node.name] = Signature(
            optional | before.optional, kinds if kinds == before.kinds else []
        )
    return found


def annotation(node: ast.arg | ast.AnnAssign) -> str:
    return ast.unparse(node.annotation) if node.annotation else ""
