"""Uses the card, writes to both streams, then fails on its own with a traceback and exit status 7."""

import sys
import traceback

import torch


def load_configuration():
    raise ValueError("the learning rate is missing from the configuration")


def main():
    torch.zeros(1024, 1024, device="cuda")
    print("a line on stdout", flush=True)
    print("a line on stderr", file=sys.stderr, flush=True)
    try:
        load_configuration()
    except ValueError:
        traceback.print_exc()
        sys.exit(7)


if __name__ == "__main__":
    main()
