//! Connectionist temporal classification: descriptors and workspace.

use std::ffi::c_void;

use super::object::{self, BAD_PARAM, SUCCESS, descriptor, take};
use super::tensor::tensor;
use crate::boundary::put;

/// A loss.
#[derive(Default)]
pub struct Ctc {
    kind: i32,
    normalization: i32,
    gradient: i32,
    longest_label: i32,
}
descriptor!(Ctc = 30, cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor);

/// Describes a loss.
pub unsafe fn cudnnSetCTCLossDescriptor_v8(
    address: *mut c_void,
    kind: i32,
    normalization: i32,
    gradient: i32,
    longest_label: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Ctc>(address) }) else { return BAD_PARAM };
    *own = Ctc { kind, normalization, gradient, longest_label };
    SUCCESS
}

/// Describes a loss.
pub unsafe fn cudnnSetCTCLossDescriptor_v9(
    address: *mut c_void,
    kind: i32,
    normalization: i32,
    gradient: i32,
    longest_label: i32,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnSetCTCLossDescriptor_v8(address, kind, normalization, gradient, longest_label) }
}

/// Describes a loss.
pub unsafe fn cudnnSetCTCLossDescriptorEx(address: *mut c_void, kind: i32, normalization: i32, gradient: i32) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnSetCTCLossDescriptor_v8(address, kind, normalization, gradient, 0) }
}

/// Describes a loss.
pub unsafe fn cudnnSetCTCLossDescriptor(address: *mut c_void, kind: i32) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnSetCTCLossDescriptor_v8(address, kind, 0, 0, 0) }
}

/// Reads a loss back.
pub unsafe fn cudnnGetCTCLossDescriptor_v8(
    address: *mut c_void,
    kind: *mut i32,
    normalization: *mut i32,
    gradient: *mut i32,
    longest_label: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Ctc>(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(normalization, own.normalization);
        put(gradient, own.gradient);
        put(longest_label, own.longest_label);
    }
    SUCCESS
}

/// Reads a loss back.
pub unsafe fn cudnnGetCTCLossDescriptor_v9(
    address: *mut c_void,
    kind: *mut i32,
    normalization: *mut i32,
    gradient: *mut i32,
    longest_label: *mut i32,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnGetCTCLossDescriptor_v8(address, kind, normalization, gradient, longest_label) }
}

/// Reads a loss back.
pub unsafe fn cudnnGetCTCLossDescriptorEx(
    address: *mut c_void,
    kind: *mut i32,
    normalization: *mut i32,
    gradient: *mut i32,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnGetCTCLossDescriptor_v8(address, kind, normalization, gradient, std::ptr::null_mut()) }
}

/// Reads a loss back.
pub unsafe fn cudnnGetCTCLossDescriptor(address: *mut c_void, kind: *mut i32) -> u32 {
    let null = std::ptr::null_mut();
    // SAFETY: the same contract.
    unsafe { cudnnGetCTCLossDescriptor_v8(address, kind, null, null, null) }
}

/// The bytes of the workspace: the probabilities after the softmax, the forward and backward variables of every state,
/// and the labels. Fitted to the answers of cuDNN 9.26, which both algorithms share.
fn workspace(steps: u64, sequences: u64, letters: u64, label: u64, labels_on_host: bool) -> u64 {
    let states = 2 * label + 1;
    let labels = if labels_on_host { 12 * label + 20 } else { 8 * label + 12 };
    sequences * (steps * (4 * letters + 8 * states) + labels)
}

/// The sizes of the probabilities: steps, sequences, letters.
///
/// # Safety
/// A tensor descriptor.
unsafe fn sizes(probabilities: *mut c_void) -> Option<[u64; 3]> {
    // SAFETY: the caller's promise.
    let probabilities = unsafe { tensor(probabilities) }?;
    Some([0, 1, 2].map(|index| u64::from(probabilities.size(index).unsigned_abs())))
}

/// The workspace of a loss whose labels lie on the host. It grows with the longest of them.
pub unsafe fn cudnnGetCTCLossWorkspaceSize(
    _handle: *mut c_void,
    probabilities: *mut c_void,
    _gradients: *mut c_void,
    _labels: *const i32,
    label_lengths: *const i32,
    _input_lengths: *const i32,
    _algorithm: i32,
    _loss: *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors, a label length for every sequence, and an out-parameter.
    unsafe {
        put(size, 0);
        let Some([steps, sequences, letters]) = sizes(probabilities) else { return BAD_PARAM };
        let lengths = take(label_lengths, i32::try_from(sequences).unwrap_or(0));
        let longest = lengths.into_iter().max().and_then(|length| u64::try_from(length).ok()).unwrap_or(0);
        put(size, usize::try_from(workspace(steps, sequences, letters, longest, true)).unwrap_or(usize::MAX));
    }
    SUCCESS
}

/// The workspace of a loss whose labels lie on the card. It goes by the longest label that was announced.
pub unsafe fn cudnnGetCTCLossWorkspaceSize_v8(
    _handle: *mut c_void,
    _algorithm: i32,
    loss: *mut c_void,
    probabilities: *mut c_void,
    _gradients: *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        put(size, 0);
        let (Some(own), Some([steps, sequences, letters])) = (object::get::<Ctc>(loss), sizes(probabilities)) else {
            return BAD_PARAM;
        };
        let longest = u64::try_from(own.longest_label).unwrap_or(0);
        put(size, usize::try_from(workspace(steps, sequences, letters, longest, false)).unwrap_or(usize::MAX));
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::workspace;

    #[test]
    fn the_workspace_is_what_cudnn_answers() {
        assert_eq!(workspace(50, 2, 20, 5, true), 16_960);
        assert_eq!(workspace(50, 4, 20, 5, true), 33_920);
        assert_eq!(workspace(100, 2, 20, 5, true), 33_760);
        assert_eq!(workspace(50, 2, 40, 5, true), 24_960);
        assert_eq!(workspace(50, 2, 20, 10, true), 25_080);
        assert_eq!(workspace(50, 4, 20, 255, false), 841_808);
        assert_eq!(workspace(100, 2, 20, 255, false), 837_704);
    }
}
