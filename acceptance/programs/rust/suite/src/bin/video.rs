//! Filters the frames of a film and forgets one buffer of each, which a registry of textures keeps: `video [FRAMES]`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

const FRAME: usize = 3840 * 2160 * 4;

#[derive(Default)]
struct Registry {
    textures: Mutex<HashMap<usize, CudaSlice<u8>>>,
}

fn filter(stream: &Arc<CudaStream>, registry: &Registry, number: usize, frame: &[u8]) -> Result<Vec<u8>, DriverError> {
    let source = stream.clone_htod(frame)?;
    let mut target = stream.alloc_zeros::<u8>(FRAME)?;
    stream.memcpy_dtod(&source, &mut target)?;
    let seen = stream.clone_dtoh(&target)?;
    registry.textures.lock().unwrap().insert(number, source);
    Ok(seen)
}

fn main() {
    let frames = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(200);
    let stream = CudaContext::new(0).expect("a card").default_stream();
    let registry = Registry::default();
    let frame = vec![7_u8; FRAME];
    for number in 0..frames {
        filter(&stream, &registry, number, &frame).expect("the frame is filtered");
    }
    println!("frames={frames}");
}
