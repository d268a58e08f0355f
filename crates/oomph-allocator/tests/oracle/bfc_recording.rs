//! What `bfc_driver.py` recorded of TensorFlow's allocator, and the comparison with the model.
//!
//! The model gets the same requests and has to take and give back the same regions and choose the same addresses. Only
//! the addresses of new regions come from the recording.

use std::collections::{HashMap, VecDeque};

use oomph_allocator::{Bfc, BfcSettings, BlockId, Driver};
use serde::Deserialize;

/// The first line.
#[derive(Debug, Deserialize)]
struct Header {
    limit: u64,
    growth: bool,
}

/// Every other line.
#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(rename = "do")]
    name: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    address: u64,
    /// Address and size of what was taken from the card.
    #[serde(default)]
    regions: Vec<(u64, u64)>,
    /// Addresses of what was given back.
    #[serde(default)]
    released: Vec<u64>,
}

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    pub allocations: usize,
    pub frees: usize,
    pub regions: usize,
    pub released: usize,
    pub refused: usize,
}

/// The card as the recording had it: a region is given where its size is the recorded one, and refused where it is
/// larger, because then the card had less left.
#[derive(Debug, Default)]
struct Recorded {
    coming: VecDeque<(u64, u64)>,
    released: Vec<u64>,
}

impl Driver for Recorded {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let (address, _) = self.coming.front().copied().filter(|(_, size)| *size == bytes)?;
        self.coming.pop_front();
        Some(address)
    }

    fn free(&mut self, address: u64, _bytes: u64) {
        self.released.push(address);
    }

    fn reserve(&mut self, _bytes: u64) -> u64 {
        u64::MAX
    }

    fn unreserve(&mut self, _address: u64, _bytes: u64) {}

    fn map(&mut self, _address: u64, _bytes: u64) -> bool {
        false
    }

    fn unmap(&mut self, _address: u64, _bytes: u64) {}

    fn free_bytes(&self) -> u64 {
        0
    }
}

/// Compares a recording with the model.
///
/// # Errors
/// What differs first, and where.
pub fn compare(text: &str) -> Result<Compared, String> {
    let mut lines = text.lines();
    let header: Header = parse(0, lines.next().unwrap_or_default())?;
    let settings = BfcSettings { allow_growth: header.growth, ..BfcSettings::tensorflow() };
    let mut bfc = Bfc::new(settings, header.limit, Recorded::default());
    let mut live: HashMap<u64, BlockId> = HashMap::new();
    let mut compared = Compared::default();
    for (number, line) in lines.enumerate() {
        let operation: Operation = parse(number, line)?;
        let differs = |what: String| format!("operation {number}, {line}: {what}");
        match operation.name.as_str() {
            "allocate" => {
                bfc.driver_mut().coming = operation.regions.iter().copied().collect();
                bfc.driver_mut().released.clear();
                let id = bfc.malloc(operation.size).ok();
                let address = id.and_then(|id| bfc.address(id)).unwrap_or(0);
                let driver = bfc.driver_mut();
                if !driver.coming.is_empty() {
                    return Err(differs(format!("the model took no region of {:?}", driver.coming)));
                }
                // TensorFlow gives regions back in the order of their addresses.
                driver.released.sort_unstable();
                if driver.released != operation.released {
                    return Err(differs(format!("the model gave back {:?}", driver.released)));
                }
                if address != operation.address {
                    return Err(differs(format!("the model's address is {address}")));
                }
                compared.regions += operation.regions.len();
                compared.released += operation.released.len();
                compared.allocations += usize::from(id.is_some());
                compared.refused += usize::from(id.is_none());
                live.extend(id.map(|id| (address, id)));
            }
            "free" => {
                let id = live.remove(&operation.address).ok_or_else(|| differs("nothing lives there".into()))?;
                bfc.free(id);
                compared.frees += 1;
            }
            "end" => return Ok(compared),
            other => return Err(differs(format!("{other} is not known"))),
        }
    }
    Err("the recording has no end".into())
}

fn parse<'a, T: Deserialize<'a>>(number: usize, line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))
}
