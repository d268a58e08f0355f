"""Requests that send go nowhere, and those that read do; a program's own server is served."""

import http.server
import importlib.util
import threading
import time
import unittest

import support


class _Service(http.server.BaseHTTPRequestHandler):
    """Stands for a service outside the run and keeps what it was sent."""

    seen = []

    def _answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        type(self).seen.append(self.command)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"real")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_MERGE = _answer

    def log_message(self, *words):
        pass


_PROGRAMS = {
    "urllib": """
        import sys, urllib.request
        url = sys.argv[1]
        print(urllib.request.urlopen(url).read(), urllib.request.urlopen(url, data=b"x").read())
        print(urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).status)
    """,
    "http": """
        import http.client, sys, urllib.parse
        host = urllib.parse.urlsplit(sys.argv[1]).netloc
        one = http.client.HTTPConnection(host)
        one.request("GET", "/")
        print(one.getresponse().read())
        for method in ("POST", "PUT", "MERGE", "post"):
            try:
                http.client.HTTPConnection(host).request(method, "/", b"x")
                print("sent")
            except ConnectionError as error:
                print("--network all" in str(error))
    """,
    "requests": """
        import requests, sys
        url = sys.argv[1]
        print(requests.get(url).text, requests.head(url).status_code)
        with requests.Session() as session:
            for method in ("post", "put", "patch", "delete"):
                print(getattr(session, method)(url, data=b"x").json())
    """,
    "urllib3": """
        import sys, urllib3
        pool = urllib3.PoolManager()
        print(pool.request("GET", sys.argv[1]).data, pool.request("POST", sys.argv[1], body=b"x").data)
    """,
    "httpx": """
        import asyncio, httpx, sys
        url = sys.argv[1]
        print(httpx.get(url).text, httpx.post(url, content=b"x").json(), httpx.request("PATCH", url).status_code)
        async def main():
            async with httpx.AsyncClient() as client:
                return (await client.get(url)).text, (await client.put(url, content=b"x")).json()
        print(asyncio.run(main()))
    """,
    "aiohttp": """
        import aiohttp, asyncio, sys
        url = sys.argv[1]
        async def main():
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as answer:
                    print(await answer.text())
                try:
                    async with session.post(url, data=b"x") as answer:
                        print("sent")
                except aiohttp.ClientConnectionError:
                    print("stopped")
        asyncio.run(main())
    """,
}


class Network(support.RunCase):
    def setUp(self):
        super().setUp()
        _Service.seen = []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Service)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = "http://127.0.0.1:%d/" % server.server_port

    def test_only_reading_goes_out(self):
        for name, program in _PROGRAMS.items():
            if importlib.util.find_spec(name) is None:
                continue
            with self.subTest(name):
                _Service.seen = []
                self.passes(program, self.url, env={"OOMPH_RUN_MARK": "of-this-test"})
                self.assertTrue(_Service.seen, "nothing was read")
                self.assertLessEqual(set(_Service.seen), {"GET", "HEAD"})

    def test_the_answers_are_empty(self):
        out = self.passes(_PROGRAMS["urllib"], self.url)
        self.assertEqual(out, "b'real' b'{}'\n200\n")
        self.assertEqual(self.passes(_PROGRAMS["http"], self.url), "b'real'\nTrue\nTrue\nTrue\nTrue\n")

    def test_a_run_serves_itself(self):
        out = self.passes(
            """
            import http.server, os, subprocess, sys, threading, urllib.request
            class Own(http.server.BaseHTTPRequestHandler):
                def do_POST(self):
                    self.send_response(200); self.end_headers(); self.wfile.write(b"own")
                def log_message(self, *words): pass
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = "http://localhost:%d/" % server.server_port
            print(urllib.request.urlopen(url, data=b"x").read())
            code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], data=b'x').read())"
            print(subprocess.check_output([sys.executable, "-c", code, url], text=True), end="")
            """,
            env={"OOMPH_RUN_MARK": "of-this-test"},
        )
        self.assertEqual(out, "b'own'\nb'own'\n")


class Free(Network):
    config = {"network": "all"}

    def test_only_reading_goes_out(self):
        self.passes(_PROGRAMS["http"].replace("--network all", ""), self.url)
        # The program waits for no answer, so the service may see what it sent only after its end.
        end = time.monotonic() + 20
        while "PUT" not in _Service.seen and time.monotonic() < end:
            time.sleep(0.05)
        self.assertIn("PUT", _Service.seen)

    test_the_answers_are_empty = None


if __name__ == "__main__":
    unittest.main()
