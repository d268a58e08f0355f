//! Reads from a line of source what the numbers of a buffer are.

/// What a buffer holds, as far as its line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Numbers of 32 bits.
    Float,
    /// Numbers of 64 bits.
    Double,
    /// Neither float nor double: a structure, bytes, integers, or half precision.
    Other,
    /// The line does not say it.
    Unknown,
}

const DOUBLES: [&str; 3] = ["double", "f64", "float64"];
const FLOATS: [&str; 4] = ["float", "f32", "float32", "float4"];
const OTHERS: [&str; 28] = [
    "half",
    "__half",
    "f16",
    "bf16",
    "float16",
    "bfloat16",
    "nv_bfloat16",
    "__nv_bfloat16",
    "char",
    "uchar",
    "u8",
    "i8",
    "uint8",
    "int8",
    "uint8_t",
    "int8_t",
    "int",
    "int32",
    "i32",
    "u32",
    "uint32",
    "int32_t",
    "uint32_t",
    "i64",
    "u64",
    "int64",
    "int64_t",
    "bool",
];

/// What a line says of the numbers that it allocates.
pub fn of_line(line: &str) -> Element {
    // The size of an element is what counts; a cast of the count is not.
    if let Some(named) = line.split("sizeof(").nth(1).and_then(|rest| rest.split(')').next()) {
        let named = named.trim_start_matches('*').trim();
        return match of_words(named) {
            // A structure, unless it is a variable, whose type is elsewhere.
            Element::Unknown if named.starts_with(char::is_uppercase) || named.starts_with("struct ") => Element::Other,
            element => element,
        };
    }
    of_words(line)
}

fn of_words(text: &str) -> Element {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words: Vec<&str> = text.split(|letter| !is_part(letter)).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    if has(&DOUBLES) {
        Element::Double
    } else if has(&FLOATS) {
        Element::Float
    } else if has(&OTHERS) {
        Element::Other
    } else {
        Element::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_its_numbers_are() {
        let cases = [
            ("cudaMalloc(&matrix, (size_t)count * count * sizeof(double));", Element::Double),
            ("cudaMallocManaged(&particles, count * sizeof(Particle));", Element::Other),
            ("cudaMalloc(&edges, pixels * sizeof(float))", Element::Float),
            ("cudaMalloc(&p, n * sizeof(*p));", Element::Unknown),
            ("let gram: CudaSlice<f32> = stream.alloc_zeros(samples * samples)?;", Element::Float),
            ("let mut target = stream.alloc_zeros::<u8>(FRAME)?;", Element::Other),
            ("payoff = cuda.device_array(PATHS, dtype=np.float64)", Element::Double),
            ("cudaMalloc(&on_card, bytes)", Element::Unknown),
        ];
        for (line, element) in cases {
            assert_eq!(of_line(line), element, "{line}");
        }
    }
}
