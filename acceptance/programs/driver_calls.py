"""A program without PyTorch: it asks the CUDA driver for memory, in large and small blocks, and counts what it holds."""

import argparse
import ctypes

MIB = 2**20


class Card:
    """The first card, through the driver's API."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.sizes = {}
        self.count = self.held = self.peak = self.asked = 0

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise MemoryError(f"{name} gave {status}")

    def take(self, size, ordered=False):
        pointer = ctypes.c_uint64()
        if ordered:
            self.call("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(size), None)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.sizes[pointer.value] = size
        self.count += 1
        self.asked += size
        self.held += size
        self.peak = max(self.peak, self.held)
        return pointer.value

    def give(self, pointer, ordered=False):
        if ordered:
            self.call("cuMemFreeAsync", ctypes.c_uint64(pointer), None)
        else:
            self.call("cuMemFree_v2", ctypes.c_uint64(pointer))
        self.held -= self.sizes.pop(pointer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--too-much", type=int, default=0, help="MiB to ask for at last")
    args = parser.parse_args()
    card = Card()
    for _ in range(3):
        card.take(64 * MIB)
    for turn in range(50):
        # The last ones are kept, so that the peak is at the end.
        blocks = [(card.take(10 * MIB), False), (card.take(4096), False), (card.take(3 * MIB, ordered=True), True)]
        if turn < 49:
            for pointer, ordered in blocks:
                card.give(pointer, ordered)
    print(f"allocations={card.count}")
    print(f"asked={card.asked}")
    print(f"peak={card.peak}", flush=True)
    if args.too_much:
        card.take(args.too_much * MIB)


if __name__ == "__main__":
    main()
