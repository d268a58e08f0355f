"""Trains until somebody stops it, with a child of its own. It says where its run folder is."""

import os
import subprocess
import sys


def main():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    run_folder = os.environ.get("OOMPH_RUN", "")
    print(f"run_folder={run_folder}", flush=True)

    # On a busy machine the time of a run may be up before torch is imported. By then all of the above is there.
    import torch

    weights = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)
    if "OOMPH_ACCEPTANCE_READY" in os.environ:
        with open(os.environ["OOMPH_ACCEPTANCE_READY"], "w") as ready:
            ready.write(f"{run_folder}\n")
    while True:
        weights.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
