"""What the package's text keeps to, and no linter holds: blind handlers say why, and what is public has its types."""

import ast
import io
import tokenize
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "oomph"
GENERATED = {"_protocol.py"}
BLIND = {"Exception", "BaseException"}
NO_REASONS = ("noqa", "type:", "fmt:", "--")


def sources():
    """The path of each module of the package, with its text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in GENERATED:
            yield str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")


def reasons(text):
    """The lines that have a comment in words."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.lstrip("# ").startswith(NO_REASONS):
            found.add(token.start[0])
    return found


def is_blind(kind):
    """Whether what follows `except` takes faults of any kind; nothing does as well."""
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(one is None or isinstance(one, ast.Name) and one.id in BLIND for one in kinds)


def blind_places(tree):
    """The first and the last line on which the reason of each blind handler, or `suppress(Exception)`, may be given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and is_blind(node.type):
            yield node.lineno, node.body[0].lineno
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress") and any(map(is_blind, call.args)):
                    yield node.lineno, node.body[0].lineno


def without_reason(text):
    """The lines of blind handlers without a word of why: on the line itself, above it, or first thing below it."""
    known = reasons(text)
    return [first for first, last in blind_places(ast.parse(text)) if not known.intersection(range(first - 1, last + 1))]


def public_functions(tree):
    """Functions and methods, by their qualified names, that have no name with an underscore on the way to them."""

    def visit(nodes, prefix, in_class):
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not node.name.startswith("_") or in_class and node.name.endswith("__"):
                    yield prefix + node.name, node, in_class
                    # A class that can be made only once a library is there.
                    yield from visit([one for one in node.body if isinstance(one, ast.ClassDef)], prefix + node.name + ".", False)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from visit(node.body, prefix + node.name + ".", True)
            elif isinstance(node, (ast.If, ast.Try)):
                yield from visit(node.body, prefix, in_class)

    yield from visit(tree.body, "", False)


def without_types(text):
    """What has no type in each public function: parameters by their names, and `return`."""
    missing = []
    for name, node, in_class in public_functions(ast.parse(text)):
        arguments = node.args.posonlyargs + node.args.args
        is_static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
        if in_class and not is_static:
            arguments = arguments[1:]
        arguments += node.args.kwonlyargs + [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
        missing += ["%s(%s)" % (name, one.arg) for one in arguments if one.annotation is None]
        if node.returns is None:
            missing.append("%s -> ?" % name)
    return missing


class Reasons(unittest.TestCase):
    def test_every_blind_handler_says_why(self):
        self.assertEqual([], ["%s:%d" % (path, line) for path, text in sources() for line in without_reason(text)])

    def test_a_handler_without_a_word_is_found(self):
        bare = "try:\n    pass\nexcept%s:\n    pass\n"
        for kind in ("", " Exception", " BaseException as error", " (ValueError, Exception)"):
            self.assertEqual([3], without_reason(bare % kind), kind)
        self.assertEqual([3], without_reason("try:\n    pass\nexcept Exception:  # noqa: BLE001\n    pass\n"))
        self.assertEqual([], without_reason(bare % " (ValueError, OSError)"))
        self.assertEqual([1], without_reason("with contextlib.suppress(Exception):\n    pass\n"))

    def test_a_reason_is_taken_where_it_is_read(self):
        for text in (
            "try:\n    pass\nexcept Exception:  # The dataset's own code runs here.\n    pass\n",
            "try:\n    pass\n# The dataset's own code runs here.\nexcept Exception:\n    pass\n",
            "try:\n    pass\nexcept Exception:\n    # The dataset's own code runs here.\n    pass\n",
        ):
            self.assertEqual([], without_reason(text))


class Types(unittest.TestCase):
    def test_everything_public_has_its_types(self):
        self.assertEqual([], ["%s: %s" % (path, one) for path, text in sources() for one in without_types(text)])

    def test_what_has_none_is_found(self):
        text = "class A:\n    def b(self, c, *, d: int = 1, **e):\n        pass\n    def _f(self, g):\n        pass\n"
        self.assertEqual(["A.b(c)", "A.b(e)", "A.b -> ?"], without_types(text))
        self.assertEqual(["a.B.c(d)"], without_types("def a() -> type:\n    class B:\n        def c(self, d) -> None:\n            pass\n    return B\n"))
        self.assertEqual([], without_types("class _A:\n    def b(self, c):\n        pass\ndef d(e: int) -> None:\n    pass\n"))


if __name__ == "__main__":
    unittest.main()
