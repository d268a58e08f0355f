//! Tests what these tools share with the build script, and how a header becomes a line of a table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::header::{self, Kind, Typedef};
use crate::table::{self, Class, Entry, LIBRARIES, Line, Return, Type, Value};
use crate::{library, rules};

#[path = "../../crates/oomph-vgpu/build/generate.rs"]
mod generate;

/// A little of everything that CUDA's headers do.
const HEADER: &str = r#"
extern "C" int printf(const char *restrict, ...) __attribute__((format(printf, 1, 2)));
typedef unsigned long size_t;
typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR = 1 << 2 } CUresult;
typedef enum { ONE, TWO } Mode_t;
struct __attribute__((aligned(8))) dim3 { unsigned int x, y, z; };
typedef struct dim3 dim3;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { size_t structSize; int answer; } Params;
struct float2 { float x; float y; };
typedef struct float2 cuComplex;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph, *CUgraphOther;
typedef unsigned long long CUdeviceptr;
typedef void (*CUhostFn)(void *userData);
typedef CUresult ( *PFN_cuLaunch_v4000)(CUstream stream, int count);
static inline int helper(int a) { if (a) { return 1; } return 0; }
CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags);
CUresult cuLaunch(dim3 grid, const void *f, void **args, CUhostFn fn, void (*done)(int, char *), Mode_t mode);
CUresult cuGetName(char *name, int len, const char **text, CUuuid *uuid, Params *params);
CUresult cuGetEdges(CUgraph g, CUgraph from[], size_t *count, const CUgraph *deps);
const char *cuErrorText(CUresult error);
unsigned long long int cuTicks(void);
cuComplex cuTwice(cuComplex value, float scale), *cuNothing(short);
"#;

fn value(header: &header::Header, function: &str, index: usize) -> header::Resolved {
    let prototype = header.prototypes.iter().find(|prototype| prototype.name == function).unwrap();
    header.resolve(&prototype.params[index].ctype)
}

#[test]
fn a_header_is_read() {
    let header = header::parse(HEADER);
    let names: Vec<&str> = header.prototypes.iter().map(|prototype| prototype.name.as_str()).collect();
    let expected = [
        "printf",
        "cuStreamCreate",
        "cuLaunch",
        "cuGetName",
        "cuGetEdges",
        "cuErrorText",
        "cuTicks",
        "cuTwice",
        "cuNothing",
    ];
    assert_eq!(names, expected);
    assert_eq!(header.typedefs["CUhostFn"], Typedef::Function);
    assert_eq!(header.typedefs["CUuuid"], Typedef::Anonymous);
    assert_eq!(header.complete["Params"], "structSize");
    let launch = header.function_types.iter().find(|function| function.name == "PFN_cuLaunch_v4000").unwrap();
    assert_eq!(launch.params.len(), 2);

    assert_eq!(value(&header, "cuLaunch", 0).kind, Kind::Struct("struct dim3".to_owned()));
    assert_eq!(value(&header, "cuLaunch", 1).points_to_const, [true]);
    assert_eq!(value(&header, "cuLaunch", 2).points_to_const, [false, false]);
    assert_eq!(value(&header, "cuLaunch", 3).kind, Kind::Function);
    assert_eq!(value(&header, "cuLaunch", 4).kind, Kind::Function);
    assert_eq!(value(&header, "cuLaunch", 5).kind, Kind::Enum);
    assert_eq!(value(&header, "cuStreamCreate", 0).points_to_const, [false, false]);
    // A pointer to constant handles is constant, whatever the handles point to.
    assert_eq!(value(&header, "cuGetEdges", 3).points_to_const, [true, false]);
    // A parameter that is written as an array is a pointer.
    assert_eq!(value(&header, "cuGetEdges", 1).points_to_const, [false, false]);
    assert_eq!(value(&header, "cuTwice", 0).kind, Kind::Struct("struct float2".to_owned()));
}

#[test]
fn a_prototype_becomes_a_line() {
    let header = header::parse(HEADER);
    let sizes: BTreeMap<String, usize> =
        [("struct dim3", 12), ("CUuuid", 16), ("Params", 16)].map(|(name, size)| (name.to_owned(), size)).into();
    let line = |function: &str| {
        let prototype = header.prototypes.iter().find(|prototype| prototype.name == function).unwrap();
        let params = prototype.params.iter().enumerate().map(|(index, param)| {
            let resolved = header.resolve(&param.ctype);
            let kind = rules::parameter("driver", function, index, &param.name, &resolved, &header, &sizes);
            (param.name.clone(), kind.unwrap())
        });
        let mut params: Vec<_> = params.collect();
        rules::mark_sized(function, "driver", &mut params);
        let returns = rules::returned(&prototype.returns, &header, &sizes).unwrap();
        let class = rules::class("driver", prototype);
        let entry = Entry::Function { class, params, returns };
        Line { name: function.to_owned(), entry, remark: String::new() }.to_string()
    };
    assert_eq!(line("cuStreamCreate"), "cuStreamCreate compute (phStream: out handle, Flags: u32)");
    assert_eq!(
        line("cuGetName"),
        "cuGetName compute (name: out bytes1, len: i32, text: out str, uuid: out bytes16, params: ptr)"
    );
    assert_eq!(line("cuGetEdges"), "cuGetEdges compute (g: ptr, from: out ptr, count: out usize, deps: ptr)");
    assert_eq!(line("cuErrorText"), "cuErrorText compute (error: i32) -> str");
    assert_eq!(line("cuTicks"), "cuTicks compute () -> u64");
    assert_eq!(line("cuTwice"), "cuTwice compute (value: c32, scale: f32) -> c32");
    assert!(line("cuLaunch").starts_with("cuLaunch compute (grid: bytes12, f: ptr, args: ptr, fn: ptr, done: ptr"));
}

#[test]
fn a_name_has_one_owner() {
    let cases = [
        ("cuInit", Some("driver")),
        ("cudaMalloc", Some("runtime")),
        ("__cudaRegisterVar", Some("runtime")),
        ("cublasLtMatmul", Some("cublaslt")),
        ("cublasCreate_v2", Some("cublas")),
        ("cusparseLtInit", Some("cusparselt")),
        ("cuFileRead", None),
        ("customers", None),
        ("malloc", None),
    ];
    for (name, owner) in cases {
        assert_eq!(library::owner(name), owner, "{name}");
    }
    assert_eq!(library::of_file("libcudart.so.13").map(|library| library.name), Some("runtime"));
    assert_eq!(library::of_file("libcublasLt.so.12").map(|library| library.name), Some("cublaslt"));
    assert!(library::of_file("libcudnn_ops.so.9").is_none());
}

#[test]
fn lines_are_read_as_they_are_written() {
    for text in [
        "cuInit answered (Flags: u32)",
        "cuEventDestroy alias cuEventDestroy_v2",
        "cudaGetName unsupported (a: out handle, b: out bytes16, c: out str, d: c64) -> void # a remark",
        "cublasGet compute (buf: out sized, size: usize, at: out nowhere) -> f32",
        "nvmlGet compute (count: out u32, infos: out bytes16[*count], length: i32, sizes: ptr[length])",
    ] {
        assert_eq!(table::parse_line(text).unwrap().unwrap().to_string(), text);
    }
    assert_eq!(table::parse_line("   # only a remark"), Ok(None));
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("cuInit", "without a class"),
        ("cuInit maybe ()", "not a class"),
        ("cuInit compute (a: i31)", "not a type"),
        ("cuInit compute (a: bytes0)", "not a type"),
        ("cuInit compute (a: out sized)", "no usize"),
        ("cuInit compute (a: ptr[n])", "not a parameter"),
        ("cuInit compute (a: ptr[n], n: f32)", "not a number that counts"),
        ("cuInit compute (a: ptr[*n], n: i32)", "not a number that counts"),
        ("cuInit compute (a: i32[n], n: i32)", "cannot be counted"),
        ("cuInit compute (a)", "no type"),
        ("cuInit compute (a: ptr", "no `)`"),
        ("cuInit compute () -> i31", "to return"),
        ("cu-Init compute ()", "not a name"),
        ("cuInit alias cuInit", "alias"),
    ] {
        let error = table::parse(&format!("# header\n{text}")).unwrap_err();
        assert!(error.starts_with("line 2: ") && error.contains(part), "{text}: {error}");
    }
}

#[test]
fn code_is_generated() {
    let lines = table::parse(
        "cuA answered (grid: bytes12, p: ptr)\ncuB compute (p: out handle, n: usize) -> ptr\n\
         cuC unsupported (x: c32)\ncuD alias cuB\n",
    )
    .unwrap();
    let tables = [("driver", lines)];
    let code = generate::exports(&tables, "cuB 2000 cuB # a remark\ncuB 11000 cuD\n").unwrap();
    assert!(generate::abi(&tables).contains("pub struct Bytes12(pub [u32; 3]);"));
    assert!(generate::functions(&tables).contains("name: \"cuC\", library: \"driver\", class: Class::Unsupported"));
    for part in [
        "unsafe { crate::driver::cuA(p0, pass::<Any, _>(p1)).answer() }",
        "pub unsafe extern \"C\" fn cuB(p0: *mut c_void, _: usize) -> *mut c_void {",
        "crate::gpu::gpu().handles.fresh()",
        "crate::gpu::gpu().refuse_call(2);",
        "    801\n",
        "unsafe { cuB(p0, p1) }",
        "(\"cuB\", 11000, \"cuD\"),",
    ] {
        assert!(code.contains(part), "{part} is not in\n{code}");
    }
}

#[test]
fn contradictions_are_refused() {
    let lines = |text: &str| table::parse(text).unwrap();
    for (first, second, versions, part) in [
        ("cuA compute ()", "cuA compute ()", "", "declared in"),
        ("cuA alias cuB", "", "", "which is none"),
        ("cuA compute ()\ncuB compute ()\ncuB alias cuA", "", "", "twice"),
        ("cuA compute ()", "", "cuA 2000 cuA_v2", "in no table"),
        ("cuA compute ()", "", "cuA cuA", "is not BASE VERSION SYMBOL"),
    ] {
        let tables = [("driver", lines(first)), ("runtime", lines(second))];
        let error = generate::exports(&tables, versions).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

/// The tables are edited by hand as well.
#[test]
fn the_tables_of_this_repository_are_in_order() {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/oomph-vgpu/api");
    let mut tables = Vec::new();
    for name in LIBRARIES {
        let text = fs::read_to_string(api.join(format!("{name}.api"))).unwrap();
        let lines = table::parse(&text).unwrap_or_else(|error| panic!("{name}.api: {error}"));
        assert!(lines.is_sorted_by(|a, b| a.name < b.name), "{name}.api is not sorted");
        for line in &lines {
            assert_eq!(library::owner(&line.name), Some(*name), "{} is in {name}.api", line.name);
        }
        tables.push((*name, lines));
    }
    let versions = fs::read_to_string(api.join("driver-versions.txt")).unwrap();
    generate::exports(&tables, &versions).unwrap();
}

fn word() -> impl Strategy<Value = String> {
    "[A-Za-z_][A-Za-z0-9_]{0,12}"
}

fn kind() -> impl Strategy<Value = Type> {
    let value = prop_oneof![
        Just(Value::Ptr),
        Just(Value::Number("i32")),
        Just(Value::Number("f64")),
        (1usize..4096).prop_map(Value::Bytes),
        Just(Value::C32),
    ];
    prop_oneof![
        value.clone().prop_map(Type::In),
        value.prop_map(Type::Out),
        Just(Type::OutHandle),
        Just(Type::OutStr),
        Just(Type::OutNowhere),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_table_parser_panic(text in "\\PC{0,200}") {
        let _ = table::parse(&text);
    }

    #[test]
    fn no_scrambled_line_makes_the_table_parser_panic(text in "[a-z0-9 ():,>#\n-]{0,120}") {
        let _ = table::parse(&text);
    }

    #[test]
    fn no_text_makes_the_header_parser_panic(text in "\\PC{0,300}") {
        let header = header::parse(&text);
        for prototype in &header.prototypes {
            header.resolve(&prototype.returns);
        }
    }

    #[test]
    fn no_scrambled_header_makes_the_header_parser_panic(
        tokens in prop::collection::vec(
            prop_oneof![
                Just("typedef"), Just("struct"), Just("enum"), Just("union"), Just("const"), Just("*"), Just("("),
                Just(")"), Just("{"), Just("}"), Just("["), Just("]"), Just(";"), Just(","), Just("int"), Just("a"),
                Just("b"), Just("__attribute__"), Just("\""), Just("#"), Just("\n"), Just("..."), Just("é"),
            ],
            0..60,
        )
    ) {
        let header = header::parse(&tokens.join(" "));
        for prototype in header.prototypes.iter().chain(&header.function_types) {
            for param in &prototype.params {
                header.resolve(&param.ctype);
            }
        }
    }

    #[test]
    fn every_line_survives_writing_and_reading(
        name in word(),
        params in prop::collection::vec((word(), kind()), 0..6),
        remark in "[a-z ]{0,20}",
    ) {
        let entry = Entry::Function { class: Class::Compute, params, returns: Return::Value(Value::Ptr) };
        let line = Line { name, entry, remark: remark.trim().to_owned() };
        prop_assert_eq!(table::parse_line(&line.to_string()), Ok(Some(line)));
    }
}
