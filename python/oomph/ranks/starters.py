"""Starts only some ranks of a job, in place of the launchers that would start them all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from oomph import ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._types import Library


def elastic(module: Library, names: str | None) -> None:
    """torchrun, `accelerate launch` and all else that goes through torch's elastic launcher."""
    launch = module.elastic_launch
    original = launch.__call__

    def __call__(self, *arguments):
        machines, each = self._config.max_nodes, self._config.nproc_per_node
        world = machines * each
        running = ranks.chosen(names, world)
        if running is None or not isinstance(self._entrypoint, str):
            return original(self, *arguments)
        job = Job(world, each, running)
        command = [self._entrypoint, *(str(argument) for argument in arguments)]
        variables = {
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": str(world),
            "GROUP_WORLD_SIZE": str(machines),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": str(getattr(self._config, "run_id", "none") or "none"),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        job.run(lambda rank, local: [word.replace("${local_rank}", str(local)) for word in command], variables)
        return {}

    launch.__call__ = __call__


def deepspeed(module: Library, names: str | None) -> None:
    """The part of DeepSpeed's launcher that starts the ranks of one machine."""
    original = module.main

    def main():
        arguments = module.parse_args()
        import base64
        import json

        cards = json.loads(base64.urlsafe_b64decode(arguments.world_info))
        each = len(next(iter(cards.values())))
        world = sum(len(of_machine) for of_machine in cards.values())
        running = ranks.chosen(names, world)
        if running is None:
            return original()

        def command(rank, local):
            words = [] if arguments.no_python else [sys.executable, "-u"]
            words += ["-m"] if arguments.module and not arguments.no_python else []
            words.append(arguments.training_script)
            words += [] if arguments.no_local_rank else ["--local_rank=%d" % local]
            return words + list(arguments.training_script_args)

        Job(world, each, running).run(command, {"CROSS_SIZE": str(len(cards)), "LOCAL_SIZE": str(each)})

    module.main = main


def deepspeed_runner(module: Library) -> None:
    """DeepSpeed's command runs that part with `-m`, which imports nothing: send it the long way round."""

    class Subprocess:
        def __getattr__(self, name: str) -> Any:
            return getattr(subprocess, name)

        def Popen(self, command: Any, *args: Any, **options: Any) -> subprocess.Popen[Any]:
            if isinstance(command, list) and "deepspeed.launcher.launch" in command:
                there = command.index("deepspeed.launcher.launch")
                command = command[:there] + ["oomph.ranks.deepspeed"] + command[there + 1 :]
            return subprocess.Popen(command, *args, **options)

    module.subprocess = Subprocess()


def spawn(module: Library, names: str | None) -> None:
    """`torch.multiprocessing.spawn`, which gives each process its number as the first argument."""
    original = module.start_processes

    def start_processes(fn, args=(), nprocs=1, *rest, **options):
        running = ranks.chosen(names, nprocs)
        if running is None:
            return original(fn, args, nprocs, *rest, **options)
        # Children inherit the variable; their numbers among those that are started become their ranks.
        os.environ[ranks.VARIABLE] = ",".join(map(str, running))
        try:
            return original(_Renumbered(fn, running), args, len(running), *rest, **options)
        finally:
            os.environ.pop(ranks.VARIABLE, None)

    module.start_processes = start_processes


class _Renumbered:
    """A function of a rank, called with its number among the ranks that run. Processes get it pickled."""

    def __init__(self, function, running):
        self.function = function
        self.running = running

    def __call__(self, index, *args):
        return self.function(self.running[index], *args)


class Job:
    """Some ranks of a job as processes, each with the variables that launchers give."""

    def __init__(self, world: int, each: int, running: list[int]) -> None:
        self.world = world
        self.running = running
        self.cards = _cards()
        # A machine cannot have more ranks than it has cards, so a job of 64 on 8 cards is one of 8 machines.
        self.each = min(each, len(self.cards)) if self.cards else each

    def run(self, command: Callable[[int, int], list[str]], variables: dict[str, str]) -> None:
        """Start `command(rank, local rank)` for each rank, wait for all, and end them all when one fails."""
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        places = self.places()
        processes = []
        previous = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for rank in self.running:
                local = rank % self.each
                environment = dict(os.environ, **variables)
                environment.update(address)
                environment.update({
                    "RANK": str(rank),
                    "LOCAL_RANK": str(local),
                    "ROLE_RANK": str(rank),
                    "GROUP_RANK": str(rank // self.each),
                    "CROSS_RANK": str(rank // self.each),
                    "WORLD_SIZE": str(self.world),
                    "LOCAL_WORLD_SIZE": str(self.each),
                    ranks.VARIABLE: ",".join(map(str, self.running)),
                })
                if self.cards:
                    environment["CUDA_VISIBLE_DEVICES"] = ",".join(places[rank])
                processes.append(subprocess.Popen(command(rank, local), env=environment))
            status = _wait(processes)
        finally:
            _end(processes)
            for number, handler in previous.items():
                signal.signal(number, handler)
        if status:
            sys.exit(status)

    def places(self) -> dict[int, list[str]]:
        """What each rank sees of the cards, so that each runs on one of its own as long as there are enough.

        Ranks of different machines have the same number on theirs, and there is one set of cards for all of them.
        """
        taken = set()
        result = {}
        for rank in self.running:
            local = rank % self.each
            visible = list(self.cards)
            if visible:
                own = visible[local]
                free = own if own not in taken else next((card for card in visible if card not in taken), own)
                other = visible.index(free)
                visible[local], visible[other] = free, own
                taken.add(free)
            result[rank] = visible
        return result


def _cards():
    """The cards of this run by their CUDA numbers, as far as this process sees them."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return [name.strip() for name in shown.split(",") if name.strip()]
    try:
        import torch

        return [str(index) for index in range(torch.cuda.device_count())]
    except Exception:
        # A torch that cannot be imported here cannot count cards either; the ranks show the error.
        return []


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _leave(number, frame):
    sys.exit(128 + number)


def _wait(processes):
    """Wait for all; give the status of the first that fails, as a shell shows it."""
    waiting = list(processes)
    while waiting:
        for process in list(waiting):
            status = process.poll()
            if status is None:
                continue
            waiting.remove(process)
            if status:
                return status if status > 0 else 128 - status
        time.sleep(0.02)
    return 0


def _end(processes, patience=5.0):
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + patience
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
