//! What the libraries above the driver keep, and what is known of the program's own copies of them.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::lock::{Mutex, Once, Rank};

/// Major, minor and patch.
pub type Version = [c_int; 3];

/// A library whose version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Cublas,
    CublasLt,
    Cufft,
    Curand,
    Cusolver,
    Cusparse,
    CusparseLt,
    Nccl,
}

/// How many libraries there are.
const LIBRARIES: usize = Library::Nccl as usize + 1;

/// A plan of cuFFT.
#[derive(Clone, Debug)]
pub struct FftPlan {
    /// Whether cuFFT allocates the work area.
    pub automatic: bool,
    /// The work area's size, once the plan was made.
    pub work_bytes: u64,
    /// The card and the bytes that are charged.
    pub charged: Option<(usize, u64)>,
}

/// Something that a group of NCCL still has to do. Addresses are kept as numbers: another thread's are not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCall {
    /// A broadcast from this rank (`own`) or another one.
    Broadcast {
        own: bool,
        from: usize,
        to: usize,
        bytes: usize,
    },
    Send {
        peer: c_int,
        from: usize,
        bytes: usize,
    },
    Receive {
        peer: c_int,
        to: usize,
        bytes: usize,
        /// The communicator, where the message is exchanged.
        exchanged: Option<usize>,
    },
}

/// The settings of NCCL that change its memory.
#[derive(Clone, Copy, Debug)]
pub struct NcclSettings {
    /// `NCCL_BUFFSIZE`
    pub simple: u64,
    /// `NCCL_MAX_NCHANNELS` or `NCCL_MAX_CTAS`
    pub most_channels: u64,
}

/// What a program has handed to the driver's linker.
#[derive(Default)]
pub struct Link {
    /// What the program added.
    pub inputs: Vec<Vec<u8>>,
    /// What was made of them; it lives as long as the linker.
    pub image: Option<Vec<u8>>,
}

/// What the libraries keep.
pub struct Libraries {
    /// The plans of cuFFT, by handle. A handle that was destroyed is used again, like cuFFT's own.
    pub fft_plans: Mutex<Vec<Option<FftPlan>>>,
    /// What the groups of all threads still have to do, with the thread's mark.
    pub group_calls: Mutex<Vec<(usize, GroupCall)>>,
    /// The settings of NCCL, read from the environment.
    pub nccl_settings: Once<NcclSettings>,
    /// Unique ids of NCCL that were made.
    pub nccl_ids: AtomicU64,
    /// Operators of the program's own that were made.
    pub nccl_operators: AtomicU64,
    /// Whether the report knows that ranks cannot exchange messages.
    pub exchange_failed: AtomicBool,
    /// The versions that the libraries say, by [`Library`].
    pub versions: [Once<Version>; LIBRARIES],
    /// The folder of the Python packages that something in this process was loaded from.
    pub packages: Once<Option<PathBuf>>,
    /// The number of the CUDA runtime that the libraries were built for.
    pub runtime_number: Once<usize>,
    /// The processors of the machine, which NVML says are near every card.
    pub processors: Once<usize>,
    /// The number of the runtime, as the program's own copy has it.
    pub runtime_version: Once<c_int>,
    /// Whether the first handle of cuSOLVER, and NCCL's kernels, are charged.
    pub solver_charged: AtomicBool,
    pub nccl_charged: AtomicBool,
}

impl Libraries {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            fft_plans: Mutex::new(Rank::FftPlans, Vec::new()),
            group_calls: Mutex::new(Rank::GroupCalls, Vec::new()),
            nccl_settings: Once::new(),
            nccl_ids: AtomicU64::new(0),
            nccl_operators: AtomicU64::new(0),
            exchange_failed: AtomicBool::new(false),
            versions: [const { Once::new() }; LIBRARIES],
            packages: Once::new(),
            runtime_number: Once::new(),
            processors: Once::new(),
            runtime_version: Once::new(),
            solver_charged: AtomicBool::new(false),
            nccl_charged: AtomicBool::new(false),
        }
    }
}
