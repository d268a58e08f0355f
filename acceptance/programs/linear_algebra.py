"""Matrix decompositions, whose operators look at status codes that no kernel wrote: small, batched and large ones."""

import torch

from common import device, print_peaks


def symmetric(*shape):
    made = torch.randn(*shape, device=device())
    return made @ made.mT + torch.eye(shape[-1], device=device())


def main():
    small = torch.tensor([[2.0, 1.0], [1.0, 2.0]], device=device())
    print("eigenvalues=" + ",".join("%.3f" % value for value in torch.linalg.eigvalsh(small).tolist()))
    print("norm=%.3f" % torch.linalg.matrix_norm(small, 2).item())
    for shape in ((8, 8), (3, 8, 8), (300, 300), (4, 300, 300)):
        matrix = symmetric(*shape)
        torch.linalg.eigh(matrix)
        torch.linalg.eigvals(matrix)
        torch.linalg.svd(matrix, full_matrices=False)
        torch.linalg.svdvals(matrix)
        torch.linalg.lstsq(matrix, matrix)
        torch.linalg.pinv(matrix, hermitian=True)
        torch.linalg.cholesky(matrix)
        torch.linalg.inv(matrix)
        torch.linalg.matrix_exp(matrix / 100)
    print("done=True")
    print_peaks()


if __name__ == "__main__":
    main()
