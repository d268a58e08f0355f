"""Brings libraries that write or read files without Python's `open` under the overlay.

Two jobs: paths are translated before compiled code sees them, and the payload of large checkpoints is left out
(`sparsezip`, and the same for safetensors), so that a dry run of a 70 B model does not write 140 GB of zeros.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import struct

from oomph import overlay, sparsecopy
from oomph.sparsezip import HOLE_FROM, REAL_BYTES, SparseZipWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Torch

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64",
}


def _is_path(value):
    return isinstance(value, (str, os.PathLike))


# -- torch -----------------------------------------------------------------------------------------------------


class _SparseFile:
    """What torch.save enters to get its writer."""

    _owned: Any = None
    """The file where it was opened here."""

    def __init__(self, target):
        if _is_path(target):
            name = os.path.basename(os.fspath(target))
            self._file = self._owned = open(target, "wb")
            stem = name.rsplit(".", 1)[0] or "archive"
        else:
            self._file, stem = target, "archive"
        self.file_like = SparseZipWriter(self._file, stem)

    def __enter__(self):
        return self.file_like

    def __exit__(self, *error):
        try:
            self.file_like.write_end_of_file()
            self._file.flush()
        finally:
            if self._owned is not None:
                self._owned.close()


def _beneath(target):
    """The file in the wrapper that torch.distributed.checkpoint puts around it to keep it open."""
    return target.raw if type(target).__name__ == "NoCloseWriter" else target


def _sparse_target(target):
    """Say whether a target of torch.save is an ordinary file that is written at its end."""
    import fcntl
    import io
    import stat

    if _is_path(target):
        parent = os.path.dirname(os.fspath(target)) or os.curdir
        return os.path.isdir(parent) and not os.path.isdir(target)
    if not isinstance(target, (io.BufferedWriter, io.BufferedRandom)):
        return False
    try:
        target.flush()
        info = os.fstat(target.fileno())
        # Seeking makes no hole where every write goes to the end.
        appending = fcntl.fcntl(target.fileno(), fcntl.F_GETFL) & os.O_APPEND
        return stat.S_ISREG(info.st_mode) and target.seekable() and target.tell() >= info.st_size and not appending
    except (OSError, ValueError):
        return False


def install_torch(torch: Torch) -> None:
    """Attach to a torch that has just been imported, and wait for the other libraries that save."""
    serialization = torch.serialization
    _wrap_writer(serialization)
    _wrap_reader(torch)
    _translate_class(torch._C, "PyTorchFileWriter", True)
    _wrap_mapping(torch)
    _wrap_legacy(torch)
    _translate(torch.jit, "save", 1, True)
    _translate(torch.jit, "load", 0, False)
    _translate(torch.jit.RecursiveScriptModule, "save", 1, True)


def _wrap_writer(serialization):
    original = serialization._open_zipfile_writer

    def _open_zipfile_writer(name_or_buffer):
        name_or_buffer = _beneath(name_or_buffer)
        if _sparse_target(name_or_buffer):
            return _SparseFile(name_or_buffer)
        if _is_path(name_or_buffer):
            parent = os.path.dirname(os.fspath(name_or_buffer))
            if parent and not os.path.isdir(parent):
                # torch's own words, with the program's path in them.
                raise RuntimeError("Parent directory %s does not exist." % parent)
        return original(name_or_buffer)

    serialization._open_zipfile_writer = _open_zipfile_writer


def _wrap_reader(torch):
    """Have torch.load read redirected files, and give holes as untouched zeros, which take no host memory.

    torch.load itself is left alone: its warnings name the line that called it, which must stay the program's.
    """
    original = torch._C.PyTorchFileReader

    def __init__(self, source, *args, **kwargs):
        if _is_path(source):
            source = os.fspath(overlay.real_path(source))
        self._source = source
        original.__init__(self, source, *args, **kwargs)

    def get_storage_from_record(self, name, size, kind):
        if size >= HOLE_FROM:
            try:
                if _is_hole(self._source, self.get_record_offset(name), size):
                    return torch.frombuffer(_untouched(size), dtype=torch.uint8)
            except (AttributeError, OSError, ValueError):
                pass
        return original.get_storage_from_record(self, name, size, kind)

    members = {
        "__init__": __init__, "get_storage_from_record": get_storage_from_record, "__module__": original.__module__,
        "__doc__": original.__doc__,
    }
    torch._C.PyTorchFileReader = type("PyTorchFileReader", (original,), members)


def _untouched(size):
    """Zeros that take no host memory until they are written to."""
    import mmap

    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _is_hole(source, offset, size):
    """Say whether `size` bytes of a file (a path or an open file) were never written."""
    if isinstance(source, str):
        with open(source, "rb") as file:
            return _is_hole(file, offset, size)
    number = source.fileno()
    at = os.lseek(number, 0, os.SEEK_CUR)
    try:
        # A hole may begin and end inside a block that also holds the neighbours' bytes.
        return os.lseek(number, offset + 65536, os.SEEK_DATA) >= offset + size - 65536
    except OSError as error:
        # There is no data at all behind this place.
        return error.errno == errno.ENXIO
    finally:
        os.lseek(number, at, os.SEEK_SET)


def _wrap_legacy(torch):
    """Leave holes in the older format too, which writes each storage straight to the file."""
    original = torch.UntypedStorage._write_file

    def _write_file(self, file, is_real_file, save_size, element_size):
        size = self.nbytes()
        if size < HOLE_FROM or not is_real_file or not _sparse_target(file) or file.tell() + size <= REAL_BYTES:
            return original(self, file, is_real_file, save_size, element_size)
        file.write(struct.pack("<q", size // element_size) if save_size else b"")
        file.seek(size - 1, os.SEEK_CUR)
        # The last byte is real, so that the file has its length.
        file.write(b"\0")
        file.flush()
        return None

    torch.UntypedStorage._write_file = _write_file


def _wrap_mapping(torch):
    original = torch.UntypedStorage.from_file

    def from_file(cls, filename, *args, **kwargs):
        return original(os.fspath(overlay.real_path(filename)), *args, **kwargs)

    torch.UntypedStorage.from_file = classmethod(from_file)


def _translate_class(module, name, writing):
    """Replace a compiled class by a subclass whose first argument, where it is a path, is translated."""
    original = getattr(module, name, None)
    if original is None:
        return

    def __init__(self, target, *args, **kwargs):
        if _is_path(target):
            target = os.fspath(overlay.real_path(target, writing))
        original.__init__(self, target, *args, **kwargs)

    derived = type(name, (original,), {"__init__": __init__, "__module__": original.__module__, "__doc__": original.__doc__})
    setattr(module, name, derived)


def _translate(owner, name, index, writing):
    """Wrap a function so that its argument number `index`, where it is a path, is translated."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def translated(*args, **kwargs):
        if len(args) > index and _is_path(args[index]):
            real = overlay.real_path(args[index], writing)
            if real is not args[index]:
                args = args[:index] + (real,) + args[index + 1 :]
        else:
            for key in ("f", "filename", "file", "path", "uri", "where", "source"):
                if _is_path(kwargs.get(key)):
                    kwargs[key] = overlay.real_path(kwargs[key], writing)
                    break
        return original(*args, **kwargs)

    setattr(owner, name, translated)


def _translating(name, index, writing):
    return lambda owner: _translate(owner, name, index, writing)


# -- safetensors -----------------------------------------------------------------------------------------------


def _safetensors(module):
    _translate(module, "serialize_file", 1, True)
    original = module.safe_open
    try:
        _translate_new(module, "safe_open")
    except TypeError:
        module.safe_open = original
        _translate(module, "safe_open", 0, False)


def _translate_new(module, name):
    original = getattr(module, name)

    def __new__(cls, filename, *args, **kwargs):
        if _is_path(filename):
            filename = overlay.real_path(filename)
        return original.__new__(cls, filename, *args, **kwargs)

    setattr(module, name, type(name, (original,), {"__new__": __new__, "__module__": original.__module__, "__doc__": original.__doc__}))


def _safetensors_torch(module):
    original = module.save_file

    @functools.wraps(original)
    def save_file(tensors, filename, metadata=None):
        try:
            plan = _plan(module, tensors, metadata)
        except Exception:
            # What is not understood here the library itself writes, or refuses in its own words.
            plan = None
        if plan is None:
            return original(tensors, filename, metadata)
        _write_plan(plan, tensors, filename)
        return None

    module.save_file = save_file


def _plan(module, tensors, metadata):
    """The header and order of a large safetensors file, or None when the library should write (or refuse) it."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    if sum(sizes.values()) <= REAL_BYTES:
        return None
    dtypes = {name: _DTYPES[str(tensor.dtype).split(".")[-1]] for name, tensor in tensors.items()}
    for tensor in tensors.values():
        if str(tensor.layout) != "torch.strided" or not tensor.is_contiguous():
            return None
    if any(len(names) > 1 for names in module._find_shared_tensors(tensors)):
        return None
    # The library sorts by the width of the elements, widest first, and then by name.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = {"__metadata__": metadata} if metadata is not None else {}
    at = 0
    for name in order:
        header[name] = {
            "dtype": dtypes[name], "shape": list(tensors[name].shape), "data_offsets": [at, at + sizes[name]],
        }
        at += sizes[name]
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    return text + b" " * (-len(text) % 8), order, sizes, at


def _write_plan(plan, tensors, filename):
    text, order, sizes, total = plan
    left = REAL_BYTES
    with open(filename, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            size = sizes[name]
            if size >= HOLE_FROM and size > left:
                file.seek(size, os.SEEK_CUR)
                continue
            left -= size
            file.write(_bytes_of(tensors[name], size))
        file.flush()
        file.truncate(8 + len(text) + total)


def _bytes_of(tensor, size):
    import ctypes

    host = tensor.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), size) if size else b""


# -- others ----------------------------------------------------------------------------------------------------


def _patch_type(cls, name, wrap):
    """Replace a method of a compiled class that refuses assignment, in the dictionary behind its `__dict__`."""
    import ctypes
    import gc

    try:
        setattr(cls, name, wrap(cls.__dict__[name]))
        return
    except TypeError:
        pass
    members = gc.get_referents(cls.__dict__)[0]
    if isinstance(members, dict) and name in members:
        members[name] = wrap(members[name])
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def _tokenizers(module):
    """The tokenizers of Hugging Face write and read their files in Rust, and every checkpoint holds one."""

    def saving(original):
        def save(self, path, *args, **kwargs):
            return original(self, os.fspath(overlay.real_path(path, True)), *args, **kwargs)

        return save

    def loading(original):
        function = original.__func__ if isinstance(original, staticmethod) else original

        def from_file(path):
            return function(os.fspath(overlay.real_path(path)))

        return staticmethod(from_file)

    def saving_model(original):
        def save(self, folder, *args, **kwargs):
            state = overlay.state
            if state is None:
                return original(self, folder, *args, **kwargs)
            key = state.key(folder)
            if state.places.allowed(key) or not state.is_directory(key):
                return original(self, folder, *args, **kwargs)
            # The folder's upper twin is made ready; the names written there are reported as the program knows them.
            place = overlay.real_path(os.path.join(folder, ".oomph"), True)
            written = original(self, os.path.dirname(place), *args, **kwargs)
            return [state.logical(path) for path in written]

        return save

    _patch_type(module.Tokenizer, "save", saving)
    _patch_type(module.Tokenizer, "from_file", loading)
    _patch_type(module.models.Model, "save", saving_model)


def _sqlite(module):
    original = module.connect

    @functools.wraps(original)
    def connect(database, *args, **kwargs):
        if _is_path(database):
            name = os.fspath(database)
            if name and name != ":memory:" and not name.startswith("file:"):
                database = overlay.real_path(database, True)
        return original(database, *args, **kwargs)

    module.connect = connect
    if getattr(module, "dbapi2", None) is not None:
        module.dbapi2.connect = connect


def _h5py(module):
    original = module.File.__init__

    @functools.wraps(original)
    def __init__(self, name, mode="r", *args, **kwargs):
        if _is_path(name):
            name = overlay.real_path(name, mode != "r")
        original(self, name, mode, *args, **kwargs)

    module.File.__init__ = __init__


_FUNCTIONS = (
    ("cv2", "imwrite", 0, True), ("cv2", "imread", 0, False), ("soundfile", "write", 0, True),
    ("soundfile", "read", 0, False), ("torchaudio", "save", 0, True), ("torchaudio", "load", 0, False),
    ("torchvision.io.image", "write_file", 0, True), ("torchvision.io.image", "read_file", 0, False),
    ("torchvision.io.video", "write_video", 0, True), ("pyarrow", "memory_map", 0, False),
    ("pyarrow", "output_stream", 0, True), ("pyarrow", "input_stream", 0, False),
    ("pyarrow.parquet.core", "read_table", 0, False),
)


def install_libraries() -> None:
    """Wait for every library that opens files without Python."""
    from oomph.hook import on_import

    sparsecopy.install()
    on_import("safetensors", _safetensors)
    on_import("safetensors.torch", _safetensors_torch)
    on_import("tokenizers", _tokenizers)
    on_import("sqlite3", _sqlite)
    on_import("h5py._hl.files", _h5py)
    for module, name, index, writing in _FUNCTIONS:
        on_import(module, _translating(name, index, writing))
