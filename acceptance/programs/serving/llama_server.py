"""Starts llama.cpp's own server as a program that serves models does, asks it for a few tokens, and ends it.

    python llama_server.py PROGRAMS FOLDER [--context 4096]

PROGRAMS is the folder that has `llama-server` and `llama-fit-params`; a GGUF file of a 7-billion shape is made in
FOLDER. The options are those that Ollama gives the server: how many layers go to the card is left to `--fit`, which
looks at what the card has free.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import gguf_of_holes

parser = argparse.ArgumentParser()
parser.add_argument("programs", type=pathlib.Path)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--context", type=int, default=4096)
asked = parser.parse_args()

path = asked.folder / "model.gguf"
shape = {"layers": 32, "embedding": 4096, "feed_forward": 11008, "heads": 32, "kv_heads": 32, "vocabulary": 32000,
         "context": asked.context}
gguf_of_holes.write(path, shape, "Q4_0", words=True)

options = ["--model", str(path), "-c", str(asked.context), "-b", "512", "-ub", "512", "--flash-attn", "auto"]
fitted = subprocess.run([asked.programs / "llama-fit-params", *options], stdout=subprocess.PIPE, text=True, check=True)
print(f"fitted={fitted.stdout.strip()}", flush=True)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen(
    [asked.programs / "llama-server", *options, "--port", str(port), "--host", "127.0.0.1", "--no-webui", "--offline",
     "-np", "1", "--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps"],
)


def ask(path, question=None):
    body = None if question is None else json.dumps(question).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=300) as answer:
        return json.load(answer)


while True:
    try:
        ask("/health")
        break
    except (urllib.error.URLError, ConnectionError):
        if server.poll() is not None:
            sys.exit(server.returncode)
        time.sleep(0.1)
answer = ask("/completion", {"prompt": "hello there", "n_predict": 8, "ignore_eos": True})
print(f"predicted={answer['tokens_predicted']}", flush=True)
server.terminate()
print(f"ended={server.wait()}")
