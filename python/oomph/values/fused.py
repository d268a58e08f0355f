"""What CUDA has as one kernel and the processor does not: the cells of recurrent networks, and the norm by the root of the mean square.

The formulas are those that PyTorch documents for `LSTMCell`, `GRUCell` and `RMSNorm`; what a kernel keeps for its backward pass is in the
order in which that reads it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Torch


def functions(torch: Torch) -> dict[str, Callable[..., Any]]:
    """The functions by the names of the operators whose arguments they take."""

    def with_bias(gates, bias):
        return gates if bias is None else gates + bias

    def lstm(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
        gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        cy = f * cx + i * g
        return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)

    def lstm_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
        i, f, g, o = workspace.chunk(4, 1)
        end = cy.tanh()
        grad_o = 0.0 if grad_hy is None else grad_hy * end * o * (1 - o)
        inner = 0.0 if grad_hy is None else grad_hy * o * (1 - end * end)
        if grad_cy is not None:
            inner = inner + grad_cy
        parts = (inner * g * i * (1 - i), inner * cx * f * (1 - f), inner * i * (1 - g * g), grad_o + torch.zeros_like(o))
        gates = torch.cat(parts, 1)
        return (gates, inner * f, gates.sum(0)) if has_bias else (gates, inner * f)

    def gru(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
        ir, iz, i_n = with_bias(input_gates, input_bias).chunk(3, 1)
        hr, hz, hn = with_bias(hidden_gates, hidden_bias).chunk(3, 1)
        r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
        n = (i_n + r * hn).tanh()
        return n + z * (hx - n), torch.cat((r, z, n, hx, hn), 1)

    def gru_backward(grad_hy, workspace, has_bias):
        r, z, n, hx, hn = workspace.chunk(5, 1)
        grad_z = grad_hy * (hx - n) * z * (1 - z)
        grad_n = grad_hy * (1 - z) * (1 - n * n)
        grad_r = grad_n * hn * r * (1 - r)
        of_input = torch.cat((grad_r, grad_z, grad_n), 1)
        of_hidden = torch.cat((grad_r, grad_z, grad_n * r), 1)
        found = (of_input, of_hidden, grad_hy * z)
        return (*found, of_input.sum(0), of_hidden.sum(0)) if has_bias else found

    def over(shape):
        return tuple(range(-len(shape), 0))

    def rms_norm(input, normalized_shape, weight=None, eps=None):
        eps = torch.finfo(input.dtype).eps if eps is None else eps
        wide = input.float() if input.dtype in (torch.half, torch.bfloat16) else input
        scale = torch.rsqrt(wide.square().mean(over(normalized_shape), keepdim=True) + eps)
        out = (wide * scale).to(input.dtype)
        return out if weight is None else out * weight, scale

    def rms_norm_backward(grad_out, input, normalized_shape, rstd, weight=None, output_mask=(True, True)):
        dims = over(normalized_shape)
        normal = input * rstd
        grad = grad_out if weight is None else grad_out * weight
        found = []
        if output_mask[0]:
            found.append(rstd * (grad - normal * (grad * normal).mean(dims, keepdim=True)))
        if output_mask[1] and weight is not None:
            found.append((grad_out * normal).sum(tuple(range(input.dim() - len(normalized_shape)))))
        return tuple(found)

    return {
        "_thnn_fused_lstm_cell": lstm,
        "_thnn_fused_lstm_cell_backward_impl": lstm_backward,
        "_thnn_fused_gru_cell": gru,
        "_thnn_fused_gru_cell_backward": gru_backward,
        "_fused_rms_norm": rms_norm,
        "_fused_rms_norm_backward": rms_norm_backward,
    }
