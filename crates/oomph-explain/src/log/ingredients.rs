//! The ingredients of a message about a failed allocation, each an expression.

use regex::{Regex, RegexBuilder};

use super::size;

/// The expressions by which a message is weighed.
pub(super) struct Ingredients {
    pub(super) exhausted: Regex,
    /// A failed allocation is one of memory where its words say so.
    pub(super) memory: Regex,
    pub(super) code: Regex,
    pub(super) device: Regex,
    pub(super) error: Regex,
    pub(super) host: Regex,
    pub(super) on_chip: Regex,
    pub(super) disk: Regex,
    /// Another error of the device's than the one of memory.
    pub(super) other: Regex,
    /// A code that says that it was the computer's own memory.
    pub(super) host_code: Regex,
    /// An exception of a device's API, on the line before.
    pub(super) thrown: Regex,
    /// An exception by the full name of its class: what follows is its text, whatever it advises.
    pub(super) raised: Regex,
    pub(super) talk: Regex,
    pub(super) index: Regex,
    pub(super) figures: Vec<Figure>,
}

/// Expressions for one figure, the surest first.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) forms: Vec<Regex>,
}

impl Ingredients {
    /// Compiles the expressions; `None` if one of them has a fault, which a test excludes.
    pub(super) fn load() -> Option<Self> {
        Some(Self {
            exhausted: large(EXHAUSTED)?,
            memory: small(MEMORY)?,
            code: small(CODE)?,
            device: large(DEVICE)?,
            error: large(ERROR)?,
            host: large(HOST)?,
            on_chip: small(ON_CHIP)?,
            disk: small(DISK)?,
            other: small(OTHER)?,
            host_code: small(HOST_CODE)?,
            thrown: small(THROWN)?,
            raised: small(RAISED)?,
            talk: large(TALK)?,
            index: small(INDEX)?,
            figures: FIGURES.iter().map(|(name, forms)| Figure::load(name, forms)).collect::<Option<_>>()?,
        })
    }
}

impl Figure {
    fn load(name: &'static str, forms: &[&str]) -> Option<Self> {
        let sized = |form: &&str| small(&form.replace("{size}", size::PATTERN));
        Some(Self { name, forms: forms.iter().map(sized).collect::<Option<_>>()? })
    }
}

fn small(expression: &str) -> Option<Regex> {
    Regex::new(expression).ok()
}

/// An expression of many words, with room for an automaton of its own: in the usual room it falls back to a search that
/// takes ten times as long.
fn large(expression: &str) -> Option<Regex> {
    RegexBuilder::new(expression).size_limit(64 << 20).dfa_size_limit(32 << 20).build().ok()
}

/// Memory that ran out, or an allocation that failed. Without it nothing else is weighed.
const EXHAUSTED: &str = r"(?xi)(?:\b|_)out[\s_-]of[\s_-](?:[\[(]?[\w-]+[\])]?[\s_-]){0,3}(?:memory|vram|hbm)\b | OutOf(?:\w{0,10})Memory | OUTOF\w{0,10}MEMORY
     | \b(?:fail(?:ed|ure|s)?|unable|could\ ?n[o']t|cannot|can't|error|impossible)\b(?:[\s:]+(?:to|when|while|in|during|on))*[\s:]+(?:re|de)?(?:al+ocat|malloc|reserv|map)\w*
     | \bfail\w*\s+(?:in|of|at)\s+\w*alloc\w* | \bal+ocat\w*\b.{0,60}?\b(?:fail(?:ed|ure)?|refused|rejected|error)\b | al+oc\w{0,24}\b.{0,60}?\bfail
     | \b(?:(?:does|do|did|can|could|will|would)\ ?n[o']t|cannot|unable\s+to)\s+(?:[a-z]{1,12}\s){0,2}(?:fit|keep|hold|load)\b.{0,50}?(?:memory|vram|hbm)\b
     | \btoo\s(?:large|big|much)\s(?:[a-z]{1,12}\s){0,4}(?:memory|vram|hbm|gpu)\b
     | (?-i:\b[A-Z]\w*[a-z]OOM(?:Error|Exception)?\b | \b(?:CUDA|GPU|VRAM|NPU|XPU|MPS|HBM|TPU|[Dd]evice)\ OOM\b | \bOOM\b\ ?(?:error|on|in|while|when|at|for|during|:))
     | (?:insufficient|not\s+(?:have\s+)?enough|n't\s+have\s+enough|too\s+little|lack\s+of|exhausted|r[au]n\s+out\s+of|low\s+on|no\s+(?:more|free|available))\s+(?:[\w-]+\s+){0,4}(?:memory|vram|hbm)\b
     | \b(?:memory|vram|hbm)\s+(?:[\w-]+\s+){0,3}(?:exhausted|insufficient|exceeded|full|too\s+small|not\s+enough)\b
     | exceed\w*\s+(?:[\w-]+\s+){0,5}(?:memory|vram|hbm)\b | OUT_OF_RESOURCES | MEM\w*_ALLOC\w*_FAIL\w* | ALLOCATION_FAILURE
     | (?:needs?|requires?)\s+(?:more|at\s+least)\s+.{0,30}(?:memory|vram)\b
     | \b(?:CUresult|cudaError_t)\b[\ a-z]{0,24}[=:]\ ?2\b | \b(?:0x)?8007000e\b";

const MEMORY: &str = r"(?i)mem(?:ory)?\b|memory|vram|hbm|buffer|bytes|tensor|array|texture|workspace|surface|image|pool|heap|chunk|malloc|MemAlloc|OutOf|OUT_OF|OOM\b|[KMG]i?B\b";

/// Codes and functions that only a device has.
const CODE: &str = r"(?x)CUDA_ERROR_OUT_OF_MEMORY | cudaErrorMemoryAllocation | hipErrorOutOfMemory | (?i:CL_MEM_OBJECT_ALLOCATION_FAILURE) | CL_OUT_OF_RESOURCES | \bGL_OUT_OF_MEMORY
     | OUT_OF_DEVICE_MEMORY | OutOfDeviceMemory | GPUOutOfMemory | \b(?:0x)?8007000[eE]\b | CUFFTError | OPTIX_ERROR_DEVICE_OUT_OF_MEMORY | CU\w+_STATUS_ALLOC_FAILED | CNMEM_STATUS_OUT_OF_MEMORY
     | \b(?:cuda|hip)(?:Malloc|MallocAsync|MallocManaged|MallocPitch|Malloc3D|MallocArray|MemAlloc)\w*\b | \bcu(?:MemAlloc|MemCreate|DevicePrimaryCtxRetain|CtxCreate)\w*
     | \bcl(?:CreateBuffer|CreateImage|EnqueueNDRangeKernel|EnqueueWriteBuffer)\b | \bvkAllocateMemory\b | \bvma(?:Allocate|Create)\w+ | \brtBufferCreate\b
     | (?i:cuda)\S*\s(?:runtime\ )?(?:error|failure|failed\ with\ error)\s?[:=(]?\s?2\b
     | \bcu(?:da)?(?:Stream|Event|Graph|Ctx|Module|Launch|Memcpy|Memset|MemMap|MemPool|Array|CreateTextureObject)[A-Za-z]*\ ?\(
     | \b(?:CUresult|cudaError_t)\b[\ a-z]{0,24}[=:]\ ?2\b";

/// A device by its name, its interface, or its memory.
const DEVICE: &str = r"(?xi)(?:\b|_)(?:cuda|gpus?|vram|nvidia|nvptx|amdgcn|webgl|opengl|geforce|rtx|hip|rocm|amdgpu|radeon|opencl|vulkan|metal|mps|sycl|level[\s_-]?zero|directml|dml|d3d1[12]|dx1[12]|npu|ascend|xpu|tpu|hbm|optix|cublas|cudnn|nvenc|nvdec|cuvid)\d*(?:\b|_)
     | (?-i:Cuda|CUDA|Gpu|GPU|Vulkan|OpenCL|Dxvk|Direct3D) | \bcu-\w+\.cc\b | \bdevice\]?\s?[\[(\#]?\d | \[device\] | \b(?:on|of|from)\s+(?:the\s+)?device\b
     | \b(?:device|video|graphics|card's|gpu)[\s_]+memory\b | memory\s+(?:on|of)\s+(?:the\s+)?(?:device|gpu|card|graphics) | cuda_\w*alloc | \w\.cuh?[\s:,(\])\x22] | \[TRT\] | \bcu[A-Z]\w+ | \bcuda[A-Z]\w+";

/// What shows that a line reports an error, and where one is printed.
const ERROR: &str = r"(?x)\w*(?:Error|Exception|_error)\b | \b(?:ERROR|FATAL|Fatal|fatal|FAILED|CRITICAL|Critical|panicked|terminate\ called|[Aa]bort\w*|what\(\)) | \[E\] | ^[EF]\d{4} | :\s(?i:can't|cannot|could\snot|couldn't|unable\sto|failed\sto)\s | ^\W{0,4}(?i:err|fatal|warn(?:ing)?)\b | ^\W{0,4}(?i:(?:failed|unable)\sto|could\snot|cannot|can't)\s(?i:al+oc|reserve|malloc) | \b(?i:error|failed|failure)\b\s*(?:[:!\]\x22]|[-–]\s|in\s(?i:func|line|file)|at\sline|code\b) | \bCheck\ failed
     | \b(?i:cuda|hip|opencl|vulkan)\s(?:runtime\s|driver\s|api\s)?(?i:error|failure)\s(?:at|in)\s\S+[:(]\d+
     | \b[A-Za-z]+[a-z]OOM\b | [\w/\\.-]\.(?:cuh?|cc|cpp|cxx|hpp|h|hu|inl|rs|go|java|scala|jl|mm|f90|fpp)\)?[:(,]\ ?(?:line\ )?\d+
     | ^\W*(?i:gpu|device|card)\s?\#?\d{1,2}\s?: | ^\W{0,3}(?:\d{2,4}[-/]\d\d[-/]\d{2,4}[T,\ -])?\d\d:\d\d:\d\d | ^\W*(?:\[[^\]]{1,40}\]\W*)?(?:Out|OUT)\s(?i:of)\s";

/// The computer's own memory.
const HOST: &str = r"(?xi)\b(?:cpu|host|swap|page[\s-]?file|paging|heap|jvm|numpy|redis|postgres\w*|mysql|cgroup)\b
     | \b(?:system|main|physical|virtual|process|container|pod|node(?:\.js)?)\s+(?:memory|ram)\b
     | DefaultCPUAllocator | \bRAM\b | (?-i:\bCpu[A-Z]\w*OOM) | CPU_MEM | std::bad_alloc | (?:cudaHostAlloc|cudaMallocHost|hipHostMalloc|cuMemHostAlloc|cuMemAllocHost) | pinned | page-locked | /dev/shm | \bshm\b | \bmmap\b | OUT_OF_HOST_MEMORY | out\ of\ host";

/// A chip's own small memories.
const ON_CHIP: &str = r"(?xi)shared\s+(?:memory|data|mem) | \b[vs]mem\b | registers? | constant\s+memory | local\s+memory | L[12]\s+cache | threads\s+per\s+block";

/// Space that is not memory, and limits of other kinds.
const DISK: &str = r"(?i)\b(?:disk|quota|no space left|filesystem|inode|tmpfs|rate limit|too many requests)\b";

const OTHER: &str = r"(?x)\bcudaError(?:NotSupported|NotPermitted|Invalid[A-Za-z]+|Illegal[A-Za-z]+|Launch[A-Za-z]+|Unknown|NoDevice|Initialization[A-Za-z]*|InsufficientDriver)\b
     | \bCUDA_ERROR_(?:NOT_SUPPORTED|NOT_PERMITTED|INVALID[A-Z_]*|ILLEGAL[A-Z_]*|LAUNCH[A-Z_]*|UNKNOWN|NO_DEVICE|NOT_INITIALIZED)\b
     | CL_OUT_OF_RESOURCES(?:[^a-z]{1,3}(?:in|at|from|by)\ [A-Za-z]*(?:[Mm]emcpy|Read|Finish|Wait|Flush)|.{0,80}\b(?i:cop(?:y|ying)|reading)\b) | \bCL_INVALID_[A-Z_]+
     | \b(?i:illegal\ memory\ access|invalid\ (?:argument|device\ ordinal|device\ function))\b";

const HOST_CODE: &str = r"OUT_OF_HOST_MEMORY|OutOfHostMemory|(?i:out of host memory)";

const THROWN: &str = r"(?i)after throwing an instance of '[^']{0,60}(?:cuda|hip|gpu|opencl)[^']{0,60}'\s";

const RAISED: &str = r"(?:^|[\s:>])(?:[a-z]\w*\.){2,}[A-Z]\w*(?:Error|Exception|OOM)\b:";

/// Texts about errors: advice, lists of changes, questions, settings.
const TALK: &str = r"(?xi)^\s*(?:\#{1,6}\s|[-*+]\s+(?:\*\*|`|\[|fix|add|improv|support|reduc|avoid|handl|prevent|remov|updat|chang)|>\s+[A-Za-z]|\|.*\|\s*$|\d+\.\s+\w)
     | \b(?:fix(?:es|ed)?|avoid(?:s|ed|ing)?|prevent(?:s|ed|ing)?|handl(?:es?|ed|ing)|check(?:s|ed|ing)?\s+for|without|no\s+longer|reduc(?:es?|ed|ing)|in\s+case\s+of|if\s+(?:you|there|it|the)|may|might|could\s+(?:cause|lead|be)|would|should|can\s+(?:help|cause|happen|lead|be)|(?:looks?|seems?|appears?)\s+(?:like|that)|not\s+sure|until\s+(?:it|CUDA|the)|to\s+(?:help|save|free)|help(?:s|ing)?\s+(?:with|to)|such\s+as|e\.g\.|i\.e\.|for\s+example|instead\s+of|rather\s+than|likely|risk|how\s+to|what\s+(?:is|does)|why|when\s+(?:you|using|training|running)|(?:says?|tells\s+me)\s+that|(?:fails?|crash(?:es)?|dies|exits)\s+with\s+an?|(?:does\s+)?any(?:one|body)\s+knows?|any\s+(?:suggestions?|ideas?|help)|for\s+this\s+reason|such\s+an\s+error|error\s+is\s+(?:generated|raised|thrown|returned)|supposed\s+to|note\s+that|(?:usually|typically|often)\s+\w+|exceptions?\s+(?:was|were|is|are))\b
     | (?-i:\bI)\s+(?:get|got|have|had|am|was|use|used|run|ran|tr(?:y|ied)|see|saw|do|don't|can|could|want)\b
     | \b(?i:your\s+(?:gpu|device|card|system)\s+(?:is|has|ran|runs)|you(?:'re|\s+are)\s+(?:running\s+)?out\s+of)\b
     | \(\#\d{2,6}\) | https?:// | ^\s*\w+(?:[._-]\w+)*\s*[:=]\s*(?:true|false|yes|no|null|none|\d+(?:\.\d+)?)\s*,?$ | ^\s*(?:--?\w|\$\s) | \?\s*$";

/// The number of a device.
const INDEX: &str = r"(?i)\b(?:gpu|device|cuda|ordinal|card|npu|xpu|hip|dev)(?:\s?(?:ordinal|id|index|number))?\s?[:=#\[(]{0,2}\s?\[?(\d{1,2})(?:[^\d.\w]|$)";

/// The figures of a message and the forms in which they are printed.
const FIGURES: [(&str, &[&str]); 4] = [
    (
        "requested",
        &[
            r"(?i)(?:al+ocat\w*|malloc\w*|request\w*|reserv\w*|asked(?: for)?|fail\w* to (?:find|get|obtain|acquire)|tr(?:y|ied|ying) to|needs?|needed|requires?|required|creat\w+)[^\d\n]{0,48}?({size}|\d+\s?bytes)",
            r"(?i)\b(?:size|bytes)\s*[:=(\[]{0,2}\s*(?:of |\[)?({size}|\d{4,})\b",
            r"(?i)\b(?:asked|requested|required|needed)\s?[:=]\s?({size}|\d{6,})",
            r"(?i)({size}|\d+\s?bytes)\s(?:\w+\s){0,3}(?:could not|cannot|failed|requested|needed|required)",
        ],
    ),
    (
        "free",
        &[
            r"(?i)({size})\s(?:of memory\s)?(?:is\s|are\s|was\s)?(?:free|available|left|remaining)\b",
            r"(?i)\b(?:free|available|remaining|left)(?:\s+(?:gpu|device|video|global|cuda))?(?:\s+memory)?(?:\s+(?:is|on device))?\s?(?:only\s)?[:=(]?\s?({size}|\d{6,})",
        ],
    ),
    (
        "capacity",
        &[
            r"(?i)({size})\s(?:in\s)?total\b",
            r"(?i)\b(?:total|capacity)(?:\s+(?:gpu|device|video|global|cuda))?(?:\s+memory)?(?:\s+(?:of|is|reported))?\s?[:=(]?\s?({size}|\d{6,})",
            r"(?i)(?:free|available|used|in use)\s(?:\w+\s)?(?:out\s)?(?:of|/)\s?({size})",
        ],
    ),
    (
        "allocated",
        &[
            r"(?i)({size})\s(?:is\s|are\s|was\s)?(?:already\s)?(?:allocated|used|in use)\b",
            r"(?i)\b(?:allocated|used|in use|in-use)(?:\s+(?:memory|so far))?\s?[:=(]\s?({size}|\d{6,})",
        ],
    ),
];
