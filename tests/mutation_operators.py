"""What may be changed in a node of the syntax tree.

An operator is a function of a node that yields edits of the text, so that a mutant differs from
the source in one small hunk.
"""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from mutation_source import Edit, Function, Source, called, is_text

ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
PAIRS = [
    *(("mean", "sum"), ("min", "max"), ("any", "all"), ("minimum", "maximum"), ("std", "var")),
    *(("argmin", "argmax"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("floor", "ceil")),
    *(("startswith", "endswith"), ("exp", "log"), ("cumsum", "cumprod")),
]
REDUCTIONS = dict(PAIRS) | {two: one for one, two in PAIRS} | {"median": "mean"}
BOUNDS = {"max", "min", "maximum", "minimum"}
SYMMETRIC = BOUNDS | {"array_equal", "logical_and", "logical_or"}
BY_KIND = {"isinstance", "getattr", "hasattr"}  # no two of their arguments are alike
UNLIKE_OTHERS = (ast.Starred, ast.Tuple, ast.List, ast.Dict, ast.Lambda)
UNSEEN = {"encoding", "strict"}  # arguments that assert, or matter on other systems alone
# Without these functions, but not without these methods, a value is of another type: mypy tells.
CONVERSIONS = {"bool", "enumerate", "float", "int", "len", "list", "print", "range", "str", "tuple"}
ALIKE = {
    *("astype", "clip", "copy", "flatten", "lower", "ravel", "removeprefix", "removesuffix"),
    *("reshape", "resolve", "round", "squeeze", "strip", "transpose", "upper"),
}
# Arguments for the eye.
SAID = {"desc", "label", "says", "title", "unit", "xlabel", "ylabel"}
LOOKS = {
    *("alpha", "capsize", "cmap", "dpi", "figsize", "fmt", "fontsize", "frameon", "ha"),
    *("layout", "linestyle", "linewidth", "loc", "ls", "lw", "marker", "markersize", "ms", "ncols"),
    *("labelsize", "shrink", "title_fontsize", "va"),
}
RETURNS = {"int": "{} + 1", "float": "{} + 1", "Array": "-{}"}
EMPTY = {"list": "[]", "dict": "{}", "str": '""'}
QUOTE = re.compile(r"[rbfuRBFU]*(\"{3}|'{3}|\"|')")


def arithmetic(source: Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case (
            ast.BinOp(left=left, op=op, right=right)
            | ast.AugAssign(target=left, op=op, value=right)
        ) if type(op) in ARITHMETIC and not (is_text(left) or is_text(right)):
            yield from source.between(left, right, *ARITHMETIC[type(op)])


def comparison(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        operands = pairwise([node.left, *node.comparators])
        for (left, right), op in zip(operands, node.ops, strict=True):
            yield from source.between(left, right, *COMPARISONS[type(op)])


def boolean(source: Source, node: ast.AST) -> Iterator[Edit]:
    """And for or, or one of the operands left out."""
    if isinstance(node, ast.BoolOp):
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            yield from source.between(left, right, word, other)
        for dropped in node.values:
            kept = [source.operand(value) for value in node.values if value is not dropped]
            joined = f" {word} ".join(kept)
            yield source.replace(node, joined if len(kept) == 1 else f"({joined})")


def negated(source: Source, test: ast.expr) -> Iterator[Edit]:
    """A condition turned round, unless another operator does that."""
    match test:
        case ast.Constant() | ast.UnaryOp(op=ast.Not()):
            return
        case ast.Compare(ops=[op]) if isinstance(op, NEGATED_BY_COMPARISON):
            return
    yield source.replace(test, f"not ({source.text(test)})")


def condition(source: Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield from negated(source, test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from negated(source, test)


def sign(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Minus, not and ~ left out."""
    if isinstance(node, ast.UnaryOp):
        yield source.replace(node, source.operand(node.operand))


def number(source: Source, node: ast.AST) -> Iterator[Edit]:
    """One more, or twice as much: digits are counts and places, the rest magnitudes."""
    match node:
        case ast.Constant(value=bool(value)):
            yield source.replace(node, str(not value))
        case ast.Constant(value=int(value)):
            yield source.replace(node, str(value + 1 if value < 10 else 2 * value))
        case ast.Constant(value=float(value)):
            yield source.replace(node, repr(2 * value if value else 1.0))


def name(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Another string, where it is a key or a name: it has no spaces."""
    match node:
        case ast.Constant(value=str(value)):
            pass
        case ast.JoinedStr(values=parts):
            value = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        case _:
            return
    if value and not re.search(r"\s", value):
        quote = QUOTE.match(source.text(node))
        assert quote is not None
        place = source.span(node)[0] + quote.end()
        yield Edit(place, place, "XX")


def call(source: Source, node: ast.AST) -> Iterator[Edit]:
    """What a function is given, or the value that a method is of, without the call."""
    if not isinstance(node, ast.Call):
        return
    word, kept = called(node), node.args if len(node.args) == 1 else []
    if word in BOUNDS and len(node.args) == 2:
        kept = node.args
    elif isinstance(node.func, ast.Attribute):
        first = source.text(node.func.value).split(".")[0]
        if not (first in source.imported or first == "self" or first[0].isupper()):
            kept = [node.func.value] if word in ALIKE | REDUCTIONS.keys() else []
    elif word in CONVERSIONS:
        kept = []
    for one in kept:
        if not isinstance(one, ast.Starred):
            yield source.replace(node, source.operand(one))


def argument(source: Source, node: ast.AST) -> Iterator[Edit]:
    """An argument that can be left out: by keyword, or the last of several."""
    if not isinstance(node, ast.Call):
        return
    given: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
    given.sort(key=source.span)
    known = source.signatures.get(called(node))
    starred = any(isinstance(one, ast.Starred) for one in node.args)
    droppable = len(node.args) > 1 and not known and not starred
    last = node.args[-1] if droppable and called(node) not in BOUNDS | BY_KIND else None
    for i, one in enumerate(given):
        if one is last or (
            isinstance(one, ast.keyword)
            and one.arg not in SAID | LOOKS | UNSEEN
            and (known is None or one.arg in known.optional)
        ):
            start, end = source.span(one)
            if i + 1 < len(given):
                end = source.span(given[i + 1])[0]
            elif i > 0:
                start = source.span(given[i - 1])[1]
            elif comma := re.match(rb"\s*,", source.bytes[end:]):
                end += comma.end()
            yield Edit(start, end, "")


def swap(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Two neighbouring arguments, each in the other's place, unless mypy would tell."""
    if not isinstance(node, ast.Call) or called(node) in SYMMETRIC | BY_KIND:
        return
    known = source.signatures.get(called(node))
    for i, (left, right) in enumerate(pairwise(node.args)):
        unlike = known is not None and len(set(known.kinds[i : i + 2])) > 1
        if not unlike and not any(
            is_text(one) or isinstance(one, UNLIKE_OTHERS) for one in (left, right)
        ):
            (start, middle), (resume, end) = source.span(left), source.span(right)
            comma = source.bytes[middle:resume].decode()
            yield Edit(start, end, source.text(right) + comma + source.text(left))


def reduction(source: Source, node: ast.AST) -> Iterator[Edit]:
    """The mean for the sum, the smallest for the largest, and others that are easily confused."""
    match node:
        case ast.Call(func=ast.Attribute(attr=word) as function) if word in REDUCTIONS:
            end = source.span(function)[1]
            yield Edit(end - len(word), end, REDUCTIONS[word])
        case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all" as word) as function):
            yield source.replace(function, REDUCTIONS[word])


def axis(source: Source, node: ast.AST) -> Iterator[Edit]:
    """0 for 1, and 0 for any other."""
    match node:
        case ast.keyword(arg="axis", value=value) if not isinstance(value, ast.Name):
            yield source.replace(value, "1" if source.text(value) == "0" else "0")


def statement(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A statement left out, where it is not the first to name something."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            removable = all(isinstance(one, ast.Subscript | ast.Attribute) for one in targets)
        case ast.Expr(value=value):
            removable = not is_text(value) and not isinstance(value, ast.Constant)
        case ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue():
            removable = True
        case _:
            removable = False
    if removable and isinstance(node, ast.stmt):
        yield source.replace(node, "pass")


def own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function in the order of the text, without those of functions inside it."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def rebinding(source: Source, node: ast.AST) -> Iterator[Edit]:
    """An assignment left out, to a name that has a value already."""
    if isinstance(node, Function):
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        known = {one.arg for one in arguments}
        for inner in own(node):
            if isinstance(inner, ast.Assign):
                names = {
                    part.id
                    for target in inner.targets
                    for part in ast.walk(target)
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
                }
                if names and names <= known:
                    yield source.replace(inner, "pass")
                known |= names


def returned(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Another value of the type that the function says it returns."""
    if not isinstance(node, Function):
        return
    for inner in own(node):
        if isinstance(inner, ast.Return) and inner.value is not None:
            match node.returns:
                case ast.Name(id="bool"):
                    yield from negated(source, inner.value)
                case ast.Name(id=kind) if kind in RETURNS:
                    yield source.replace(
                        inner.value, RETURNS[kind].format(source.operand(inner.value))
                    )
                case ast.Name(id=kind) | ast.Subscript(value=ast.Name(id=kind)) if kind in EMPTY:
                    yield source.replace(inner.value, EMPTY[kind])
                case ast.BinOp(op=ast.BitOr(), right=ast.Constant(value=None)):
                    if source.text(inner.value) != "None":
                        yield source.replace(inner.value, "None")


Operator = Callable[[Source, ast.AST], Iterator[Edit]]
OPERATORS: tuple[Operator, ...] = (
    *(arithmetic, comparison, boolean, condition, sign, number, name, call, argument, swap),
    *(reduction, axis, statement, rebinding, returned),
)
