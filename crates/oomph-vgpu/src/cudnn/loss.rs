//! Connectionist temporal classification: descriptors and workspace.

use std::ffi::c_void;

use super::object::{Handle, change, descriptor, known};
use super::tensor::Tensor;
use crate::boundary::{Any, Items, Memory, Out, pass_many};
use crate::libcudnn::status::Result;

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
pub fn cudnnSetCTCLossDescriptor_v8(
    mut descriptor: Handle<'_, Ctc>,
    kind: i32,
    normalization: i32,
    gradient: i32,
    longest_label: i32,
) -> Result<()> {
    let own = change(&mut descriptor)?;
    *own = Ctc { kind, normalization, gradient, longest_label };
    Ok(())
}

/// Describes a loss.
pub fn cudnnSetCTCLossDescriptor_v9(
    descriptor: Handle<'_, Ctc>,
    kind: i32,
    normalization: i32,
    gradient: i32,
    longest_label: i32,
) -> Result<()> {
    cudnnSetCTCLossDescriptor_v8(descriptor, kind, normalization, gradient, longest_label)
}

/// Describes a loss.
pub fn cudnnSetCTCLossDescriptorEx(
    descriptor: Handle<'_, Ctc>,
    kind: i32,
    normalization: i32,
    gradient: i32,
) -> Result<()> {
    cudnnSetCTCLossDescriptor_v8(descriptor, kind, normalization, gradient, 0)
}

/// Describes a loss.
pub fn cudnnSetCTCLossDescriptor(descriptor: Handle<'_, Ctc>, kind: i32) -> Result<()> {
    cudnnSetCTCLossDescriptor_v8(descriptor, kind, 0, 0, 0)
}

/// Reads a loss back.
pub fn cudnnGetCTCLossDescriptor_v8(
    descriptor: Handle<'_, Ctc>,
    kind: Out<'_, i32>,
    normalization: Out<'_, i32>,
    gradient: Out<'_, i32>,
    longest_label: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    normalization.set(own.normalization);
    gradient.set(own.gradient);
    longest_label.set(own.longest_label);
    Ok(())
}

/// Reads a loss back.
pub fn cudnnGetCTCLossDescriptor_v9(
    descriptor: Handle<'_, Ctc>,
    kind: Out<'_, i32>,
    normalization: Out<'_, i32>,
    gradient: Out<'_, i32>,
    longest_label: Out<'_, i32>,
) -> Result<()> {
    cudnnGetCTCLossDescriptor_v8(descriptor, kind, normalization, gradient, longest_label)
}

/// Reads a loss back.
pub fn cudnnGetCTCLossDescriptorEx(
    descriptor: Handle<'_, Ctc>,
    kind: Out<'_, i32>,
    normalization: Out<'_, i32>,
    gradient: Out<'_, i32>,
) -> Result<()> {
    cudnnGetCTCLossDescriptor_v8(descriptor, kind, normalization, gradient, Out::null())
}

/// Reads a loss back.
pub fn cudnnGetCTCLossDescriptor(descriptor: Handle<'_, Ctc>, kind: Out<'_, i32>) -> Result<()> {
    cudnnGetCTCLossDescriptor_v8(descriptor, kind, Out::null(), Out::null(), Out::null())
}

/// The bytes of the workspace: the probabilities after the softmax, the forward and backward variables of every state,
/// and the labels. Fitted to the answers of cuDNN 9.26, which both algorithms share.
fn workspace(steps: u64, sequences: u64, letters: u64, label: u64, labels_on_host: bool) -> u64 {
    let states = 2 * label + 1;
    let labels = if labels_on_host { 12 * label + 20 } else { 8 * label + 12 };
    sequences * (steps * (4 * letters + 8 * states) + labels)
}

/// The sizes of the probabilities: steps, sequences, letters.
fn sizes(probabilities: &Tensor) -> [u64; 3] {
    [0, 1, 2].map(|index| u64::from(probabilities.size(index).unsigned_abs()))
}

/// The workspace of a loss whose labels lie on the host. It grows with the longest of them.
pub fn cudnnGetCTCLossWorkspaceSize(
    _handle: *mut c_void,
    probabilities: Handle<'_, Tensor>,
    _gradients: *mut c_void,
    _labels: *const i32,
    label_lengths: Memory<'_>,
    _input_lengths: *const i32,
    _algorithm: i32,
    _loss: *mut c_void,
    size: Out<'_, usize>,
) -> Result<()> {
    size.set(0);
    let [steps, sequences, letters] = sizes(known(&probabilities)?);
    let count = i32::try_from(sequences).map_or(0, i32::unsigned_abs);
    // SAFETY: cuDNN's contract: null, or a label length for every sequence.
    let lengths: Items<'_, i32> = unsafe { pass_many::<Any, _>(label_lengths.address(), count as usize) };
    let longest = lengths.iter().max().and_then(|length| u64::try_from(length).ok()).unwrap_or(0);
    size.set(usize::try_from(workspace(steps, sequences, letters, longest, true)).unwrap_or(usize::MAX));
    Ok(())
}

/// The workspace of a loss whose labels lie on the card. It goes by the longest label that was announced.
pub fn cudnnGetCTCLossWorkspaceSize_v8(
    _handle: *mut c_void,
    _algorithm: i32,
    loss: Handle<'_, Ctc>,
    probabilities: Handle<'_, Tensor>,
    _gradients: *mut c_void,
    size: Out<'_, usize>,
) -> Result<()> {
    size.set(0);
    let (own, [steps, sequences, letters]) = (known(&loss)?, sizes(known(&probabilities)?));
    let longest = u64::try_from(own.longest_label).unwrap_or(0);
    size.set(usize::try_from(workspace(steps, sequences, letters, longest, false)).unwrap_or(usize::MAX));
    Ok(())
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
