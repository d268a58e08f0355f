//! Descriptors of the multi-head attention of cuDNN 7.5, which the graph API replaced. Frameworks no longer use it; its
//! sizes are not known, so the functions that would tell them are refused (see `api/cudnn.api`).

use std::ffi::c_void;

use super::object::{self, BAD_PARAM, SUCCESS, descriptor, put_all, take};
use crate::boundary::put;

/// A batch of sequences.
#[derive(Default)]
pub struct SequenceData {
    kind: i32,
    dimensions: Vec<i32>,
    axes: Vec<i32>,
    lengths: Vec<i32>,
}
descriptor!(SequenceData = 50, cudnnCreateSeqDataDescriptor, cudnnDestroySeqDataDescriptor);

/// Describes a batch of sequences.
pub unsafe fn cudnnSetSeqDataDescriptor(
    address: *mut c_void,
    kind: i32,
    rank: i32,
    dimensions: *const i32,
    axes: *const i32,
    length_count: usize,
    lengths: *const i32,
    _padding: *mut c_void,
) -> u32 {
    let Ok(length_count) = i32::try_from(length_count) else { return BAD_PARAM };
    if !(1..=super::tensor::MOST_DIMENSIONS).contains(&rank) {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and arrays as long as is said.
    unsafe {
        let Some(own) = object::get::<SequenceData>(address) else { return BAD_PARAM };
        *own = SequenceData {
            kind,
            dimensions: take(dimensions, rank),
            axes: take(axes, rank),
            lengths: take(lengths, length_count),
        };
    }
    SUCCESS
}

/// Reads a batch of sequences back.
pub unsafe fn cudnnGetSeqDataDescriptor(
    address: *mut c_void,
    kind: *mut i32,
    rank: *mut i32,
    requested: i32,
    dimensions: *mut i32,
    axes: *mut i32,
    length_count: *mut usize,
    lengths_requested: usize,
    lengths: *mut i32,
    _padding: *mut c_void,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and arrays as long as is said.
    unsafe {
        let Some(own) = object::get::<SequenceData>(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(rank, own.dimensions.len() as i32);
        put_all(dimensions, requested, &own.dimensions);
        put_all(axes, requested, &own.axes);
        put(length_count, own.lengths.len());
        put_all(lengths, i32::try_from(lengths_requested).unwrap_or(i32::MAX), &own.lengths);
    }
    SUCCESS
}

/// An attention.
pub struct Attention {
    mode: u32,
    heads: i32,
    scale: f64,
    kinds: [i32; 3],
    dropouts: [*mut c_void; 2],
    sizes: [i32; 11],
}

impl Default for Attention {
    fn default() -> Self {
        Self { mode: 0, heads: 0, scale: 0.0, kinds: [0; 3], dropouts: [std::ptr::null_mut(); 2], sizes: [0; 11] }
    }
}
descriptor!(Attention = 51, cudnnCreateAttnDescriptor, cudnnDestroyAttnDescriptor);

/// Describes an attention.
pub unsafe fn cudnnSetAttnDescriptor(
    address: *mut c_void,
    mode: u32,
    heads: i32,
    scale: f64,
    kind: i32,
    precision: i32,
    math: i32,
    attention_dropout: *mut c_void,
    post_dropout: *mut c_void,
    q: i32,
    k: i32,
    v: i32,
    q_projection: i32,
    k_projection: i32,
    v_projection: i32,
    o_projection: i32,
    longest_qo: i32,
    longest_kv: i32,
    batch: i32,
    beams: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Attention>(address) }) else { return BAD_PARAM };
    let kinds = [kind, precision, math];
    let projections = [q_projection, k_projection, v_projection, o_projection];
    let [p0, p1, p2, p3] = projections;
    let sizes = [q, k, v, p0, p1, p2, p3, longest_qo, longest_kv, batch, beams];
    *own = Attention { mode, heads, scale, kinds, dropouts: [attention_dropout, post_dropout], sizes };
    SUCCESS
}

/// Reads an attention back.
pub unsafe fn cudnnGetAttnDescriptor(
    address: *mut c_void,
    mode: *mut u32,
    heads: *mut i32,
    scale: *mut f64,
    kind: *mut i32,
    precision: *mut i32,
    math: *mut i32,
    attention_dropout: *mut *mut c_void,
    post_dropout: *mut *mut c_void,
    q: *mut i32,
    k: *mut i32,
    v: *mut i32,
    q_projection: *mut i32,
    k_projection: *mut i32,
    v_projection: *mut i32,
    o_projection: *mut i32,
    longest_qo: *mut i32,
    longest_kv: *mut i32,
    batch: *mut i32,
    beams: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Attention>(address) else { return BAD_PARAM };
        put(mode, own.mode);
        put(heads, own.heads);
        put(scale, own.scale);
        for (out, value) in [kind, precision, math].into_iter().zip(own.kinds) {
            put(out, value);
        }
        for (out, value) in [attention_dropout, post_dropout].into_iter().zip(own.dropouts) {
            put(out, value);
        }
        let outs =
            [q, k, v, q_projection, k_projection, v_projection, o_projection, longest_qo, longest_kv, batch, beams];
        for (out, value) in outs.into_iter().zip(own.sizes) {
            put(out, value);
        }
    }
    SUCCESS
}
