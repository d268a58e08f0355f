//! Classifies a function by its name and parameters, until somebody has looked at it.

use std::collections::BTreeMap;

use crate::header::{CType, Header, Kind, Prototype, Resolved};
use crate::table::{Class, Return, Type, Value};

/// How a value of this type is passed. None if the header does not say enough, which is a mistake to be shown.
pub fn passed(resolved: &Resolved, sizes: &BTreeMap<String, usize>) -> Option<Value> {
    if !resolved.points_to_const.is_empty() {
        return Some(Value::Ptr);
    }
    Some(match &resolved.kind {
        // Integers narrower than a register are passed as one.
        Kind::Number("i8" | "i16") | Kind::Enum => Value::Number("i32"),
        Kind::Number("u8" | "u16") => Value::Number("u32"),
        Kind::Number(number) => Value::Number(number),
        // The only structs of floating-point numbers that CUDA passes by value are its complex numbers.
        Kind::Struct(name) if name == "struct float2" => Value::C32,
        Kind::Struct(name) if name == "struct double2" => Value::C64,
        Kind::Struct(name) => Value::Bytes(*sizes.get(name)?),
        Kind::Void | Kind::Opaque | Kind::Function => return None,
    })
}

/// What a function returns.
pub fn returned(ctype: &CType, header: &Header, sizes: &BTreeMap<String, usize>) -> Option<Return> {
    const STATUS: &[&str] =
        &["Status_t", "Status", "Result", "Result_t", "CUresult", "Return_t", "Error_t", "cudaError", "cufftResult"];
    let resolved = header.resolve(ctype);
    let levels = resolved.points_to_const.len();
    Some(match &resolved.kind {
        Kind::Void if levels == 0 => Return::Void,
        Kind::Number("i8") if levels == 1 => Return::Str,
        Kind::Enum if levels == 0 && STATUS.iter().any(|end| ctype.base.ends_with(end)) => Return::Status,
        // The legacy cuBLAS and old NVML give their statuses as plain numbers under a typedef.
        Kind::Number("i32" | "u32") if levels == 0 && STATUS.iter().any(|end| ctype.base.ends_with(end)) => {
            Return::Status
        }
        _ => Return::Value(passed(&resolved, sizes)?),
    })
}

/// Success would hand out memory that nobody charges, or a linked program that nobody linked.
const NEED_AN_ANSWER: &[&str] = &[
    "cudaMalloc3D",
    "cudaLibraryGetManaged",
    "cuLibraryGetManaged",
    "cudaMemGetMemPool",
    "cuMemGetMemPool",
    "cudaMemGetDefaultMemPool",
    "cuMemGetDefaultMemPool",
    "cudaGraphAddMemAllocNode",
    "cuGraphAddMemAllocNode",
    "cuLinkCreate",
    "cuLinkCreate_v2",
    "cuLinkAddData",
    "cuLinkAddData_v2",
    "cuLinkAddFile",
    "cuLinkAddFile_v2",
    "cuLinkComplete",
];

/// The class of a function that nobody has classified yet.
pub fn class(library: &str, prototype: &Prototype) -> Class {
    let name = prototype.name.as_str();
    let any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if NEED_AN_ANSWER.contains(&name) {
        return Class::Unsupported;
    }
    let unsupported = match library {
        // Sharing with other processes and other APIs, and objects of hardware that memory questions do not touch.
        "driver" | "runtime" => {
            any(&[
                "Ipc",
                "External",
                "Graphics",
                "EGL",
                "VDPAU",
                "D3D",
                "D3d",
                "TexRef",
                "TexObject",
                "Texture",
                "Surf",
                "Array",
                "Mipmap",
                "Debugger",
                "Coredump",
                "Checkpoint",
                "Green",
                "DevResource",
                "DevSmResource",
                "ExecutionCtx",
                "NvSci",
                "Shareable",
                "Exporter",
                "Export",
                "HandleForAddressRange",
                "Opengl",
                "GLGet",
                "GLMap",
                "GLUnmap",
                "GLRegister",
                "GLUnregister",
                "GLInit",
                "GLCtx",
                "GLSet",
                "WGL",
            ]) || ["AtoH", "HtoA", "DtoA", "AtoD", "AtoA"].iter().any(|word| name.contains(word))
        }
        // The tables of constants that these return pointers to are not ours to invent.
        "curand" => any(&["GetDirectionVectors", "GetScrambleConstants"]),
        // The descriptors of several-GPU transforms are filled in by the library and read by the program.
        "cufft" => any(&["cufftXtMalloc", "cufftXtFree", "cufftXtMemcpy", "cufftXtSetGPUs"]),
        // It would have to hand out memory that nobody charges.
        "cublas" => any(&["cublasAlloc"]),
        // Success without a record would send the reader of the buffer round forever, and the profilers that count
        // in hardware have nothing to count; the structs that they fill in would stay as they were.
        "cupti" => any(&[
            "ActivityGetNextRecord",
            "cuptiProfiler",
            "PmSampling",
            "PCSampling",
            "Sass",
            "RangeProfiler",
            "CubinCrc",
        ]),
        // Kernels that talk to other cards read the structs behind these, and there is nothing to put into them.
        "nccl" => {
            any(&["ncclDevComm", "DevicePointer", "DeviceLeInfo", "ncclTeam", "CreateRequirement", "ncclParamGet"])
        }
        "nvml" => true,
        _ => false,
    };
    if unsupported { Class::Unsupported } else { Class::Compute }
}

/// What a function's name promises about the pointers that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// It answers a question: every pointer that it may write to is an answer.
    Get,
    /// It says how much workspace another function needs: only sizes are answers.
    Size,
    /// It makes an object: the handle is the answer.
    Create,
    /// It does something with data; only parameters with a telling name are answers.
    Other,
}

fn verb(library: &str, name: &str) -> Verb {
    // `Getrf` and `Getrs` are LAPACK's words, and nothing is asked with them.
    let name = &name.replace("Getrf", "").replace("Getrs", "");
    let any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let cuda = matches!(library, "driver" | "runtime");
    if any(&["bufferSize", "BufferSize", "_buffersize", "workEstimation"]) {
        Verb::Size
    } else if any(&["Get", "Query", "Estimate", "getEstimate"])
        || matches!(library, "nvml")
        || (cuda && any(&["Occupancy", "CanAccess", "Elapsed", "IsCapturing", "ComputeCapability", "TotalMem"]))
        || (cuda && any(&["Enumerate", "LogsDump"]))
        || (matches!(library, "cudnn" | "cusparselt") && (name.ends_with("Size") || name.ends_with("Size2")))
    {
        Verb::Get
    } else if any(&["Create", "create", "Init", "Load", "Open", "Import", "Register", "Subscribe", "Clone"])
        || (library == "nccl" && any(&["Split", "Shrink", "Grow"]))
        || (cuda
            && any(&[
                "Alloc",
                "Malloc",
                "alloc",
                "Instantiate",
                "Retain",
                "EndCapture",
                "Reserve",
                "GraphAdd",
                "Generate",
                "FindInClone",
                "MapResources",
                "DevicePrimaryCtx",
                "PopCurrent",
                "Attach",
                "ctxCreate",
                "LinkComplete",
            ]))
    {
        Verb::Create
    } else {
        Verb::Other
    }
}

/// Parameters that are answers wherever they stand, if they point to numbers that are not const.
const ANSWERS: &[&str] = &[
    "boost",
    "bufferSize",
    "bufferSizeInBytes",
    "compressedSize",
    "count",
    "d_info",
    "d_valid",
    "devInfo",
    "devInfoArray",
    "errorIndex",
    "failIdx",
    "h_info",
    "h_meig",
    "h_nnzL",
    "h_nnzM",
    "h_nnzU",
    "info",
    "infoArray",
    "info_array",
    "internalDataInBytes",
    "issym",
    "iter",
    "lwork",
    "lworkInBytes",
    "lwork_bytes",
    "lwork_device",
    "lwork_host",
    "meig",
    "meig64",
    "nbGpuBoards",
    "ncolors",
    "niter",
    "niters",
    "nnzC",
    "nnzLRef",
    "nnzM",
    "nnzTotal",
    "nnzTotalDevHostPtr",
    "nnzURef",
    "num_eigs",
    "num_prods",
    "numVersions",
    "numnz",
    "outAllocClass",
    "pBufferSize",
    "pBufferSizeInBytes",
    "pPitch",
    "pitch",
    "plan",
    "rankA",
    "result",
    "returnAlgoCount",
    "returnedAlgoCount",
    "sizeInBytes",
    "sizeWritten",
    "SpMMWorkspaceSize",
    "valid",
    "value",
    "version",
    "workSize",
    "workspaceInBytes",
    "workspaceInBytesOnDevice",
    "workspaceInBytesOnHost",
    "workspaceSize",
    "workspaceSizeInBytes",
];

/// Parameters that name where a matrix is singular: the answer that means "nowhere" is not zero.
const NOWHERE: &[&str] = &["position", "singularity"];

/// What no name shows.
const EXCEPTIONS: &[(&str, &str, Type)] = &[
    ("cuDeviceGetGraphMemAttribute", "value", Type::Out(Value::Number("u64"))),
    ("cudaDeviceGetGraphMemAttribute", "value", Type::Out(Value::Number("u64"))),
    ("cudaGraphMemFreeNodeGetParams", "dptr_out", Type::Out(Value::Ptr)),
];

/// Parameters that are read, although the header leaves out their `const`.
const QUESTIONS: &[&str] = &[
    "n",
    "inembed",
    "onembed",
    "options",
    "optionValues",
    "option_values",
    "sizes",
    "dsts",
    "srcs",
    "attrsIdxs",
    "attributes",
    "data",
    "dataSizes",
    "resources",
    "jitOptions",
    "jitOptionsValues",
    "libraryOptions",
    "libraryOptionValues",
    "buffer",
    "paramsArray",
    "devPtrs",
    "dptrs",
    "array_d_A",
    "deviceId",
    "streams",
    "nodes_in",
    "kernelParams",
    "extra",
    "vdpGetProcAddress",
    "operations",
    "pCounterDataImage",
    "counterDataImage",
    "valueSize",
    "location",
];

/// The type of one parameter in the table.
pub fn parameter(
    library: &str,
    function: &str,
    index: usize,
    name: &str,
    resolved: &Resolved,
    header: &Header,
    sizes: &BTreeMap<String, usize>,
) -> Option<Type> {
    let value = passed(resolved, sizes)?;
    let pointer = Type::In(Value::Ptr);
    let levels = resolved.points_to_const.len();
    if levels == 0 {
        return Some(Type::In(value));
    }
    if let Some((_, _, kind)) = EXCEPTIONS.iter().find(|(known, param, _)| *known == function && *param == name) {
        return Some(*kind);
    }
    // An array of attributes asks; a struct of attributes is the answer.
    let answers = name == "attributes" && matches!(resolved.kind, Kind::Struct(_));
    if resolved.points_to_const.first() == Some(&true) || (QUESTIONS.contains(&name) && !answers) {
        return Some(pointer);
    }
    let verb = verb(library, function);
    let lower = name.to_ascii_lowercase();
    let telling = ANSWERS.contains(&name) || lower.ends_with("out") || lower.contains("buffersize");
    let is_error = lower.contains("error");
    match (levels, &resolved.kind) {
        (2, Kind::Number("i8")) if resolved.points_to_const.last() == Some(&true) => {
            Some(if verb == Verb::Other && !lower.contains("str") { pointer } else { Type::OutStr })
        }
        (2, _) => Some(match verb {
            Verb::Create if is_error => Type::Out(Value::Ptr),
            Verb::Create => Type::OutHandle,
            Verb::Get => Type::Out(Value::Ptr),
            Verb::Other if lower.ends_with("out") => Type::Out(Value::Ptr),
            Verb::Other | Verb::Size => pointer,
        }),
        (1, Kind::Number("i32")) if NOWHERE.contains(&name) => Some(Type::OutNowhere),
        (1, Kind::Number(_) | Kind::Enum) => {
            let is_real = matches!(resolved.kind, Kind::Number("f32" | "f64"));
            let is_size = ["size", "lwork", "nnz", "bytes"].iter().any(|word| lower.contains(word));
            let written = match verb {
                Verb::Get => true,
                Verb::Size => !is_real && (is_size || telling),
                Verb::Create => index == 0 || telling,
                Verb::Other => telling || library == "nccl" || (library == "cupti" && !lower.ends_with("array")),
            };
            let value = match &resolved.kind {
                // One byte ends a text buffer; a flag is one byte too.
                Kind::Number("i8" | "u8") => Value::Bytes(1),
                Kind::Number("i16" | "u16") => Value::Bytes(2),
                Kind::Number(number) => Value::Number(number),
                _ => Value::Number("i32"),
            };
            let is_text = value == Value::Bytes(1);
            Some(if written && !(is_text && verb != Verb::Get) { Type::Out(value) } else { pointer })
        }
        (1, Kind::Struct(kind)) => {
            let size = *sizes.get(kind)?;
            let first = header.complete.get(kind).map(|first| first.to_ascii_lowercase()).unwrap_or_default();
            // Such a struct is filled in by the caller, who says by its first member how large it is.
            let is_argument =
                matches!(first.as_str(), "size" | "structsize" | "struct_size") || first.ends_with("version");
            // cuBLASLt shows the size of what it calls opaque, so that programs can have them on their stacks.
            let is_handle = kind.contains("Opaque");
            let written = match verb {
                _ if is_handle => false,
                Verb::Get => !is_argument,
                Verb::Other => matches!(name, "result" | "resultInfo") || (lower.ends_with("out") && !is_argument),
                Verb::Create | Verb::Size => false,
            };
            Some(if written { Type::Out(Value::Bytes(size)) } else { pointer })
        }
        _ => Some(pointer),
    }
}

/// Answers of any type, as large as the caller's next argument says.
pub fn mark_sized(function: &str, library: &str, params: &mut [(String, Type)]) {
    let asks = verb(library, function) == Verb::Get;
    for index in 1..params.len() {
        let (before, after) = params.split_at_mut(index);
        let (Some((name, kind)), Some((size_name, size))) = (before.last_mut(), after.first()) else { continue };
        let is_size = *size == Type::In(Value::Number("usize")) && size_name.to_ascii_lowercase().contains("size");
        if asks && is_size && *kind == Type::In(Value::Ptr) && matches!(name.as_str(), "buf" | "data" | "value") {
            *kind = Type::OutSized;
        }
    }
}
