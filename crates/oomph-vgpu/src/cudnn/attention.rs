//! Descriptors of the multi-head attention of cuDNN 7.5, which the graph API replaced. Frameworks no longer use it; its
//! sizes are not known, so the functions that would tell them are refused (see `api/cudnn.api`).

#![deny(unsafe_code)]

use std::ffi::c_void;

use super::object::{Handle, change, descriptor, known};
use super::tensor::is_rank;
use crate::boundary::{Items, Out, Room};
use crate::libcudnn::status::{CudnnStatus, Result};

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
pub fn cudnnSetSeqDataDescriptor(
    mut descriptor: Handle<'_, SequenceData>,
    kind: i32,
    rank: i32,
    dimensions: Items<'_, i32>,
    axes: Items<'_, i32>,
    length_count: usize,
    lengths: Items<'_, i32>,
    _padding: *mut c_void,
) -> Result<()> {
    if i32::try_from(length_count).is_err() || !is_rank(rank) {
        return Err(CudnnStatus::BAD_PARAM);
    }
    let own = change(&mut descriptor)?;
    *own = SequenceData {
        kind,
        dimensions: dimensions.iter().collect(),
        axes: axes.iter().collect(),
        lengths: lengths.iter().collect(),
    };
    Ok(())
}

/// Reads a batch of sequences back.
pub fn cudnnGetSeqDataDescriptor(
    descriptor: Handle<'_, SequenceData>,
    kind: Out<'_, i32>,
    rank: Out<'_, i32>,
    _requested: i32,
    dimensions: Room<'_, i32>,
    axes: Room<'_, i32>,
    length_count: Out<'_, usize>,
    _lengths_requested: usize,
    lengths: Room<'_, i32>,
    _padding: *mut c_void,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    rank.set(own.dimensions.len() as i32);
    dimensions.fill(own.dimensions.iter().copied());
    axes.fill(own.axes.iter().copied());
    length_count.set(own.lengths.len());
    lengths.fill(own.lengths.iter().copied());
    Ok(())
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
pub fn cudnnSetAttnDescriptor(
    mut descriptor: Handle<'_, Attention>,
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
) -> Result<()> {
    let own = change(&mut descriptor)?;
    let kinds = [kind, precision, math];
    let projections = [q_projection, k_projection, v_projection, o_projection];
    let [p0, p1, p2, p3] = projections;
    let sizes = [q, k, v, p0, p1, p2, p3, longest_qo, longest_kv, batch, beams];
    *own = Attention { mode, heads, scale, kinds, dropouts: [attention_dropout, post_dropout], sizes };
    Ok(())
}

/// Reads an attention back.
pub fn cudnnGetAttnDescriptor(
    descriptor: Handle<'_, Attention>,
    mode: Out<'_, u32>,
    heads: Out<'_, i32>,
    scale: Out<'_, f64>,
    kind: Out<'_, i32>,
    precision: Out<'_, i32>,
    math: Out<'_, i32>,
    attention_dropout: Out<'_, *mut c_void>,
    post_dropout: Out<'_, *mut c_void>,
    q: Out<'_, i32>,
    k: Out<'_, i32>,
    v: Out<'_, i32>,
    q_projection: Out<'_, i32>,
    k_projection: Out<'_, i32>,
    v_projection: Out<'_, i32>,
    o_projection: Out<'_, i32>,
    longest_qo: Out<'_, i32>,
    longest_kv: Out<'_, i32>,
    batch: Out<'_, i32>,
    beams: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    mode.set(own.mode);
    heads.set(own.heads);
    scale.set(own.scale);
    for (out, value) in [kind, precision, math].into_iter().zip(own.kinds) {
        out.set(value);
    }
    for (out, value) in [attention_dropout, post_dropout].into_iter().zip(own.dropouts) {
        out.set(value);
    }
    let outs = [q, k, v, q_projection, k_projection, v_projection, o_projection, longest_qo, longest_kv, batch, beams];
    for (out, value) in outs.into_iter().zip(own.sizes) {
        out.set(value);
    }
    Ok(())
}
