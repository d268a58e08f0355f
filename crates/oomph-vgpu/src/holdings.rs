//! What NVIDIA's libraries hold on a card for themselves, besides the memory that a program gives them.
//!
//! Read on an H100 80GB HBM3 with driver 580.159.04, CUDA 13.0, cuBLAS 13.1, cuDNN 9.19, cuSOLVER 12.0 and NCCL 2.28, as what is
//! free before and after a handle is made (`acceptance/readings/real`). With these sizes the memory outside PyTorch's pool is that
//! of the card to 8 MiB in all of 44 programs.
//!
//! Cards of other generations were not read. What the catalogue says of their contexts comes from messages of programs that had
//! such handles, so that nothing is added to it.

use oomph_ledger::DeviceDescription;

const MIB: u64 = 1 << 20;

/// Bytes that a library holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// For each handle of cuBLAS, whether or not the program brings a workspace. PyTorch has one for each thread that
    /// multiplies: a training loop two, because gradients are computed in another thread.
    pub cublas: u64,
    /// For each handle of cuDNN.
    pub cudnn: u64,
    /// For the first handle of cuSOLVER. Programs that make more keep them, or destroy what they made.
    pub cusolver: u64,
    /// For NCCL's kernels, from the first communicator on, with a single rank.
    pub nccl: u64,
}

const HOPPER: Holdings = Holdings { cublas: 64 * MIB, cudnn: 8 * MIB, cusolver: 96 * MIB, nccl: 548 * MIB };

/// What the libraries hold on a card.
pub fn of(card: &DeviceDescription) -> Holdings {
    if card.cc_major == 9 { HOPPER } else { Holdings::default() }
}
