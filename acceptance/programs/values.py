"""Programs whose sizes follow from values, one for each word: `values.py DEVICE [CASE ...]`.

Each prints the sizes that it found, which are those of the same program on the CPU, or fewer where a size cannot be known
without the card's arithmetic (`most` in the name): then the report says that the most was taken.
"""

import sys

import torch

CASES = {}
TALL = 4096
WIDE = 4096  # A tensor of such rows is never computed.


def case(function):
    CASES[function.__name__] = function
    return function


def data(device):
    return torch.empty(TALL, WIDE, device=device)


def head(device, inputs=64, outputs=8):
    torch.manual_seed(0)
    return torch.nn.Linear(inputs, outputs).to(device)


def features(device, rows=512, size=64):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(1)).to(device)


@case
def mask_in_inference_mode(device):
    big, net, x = data(device), head(device), features(device)
    with torch.inference_mode():
        ids = torch.arange(TALL, device=device)
        del ids
        scores = net(x)
        kept = big[:512][scores[:, 1] > scores[:, 0]]
    return len(kept)


@case
def large_scores_in_inference_mode_most(device):
    big = data(device)
    with torch.inference_mode():
        ids = torch.arange(TALL, device=device)
        del ids
        scores = head(device, 1024, 32)(torch.randn(TALL, 1024, generator=torch.Generator().manual_seed(1)).to(device))
        return len(big[scores[:, 1] > scores[:, 0]])


@case
def cuda_begins_in_inference_mode(device):
    with torch.inference_mode():
        big = data(device)
    return len(big[torch.arange(TALL, device=device) % 4 < 3])


@case
def decorated_loader(device):
    @torch.inference_mode()
    def load():
        for start in range(0, 64, 16):
            yield torch.arange(start, start + 16, device=device)

    @torch.inference_mode()
    def count(batch):
        return int((batch % 3 == 0).sum())

    found = [count(batch) for batch in load()]
    return found, len(data(device)[:8][torch.tensor(found, device=device).repeat_interleave(2) % 5 == 0])


@case
def custom_op_counts(device):
    @torch.library.custom_op("values::every_third", mutates_args=())
    def every_third(x: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[0], device=x.device) % 3 == 0
        return x[mask]

    with torch.inference_mode():
        first = len(every_third(data(device)))
    return first, len(every_third(data(device)))


@case
def custom_op_over_old_memory_most(device):
    @torch.library.custom_op("values::above", mutates_args=())
    def above(x: torch.Tensor, w: torch.Tensor, big: torch.Tensor) -> torch.Tensor:
        ids = torch.arange(x.shape[0], device=x.device)
        del ids
        scores = x @ w
        return big[scores[:, 1] > scores[:, 0]]

    x = torch.randn(TALL, 256, generator=torch.Generator().manual_seed(1)).to(device)
    w = torch.randn(256, 32, generator=torch.Generator().manual_seed(2)).to(device)
    return len(above(x, w, data(device)))


@case
def autograd_function(device):
    class Select(torch.autograd.Function):
        @staticmethod
        def forward(ctx, big, scores):
            ids = torch.arange(TALL, device=big.device)
            del ids
            mask = scores[:, 1] > scores[:, 0]
            ctx.save_for_backward(mask)
            ctx.rows = len(big)
            return big[mask]

        @staticmethod
        def backward(ctx, grad):
            (mask,) = ctx.saved_tensors
            back = grad.new_zeros(ctx.rows, grad.shape[1])
            back[mask] = grad
            return back, None

    big = data(device)[:512].requires_grad_()
    out = Select.apply(big, head(device)(features(device)))
    out.sum().backward()
    return len(out)


@case
def padding_is_left_out(device):
    lengths = torch.tensor([5, 9, 3, 12], device=device)
    mask = torch.arange(16, device=device)[None, :] < lengths[:, None]
    hidden = torch.empty(4, 16, 4 * WIDE, device=device)
    return len(hidden[mask]), len(mask.flatten().nonzero())


@case
def unique_and_counts(device):
    tokens = (torch.arange(3000, device=device) * 7919) % 257
    values, inverse, counts = tokens.unique(return_inverse=True, return_counts=True)
    return len(values), int(counts.max()), len(data(device)[values]), int(inverse.max())


@case
def selected_by_argsort(device):
    scores = features(device, 300, 8).sum(1)
    order = scores.argsort(descending=True)
    kept = order[: int((scores > 0).sum())]
    return len(data(device)[kept]), kept[:3].tolist()


@case
def routed_by_topk(device):
    gate, x = head(device, 64, 4), features(device, 256)
    weights, chosen = gate(x).softmax(-1).topk(2, dim=-1)
    return [len((chosen == expert).nonzero()) for expert in range(4)], round(float(weights.sum()), 2)


@case
def experts_by_hand(device):
    gate, x = head(device, 64, 4), features(device, 256)
    experts = [torch.nn.Linear(64, WIDE).to(device) for _ in range(4)]
    chosen, out = gate(x).argmax(-1), torch.empty(256, WIDE, device=device)
    sizes = []
    for number, expert in enumerate(experts):
        rows = (chosen == number).nonzero().squeeze(1)
        out[rows] = expert(x[rows])
        sizes.append(len(rows))
    return sizes


@case
def boxes_that_survive(device):
    from torchvision.ops import batched_nms, nms

    corners = torch.arange(200, device=device, dtype=torch.float32)[:, None] * torch.tensor([3.0, 2.0], device=device)
    boxes = torch.cat((corners, corners + 20), 1)
    scores = torch.linspace(1, 0, 200, device=device)
    kept = nms(boxes, scores, 0.5)
    per_class = batched_nms(boxes, scores, torch.arange(200, device=device) % 3, 0.5)
    return len(kept), len(per_class), len(data(device)[kept])


@case
def packed_sequences(device):
    lengths = torch.tensor([7, 3, 9, 1])
    padded = torch.empty(4, 9, 1024, device=device)
    packed = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    ends = torch.tensor([0, 7, 10, 19, 20], device=device).cumsum(0)
    return len(packed.data), int(ends[-1]), len(data(device)[: int(ends[-2])])


@case
def leaves_early(device):
    gate, x = head(device, 64, 2), features(device, 1)
    with torch.inference_mode():
        for layer in range(12):
            x = x.roll(layer, -1)
            if gate(x).softmax(-1)[0, 0].item() > 0.6:
                break
    return layer, len(data(device)[: 16 * (layer + 1)])


@case
def mapped_over_rows(device):
    gate, x = head(device, 64, 2), features(device, 64)
    flags = torch.func.vmap(lambda row: (gate.weight @ row + gate.bias).argmax())(x)
    per_row = torch.func.vmap(torch.func.grad(lambda row: (gate.weight @ row).square().sum()))(x)
    return int(flags.sum()), len(data(device)[:64][flags.bool()]), int((per_row.norm(dim=1) > 5).sum())


@case
def functional_call(device):
    net, x = head(device, 64, 2), features(device, 64)
    held = {name: value.detach() for name, value in net.named_parameters()}
    out = torch.func.functional_call(net, held, (x,))
    return len(data(device)[:64][out[:, 0] > 0])


@case
def reused_after_del(device):
    sizes = []
    for step in range(6):
        old = torch.arange(2048, device=device)
        del old
        new = torch.empty(2048, dtype=torch.int64, device=device)
        new[: 100 * (step + 1)] = 1
        new[100 * (step + 1) :] = 0
        sizes.append(len(new.nonzero()))
        del new
    return sizes


@case
def compiled_region(device):
    @torch.compile(dynamic=False)
    def scale(x):
        return torch.relu(x * 2 + 1)

    flags = torch.arange(512, device=device) % 2 == 0
    scaled = scale(features(device))
    return len(scaled[flags]), len(data(device)[:512][flags])


@case
def compiled_mask_most(device):
    @torch.compile(dynamic=False)
    def above(x):
        return (x * 2 + 1).sum(1) > 60

    old = torch.zeros(512, dtype=torch.bool, device=device)
    del old
    return len(data(device)[:512][above(features(device))])


@case
def evaluation_function(device):
    net = head(device, 64, 10)

    @torch.inference_mode()
    def evaluate(batches):
        right, hard = 0, []
        for x, y in batches:
            guess = net(x).argmax(1)
            right += (guess == y).sum().item()
            hard.append(x[guess != y])
        return right, torch.cat(hard)

    batches = [(features(device, 32), torch.arange(32, device=device) % 10) for _ in range(4)]
    right, hard = evaluate(batches)
    return right, len(hard), len(data(device)[: len(hard)])


@case
def made_in_other_ways(device):
    like = torch.arange(4, device=device)
    made = (
        like.new_tensor([1, 0, 2, 0]), torch.as_tensor([1, 0, 2, 0], device=device), torch.zeros_like(like) + 2,
        torch.full((4,), 3, device=device), torch.eye(4, device=device)[1], torch.tensor([True, False, True, True]).to(device),
        torch.linspace(0, 1, 5, device=device), torch.empty(4, device=device).fill_(1), like.clone().flip(0),
        torch.cat([like, like]), torch.stack([like, like]), torch.where(like > 1, like, 0), like.to(torch.float16),
        torch.ones(4, 4, device=device).tril(), torch.from_numpy(like.cpu().numpy()).to(device), torch.bincount(like),
        torch.histc(like.float(), 4), torch.searchsorted(like, like), torch.bucketize(like, like), like.view(2, 2).T,
    )
    return [len(one.flatten().nonzero()) for one in made]


if __name__ == "__main__":
    for name in sys.argv[2:] or CASES:
        print(name, CASES[name](sys.argv[1]), flush=True)
