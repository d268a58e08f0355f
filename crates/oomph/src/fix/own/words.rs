//! Says what the author of a program changes in its own memory calls, in the words of the library that it calls.

use oomph_gpu::size::format as size;
use oomph_remedy::Remedy;

use crate::activity::places::{Allocating, Language};

/// The lines as `file:line`, in one phrase.
pub fn places(lines: &[&Allocating]) -> String {
    lines.iter().map(|line| line.place.clone()).collect::<Vec<_>>().join(", ")
}

/// What a change costs in time: of a size what its name says.
pub fn time(size: &Option<&str>, remedy: Option<&Remedy>) -> String {
    match size {
        Some(title) if title.contains("layers") || title.contains("ngl") => {
            "slower: the other layers are computed on the CPU".to_owned()
        }
        // Fewer batches are less work, smaller ones are more steps.
        Some(title)
            if !title.contains("batches") && ["batch", "chunk", "tile"].iter().any(|word| title.contains(word)) =>
        {
            "more steps".to_owned()
        }
        _ => remedy.map(|remedy| remedy.time.text.clone()).unwrap_or_default(),
    }
}

/// A line with the one that it allocates through.
fn place(line: &Allocating) -> String {
    match &line.through {
        Some(through) => format!("{} (which allocates at {through})", line.place),
        None => line.place.clone(),
    }
}

/// What gives each block back before the next one is allocated.
pub fn newest(lines: &[&Allocating]) -> Vec<String> {
    let mut said: Vec<String> = lines
        .iter()
        .map(|line| {
            let how = match (line.language, line.library) {
                (Language::Python, _) => {
                    "let go of the array before the next one is made (del, no list or dictionary that keeps it), or make \
                     one before the loop and fill it with copy_to_device"
                }
                (Language::Rust, Some("cudarc")) => {
                    "drop the CudaSlice before the next one is made, or make one before the loop and fill it with \
                     stream.memcpy_htod"
                }
                (Language::Rust, _) => "drop what it returns before the next one is made, or make one before the loop",
                (Language::C, Some("thrust")) => {
                    "let go of the device_vector before the next one is made, or make one before the loop"
                }
                (Language::C, _) if line.pooled => {
                    "free the buffer on every path (cudaFreeAsync) before the next one is allocated, or allocate one before the \
                     loop"
                }
                (Language::C, _) => {
                    "free the buffer on every path (cudaFree) before the next one is allocated, or allocate one before the loop"
                }
            };
            format!("{}: {how}", place(line))
        })
        .collect();
    let back = match lines.first().map(|line| (line.language, line.library)) {
        Some((Language::Python, _)) => "array.copy_to_host()",
        Some((Language::Rust, Some("cudarc"))) => "stream.clone_dtoh(&slice)",
        Some((Language::C, Some("thrust"))) => "a host_vector",
        Some((Language::C, _)) => "cudaMemcpy",
        _ => "a copy",
    };
    said.push(format!("what is needed later: keep it in host memory ({back})"));
    said
}

/// What does the work of lines in parts.
pub fn parts(lines: &[&Allocating], parts: u64) -> Vec<String> {
    let how = |line: &Allocating| match line.language {
        Language::Python => "one device array for a part, filled and read back for each",
        _ => "one buffer for a part, used again for each",
    };
    let of = |line: &&Allocating| {
        format!(
            "{}: do the work in {parts} parts of {} instead of {} at once; {}",
            place(line),
            size(line.largest_bytes.div_ceil(parts)),
            size(line.largest_bytes),
            how(line)
        )
    };
    let mut said: Vec<String> = lines.iter().map(of).collect();
    if parts == 2 {
        said.push("where its numbers are float, half precision takes as much off; of double, float does".to_owned());
    }
    said
}

/// What lets the blocks of these lines lie in host memory.
pub fn managed(lines: &[&Allocating]) -> Vec<String> {
    let said = lines.iter().map(|line| {
        let how = match (line.language, line.library) {
            (Language::Python, _) => "cuda.managed_array(shape, dtype) in place of the device array; fill it by index and read it with numpy.asarray",
            (Language::Rust, Some("cudarc")) => {
                "context.alloc_unified::<T>(length, true) in place of the stream's allocation (unsafe: it begins \
                 uninitialised)"
            }
            (Language::Rust, _) => "cuMemAllocManaged in place of cuMemAlloc",
            (Language::C, Some("thrust")) => "thrust::universal_vector in place of device_vector",
            (Language::C, _) if line.pooled => {
                "cudaMallocManaged and cudaFree in place of cudaMallocAsync and cudaFreeAsync"
            }
            (Language::C, _) => "cudaMallocManaged in place of cudaMalloc",
        };
        format!("{}: {how}", place(line))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(place: &str, language: Language, library: Option<&'static str>) -> Allocating {
        Allocating {
            place: place.into(),
            through: None,
            language,
            library,
            python: None,
            codes: Default::default(),
            most_held_bytes: 4 << 30,
            largest_bytes: 4 << 30,
            calls: 1,
            grows: true,
            pooled: false,
        }
    }

    #[test]
    fn each_library_has_its_own_words() {
        let cuda = line("a.cu:3", Language::C, None);
        let through = Allocating { through: Some("a.cu:1".into()), ..cuda.clone() };
        let (thrust, rust) =
            (line("b.cu:4", Language::C, Some("thrust")), line("c.rs:5", Language::Rust, Some("cudarc")));
        let numba = line("d.py:6", Language::Python, None);
        assert!(newest(&[&cuda])[0].contains("cudaFree"));
        let pooled = Allocating { pooled: true, ..cuda.clone() };
        assert!(newest(&[&pooled])[0].contains("cudaFreeAsync"));
        assert!(managed(&[&pooled])[0].contains("cudaFree in place of cudaMallocAsync"));
        assert!(newest(&[&rust])[1].contains("clone_dtoh"));
        assert!(managed(&[&thrust])[0].contains("universal_vector"));
        assert!(managed(&[&rust])[0].contains("alloc_unified"));
        assert!(managed(&[&numba])[0].contains("managed_array"));
        assert!(
            parts(&[&through], 2)[0].contains("a.cu:3 (which allocates at a.cu:1): do the work in 2 parts of 2.00 GiB")
        );
    }
}
