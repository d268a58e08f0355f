"""Instruments the loops of the user's source: each `for` and `while` reports its iterations and can end early.

The source is parsed, loops are wrapped in calls of two functions that the code finds under names of their own, and the
tree is compiled under the file's own name and line numbers. Nothing is written, and tracebacks look as they would.
"""

from __future__ import annotations

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

LOOP = "__oomph_loop__"
"""Name of the function around the iterable of a `for`."""
GOES_ON = "__oomph_goes_on__"
"""Name of the function around the condition of a `while`."""
OVER = "__oomph_over__"
"""Name of the function that is called when a `while` is left, however that is."""
NOW = "__oomph_now__"
"""Name of the function around a periodic condition, such as `step % 500 == 0`."""


def instrument(source: str | bytes, filename: str) -> CodeType | None:
    """Compile `source` with its loops reported; None where it has no loop, or cannot be parsed."""
    try:
        tree = ast.parse(source, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not rewrite(tree):
        return None
    return compile(tree, filename, "exec", dont_inherit=True)


def rewrite(tree: ast.AST) -> bool:
    """Wrap the loops of a parsed module in place; say whether there was any."""
    rewriter = _Rewriter(_compiled_names(tree))
    rewriter.visit(tree)
    if rewriter.changed:
        ast.fix_missing_locations(tree)
    return rewriter.changed


class _Rewriter(ast.NodeTransformer):
    """Wraps loops that call something. Layers of a model are left alone: they run often and are never shortened. So are
    functions that a compiler reads, such as Numba's, which knows none of our names."""

    def __init__(self, compiled):
        self.changed = False
        self._compiled = compiled
        self._loops = 0
        self._in_model = 0
        self._in_module = False

    # -- where loops are not looked at ---------------------------------------------------------------------------

    def visit_ClassDef(self, node):
        if any(_compiles(decorator) for decorator in node.decorator_list):
            return node
        before, self._in_module = self._in_module, _is_module_class(node)
        self.generic_visit(node)
        self._in_module = before
        return node

    def visit_FunctionDef(self, node):
        """Leave the code of layers unchanged."""
        if node.name in self._compiled or any(_compiles(decorator) for decorator in node.decorator_list):
            return node
        layer = self._in_module and node.name not in _STEPS
        before, self._loops = self._loops, 0
        self._in_model += layer
        self.generic_visit(node)
        self._in_model -= layer
        self._loops = before
        return node

    def visit_AsyncFunctionDef(self, node):
        return node

    def visit_Lambda(self, node):
        return node

    # -- loops -------------------------------------------------------------------------------------------------

    def visit_For(self, node):
        if not self._in_model and _calls(node.body):
            self._loops += 1
            self.generic_visit(node)
            self._loops -= 1
            node.iter = self._wrapped(LOOP, node.iter, ast.Constant(node.lineno), _distinct_values(node))
        else:
            self.generic_visit(node)
        return node

    def visit_While(self, node):
        if not self._in_model and _calls(node.body) and not isinstance(node.test, ast.Constant):
            self._loops += 1
            self.generic_visit(node)
            self._loops -= 1
            # The iteration ends before the condition is asked, which may itself call something.
            key = ast.Constant(node.lineno)
            limit = _limited(node.test)
            words = [key, ast.Constant(id(node)), *([limit] if limit else [])]
            asked = ast.Call(ast.Name(GOES_ON, ast.Load()), words, [])
            node.test = ast.copy_location(ast.BoolOp(ast.And(), [ast.copy_location(asked, node.test), node.test]), node.test)
            self.changed = True
            over = ast.copy_location(ast.Expr(ast.Call(ast.Name(OVER, ast.Load()), words[1:2], [])), node)
            return ast.copy_location(ast.Try([node], [], [], [over]), node)
        else:
            self.generic_visit(node)
        return node

    def visit_If(self, node):
        self.generic_visit(node)
        if self._loops and not self._in_model and _is_periodic(node.test) and _calls(node.body, besides=("print",)):
            counted = _counted(node.test)
            node.test = self._wrapped(NOW, node.test, ast.Constant(node.lineno), *([counted] if counted else []))
        return node

    def visit_ListComp(self, node):
        self.generic_visit(node)
        if not self._in_model and isinstance(node.elt, ast.Call) or _calls([node.elt]):
            first = node.generators[0]
            if not self._in_model and not first.is_async:
                first.iter = self._wrapped(LOOP, first.iter, ast.Constant(node.lineno), ast.Constant(None), ast.Constant(True))
        return node

    visit_SetComp = visit_GeneratorExp = visit_ListComp

    def visit_DictComp(self, node):
        self.generic_visit(node)
        first = node.generators[0]
        if not self._in_model and not first.is_async and _calls([node.value]):
            first.iter = self._wrapped(LOOP, first.iter, ast.Constant(node.lineno), ast.Constant(None), ast.Constant(True))
        return node

    def _wrapped(self, name, node, *more):
        self.changed = True
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [node, *more], []), node)


_COMPILERS = ("jit", "njit", "vectorize", "guvectorize", "stencil", "cfunc", "reduce", "overload",
              "register_jitable", "jitclass", "compile", "script", "kernel")
"""What decorates functions and classes that are read by a compiler: Numba's, JAX's, PyTorch's, Triton's, Warp's and others'."""


def _compiles(node):
    """Whether an expression names a compiler of functions, or calls one."""
    while isinstance(node, ast.Call):
        node = node.func
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)) in _COMPILERS


def _compiled_names(tree):
    """The names of functions that a compiler is given by a call, as in `kernel = cuda.jit(kernel)`."""
    given = [node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args and _compiles(node)]
    return {node.id for node in given if isinstance(node, ast.Name)}


_STEPS = ("fit", "train", "training_step", "validation_step", "test_step", "evaluate", "optimize_parameters")
"""Methods of classes that look like modules and still hold loops over batches."""


def _is_module_class(node):
    """Whether a class is a layer or a model, as far as its bases say."""
    names = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
    return any(name in ("Module", "PreTrainedModel", "ModelMixin") for name in names)


def _calls(body, besides=()):
    """Whether statements call anything, apart from functions of these names."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", None)
                if name not in besides:
                    return True
    return False


def _is_periodic(test):
    """Whether a condition holds every so many iterations: it compares a remainder, or negates one."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            # With a text on its left it formats.
            if not isinstance(node.left, (ast.Constant, ast.JoinedStr)):
                return True
    return False


def _counted(test):
    """Of `step % 500 == 0`, the number, the modulus and the remainder as a tuple; None for other conditions."""
    import copy

    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    rest, remainder = test.left, test.comparators[0]
    if not isinstance(rest, ast.BinOp) or not isinstance(rest.op, ast.Mod):
        return None
    parts = [rest.left, rest.right, remainder]
    # Asking these once more changes nothing.
    if not all(isinstance(node, _SAFE) for part in parts for node in ast.walk(part)):
        return None
    return ast.copy_location(ast.Tuple([copy.deepcopy(part) for part in parts], ast.Load()), test)


def _limited(test):
    """Of `step < max_steps`, the number and its limit as a tuple; None for other conditions."""
    import copy

    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.NotEq)):
        return None
    parts = [test.left, test.comparators[0]]
    if not all(isinstance(node, _SAFE) for part in parts for node in ast.walk(part)):
        return None
    return ast.copy_location(ast.Tuple([copy.deepcopy(part) for part in parts], ast.Load()), test)


_SAFE = (
    ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Name, ast.Attribute, ast.Constant, ast.Load, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def _distinct_values(node):
    """A function that says of a loop's value which of the conditions in its body hold, as a tuple; or None.

    Of `for epoch in range(100)` with `if epoch == 5: unfreeze()` the value 5 is not like the others. Only conditions
    that read names, attributes and constants are asked, because asking changes nothing.
    """
    if not isinstance(node.target, ast.Name):
        return ast.Constant(None)
    name = node.target.id
    tests = []
    for statement in ast.walk(node):
        if isinstance(statement, ast.If):
            parts = list(ast.walk(_unwrapped(statement.test)))
            if all(isinstance(part, _SAFE) for part in parts) and any(getattr(part, "id", None) == name for part in parts):
                tests.append(_unwrapped(statement.test))
    names = {part.id for test in tests for part in ast.walk(test) if isinstance(part, ast.Name)}
    if not tests or len(tests) > 16 or _assigns(node.body, names):
        return ast.Constant(None)
    import copy

    arguments = ast.arguments([], [ast.arg(name)], None, [], [], None, [])
    body = ast.Tuple([copy.deepcopy(test) for test in tests], ast.Load())
    return ast.copy_location(ast.Lambda(arguments, body), node.iter)


def _unwrapped(test):
    if isinstance(test, ast.Call) and getattr(test.func, "id", None) == NOW:
        return test.args[0]
    return test


def _assigns(body, names):
    """Whether statements give a new value to one of these names, so that its value now says nothing of later."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
                return True
    return False
