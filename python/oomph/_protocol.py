"""What the hook and the launcher agree on: names of paths, schemas and words.

Generated from crates/oomph-protocol by `cargo run -p xtask -- schemas`; a change here is lost. The shapes of documents are in
`_protocol.pyi`, for type checkers: every Python process of a run imports this module.
"""

# Paths below the run folder.
PATH_RUN_VARIABLE = "OOMPH_RUN"
PATH_LEDGER = "ledger"
PATH_LAUNCHER_LOCK = "launcher.lock"
PATH_HOOK_CONFIG = "hook.json"
PATH_HOOK = "hook"
PATH_READY = "ready"
PATH_LOOPS = "loops"
PATH_REPORT_END = ".json"
PATH_NAMES_END = ".names.json"
PATH_COMPARED_END = ".compared.json"
PATH_NUMBERS_END = ".numbers"
PATH_SNAPSHOT_END = ".snapshot.pickle"
PATH_CRASH_END = ".crash"
PATH_DEVICE = "device"
PATH_REFUSAL_END = ".refused.json"
PATH_WHERE = "where"
PATH_DEVICE_LOG = "device-log"
PATH_DEVICE_LOG_END = ".jsonl"
PATH_RANKS = "ranks"
PATH_SCRATCH = "scratch"
PATH_STORE = "store"
PATH_STORE_IN_MEMORY = "store-in-memory"
PATH_OVERLAY = "overlay"
PATH_VIEW_PLAN = "private.plan"
PATH_VIEW = "private"
PATH_VIEW_REFUSED = "private.refused"
PATH_VIEW_NOT_STARTED = "private.not-started"
PATH_FENCE = "fence"
PATH_NVIDIA_SMI = "nvidia-smi"
PATH_TEMPORARY = "tmp"
PATH_DOOR = "door"
PATH_DOOR_END = ".sock"
PATH_SET_TOO_LATE = "set-too-late"
PATH_FAULT = "fault"
PATH_LEAVE = "leave"
PATH_LEAVE_AT = "leave-at"

# What documents say that they are.
SCHEMA_HOOK_CONFIG = "oomph.hook-config/1"
SCHEMA_HOOK_REPORT = "oomph.hook-report/1"
SCHEMA_NAMES = "oomph.names/1"
SCHEMA_COMPARED = "oomph.compared/1"
SCHEMA_DEVICE_ACTIVITY = "oomph.device-activity/1"
SCHEMA_DEVICE_REFUSAL = "oomph.device-refusal/1"
SCHEMA_JOURNAL = "oomph.journal/1"
SCHEMA_DEVICE_LOG = "oomph.device-log/1"

# Parts of a program.
PHASE_BEFORE_RECORDING = "before-recording"
PHASE_LOAD = "load"
PHASE_FORWARD = "forward"
PHASE_BACKWARD = "backward"
PHASE_OPTIMIZER = "optimizer"
PHASE_EVAL = "eval"
PHASE_GENERATE = "generate"
PHASE_SAVING = "saving"
PHASE_TEXT_ENCODING = "text-encoding"
PHASE_DENOISING = "denoising"
PHASE_DECODING = "decoding"
PHASE_OTHER = "other"

# What a named tensor is.
OWNER_PARAMETER = "parameter"
OWNER_BUFFER = "buffer"
OWNER_OPTIMIZER_STATE = "optimizer-state"
OWNER_GRADIENT = "gradient"
OWNER_KV_CACHE = "kv-cache"
OWNER_INPUT = "input"
OWNER_ACTIVATION = "activation"
OWNER_WORKSPACE = "workspace"
OWNER_OTHER = "other"

# Why a run ended.
STOPPED_PEAK_STABLE = "peak-stable"
STOPPED_STEPS = "steps"
STOPPED_EXIT = "exit"
STOPPED_TIMEOUT = "timeout"
STOPPED_OOM = "oom"
STOPPED_INTERRUPTED = "interrupted"
STOPPED_LISTENING = "listening"
STOPPED_WAITING = "waiting"
STOPPED_BUDGET = "budget"

# What became of a remedy.
REMEDY_APPLIED = "applied"
REMEDY_ALREADY = "already"
REMEDY_REFUSED = "refused"
REMEDY_UNUSED = "unused"

# What a loop does.
LOOP_TRAINING = "training"
LOOP_EPOCHS = "epochs"
LOOP_EVALUATION = "evaluation"
LOOP_OTHER = "other"

# Where memory was read.
MOMENT_START = "start"
MOMENT_STEP_END = "step-end"
MOMENT_REFUSAL = "refusal"
MOMENT_OTHER = "other"

# How a pool's limit follows the device.
LIMIT_SHARE = "share"
LIMIT_RESERVE = "reserve"
LIMIT_FIXED = "fixed"
