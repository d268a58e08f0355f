"""Drives `oomph mcp` as an agent does, with the official SDK for Python, and prints what came of it as JSON.

Its arguments are the program `oomph`, and after it the requirements of an environment with PyTorch.
"""

import json
import os
import sys
import time

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "OOMPH_ACCEPTANCE_MCP"

LOG = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.76 GiB of which \
1.10 GiB is free. Process 1 has 10.65 GiB memory in use. Of the allocated memory 9.80 GiB is allocated by PyTorch, and \
600.00 MiB is reserved by PyTorch but unallocated.
"""


def marked():
    """The processes of the server, as the number of each and its command."""
    wanted = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environment:
                ours = wanted in environment.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as command:
                line = command.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if ours and line:
            found.append([int(entry), line])
    return found


def is_program(line):
    """Whether a command is the program itself and not an `oomph` that runs it."""
    return os.path.basename(line.split()[0]).startswith("python") and "endless.py" in line


def plain(result):
    return {"error": result.is_error, "document": result.structured_content, "text": [part.text for part in result.content]}


async def wrong(session, tool, arguments):
    try:
        return {"accepted": plain(await session.call_tool(tool, arguments))}
    except Exception as error:
        error = getattr(error, "error", error)
        return {"code": error.code, "message": error.message, "data": error.data}


async def cancelled(session, arguments):
    """Gives a call up once its program runs, and says what is left of it."""
    before = marked()
    async with anyio.create_task_group() as group:
        group.start_soon(session.call_tool, "dry_run", arguments)
        with anyio.fail_after(300):
            while not any(is_program(line) for _, line in marked()):
                await anyio.sleep(0.2)
        during = marked()
        start = time.monotonic()
        group.cancel_scope.cancel()
    left = marked()
    while len(left) > len(before) and time.monotonic() < start + 30:
        await anyio.sleep(0.1)
        left = marked()
    return {"before": before, "during": during, "left": left, "seconds": time.monotonic() - start}


async def main():
    oomph, requirements = sys.argv[1], sys.argv[2:]
    server = StdioServerParameters(command=oomph, args=["mcp"], env=dict(os.environ))
    answers = {}
    heard = []

    async def listen(progress, total, message):
        heard.append([progress, message])

    def program(name, *arguments):
        return {"with": requirements, "command": ["python", os.path.join(HERE, name), *arguments], "directory": os.getcwd()}

    with open("train.log", "w") as log:
        log.write(LOG)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        answers["tools"] = {tool.name: {"input": tool.input_schema, "output": tool.output_schema} for tool in tools}
        small = program("mlp.py", "--width", "8192", "--depth", "12")
        answers["dry_run"] = plain(
            await session.call_tool("dry_run", {**small, "gpu": ["rtx-3060"]}, progress_callback=listen)
        )
        answers["progress"] = heard
        answers["fix"] = plain(
            await session.call_tool("fix", {**small, "gpu": ["rtx-3060"], "fixes": 1, "max_time": "60s"})
        )
        varied = program("mlp.py", "--width", "{width}")
        answers["tune"] = plain(
            await session.call_tool("tune", {**varied, "gpu": ["rtx-3060"], "vary": ["width=4096,8192,16384"]})
        )
        answers["plan"] = plain(
            await session.call_tool("plan", {"model": "llama-3-8b", "task": "full", "gpu": "rtx-4090"})
        )
        answers["explain"] = plain(
            await session.call_tool("explain", {"files": ["train.log"], "directory": os.getcwd()})
        )
        answers["gpus"] = plain(await session.call_tool("gpus", {"name": "rtx-4090"}))
        answers["failed"] = plain(await session.call_tool("dry_run", program("no-such-file.py")))
        answers["no_such_card"] = plain(
            await session.call_tool("plan", {"model": "llama-3-8b", "gpu": "rtx-9999"})
        )
        answers["wrong_type"] = await wrong(session, "dry_run", {"command": "python train.py"})
        answers["missing"] = await wrong(session, "explain", {})
        answers["unknown"] = await wrong(session, "fix", {"command": ["true"], "in_place": 1})
        answers["cancelled"] = await cancelled(session, {**program("endless.py"), "gpu": ["rtx-3060"], "until_exit": True})
        # The server serves on.
        answers["after"] = plain(await session.call_tool("gpus", {"name": "l4"}))
    answers["left_at_the_end"] = marked()
    print(json.dumps(answers))


anyio.run(main)
