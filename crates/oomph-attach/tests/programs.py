"""Programs to attach to. Each prints what it computed, which an attachment must not change."""

import hashlib
import os
import sys
import threading
import time

KIND, END = sys.argv[1:]


def goes_on():
    """Until the file is there."""
    return not os.path.exists(END)


def whole(start):
    """Sums with Python's own arithmetic; the result depends on every step."""
    total, count = start, 0
    while goes_on():
        for number in range(2000):
            total = (total * 31 + number) % 1000000007
        count += 1
    return check(start, total, count)


def real(start):
    """The same with floating point numbers, which lie in registers of their own."""
    total, count = float(start), 0
    while goes_on():
        for number in range(2000):
            total = (total * 1.25 + number * 0.5) % 1048576.0
        count += 1
    again = float(start)
    for _ in range(count):
        for number in range(2000):
            again = (again * 1.25 + number * 0.5) % 1048576.0
    return again == total


def digest(start):
    """Outside of the interpreter, with its lock released, in code that uses vector registers."""
    data = bytes([start]) * 100000
    first = hashlib.sha256(data).digest()
    while goes_on():
        if hashlib.sha256(data).digest() != first:
            return False
    return True


def check(start, total, count):
    again = start
    for _ in range(count):
        for number in range(2000):
            again = (again * 31 + number) % 1000000007
    return again == total


def waiting(start):
    """Short sleeps and locks: system calls that an attachment interrupts."""
    lock = threading.Lock()
    lock.acquire()
    while goes_on():
        before = time.monotonic()
        time.sleep(0.01)
        lock.acquire(timeout=0.01)
        if time.monotonic() - before < 0.02:
            return False
    return True


results = {}


def run(name, work, start):
    results[name] = work(start)


others = {"alone": [], "threads": [whole, real, digest, waiting], "joins": [whole, real, digest, waiting]}
threads = [threading.Thread(target=run, args=(work.__name__, work, 7)) for work in others.get(KIND, [])]
for thread in threads:
    thread.start()
print("ready", flush=True)
if KIND == "alone":
    run("main", whole, 3)
elif KIND == "reals":
    run("main", real, 3)
elif KIND == "threads":
    run("main", whole, 3)
elif KIND == "sleeps":
    before = time.monotonic()
    time.sleep(2.5)
    results["main"] = time.monotonic() - before >= 2.5
for thread in threads:
    thread.join()
names = sorted(name for name in globals() if name.lower().startswith("oomph") or name == "FOLDER")
print("right" if results and all(results.values()) and not names else "wrong", results, names, flush=True)
