"""`--random-weights`: builds a model whose weights are not on disk from its config, by `from_pretrained` itself.

The missing checkpoint is made, not the model: a folder in the run's scratch with the config and safetensors files
that have the right names, types and shapes, but holes where the numbers would be. The library's own `from_pretrained`
then loads that folder, so that types, device maps, quantization, tied weights and memory are what they would have been.
Holes take no disk, however large the model.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import re
import threading

from oomph import _protocol as protocol
from oomph import hollow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph.record import Record

_MISSING = re.compile(
    r"no file named|not appear to have (a )?file|couldn.t connect|couldn.t find|cannot find|can.t load|not found|"
    r"no such file|not a local folder|not a valid model identifier|not cached locally|offline|git-lfs|connection|"
    r"error while trying to (fetch|find)|could not be found|unable to load|max retries|not the path to a directory",
    re.I,
)
_WEIGHT_FILE = re.compile(r"(model|pytorch_model).*\.(safetensors|bin)$")
_COMPANIONS = re.compile(r"generation_config\.json$|tokenizer|vocab|merges|special_tokens|added_tokens|spiece|preprocessor")

# What transformers' from_pretrained takes for itself; everything else goes to the config or to the model.
_OWN_ARGUMENTS = frozenset((
    "state_dict proxies tqdm_class output_loading_info _from_pipeline _from_auto dtype torch_dtype device_map max_memory "
    "offload_folder offload_buffers offload_state_dict quantization_config load_in_8bit load_in_4bit subfolder "
    "_commit_hash variant adapter_kwargs adapter_name generation_config gguf_file distributed_config device_mesh "
    "tp_plan tp_size trust_remote_code allow_all_kernels use_kernels kernel_config key_mapping mirror _fast_init "
    "low_cpu_mem_usage from_tf from_flax resume_download use_auth_token use_flash_attention_2 attn_implementation "
    "experts_implementation fusion_config weights_only ignore_mismatched_sizes cache_dir force_download "
    "local_files_only token revision config code_revision use_safetensors"
).split())
_OTHER_SOURCES = ("state_dict", "gguf_file", "from_tf", "from_flax")
_HUB_ARGUMENTS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder", "proxies")

_NO_CONFIG = (
    "weights of %s are missing and could not be replaced by random ones: its config is needed too, and neither the disk "
    "nor the network has it."
)

_record: Record | None = None
_said: set[str] = set()
_random: list[str] = []
"""The models whose weights are random, by the names that the program gave."""
_lock = threading.RLock()
_count = 0


def are_missing(error: BaseException) -> bool:
    """Say whether an exception that ends a program is a `from_pretrained` that found no weights."""
    if not isinstance(error, OSError) or not _MISSING.search(str(error)):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "from_pretrained":
            return True
        trace = trace.tb_next
    return False


def install(record: Record) -> None:
    """Wait for the libraries that load models by name."""
    global _record
    from oomph.hook import on_import

    _record = record
    on_import("transformers.modeling_utils", lambda module: _wrap(module.PreTrainedModel, _for_transformers))
    on_import("diffusers.models.modeling_utils", lambda module: _wrap(module.ModelMixin, _for_diffusers))
    # These look for a config before any class of a model is known.
    on_import("transformers.models.auto.auto_factory", lambda module: _watch(module._BaseAutoModelClass))
    on_import("diffusers.pipelines.pipeline_utils", lambda module: _watch(module.DiffusionPipeline))


def _watch(cls):
    """Leave from_pretrained unchanged, but say what was missing when it fails for a name that cannot be found."""
    original = cls.__dict__["from_pretrained"].__func__

    @functools.wraps(original)
    def from_pretrained(cls, *args, **kwargs):
        try:
            return original(cls, *args, **kwargs)
        except Exception as error:
            # The library's own error is raised on, whatever it is.
            # The error above must come through, also where its arguments cannot be read.
            with contextlib.suppress(Exception):
                name = args[0] if args else kwargs.get("pretrained_model_name_or_path")
                if name is not None and not os.path.exists(name) and _weights_missing(error, name, kwargs):
                    _warn(name, _NO_CONFIG % name)
            raise

    cls.from_pretrained = classmethod(from_pretrained)


def _wrap(cls, make):
    original = cls.__dict__["from_pretrained"].__func__

    @functools.wraps(original)
    def from_pretrained(cls, pretrained_model_name_or_path=None, *args, **kwargs):
        name = pretrained_model_name_or_path
        if not isinstance(name, (str, os.PathLike)) or any(kwargs.get(key) for key in _OTHER_SOURCES):
            return original(cls, name, *args, **kwargs)
        error = substitute = None
        given = dict(kwargs)
        if not os.path.exists(name):
            # Weights that are not on disk are not wanted, even where the network would give them.
            kwargs["local_files_only"] = True
        try:
            return original(cls, name, *args, **kwargs)
        except Exception as caught:
            # Libraries have many errors for weights that are missing; whatever else it is, is raised on.
            if not _weights_missing(caught, name, given):
                raise
            error = caught.with_traceback(None)
        try:
            with _lock:
                substitute = make(cls, name, args, dict(given))
        except Exception as caught:
            # A model that cannot be imitated gets the library's own error, and the report the reason.
            _debug()
            if not os.path.isdir(name) and isinstance(caught, OSError):
                _warn(name, _NO_CONFIG % name)
            else:
                reason = "%s: %s" % (type(caught).__name__, (str(caught).strip() + "\n").split("\n")[0][:200])
                _warn(name, "weights of %s are missing and could not be replaced by random ones: %s." % (name, reason))
        if substitute is None:
            # The program asked for it without the restriction to the disk, so it gets the error of that.
            return _again(original, cls, name, args, given, error)
        folder, changed = substitute
        _say_random(name)
        error = None
        return _named(original(cls, folder, *args, **changed), name)

    cls.from_pretrained = classmethod(from_pretrained)


def _again(original, cls, name, args, given, error):
    if os.path.exists(name) or given.get("local_files_only"):
        raise error
    return original(cls, name, *args, **given)


def _debug():
    if os.environ.get("OOMPH_HOOK_DEBUG"):
        import traceback

        traceback.print_exc()


def _warn(name, sentence):
    if str(name) not in _said:
        _said.add(str(name))
        if _record is not None:
            _record.warn(sentence)


def _say_random(name):
    """Several models with random weights are one warning, which grows."""
    if str(name) not in _said:
        _said.add(str(name))
        before = _random_sentence() if _random else None
        _random.append(str(name))
        if _record is not None:
            _record.warn(_random_sentence(), instead_of=before)


def _random_sentence():
    if len(_random) == 1:
        return "weights of %s are random: they are not on disk, so the model is built from its config." % _random[0]
    names = "%s and %s" % (", ".join(_random[:-1]), _random[-1])
    return "weights of %s are random: they are not on disk, so the models are built from their configs." % names


def _named(result, name):
    """Let the model carry the name the program gave: saved configs and adapters repeat it."""
    try:
        model = result[0] if isinstance(result, tuple) else result
        name = str(name)
        if hasattr(model, "register_to_config"):
            model.register_to_config(_name_or_path=name)
        else:
            model.config._name_or_path = name
            model.name_or_path = name
    except Exception:
        # The name is an extra: some models take no new attributes.
        _debug()
    return result


# -- is it the weights? ----------------------------------------------------------------------------------------


def _weights_missing(error, name, kwargs):
    """Say whether the library failed for lack of weights: nothing else may be covered up."""
    try:
        if os.path.isdir(name):
            return _folder_lacks_weights(os.path.join(name, kwargs.get("subfolder") or ""))
        if os.path.isfile(name):
            return False
        module = type(error).__module__.split(".")[0]
        if isinstance(error, OSError) or module in ("huggingface_hub", "httpx", "requests"):
            return bool(_MISSING.search(str(error))) or module in ("huggingface_hub", "httpx", "requests")
    except Exception:
        # Whether it is the weights could not be seen: then the error is not covered up.
        _debug()
    return False


def _folder_lacks_weights(folder):
    """Say whether a local folder has a config but no complete set of weights; a git-lfs pointer is not a weight."""
    names = os.listdir(folder)
    if "config.json" not in names:
        return False
    found = [name for name in names if _WEIGHT_FILE.search(name) and not _is_pointer(os.path.join(folder, name))]
    for name in names:
        if name.endswith(".index.json"):
            try:
                with open(os.path.join(folder, name)) as file:
                    shards = set(json.load(file)["weight_map"].values())
            except (ValueError, KeyError, AttributeError):
                continue
            if not shards.issubset(found):
                return True
    return not found


def _is_pointer(path):
    if not os.path.isfile(path) or os.path.getsize(path) > 1024:
        return not os.path.exists(path)
    with open(path, "rb") as file:
        return file.read(24).startswith(b"version https://git-lfs")


# -- transformers ----------------------------------------------------------------------------------------------


def _for_transformers(cls, name, args, kwargs):
    """Make the folder for a model of transformers; give it and the arguments for from_pretrained."""
    import torch

    config, rest = _config(cls, name, kwargs)
    build = copy.deepcopy(config)
    own = {key: value for key, value in kwargs.items() if key in _OWN_ARGUMENTS}
    quantization = _take_quantization(build)
    if quantization is not None and _method(quantization) == "bitsandbytes":
        # The layout of bitsandbytes is made from full weights just as well, and by the library itself.
        config = copy.deepcopy(config)
        _take_quantization(config)
        if own.get("quantization_config") is None:
            own["quantization_config"] = _bitsandbytes(quantization)
        quantization = None
    dtype = _dtype(torch, own, config)
    model = _skeleton(torch, dtype, lambda: _construct(cls, build, args, rest))
    if quantization is not None:
        _prepare_quantized(model, quantization, own, dtype)
    tensors = _tensors(model, torch)
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        pass
    else:
        # Since version 5 some models have other names, or merged tensors, in memory than in their checkpoints.
        try:
            tensors = dict(revert_weight_conversion(model, dict(tensors)))
        except Exception:
            # The function is private to transformers; without it the names are those in memory.
            _debug()
    folder = _folder(name)
    inner = os.path.join(folder, own.get("subfolder") or "")
    os.makedirs(inner, exist_ok=True)
    for place in {folder, inner}:
        config.to_json_file(os.path.join(place, "config.json"), use_diff=False)
    _copy_companions(name, kwargs, inner)
    hollow.write(torch, inner, "model", tensors, own.get("variant"))
    changed = dict(own)
    changed.update(rest)
    changed["config"] = config
    changed["local_files_only"] = True
    if changed.get("use_safetensors") is False:
        changed["use_safetensors"] = None
    if getattr(config, "transformers_weights", None):
        config.transformers_weights = None
    for key in ("revision", "_commit_hash", "force_download"):
        # A folder has no revisions and nothing to download.
        changed.pop(key, None)
    return folder, changed


def _config(cls, name, kwargs):
    """The config that from_pretrained would use, and the arguments that are left for the model."""
    config = kwargs.get("config")
    rest = {key: value for key, value in kwargs.items() if key not in _OWN_ARGUMENTS}
    if config is not None and not isinstance(config, (str, os.PathLike)):
        return copy.deepcopy(config), rest
    hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if kwargs.get(key) is not None}
    kind = cls.config_class
    if kind is None:
        from transformers import AutoConfig

        kind = AutoConfig
    return kind.from_pretrained(config if config is not None else name, return_unused_kwargs=True, **hub, **rest)


def _construct(cls, config, args, rest):
    """Call the class; which attention it will use is from_pretrained's business and not asked for here."""
    plain = copy.deepcopy(config)
    try:
        plain._attn_implementation = "eager"
        return cls(plain, *args, **rest)
    except Exception:
        # A class may refuse this attention in its own words; it is made with its own then.
        _debug()
        return cls(copy.deepcopy(config), *args, **rest)


def _dtype(torch, own, config):
    """The type of the missing weights: the one asked for, so that nothing is converted, or else the config's."""
    configs = [config] + [getattr(config, key, None) for key in ("text_config", "llm_config", "language_config")]
    wanted = [own.get("dtype"), own.get("torch_dtype")]
    for found in configs:
        if found is not None:
            get = found.get if isinstance(found, dict) else lambda key, found=found: getattr(found, key, None)
            wanted += [get("dtype") or get("torch_dtype")]
    for value in wanted:
        if isinstance(value, str):
            value = getattr(torch, value.split(".")[-1], None)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return value
    return torch.float32


def _take_quantization(config):
    """Remove and give the quantization that the checkpoint itself would have had."""
    for place in (config, getattr(config, "text_config", None)):
        found = getattr(place, "quantization_config", None)
        if place is not None and found is not None:
            del place.quantization_config
            return found
    return None


def _method(quantization):
    get = quantization.get if isinstance(quantization, dict) else lambda key: getattr(quantization, key, None)
    method = get("quant_method")
    method = str(getattr(method, "value", method) or "")
    if method.startswith("bitsandbytes") or get("load_in_4bit") or get("load_in_8bit"):
        return "bitsandbytes"
    return method


def _bitsandbytes(quantization):
    if not isinstance(quantization, dict):
        return quantization
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig.from_dict(dict(quantization))


def _prepare_quantized(model, quantization, own, dtype):
    """Give the skeleton the layout of a quantized checkpoint (GPTQ, AWQ, FP8 and such) as its own quantizer does."""
    from transformers.quantizers import AutoHfQuantizer

    model.config.quantization_config = quantization
    quantizer = AutoHfQuantizer.from_config(quantization, pre_quantized=True)
    # The check looks for a real card and for packages, which a run without numbers does without.
    with contextlib.suppress(Exception):
        quantizer.validate_environment(device_map=own.get("device_map"), weights_only=True)
    key = "dtype" if "dtype" in quantizer.preprocess_model.__code__.co_varnames else "torch_dtype"
    quantizer.preprocess_model(
        model=model, device_map=own.get("device_map"), checkpoint_files=[], keep_in_fp32_modules=[], **{key: dtype}
    )


def _copy_companions(name, kwargs, target):
    """Put what is next to the config into the new folder; the generation config is read from there."""
    source = None
    if os.path.isdir(name):
        source = os.path.join(name, kwargs.get("subfolder") or "")
    else:
        try:
            from huggingface_hub import try_to_load_from_cache

            inner = kwargs.get("subfolder") or ""
            found = try_to_load_from_cache(
                str(name), os.path.join(inner, "config.json"), cache_dir=kwargs.get("cache_dir"),
                revision=kwargs.get("revision"),
            )
            source = os.path.dirname(found) if isinstance(found, str) else None
        except Exception:
            # The cache is a convenience: without what is in it the model is made from its config alone.
            _debug()
    if source is None:
        return
    for entry in os.listdir(source):
        path = os.path.join(source, entry)
        if _COMPANIONS.search(entry) and os.path.isfile(path) and os.path.getsize(path) < 64 << 20:
            with open(path, "rb") as old, open(os.path.join(target, entry), "wb") as new:
                new.write(old.read())


# -- diffusers -------------------------------------------------------------------------------------------------


def _for_diffusers(cls, name, args, kwargs):
    """Make the folder for a model of diffusers; give it and the arguments for from_pretrained."""
    import torch

    hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if kwargs.get(key) is not None}
    config = dict(cls.load_config(name, **hub))
    changed = dict(kwargs)
    quantization = config.pop("quantization_config", None)
    if quantization is not None and changed.get("quantization_config") is None:
        if _method(quantization) != "bitsandbytes":
            raise ValueError("a checkpoint quantized with %s is not imitated" % (_method(quantization) or "this method"))
        from diffusers import BitsAndBytesConfig

        changed["quantization_config"] = BitsAndBytesConfig.from_dict(dict(quantization))
    dtype = _dtype(torch, kwargs, {})
    model = _skeleton(torch, dtype, lambda: cls.from_config(copy.deepcopy(config)))
    folder = _folder(name)
    inner = os.path.join(folder, kwargs.get("subfolder") or "")
    os.makedirs(inner, exist_ok=True)
    with open(os.path.join(inner, "config.json"), "w") as file:
        json.dump({key: value for key, value in config.items() if key != "_name_or_path"}, file)
    hollow.write(torch, inner, "diffusion_pytorch_model", _tensors(model, torch), kwargs.get("variant"))
    changed["local_files_only"] = True
    if changed.get("use_safetensors") is False:
        changed["use_safetensors"] = None
    for key in ("revision", "force_download", "use_flashpack"):
        changed.pop(key, None)
    return folder, changed


# -- the checkpoint --------------------------------------------------------------------------------------------


def _skeleton(torch, dtype, construct):
    """Build a model whose parameters are on the meta device and whose buffers are real.

    Each parameter moves once registered, and the initializing functions do nothing, so that at any time at most one
    tensor exists, and its memory is never touched. The program's random numbers are not used up.
    """
    original = torch.nn.Module.register_parameter

    def register_parameter(self, name, parameter):
        if parameter is not None and parameter.device.type != "meta":
            # A class of parameters may not be made again from its data; that one stays where it is.
            with contextlib.suppress(Exception):
                parameter = type(parameter)(parameter.data.to("meta"), requires_grad=parameter.requires_grad)
        original(self, name, parameter)

    init = torch.nn.init
    initializers = {
        key: value for key, value in vars(init).items()
        if key.endswith("_") and not key.startswith("_") and callable(value)
    }
    old_dtype = torch.get_default_dtype()
    state = torch.get_rng_state()
    try:
        torch.nn.Module.register_parameter = register_parameter
        for key in initializers:
            setattr(init, key, lambda tensor=None, *args, **kwargs: tensor)
        if dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
        with torch.device("cpu"):
            return construct()
    finally:
        torch.nn.Module.register_parameter = original
        for key, value in initializers.items():
            setattr(init, key, value)
        torch.set_default_dtype(old_dtype)
        torch.set_rng_state(state)


def _tensors(model, torch):
    """The tensors of the checkpoint by their names, each shared one once."""
    if hasattr(model, "tie_weights"):
        # Models tie their weights with code of their own; without it a shared tensor is written twice.
        with contextlib.suppress(Exception):
            model.tie_weights()
    tied = getattr(model, "all_tied_weights_keys", None) or getattr(model, "_tied_weights_keys", None) or ()
    patterns = [re.compile(str(key)) for key in tied]
    state = model.state_dict(keep_vars=True)
    # A name that is declared to be tied is the copy; the other is what checkpoints hold.
    order = sorted(state, key=lambda name: any(pattern.search(name) for pattern in patterns))
    seen, kept = set(), set()
    for name in order:
        tensor = state[name]
        if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            kept.add(name)
    return {name: tensor.detach() for name, tensor in state.items() if name in kept}


def _folder(name):
    """A new folder for one checkpoint, in a place of the run that every process may write to."""
    global _count
    _count += 1
    base = re.sub(r"[^A-Za-z0-9._-]+", "--", str(name).strip("/"))[-80:]
    run = os.environ.get(protocol.PATH_RUN_VARIABLE) or os.curdir
    folder = os.path.join(os.path.realpath(run), protocol.PATH_SCRATCH, ".weights", "%d-%d" % (os.getpid(), _count), base)
    os.makedirs(folder, exist_ok=True)
    return folder
