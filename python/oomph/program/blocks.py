"""Finds the repeated blocks of a model: the layers of a transformer, the stages of a convolutional network."""

from __future__ import annotations

from oomph.program.kinds import checkpoints_itself

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Model, Torch


def find_blocks(torch: Torch, model: Model) -> list[tuple[str, list[Model]]]:
    """The blocks of a model: a list of (path of the container, [blocks]).

    A container is a ModuleList or Sequential with at least two children that are all of one class and have parts of
    their own. Where containers nest, the outermost such one counts.
    """
    containers = (torch.nn.ModuleList, torch.nn.Sequential)
    found = []
    seen = set()

    def visit(path, module):
        if id(module) in seen:
            return
        seen.add(id(module))
        children = [(name, child) for name, child in module._modules.items() if child is not None]
        if isinstance(module, containers) and is_repeated([child for _, child in children]):
            found.append((path, [child for _, child in children]))
            return
        for name, child in children:
            visit(path + "." + name if path else name, child)

    visit("", model)
    return found


def is_repeated(children: list[Model]) -> bool:
    """Say whether modules are one block again and again."""
    if len(children) < 2 or len({type(child) for child in children}) != 1:
        return False
    return all(any(part is not None for part in child._modules.values()) for child in children)


def long_sequences(torch: Torch, model: Model, shortest: int = 4) -> list[tuple[str, Model]]:
    """The Sequentials of at least so many parts that hold no blocks: plain stacks of layers, as (path, module)."""
    found: list[tuple[str, Model]] = []
    for path, module in model.named_modules():
        if type(module) is torch.nn.Sequential and len(module) >= shortest:
            if not any(path.startswith(other + ".") or other == "" for other, _ in found):
                found.append((path, module))
    return found


def spell(path: str, model: Model) -> str:
    """The path of a container, for a sentence; the model itself has none."""
    return path or type(model).__name__


def summed(found: list[tuple[str, list[Model]]], model: Model, noun: str = "block") -> str:
    """`12 blocks of transformer.h`, or of the first containers and how many more."""
    total = sum(len(blocks) for _, blocks in found)
    names = [spell(path, model) for path, _ in found]
    text = ", ".join(names[:2]) + (" and %d more" % (len(names) - 2) if len(names) > 2 else "")
    return "%d %s of %s" % (total, noun if total == 1 else noun + "s", text)


def own_layers(model: Model) -> list[Model]:
    """The layers that a model of transformers or diffusers checkpoints on its own, with its current settings."""
    layers = []
    for module in model.modules():
        if module is not model and getattr(module, "gradient_checkpointing", False):
            kinds = {kind.__name__ for kind in type(module).__mro__}
            if "GradientCheckpointingLayer" in kinds:
                layers.append(module)
    if layers:
        return layers
    if checkpoints_itself(model):
        import torch

        return [block for _, blocks in find_blocks(torch, model) for block in blocks]
    return []
