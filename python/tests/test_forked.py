"""Processes that are forked after CUDA began: nothing of oomph's asks CUDA anything there."""

import ast
import os
import unittest

import support

ASKS = {
    "is_pinned", "pin_memory", "mem_get_info", "current_device", "get_device_properties", "get_device_capability",
    "device_count", "is_available", "synchronize", "is_current_stream_capturing", "set_device",
    "set_per_process_memory_fraction", "_cuda_memoryStats", "_cuda_getDeviceCount", "_cuda_getDevice",
    "_cuda_isHistoryEnabled", "_cuda_getArchFlags", "_cuda_isCurrentStreamCapturing", "cudaGetDevice", "cudaSetDevice",
    "cudaMemGetInfo", "cudaGetDeviceCount",
}
"""What asks CUDA, called as an attribute of anything."""

GATES = {"is_away", "_usable", "usable", "broken"}
"""What keeps a question from a forked child, in the function that asks or in one around it."""

ELSEWHERE = {
    "attached.py": "runs in a process that was attached to, and asks first whether torch has CUDA in it",
    "library.py": "runs in the program's own `oomph.watch`, and asks first whether torch has CUDA in it",
    "server/cards.py": "asks in a process of its own, before any fork",
    "ranks/starters.py": "starts the ranks of a job, in a process that uses no card",
    "remedies/host.py": "runs when CUDA begins",
    "loops/witness.py": "runs once the meter has read the memory of a card in use",
    "loops/attach.py": "runs once the meter has read the memory of a card in use",
    "guard.py": "runs for the steps of a guarded process; a forked child has no guard",
}
"""Files whose questions are not asked in a forked child, and why."""

WITHIN = {
    ("watcher.py", "held"): "asks of devices that were read before; a forked child has none",
    ("watcher.py", "_left"): "as `held`, which calls it",
    ("fraction.py", "allowed"): "`watcher.allowed`, which calls it, asks first",
    ("watcher.py", "_versions"): "runs when CUDA begins",
    ("owners/__init__.py", "started"): "runs when CUDA begins",
    ("owners/workspaces.py", "workspace_sizes"): "runs with the recording of the allocator, which a forked child has none of",
    ("loops/agreement.py", "_join"): "`is_available` of torch.distributed does not ask CUDA",
}


def questions(tree):
    """The calls that ask CUDA, each with the functions around it."""
    def visit(node, around):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            around = around + [node]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS:
            yield node.func.attr, around
        for child in ast.iter_child_nodes(node):
            yield from visit(child, around)

    yield from visit(tree, [])


def is_gated(around):
    names = {
        getattr(node, "attr", None) or getattr(node, "id", None) for function in around for node in ast.walk(function)
    }
    return bool(names & GATES)


class Rule(unittest.TestCase):
    def test_every_question_to_cuda_is_kept_from_a_forked_child(self):
        root = os.path.join(support.PYTHON, "oomph")
        asked, wrong = 0, []
        for folder, _, files in os.walk(root):
            for name in files:
                path = os.path.join(folder, name)
                within = os.path.relpath(path, root).replace(os.sep, "/")
                if not name.endswith(".py") or within in ELSEWHERE:
                    continue
                with open(path, encoding="utf-8") as file:
                    tree = ast.parse(file.read())
                for question, around in questions(tree):
                    asked += 1
                    named = [getattr(function, "name", "") for function in around]
                    if not is_gated(around) and not any((within, one) in WITHIN for one in named):
                        wrong.append("%s: %s in %s" % (within, question, ".".join(named)))
        self.assertEqual(wrong, [], "ask `oomph.forked.is_away` first, or say here why no forked child comes by")
        self.assertGreater(asked, 10, "the questions are called otherwise now")


class Children(support.RunCase):
    def test_a_child_is_away_where_its_parent_used_a_card_before(self):
        self.assertEqual(
            self.passes(
                """
                import os
                from oomph import forked

                def in_child(look):
                    reading, writing = os.pipe()
                    if not os.fork():
                        os.write(writing, repr(look()).encode())
                        os._exit(0)
                    os.wait()
                    return os.read(reading, 99).decode()

                begun = []
                forked.ask_at_fork(lambda: bool(begun))
                print(forked.is_away(), in_child(forked.is_away))
                begun.append("another framework")
                print(forked.is_away(), in_child(forked.is_away))
                begun.clear()
                forked.card_is_used()
                print(forked.is_away(), in_child(forked.is_away), in_child(lambda: in_child(forked.is_away)))
                """
            ).split(),
            ["False", "False", "False", "True", "False", "True", "'True'"],
        )


if __name__ == "__main__":
    unittest.main()
