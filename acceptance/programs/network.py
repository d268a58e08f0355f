"""Sends and reads in several ways, and says whether its own server was reached.

    network.py ADDRESS

ADDRESS is a server outside the run.
"""

import http.client
import http.server
import json
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

address = sys.argv[1]


def tried(function):
    try:
        return str(function())
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)


class Own(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"served")

    def log_message(self, *words):
        pass


def ask(method, url=address):
    data = None if method in ("GET", "HEAD") else b"x"
    return urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=10).read()


def send(method):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=10)
    connection.request(method, "/", b"x")
    return connection.getresponse().status


results = {method: tried(lambda: ask(method)) for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")}
results.update({"http." + method: tried(lambda: send(method)) for method in ("POST", "PUT", "DELETE", "MERGE")})
if shutil.which("curl"):
    command = ["curl", "--silent", "--max-time", "5", "--request", "CURL", address]
    results["curl"] = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
threading.Thread(target=server.serve_forever, daemon=True).start()
results["own"] = tried(lambda: ask("POST", "http://127.0.0.1:%d/" % server.server_port).decode())
print("network=" + json.dumps(results))
