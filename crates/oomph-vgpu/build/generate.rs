//! Writes the Rust code of the exported functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::table::{Class, Entry, Line, Return, Type, Value};

/// What each library returns for a function that it does not support. The cuRAND and NCCL interfaces have no such
/// status, so these say that the argument's type or the usage is wrong.
fn not_supported(library: &str) -> u32 {
    match library {
        "cublas" | "cublaslt" => 15,
        "cudnn" => 3000,
        "cufft" => 16,
        "curand" => 103,
        "cusolver" => 9,
        "cusparse" | "cusparselt" => 10,
        "cupti" => 27,
        "nccl" => 5,
        "nvml" => 3,
        _ => 801,
    }
}

/// Functions of the driver and the runtime that a process may call without making CUDA ready, and after a fork. Names that
/// begin with `__cuda` are such too, but for launches: nvcc's start-up code calls those when a program is loaded.
const INDEPENDENT: [&str; 16] = [
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cudaCreateChannelDesc",
    "cudaDriverGetVersion",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPointByVersion",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetExportTable",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaRuntimeGetVersion",
];

/// What a function answers in a process that was forked after CUDA was ready, as an expression; `None` if a fork means
/// nothing to it. Of the libraries above the driver those that make the first object are asked, because nothing is done
/// without it.
fn refusal(name: &str, function: &Function<'_>) -> Option<&'static str> {
    match (function.library, name) {
        _ if !matches!(function.returns, Return::Status) => None,
        ("runtime", _)
            if name == "__cudaLaunchKernel" || !(name.starts_with("__cuda") || INDEPENDENT.contains(&name)) =>
        {
            Some("failed(crate::status::RuntimeStatus::NOT_INITIALIZED)")
        }
        ("driver", _) if !INDEPENDENT.contains(&name) => Some("failed(crate::status::DriverStatus::NOT_INITIALIZED)"),
        (_, "cublasCreate_v2" | "cublasLtCreate" | "cusolverDnCreate" | "cusparseCreate" | "cusparseLtInit") => {
            Some("1")
        }
        // From version 9 on; the two before it had 1, which is a failure as well.
        (_, "cudnnCreate") => Some("1001"),
        (_, "curandCreateGenerator") => Some("203"),
        // NCCL calls it an unhandled error of CUDA's.
        (_, name) if name.starts_with("ncclCommInit") => Some("1"),
        _ => None,
    }
}

struct Function<'a> {
    id: usize,
    library: &'a str,
    class: Class,
    params: &'a [(String, Type)],
    returns: Return,
}

/// The whole of `exports.rs`.
pub fn exports(tables: &[(&str, Vec<Line>)], versions: &str) -> Result<String, String> {
    let mut functions: BTreeMap<&str, Function<'_>> = BTreeMap::new();
    let mut aliases: Vec<(&str, &str, &str)> = Vec::new();
    let mut order: Vec<(&str, &str, Class)> = Vec::new();
    for (library, lines) in tables {
        for line in lines {
            match &line.entry {
                Entry::Alias(target) => aliases.push((&line.name, target, library)),
                Entry::Function { class, params, returns } => {
                    let function = Function { id: order.len(), library, class: *class, params, returns: *returns };
                    order.push((&line.name, library, *class));
                    if let Some(twin) = functions.insert(&line.name, function) {
                        return Err(format!("{} is declared in {} and in {library}", line.name, twin.library));
                    }
                }
            }
        }
    }

    let mut code = String::from(
        "use core::ffi::{c_char, c_void};\nuse crate::abi;\nuse crate::boundary::{Answer, Any, Number, counted, failed, length, pass, pass_many, pass_value};\n\n",
    );
    let mut addresses: BTreeSet<&str> = BTreeSet::new();
    for (name, library, class) in &order {
        let function = &functions[name];
        debug_assert_eq!((function.library, function.class), (*library, *class));
        write_function(&mut code, name, function);
        addresses.insert(name);
    }
    for (name, target, library) in aliases {
        let function =
            functions.get(target).ok_or_else(|| format!("{library}: {name} is an alias of {target}, which is none"))?;
        if !addresses.insert(name) {
            return Err(format!("{library}: {name} is declared twice"));
        }
        write_alias(&mut code, name, target, function);
    }
    write_addresses(&mut code, &addresses);
    write_versions(&mut code, versions, &addresses)?;
    Ok(code)
}

/// The whole of `abi.rs`: structures that cross the boundary by value.
pub fn abi(tables: &[(&str, Vec<Line>)]) -> String {
    let mut sizes = BTreeSet::new();
    for (_, lines) in tables {
        for line in lines {
            let Entry::Function { params, returns, .. } = &line.entry else { continue };
            let returned = if let Return::Value(value) = returns { Some(*value) } else { None };
            let passed = params.iter().map(|(_, kind)| kind.passed());
            sizes.extend(
                passed.chain(returned).filter_map(|value| if let Value::Bytes(n) = value { Some(n) } else { None }),
            );
        }
    }
    let mut code = String::new();
    for size in sizes {
        // The widest integers that fill the struct, so that its alignment is that of the struct it stands for.
        let (item, width) = match size {
            _ if size % 8 == 0 => ("u64", 8),
            _ if size % 4 == 0 => ("u32", 4),
            _ => ("u8", 1),
        };
        let _ = writeln!(
            code,
            "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct Bytes{size}(pub [{item}; {}]);",
            size / width
        );
    }
    for (name, number) in [("C32", "f32"), ("C64", "f64")] {
        let _ = writeln!(
            code,
            "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {name} {{ pub re: {number}, pub im: {number} }}"
        );
    }
    code
}

fn rust_type(value: Value) -> String {
    match value {
        Value::Ptr => "*mut c_void".to_owned(),
        Value::Number(number) => number.to_owned(),
        Value::Bytes(size) => format!("abi::Bytes{size}"),
        Value::C32 => "abi::C32".to_owned(),
        Value::C64 => "abi::C64".to_owned(),
    }
}

fn rust_return(returns: Return) -> String {
    match returns {
        Return::Status => " -> u32".to_owned(),
        Return::Void => String::new(),
        Return::Str => " -> *const c_char".to_owned(),
        Return::Value(value) => format!(" -> {}", rust_type(value)),
    }
}

/// `#[no_mangle]` is left out of unit tests, which would otherwise replace the symbols of the test program itself.
fn write_head(code: &mut String, name: &str, function: &Function<'_>, uses: impl Fn(usize) -> bool) {
    let _ = write!(code, "#[cfg_attr(not(test), unsafe(no_mangle))]\npub unsafe extern \"C\" fn {name}(");
    for (index, (_, kind)) in function.params.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let param = if uses(index) { format!("p{index}") } else { "_".to_owned() };
        let _ = write!(code, "{comma}{param}: {}", rust_type(kind.passed()));
    }
    let _ = writeln!(code, "){} {{", rust_return(function.returns));
}

/// Whether a function that only writes its out-parameters looks at this one.
fn is_written(params: &[(String, Type)], index: usize) -> bool {
    let kind = |index: usize| params.get(index).map(|(_, kind)| *kind);
    let is_size = index.checked_sub(1).and_then(kind) == Some(Type::OutSized);
    is_size || !matches!(kind(index), Some(Type::In(_) | Type::Many { written: false, .. }) | None)
}

fn write_function(code: &mut String, name: &str, function: &Function<'_>) {
    let answered = function.class == Class::Answered;
    write_head(code, name, function, |index| answered || is_written(function.params, index));
    let id = function.id;
    if let Some(refusal) = refusal(name, function) {
        // The runtime and the libraries make the driver ready themselves; who calls it without them calls `cuInit` first.
        let asks = if function.library == "driver" && name != "cuInit" { "is_unready" } else { "is_refused" };
        let _ = writeln!(code, "    if crate::gpu::gpu().{asks}() {{ return {refusal}; }}");
    }
    match function.class {
        Class::Answered => {
            let _ = writeln!(code, "    crate::gpu::gpu().called({id});");
            let _ = write!(code, "    unsafe {{ crate::{}::{name}(", function.library);
            for (index, (_, kind)) in function.params.iter().enumerate() {
                let _ = write!(code, "{}{}", if index == 0 { "" } else { ", " }, argument(function, index, *kind));
            }
            let answer = match function.returns {
                Return::Status | Return::Str => ".answer()",
                Return::Value(Value::Ptr) => ".cast::<c_void>()",
                _ => "",
            };
            let _ = writeln!(code, "){answer} }}");
        }
        Class::Compute => {
            let _ = writeln!(code, "    crate::gpu::gpu().called({id});");
            write_outs(code, function);
            write_answer(code, function, 0);
        }
        Class::Unsupported => {
            let _ = writeln!(code, "    crate::gpu::gpu().refuse_call({id});");
            write_outs(code, function);
            write_answer(code, function, not_supported(function.library));
        }
    }
    code.push_str("}\n");
}

/// What a hand-written function is given for a parameter. Its signature says what a pointer becomes; the table's number
/// behind an out-parameter must be the one that the function writes.
fn argument(function: &Function<'_>, index: usize, kind: Type) -> String {
    let table = |value| match value {
        Value::Number(number) => format!("Number<{number}>"),
        _ => "Any".to_owned(),
    };
    match kind {
        Type::In(Value::Ptr) => format!("pass::<Any, _>(p{index})"),
        Type::In(Value::Number(_)) => format!("pass_value(p{index})"),
        Type::In(_) => format!("p{index}"),
        Type::Out(value) => format!("pass::<{}, _>(p{index})", table(value)),
        Type::OutHandle | Type::OutStr | Type::OutNowhere => format!("pass::<Any, _>(p{index})"),
        Type::OutSized => format!("pass_many::<Any, _>(p{index}, length(p{}))", index + 1),
        Type::Many { value, count, .. } => {
            let param = count.param;
            let number = match function.params.get(param) {
                Some((_, Type::Out(Value::Number(number)))) => format!("counted::<{number}>(p{param})"),
                _ => format!("length(p{param})"),
            };
            format!("pass_many::<{}, _>(p{index}, {number})", table(value))
        }
    }
}

fn write_outs(code: &mut String, function: &Function<'_>) {
    for (index, (_, kind)) in function.params.iter().enumerate() {
        // Callers may pass pointers into packed structs, so no alignment is taken for granted.
        let value = match kind {
            Type::In(_) | Type::Many { written: false, .. } => continue,
            Type::OutHandle => "p.cast::<*mut c_void>().write_unaligned(crate::gpu::gpu().handles.fresh())".to_owned(),
            Type::OutStr => "p.cast::<*const c_char>().write_unaligned(c\"\".as_ptr())".to_owned(),
            Type::OutSized => format!("p.cast::<u8>().write_bytes(0, p{})", index + 1),
            Type::OutNowhere => "p.cast::<i32>().write_unaligned(-1)".to_owned(),
            Type::Out(Value::Ptr) | Type::Many { value: Value::Ptr, .. } => {
                "p.cast::<*mut c_void>().write_unaligned(core::ptr::null_mut())".to_owned()
            }
            Type::Out(Value::Number(number)) | Type::Many { value: Value::Number(number), .. } => {
                let zero = if number.starts_with('f') { "0.0" } else { "0" };
                format!("p.cast::<{number}>().write_unaligned({zero})")
            }
            Type::Out(Value::Bytes(size)) | Type::Many { value: Value::Bytes(size), .. } => {
                format!("p.cast::<u8>().write_bytes(0, {size})")
            }
            Type::Out(Value::C32) | Type::Many { value: Value::C32, .. } => {
                "p.cast::<u8>().write_bytes(0, 8)".to_owned()
            }
            Type::Out(Value::C64) | Type::Many { value: Value::C64, .. } => {
                "p.cast::<u8>().write_bytes(0, 16)".to_owned()
            }
        };
        let _ = writeln!(code, "    let p = p{index}; if !p.is_null() {{ unsafe {{ {value} }} }}");
    }
}

fn write_answer(code: &mut String, function: &Function<'_>, status: u32) {
    let answer = match function.returns {
        Return::Status => format!("{status}"),
        Return::Void => return,
        Return::Str => "c\"\".as_ptr()".to_owned(),
        Return::Value(Value::Ptr) => "core::ptr::null_mut()".to_owned(),
        Return::Value(Value::Number(number)) => if number.starts_with('f') { "0.0" } else { "0" }.to_owned(),
        Return::Value(other) => format!("unsafe {{ core::mem::zeroed::<{}>() }}", rust_type(other)),
    };
    let _ = writeln!(code, "    {answer}");
}

/// Another name calls the same function, so that it is counted and answered under one id.
fn write_alias(code: &mut String, name: &str, target: &str, function: &Function<'_>) {
    write_head(code, name, function, |_| true);
    let _ = write!(code, "    unsafe {{ {target}(");
    for index in 0..function.params.len() {
        let _ = write!(code, "{}p{index}", if index == 0 { "" } else { ", " });
    }
    code.push_str(") }\n}\n");
}

/// The whole of `functions.rs`: what is known of each function, by its id.
pub fn functions(tables: &[(&str, Vec<Line>)]) -> String {
    let mut code = String::from("/// The functions, by id.\npub static FUNCTIONS: &[Function] = &[\n");
    for (library, lines) in tables {
        for line in lines {
            if let Entry::Function { class, .. } = &line.entry {
                let name = &line.name;
                let _ =
                    writeln!(code, "    Function {{ name: {name:?}, library: {library:?}, class: Class::{class:?} }},");
            }
        }
    }
    code.push_str("];\n");
    code
}

fn write_addresses(code: &mut String, addresses: &BTreeSet<&str>) {
    code.push_str(
        "/// The address of an exported function.\n#[derive(Clone, Copy, Debug)]\npub struct Address(pub *const ());\n\
         // SAFETY: the address of a function is the same in every thread, and reading it changes nothing.\n\
         unsafe impl Sync for Address {}\n\n\
         /// The address of every exported name, aliases too, sorted by name.\n\
         pub static ADDRESSES: &[(&str, Address)] = &[\n",
    );
    for name in addresses {
        let _ = writeln!(code, "    ({name:?}, Address({name} as *const ())),");
    }
    code.push_str("];\n\n");
    code.push_str(
        "/// The address of the exported function of this name.\n\
         pub fn address(name: &str) -> Option<*const ()> {\n    \
         ADDRESSES.binary_search_by(|(known, _)| (*known).cmp(name)).ok().and_then(|at| ADDRESSES.get(at)).map(|(_, address)| address.0)\n\
         }\n\n",
    );
}

/// Lines of `BASE VERSION SYMBOL`; every symbol must be exported.
fn write_versions(code: &mut String, versions: &str, addresses: &BTreeSet<&str>) -> Result<(), String> {
    let mut sorted = BTreeSet::new();
    for line in versions.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&[base, version, symbol], Some(number)) =
            (words.as_slice(), words.get(1).and_then(|word| word.parse::<u32>().ok()))
        else {
            return Err(format!("driver-versions.txt: `{line}` is not BASE VERSION SYMBOL"));
        };
        let _ = version;
        if !addresses.contains(symbol) {
            return Err(format!("driver-versions.txt: {symbol} is in no table"));
        }
        sorted.insert((base, number, symbol));
    }
    code.push_str(
        "/// What `cuGetProcAddress` answers: the base name, the first CUDA version, the exported symbol from there on.\n\
         /// Sorted by base name, then by version.\npub static PROC_VERSIONS: &[(&str, u32, &str)] = &[\n",
    );
    for (base, version, symbol) in sorted {
        let _ = writeln!(code, "    ({base:?}, {version}, {symbol:?}),");
    }
    code.push_str("];\n");
    Ok(())
}
