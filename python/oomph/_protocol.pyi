# Generated from crates/oomph-protocol by `cargo run -p xtask -- schemas`; a change here is lost.
from typing import Any, Dict, Final, List, Literal, Tuple, TypedDict, Union

from typing_extensions import NotRequired

# Paths below the run folder.
PATH_RUN_VARIABLE: Final = "OOMPH_RUN"
PATH_LEDGER: Final = "ledger"
PATH_LAUNCHER_LOCK: Final = "launcher.lock"
PATH_HOOK_CONFIG: Final = "hook.json"
PATH_HOOK: Final = "hook"
PATH_READY: Final = "ready"
PATH_LOOPS: Final = "loops"
PATH_REPORT_END: Final = ".json"
PATH_NAMES_END: Final = ".names.json"
PATH_COMPARED_END: Final = ".compared.json"
PATH_NUMBERS_END: Final = ".numbers"
PATH_SNAPSHOT_END: Final = ".snapshot.pickle"
PATH_CRASH_END: Final = ".crash"
PATH_DEVICE: Final = "device"
PATH_REFUSAL_END: Final = ".refused.json"
PATH_WHERE: Final = "where"
PATH_DEVICE_LOG: Final = "device-log"
PATH_DEVICE_LOG_END: Final = ".jsonl"
PATH_RANKS: Final = "ranks"
PATH_SCRATCH: Final = "scratch"
PATH_STORE: Final = "store"
PATH_STORE_IN_MEMORY: Final = "store-in-memory"
PATH_OVERLAY: Final = "overlay"
PATH_VIEW_PLAN: Final = "private.plan"
PATH_VIEW: Final = "private"
PATH_VIEW_REFUSED: Final = "private.refused"
PATH_VIEW_NOT_STARTED: Final = "private.not-started"
PATH_FENCE: Final = "fence"
PATH_NVIDIA_SMI: Final = "nvidia-smi"
PATH_TEMPORARY: Final = "tmp"
PATH_DOOR: Final = "door"
PATH_DOOR_END: Final = ".sock"
PATH_SET_TOO_LATE: Final = "set-too-late"
PATH_FAULT: Final = "fault"
PATH_LEAVE: Final = "leave"
PATH_LEAVE_AT: Final = "leave-at"

# What documents say that they are.
SCHEMA_HOOK_CONFIG: Final = "oomph.hook-config/1"
SCHEMA_HOOK_REPORT: Final = "oomph.hook-report/1"
SCHEMA_NAMES: Final = "oomph.names/1"
SCHEMA_COMPARED: Final = "oomph.compared/1"
SCHEMA_DEVICE_ACTIVITY: Final = "oomph.device-activity/1"
SCHEMA_DEVICE_REFUSAL: Final = "oomph.device-refusal/1"
SCHEMA_JOURNAL: Final = "oomph.journal/1"
SCHEMA_DEVICE_LOG: Final = "oomph.device-log/1"

# Parts of a program.
PHASE_BEFORE_RECORDING: Final = "before-recording"
PHASE_LOAD: Final = "load"
PHASE_FORWARD: Final = "forward"
PHASE_BACKWARD: Final = "backward"
PHASE_OPTIMIZER: Final = "optimizer"
PHASE_EVAL: Final = "eval"
PHASE_GENERATE: Final = "generate"
PHASE_SAVING: Final = "saving"
PHASE_TEXT_ENCODING: Final = "text-encoding"
PHASE_DENOISING: Final = "denoising"
PHASE_DECODING: Final = "decoding"
PHASE_OTHER: Final = "other"

# What a named tensor is.
OWNER_PARAMETER: Final = "parameter"
OWNER_BUFFER: Final = "buffer"
OWNER_OPTIMIZER_STATE: Final = "optimizer-state"
OWNER_GRADIENT: Final = "gradient"
OWNER_KV_CACHE: Final = "kv-cache"
OWNER_INPUT: Final = "input"
OWNER_ACTIVATION: Final = "activation"
OWNER_WORKSPACE: Final = "workspace"
OWNER_OTHER: Final = "other"

# Why a run ended.
STOPPED_PEAK_STABLE: Final = "peak-stable"
STOPPED_STEPS: Final = "steps"
STOPPED_EXIT: Final = "exit"
STOPPED_TIMEOUT: Final = "timeout"
STOPPED_OOM: Final = "oom"
STOPPED_INTERRUPTED: Final = "interrupted"
STOPPED_LISTENING: Final = "listening"
STOPPED_WAITING: Final = "waiting"
STOPPED_BUDGET: Final = "budget"

# What became of a remedy.
REMEDY_APPLIED: Final = "applied"
REMEDY_ALREADY: Final = "already"
REMEDY_REFUSED: Final = "refused"
REMEDY_UNUSED: Final = "unused"

# What a loop does.
LOOP_TRAINING: Final = "training"
LOOP_EPOCHS: Final = "epochs"
LOOP_EVALUATION: Final = "evaluation"
LOOP_OTHER: Final = "other"

# Where memory was read.
MOMENT_START: Final = "start"
MOMENT_STEP_END: Final = "step-end"
MOMENT_REFUSAL: Final = "refusal"
MOMENT_OTHER: Final = "other"

# How a pool's limit follows the device.
LIMIT_SHARE: Final = "share"
LIMIT_RESERVE: Final = "reserve"
LIMIT_FIXED: Final = "fixed"

ActivitySchema = Literal["oomph.device-activity/1"]

AllocationSite = TypedDict(
    "AllocationSite",
    {
        "at_refusal": "Union[Tuple[int, int], None]",
        "bytes": "int",
        "calls": "int",
        "frames": "List[CodePlace]",
        "freed": "int",
        "held_bytes": "int",
        "most_held_bytes": "int",
        "sizes": "List[Tuple[int, int]]",
    },
)

Allocations = TypedDict(
    "Allocations",
    {
        "calls": "int",
        "frees": "int",
        "held_blocks": "int",
        "held_bytes": "int",
        "most_held_bytes": "int",
        "pool": "Pool",
        "sites": "List[AllocationSite]",
    },
)

AppliedRemedy = TypedDict(
    "AppliedRemedy",
    {
        "evidence": "Union[str, None]",
        "id": "str",
        "state": "RemedyState",
        "what": "str",
    },
)

Batches = Union[Literal["longest"], Literal["seen"]]

CodePlace = TypedDict(
    "CodePlace",
    {
        "function": "Union[str, None]",
        "module": "str",
        "offset": "int",
    },
)

Compare = TypedDict(
    "Compare",
    {
        "batch": "int",
        "divide": "int",
        "few": "int",
        "fewer_blocks": "bool",
        "perturbed": "bool",
        "samples": "List[int]",
        "seed": "int",
        "steps": "int",
        "still": "bool",
        "whole_precision": "bool",
    },
)

Compared = TypedDict(
    "Compared",
    {
        "batch": "Union[int, None]",
        "blocks": "List[ComparedBlocks]",
        "draws": "int",
        "ended": "bool",
        "few": "Union[int, None]",
        "kept": "List[ComparedValue]",
        "loaders": "List[ComparedLoader]",
        "printed": "List[str]",
        "schema": "ComparedSchema",
        "steps": "List[ComparedStep]",
        "uncomputed": "List[str]",
    },
)

ComparedBlocks = TypedDict(
    "ComparedBlocks",
    {
        "count": "int",
        "name": "str",
    },
)

ComparedLoader = TypedDict(
    "ComparedLoader",
    {
        "batch": "int",
        "samples": "int",
    },
)

ComparedPiece = TypedDict(
    "ComparedPiece",
    {
        "at": "int",
        "count": "int",
        "norm": "Union[float, None]",
        "noted": "int",
    },
)

ComparedSchema = Literal["oomph.compared/1"]

ComparedStep = TypedDict(
    "ComparedStep",
    {
        "gradients": "List[ComparedPiece]",
        "optimizer": "int",
        "rates": "List[float]",
        "weights": "List[ComparedPiece]",
    },
)

ComparedValue = TypedDict(
    "ComparedValue",
    {
        "name": "str",
        "piece": "ComparedPiece",
    },
)

Complete = TypedDict(
    "Complete",
    {
        "modules": "bool",
        "names": "bool",
    },
)

Copies = TypedDict(
    "Copies",
    {
        "on_card": "Tuple[int, int]",
        "to_card": "Tuple[int, int]",
        "to_host": "Tuple[int, int]",
    },
)

Counted = TypedDict(
    "Counted",
    {
        "copies": "Copies",
        "host_bytes": "int",
        "kernels": "List[Tuple[int, int]]",
        "products": "List[Tuple[str, int, int, int]]",
        "samples": "int",
        "steps": "int",
    },
)

DeviceActivity = TypedDict(
    "DeviceActivity",
    {
        "allocations": "Allocations",
        "pid": "int",
        "pooled": "Allocations",
        "pools_grew": "int",
        "pools_regrew": "int",
        "schema": "ActivitySchema",
        "transfers": "Transfers",
    },
)

DeviceRefusal = TypedDict(
    "DeviceRefusal",
    {
        "bytes": "int",
        "card": "int",
        "frames": "List[CodePlace]",
        "free_bytes": "int",
        "pid": "int",
        "schema": "RefusalSchema",
    },
)

Guard = TypedDict(
    "Guard",
    {
        "limit_bytes": "NotRequired[Union[int, None]]",
        "quiet": "NotRequired[bool]",
        "resume": "NotRequired[Union[HookCheckpoint, None]]",
    },
)

HookAllowed = TypedDict(
    "HookAllowed",
    {
        "bytes": "int",
        "retries": "int",
        "scales": "LimitScales",
    },
)

HookBatch = TypedDict(
    "HookBatch",
    {
        "elements": "int",
        "peak_allocated": "int",
        "peak_reserved": "int",
        "shape": "Union[List[int], None]",
        "step": "int",
    },
)

HookBatchRange = TypedDict(
    "HookBatchRange",
    {
        "max": "int",
        "min": "int",
        "unit": "str",
    },
)

HookBatchSize = TypedDict(
    "HookBatchSize",
    {
        "accumulation": "int",
        "micro": "int",
        "processes": "int",
    },
)

HookBatches = TypedDict(
    "HookBatches",
    {
        "longest": "Union[HookBatch, None]",
        "seen": "HookBatchRange",
        "usual": "Union[HookBatch, None]",
    },
)

HookBlocks = TypedDict(
    "HookBlocks",
    {
        "class": "str",
        "count": "int",
        "path": "str",
    },
)

HookCell = TypedDict(
    "HookCell",
    {
        "cell": "int",
        "file": "str",
        "notebook": "Union[str, None]",
    },
)

HookCheckpoint = TypedDict(
    "HookCheckpoint",
    {
        "kind": "str",
        "path": "str",
        "step": "int",
    },
)

HookCompiled = TypedDict(
    "HookCompiled",
    {
        "alias_bytes": "int",
        "argument_bytes": "int",
        "code_bytes": "int",
        "name": "str",
        "output_bytes": "int",
        "temp_bytes": "int",
    },
)

HookConfig = TypedDict(
    "HookConfig",
    {
        "allow_writes": "bool",
        "batches": "NotRequired[Batches]",
        "bytecode": "NotRequired[Union[str, None]]",
        "compare": "NotRequired[Union[Compare, None]]",
        "edited": "NotRequired[Dict[str, str]]",
        "follow": "NotRequired[bool]",
        "guard": "NotRequired[Union[Guard, None]]",
        "history": "bool",
        "history_entries": "NotRequired[Union[int, None]]",
        "names": "NotRequired[bool]",
        "network": "NotRequired[Network]",
        "pools": "NotRequired[Pools]",
        "program_root": "str",
        "random_weights": "bool",
        "ranks": "NotRequired[Union[str, None]]",
        "reads": "NotRequired[bool]",
        "remedies": "NotRequired[List[HookRemedy]]",
        "routing": "NotRequired[Routing]",
        "schema": "HookConfigSchema",
        "stop": "Stop",
        "unknown_sizes": "NotRequired[UnknownSizes]",
        "values": "Values",
    },
)

HookConfigSchema = Literal["oomph.hook-config/1"]

HookDevice = TypedDict(
    "HookDevice",
    {
        "allocated_peak_bytes": "int",
        "allowed": "NotRequired[Union[HookAllowed, None]]",
        "beside_pool_bytes": "NotRequired[int]",
        "index": "int",
        "limit": "NotRequired[Union[HookLimit, None]]",
        "preallocates": "NotRequired[bool]",
        "reserved_peak_bytes": "Union[int, None]",
    },
)

HookEngine = TypedDict(
    "HookEngine",
    {
        "available_bytes": "int",
        "needed_bytes": "int",
        "share": "float",
    },
)

HookFailure = TypedDict(
    "HookFailure",
    {
        "abridged": "Union[HookSite, None]",
        "asked_card": "Union[int, None]",
        "kind": "str",
        "message": "str",
        "read_at": "Union[HookSite, None]",
        "site": "Union[HookSite, None]",
    },
)

HookFault = TypedDict(
    "HookFault",
    {
        "kind": "str",
        "message": "str",
        "site": "HookSite",
        "voids": "bool",
    },
)

HookFollowedLoop = TypedDict(
    "HookFollowedLoop",
    {
        "file": "str",
        "growth": "Union[HookGrowth, None]",
        "iterations": "int",
        "kind": "LoopKind",
        "line": "int",
        "of": "Union[int, None]",
        "shortened": "bool",
    },
)

HookGrowth = TypedDict(
    "HookGrowth",
    {
        "allocations": "List[int]",
        "at_end_bytes": "Union[int, None]",
        "bytes_per_iteration": "int",
        "device": "int",
        "grows_for": "Union[int, None]",
        "held_bytes": "int",
        "holders": "List[HookHolder]",
        "iterations_of_step": "int",
        "peak_bytes": "int",
        "steps": "int",
    },
)

HookHeld = TypedDict(
    "HookHeld",
    {
        "allocated_bytes": "int",
        "fragments_bytes": "Union[int, None]",
        "free_bytes": "Union[int, None]",
        "index": "int",
        "reserved_bytes": "int",
        "retries": "Union[int, None]",
        "uuid": "Union[str, None]",
    },
)

HookHolder = TypedDict(
    "HookHolder",
    {
        "file": "str",
        "kind": "str",
        "line": "int",
        "name": "str",
    },
)

HookHostShortage = TypedDict(
    "HookHostShortage",
    {
        "message": "str",
        "requested_bytes": "int",
        "site": "Union[HookSite, None]",
    },
)

HookKept = TypedDict(
    "HookKept",
    {
        "bytes": "Union[int, None]",
        "count": "int",
        "file": "Union[str, None]",
        "kind": "str",
        "line": "Union[int, None]",
        "name": "Union[str, None]",
    },
)

HookLimit = TypedDict(
    "HookLimit",
    {
        "bytes": "int",
        "scales": "LimitScales",
    },
)

HookLoader = TypedDict(
    "HookLoader",
    {
        "batch_size": "Union[int, None]",
        "first_batch": "Dict[str, List[int]]",
    },
)

HookLoop = TypedDict(
    "HookLoop",
    {
        "file": "Union[str, None]",
        "line": "Union[int, None]",
        "recognized": "bool",
    },
)

HookMemoryNow = TypedDict(
    "HookMemoryNow",
    {
        "devices": "List[HookHeld]",
        "moment": "Moment",
        "step": "int",
        "time": "float",
    },
)

HookModel = TypedDict(
    "HookModel",
    {
        "adapters": "Union[str, None]",
        "attention": "Union[str, None]",
        "batch_norm": "Union[bool, None]",
        "blocks": "List[HookBlocks]",
        "bytes": "int",
        "checkpointing": "bool",
        "class": "str",
        "convolutional": "Union[bool, None]",
        "dtype": "str",
        "library": "str",
        "parameters": "int",
        "quantized": "Union[str, None]",
        "trainable": "int",
        "vocabulary": "Union[int, None]",
    },
)

HookOom = TypedDict(
    "HookOom",
    {
        "allocated_bytes": "Union[int, None]",
        "device": "int",
        "fatal": "bool",
        "free_bytes": "int",
        "library_site": "Union[HookSite, None]",
        "meant": "NotRequired[bool]",
        "message": "str",
        "model": "Union[str, None]",
        "module": "Union[str, None]",
        "phase": "Phase",
        "relayed": "NotRequired[bool]",
        "requested_bytes": "int",
        "reserved_bytes": "Union[int, None]",
        "site": "Union[HookSite, None]",
        "step": "int",
        "steps_since": "NotRequired[int]",
        "unread": "bool",
    },
)

HookOptimizer = TypedDict(
    "HookOptimizer",
    {
        "class": "str",
        "foreach": "Union[bool, None]",
        "fused": "Union[bool, None]",
        "module": "str",
        "parameters": "int",
    },
)

HookPhase = TypedDict(
    "HookPhase",
    {
        "devices": "List[HookDevice]",
        "phase": "Phase",
        "times": "int",
    },
)

HookPipeline = TypedDict(
    "HookPipeline",
    {
        "class": "str",
        "dtype": "Union[str, None]",
        "height": "Union[int, None]",
        "images": "Union[int, None]",
        "offload": "Union[str, None]",
        "vae_slicing": "bool",
        "vae_tiling": "bool",
        "width": "Union[int, None]",
    },
)

HookProgram = TypedDict(
    "HookProgram",
    {
        "autocast": "Union[str, None]",
        "compares_samples": "Union[bool, None]",
        "grad_scaler": "bool",
        "imports": "List[str]",
        "kept": "List[HookKept]",
        "libraries": "Dict[str, str]",
        "loaders": "List[HookLoader]",
        "loop": "Union[HookLoop, None]",
        "missing": "List[str]",
        "models": "List[HookModel]",
        "optimizers": "List[HookOptimizer]",
        "pipelines": "List[HookPipeline]",
        "task": "Union[str, None]",
        "trainer": "Union[HookTrainer, None]",
        "untrained": "List[HookUntrained]",
    },
)

HookProgress = TypedDict(
    "HookProgress",
    {
        "batch": "Union[HookBatchSize, None]",
        "checkpoints": "List[HookCheckpoint]",
        "left": "bool",
        "resumed": "Union[str, None]",
        "signs": "List[str]",
        "started_at_step": "Union[int, None]",
        "step": "Union[int, None]",
        "trainer": "Union[str, None]",
    },
)

HookRemedy = TypedDict(
    "HookRemedy",
    {
        "id": "str",
        "options": "Dict[str, Any]",
    },
)

HookReport = TypedDict(
    "HookReport",
    {
        "architectures": "List[str]",
        "argv": "List[str]",
        "asked_for_card": "Dict[str, bool]",
        "batches": "Union[HookBatches, None]",
        "cells": "List[HookCell]",
        "compiled": "List[HookCompiled]",
        "devices": "List[HookDevice]",
        "engine": "Union[HookEngine, None]",
        "failure": "Union[HookFailure, None]",
        "fallback": "Union[str, None]",
        "faults": "List[HookFault]",
        "frameworks": "Dict[str, str]",
        "host": "Union[HookHostShortage, None]",
        "loops": "List[HookFollowedLoop]",
        "memory_now": "Union[HookMemoryNow, None]",
        "oom": "Union[HookOom, None]",
        "optimizer_steps": "int",
        "phases": "List[HookPhase]",
        "pid": "int",
        "program": "Union[HookProgram, None]",
        "progress": "Union[HookProgress, None]",
        "rank": "Union[int, None]",
        "ranks_run": "List[int]",
        "reads": "Union[List[str], None]",
        "remedies": "List[AppliedRemedy]",
        "schema": "HookReportSchema",
        "stopped": "Union[Stopped, None]",
        "unknown_sizes": "List[HookUnknownSize]",
        "unreached": "List[HookUnreached]",
        "warnings": "List[str]",
        "work": "Union[Counted, None]",
        "world_size": "Union[int, None]",
    },
)

HookReportSchema = Literal["oomph.hook-report/1"]

HookSite = TypedDict(
    "HookSite",
    {
        "cell": "NotRequired[Union[int, None]]",
        "file": "str",
        "function": "str",
        "line": "int",
        "text": "NotRequired[Union[str, None]]",
    },
)

HookTrainer = TypedDict(
    "HookTrainer",
    {
        "arguments": "HookTrainerArguments",
        "class": "str",
    },
)

HookTrainerArguments = TypedDict(
    "HookTrainerArguments",
    {
        "bf16": "Union[bool, None]",
        "eval_accumulation_steps": "Union[int, None]",
        "fp16": "Union[bool, None]",
        "gradient_accumulation_steps": "Union[int, None]",
        "gradient_checkpointing": "Union[bool, None]",
        "max_length": "Union[int, None]",
        "optim": "Union[str, None]",
        "packing": "Union[bool, None]",
        "per_device_eval_batch_size": "Union[int, None]",
        "per_device_train_batch_size": "Union[int, None]",
        "use_liger_kernel": "Union[bool, None]",
    },
)

HookUnknownSize = TypedDict(
    "HookUnknownSize",
    {
        "high": "int",
        "low": "int",
        "operation": "str",
        "site": "Union[HookSite, None]",
        "taken": "int",
    },
)

HookUnreached = TypedDict(
    "HookUnreached",
    {
        "certain": "bool",
        "phase": "str",
        "why": "str",
    },
)

HookUntrained = TypedDict(
    "HookUntrained",
    {
        "class": "str",
        "file": "str",
        "line": "int",
    },
)

LimitScales = Literal["share", "reserve", "fixed"]

LoopKind = Literal["training", "epochs", "evaluation", "other"]

ModuleEvent = TypedDict(
    "ModuleEvent",
    {
        "at": "int",
        "device": "int",
        "enter": "NotRequired[Union[str, None]]",
        "leave": "NotRequired[Union[str, None]]",
    },
)

Moment = Literal["start", "step-end", "refusal", "other"]

NamedOwner = Literal["parameter", "buffer", "optimizer-state", "gradient", "kv-cache", "input", "activation", "workspace", "other"]

Names = TypedDict(
    "Names",
    {
        "complete": "Complete",
        "devices": "Dict[str, Allocations]",
        "modules": "List[ModuleEvent]",
        "names": "List[Observation]",
        "oom_caught": "NotRequired[bool]",
        "phases": "List[PhaseEvent]",
        "pid": "int",
        "schema": "NamesSchema",
    },
)

NamesSchema = Literal["oomph.names/1"]

Network = Union[Literal["none"], Literal["read"], Literal["all"]]

Observation = TypedDict(
    "Observation",
    {
        "address": "int",
        "at": "int",
        "device": "int",
        "dtype": "Union[str, None]",
        "name": "Union[str, None]",
        "owner": "NamedOwner",
        "shape": "Union[List[int], None]",
        "size": "int",
    },
)

Phase = Literal["before-recording", "load", "forward", "backward", "optimizer", "eval", "generate", "saving", "text-encoding", "denoising", "decoding", "other"]

PhaseEvent = TypedDict(
    "PhaseEvent",
    {
        "at": "int",
        "begin": "bool",
        "device": "int",
        "phase": "Phase",
        "step": "int",
    },
)

Pool = TypedDict(
    "Pool",
    {
        "calls_saved": "int",
        "peak_bytes": "int",
    },
)

Pools = Union[Literal["as-needed"], Literal["always-as-needed"], Literal["as-on-a-card"]]

RefusalSchema = Literal["oomph.device-refusal/1"]

RemedyState = Literal["applied", "already", "refused", "unused"]

Routing = Union[Literal["balanced"], Literal["worst"]]

Stop = TypedDict(
    "Stop",
    {
        "budget_seconds": "NotRequired[Union[int, None]]",
        "mode": "StopMode",
        "steps": "int",
    },
)

StopMode = Union[Literal["peak-stable"], Literal["steps"], Literal["exit"]]

Stopped = Literal["peak-stable", "steps", "exit", "timeout", "oom", "interrupted", "listening", "waiting", "budget"]

Traffic = TypedDict(
    "Traffic",
    {
        "bytes": "int",
        "calls": "int",
        "doubled_bytes": "int",
        "pageable_bytes": "int",
        "pageable_calls": "int",
        "resent_bytes": "int",
        "resent_calls": "int",
    },
)

TransferSite = TypedDict(
    "TransferSite",
    {
        "bytes": "int",
        "calls": "int",
        "doubled_bytes": "int",
        "frames": "List[CodePlace]",
        "pageable_bytes": "int",
        "pageable_calls": "int",
        "resent_bytes": "int",
        "resent_calls": "int",
        "way": "str",
    },
)

Transfers = TypedDict(
    "Transfers",
    {
        "most_doubled_bytes": "int",
        "on_card": "Traffic",
        "sites": "List[TransferSite]",
        "to_card": "Traffic",
        "to_host": "Traffic",
    },
)

UnknownSizes = Union[Literal["most"], Literal["least"]]

Values = Union[Literal["off"], Literal["small"], Literal["all-host"]]
