//! DeBERTa's attention: scores of contents with contents, of contents with distances, and of distances with contents,
//! each written out (`DisentangledSelfAttention` of `modeling_deberta_v2.py`, keys of positions shared with those of
//! contents).

use oomph_model::architecture::Transformer;

use super::attention::Attention;
use super::pass::Pass;
use crate::tape::{Kind, Tape, Tensor};

/// Scores between contents and distances are picked from a table of all distances.
struct Picked<'a> {
    tape: &'a Tape,
    /// Numbers of the table: samples x heads x positions x distances.
    table: u64,
    /// Numbers of a matrix of scores for every head.
    pairs: u64,
    /// Positions times positions.
    places: u64,
}

impl Picked<'_> {
    /// One table of products, and what is picked from it by place; the places and the table are kept.
    fn scores(&self, one: &Tensor, other: &Tensor) -> Tensor {
        let products = self.tape.matmul(one, other, self.table);
        let shifted = self.tape.empty(self.places, Kind::Long);
        let places = self.tape.empty(self.places, Kind::Long);
        drop(shifted);
        self.tape.gather_along(&products, &places, self.pairs)
    }
}

/// Attention of one layer. `distances` is the normed table of relative positions.
pub(super) fn forward(
    attention: &Attention,
    tape: &Tape,
    shape: &Transformer,
    pass: &Pass,
    x: &Tensor,
    distances: &Tensor,
) -> Tensor {
    let by_head = |x: &Tensor, matrix| tape.contiguous(&tape.linear(matrix, x));
    let [key, value] = [&attention.key, &attention.value].map(|matrix| matrix.as_ref().unwrap_or(&attention.query));
    let (query_layer, key_layer, value_layer) = (by_head(x, &attention.query), by_head(x, key), by_head(x, value));
    let places = pass.length.saturating_mul(pass.length);
    let pairs = pass.batch.saturating_mul(shape.heads).saturating_mul(places);
    let scaled = tape.keeping_nothing(&key_layer);
    let mut scores = tape.matmul(&query_layer, &scaled, pairs);
    drop(scaled);
    let distances = tape.dropout(distances, pass.training && shape.hidden_dropout > 0.0);
    let bias = {
        let queries = tape.repeat(&by_head(&distances, &attention.query), pass.batch);
        let keys = tape.repeat(&by_head(&distances, key), pass.batch);
        let rows = distances.count / shape.hidden.max(1);
        let table = pass.batch.saturating_mul(shape.heads).saturating_mul(pass.length).saturating_mul(rows);
        let picked = Picked { tape, table, pairs, places };
        let of_contents = picked.scores(&query_layer, &keys);
        // A sum that begins with the number 0 is a copy.
        let sum = tape.keeping_nothing(&tape.keeping_nothing(&of_contents));
        let of_distances = picked.scores(&key_layer, &queries);
        tape.add_in_place(&sum, &tape.keeping_nothing(&of_distances))
    };
    scores = tape.add(&scores, &bias);
    let mask = tape.empty(pass.batch.saturating_mul(places), Kind::Byte);
    let hidden = tape.empty(pass.batch.saturating_mul(places), Kind::Byte);
    scores = tape.mul(&scores, &hidden);
    drop(hidden);
    let mut chances = tape.softmax(&scores, scores.kind);
    chances = tape.dropout(&chances, pass.training && shape.attention_dropout > 0.0);
    let context = tape.contiguous(&tape.matmul(&chances, &value_layer, x.count));
    // Python's names keep these until the function returns.
    drop((bias, mask, scores, chances, query_layer, key_layer));
    context
}
