"""Answers requests that would send something, so that the numbers of a dry run reach nobody's service.

Every method but GET and HEAD is stopped in `urllib`, `http.client`, `urllib3` (and so in `requests` and `botocore`), `httpx`
(and so in `huggingface_hub`) and `aiohttp`.  The answer is status 200 with an empty JSON object, because a program that
reports to a service seldom reads more than that; `aiohttp` and `http.client` raise a connection error instead.  Requests
between the processes of the run go through: a program may serve itself.  What is stopped is said in the report.

Not stopped are programs that are not Python, Python without this hook (`-I`, `-S`, an empty environment), and libraries
with an HTTP client of their own (gRPC, curl, Rust's); `--network none` stops those as well.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BODY = b"{}"
_READING = ("GET", "HEAD")
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")
_MOST_NAMED = 20
_named: set[str] = set()


def install() -> None:
    """Wait for every client."""
    from oomph.hook import on_import

    on_import("http.client", _http_client)
    on_import("urllib.request", _urllib)
    on_import("urllib3.connectionpool", _urllib3)
    on_import("httpx", _httpx)
    on_import("aiohttp.client", _aiohttp)


def _stopped(method, scheme, host, port, path=""):
    """Whether a request is not to go out; then it is said."""
    method = _text(method or "GET").upper()
    host = _text(host or "").strip("[]").rstrip(".").lower()
    if method in _READING or _reads(method, path):
        return False
    if (host in _LOCAL or host.startswith("127.")) and _is_own(port or (443 if scheme == "https" else 80)):
        return False
    _tell("%s %s" % (method, host or "?"))
    return True


def _text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _reads(method, path):
    """The Hub asks what files there are in a request that names them in its body."""
    path = _text(path or "").split("?", 1)[0]
    return method == "POST" and path.startswith("/api/") and "/paths-info/" in path


def _tell(what):
    from oomph import record

    if what in _named or len(_named) >= _MOST_NAMED:
        return
    _named.add(what)
    record.current().warn(
        "the program sent %s, which oomph answered in place of the service; --network all lets it go out" % what
    )


def _refusal(what):
    return ConnectionError("oomph does not let a dry run send: %s; --network all lets it go out" % what)


# -- who serves --------------------------------------------------------------------------------------------------


def _is_own(port):
    """Whether a process of this run listens on a port of this machine."""
    try:
        sockets = _listening(int(port))
        return bool(sockets) and any(_holds(pid, sockets) for pid in _processes())
    except (OSError, ValueError):
        return False


def _listening(port):
    """The sockets that wait for connections on a port, as a process's folder of files names them."""
    found = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            # Its own address, its state (0A: listening), its number.
            if len(words) > 9 and words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                found.add("socket:[%s]" % words[9])
    return found


def _processes():
    """The processes of this run, this one first."""
    yield "self"
    mark = os.environ.get("OOMPH_RUN_MARK")
    if not mark:
        return
    entry = b"OOMPH_RUN_MARK=" + os.fsencode(mark)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if entry in file.read().split(b"\0"):
                    yield pid
        except OSError:
            pass


def _holds(pid, sockets):
    folder = "/proc/%s/fd" % pid
    try:
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)) in sockets:
                    return True
            except OSError:
                pass
    except OSError:
        pass
    return False


# -- the clients -------------------------------------------------------------------------------------------------


def _http_client(module):
    """What is below urllib and urllib3, and what they do not answer themselves."""
    import functools

    def wrap(cls):
        putrequest = cls.putrequest

        @functools.wraps(putrequest)
        def guarded(self, method, url, *args, **kwargs):
            host = getattr(self, "_tunnel_host", None) or self.host
            scheme = "https" if isinstance(self, getattr(module, "HTTPSConnection", ())) else "http"
            if _text(method).upper() != "CONNECT" and _stopped(method, scheme, *_target(self, host, url)):
                raise _refusal("%s to %s" % (_text(method).upper(), host))
            return putrequest(self, method, url, *args, **kwargs)

        cls.putrequest = guarded

    wrap(module.HTTPConnection)


def _target(connection, host, url):
    """Host, port and path of a request; one through a proxy names all three."""
    url = _text(url)
    if "://" in url:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        return parts.hostname, parts.port, parts.path
    port = getattr(connection, "_tunnel_port", None) if getattr(connection, "_tunnel_host", None) else None
    return host, port or connection.port, url


def _urllib(module):
    import functools

    cls = module.AbstractHTTPHandler
    do_open = cls.do_open

    @functools.wraps(do_open)
    def guarded(self, http_class, request, **kwargs):
        from urllib.parse import urlsplit

        parts = urlsplit(request.full_url)
        if not _stopped(request.get_method(), parts.scheme, parts.hostname, parts.port, parts.path):
            return do_open(self, http_class, request, **kwargs)
        from email.message import Message
        from io import BytesIO
        from urllib.response import addinfourl

        headers = Message()
        headers["Content-Type"], headers["Content-Length"] = "application/json", str(len(_BODY))
        answer: Any = addinfourl(BytesIO(_BODY), headers, request.full_url, 200)
        answer.msg = answer.reason = "OK"
        return answer

    cls.do_open = guarded


def _urllib3(module):
    import functools

    cls = module.HTTPConnectionPool
    urlopen = cls.urlopen

    @functools.wraps(urlopen)
    def guarded(self, method, url, *args, **kwargs):
        host, port, path = _target(self, self.host, url)
        if not _stopped(method, self.scheme, host, port, path):
            return urlopen(self, method, url, *args, **kwargs)
        from io import BytesIO

        from urllib3.response import HTTPResponse

        headers = {"Content-Type": "application/json", "Content-Length": str(len(_BODY))}
        return HTTPResponse(
            body=BytesIO(_BODY), headers=headers, status=200, reason="OK", version=11,
            preload_content=kwargs.get("preload_content", True), request_method=method,
        )

    cls.urlopen = guarded


def _httpx(module):
    import functools

    def answer(request):
        url = request.url
        if _stopped(request.method, url.scheme, url.host, url.port, url.path):
            return module.Response(200, json={}, request=request)
        return None

    handle = module.HTTPTransport.handle_request

    @functools.wraps(handle)
    def handle_request(self, request):
        made = answer(request)
        return handle(self, request) if made is None else made

    handle_async = module.AsyncHTTPTransport.handle_async_request

    @functools.wraps(handle_async)
    async def handle_async_request(self, request):
        made = answer(request)
        return await handle_async(self, request) if made is None else made

    module.HTTPTransport.handle_request = handle_request
    module.AsyncHTTPTransport.handle_async_request = handle_async_request


def _aiohttp(module):
    import functools

    cls = module.ClientSession
    request = cls._request

    @functools.wraps(request)
    async def guarded(self, method, str_or_url, **kwargs):
        url = str_or_url
        try:
            url = self._build_url(str_or_url)
            stopped = _stopped(method, url.scheme, url.host, url.port, url.path)
        except (AttributeError, ValueError, TypeError):
            stopped = _stopped(method, "", str(url), None)
        if stopped:
            raise module.ClientConnectionError(str(_refusal("%s to %s" % (method, url))))
        return await request(self, method, str_or_url, **kwargs)

    cls._request = guarded
