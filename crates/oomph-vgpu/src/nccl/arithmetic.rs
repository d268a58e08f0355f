//! Reductions of small buffers: sums and the like of what several ranks hold.

use std::ffi::c_int;

/// `ncclSum`, `ncclProd`, `ncclMax`, `ncclMin`, `ncclAvg`
const SUM: c_int = 0;
const PRODUCT: c_int = 1;
const MOST: c_int = 2;
const LEAST: c_int = 3;
const MEAN: c_int = 4;

/// What an operator makes of two numbers, for one type of them.
macro_rules! combine {
    ($operator:expr, $one:expr, $other:expr, $add:expr, $multiply:expr) => {
        match $operator {
            PRODUCT => $multiply($one, $other),
            MOST => $one.max($other),
            LEAST => $one.min($other),
            _ => $add($one, $other),
        }
    };
}

/// Reduces what all ranks hold: `own` belongs to `alike` ranks, each of `others` to one more. Operators of the program's
/// own, and types in which nobody counts, leave a rank with what it has.
pub fn reduce(own: &mut [u8], others: &[&[u8]], alike: usize, kind: c_int, operator: c_int) {
    if !(SUM..=MEAN).contains(&operator) {
        return;
    }
    let ranks = alike.saturating_add(others.len());
    /// Reduces buffers of one type, which is computed with as another one.
    macro_rules! each {
        ($bytes:literal, $read:expr, $write:expr, $add:expr, $multiply:expr, $times:expr, $power:expr, $divide:expr) => {
            for (index, place) in own.chunks_exact_mut($bytes).enumerate() {
                let Ok(bytes) = <[u8; $bytes]>::try_from(&*place) else { continue };
                let mine = $read(bytes);
                let mut result = match operator {
                    SUM | MEAN => $times(mine, alike),
                    PRODUCT => $power(mine, alike),
                    _ => mine,
                };
                for other in others {
                    let at = index * $bytes;
                    let Some(bytes) = other.get(at..at + $bytes).and_then(|bytes| bytes.try_into().ok()) else {
                        continue;
                    };
                    let theirs = $read(bytes);
                    result = combine!(operator, result, theirs, $add, $multiply);
                }
                if operator == MEAN {
                    result = $divide(result, ranks);
                }
                place.copy_from_slice(&$write(result));
            }
        };
    }
    macro_rules! integers {
        ($number:ty, $bytes:literal) => {
            each!(
                $bytes,
                <$number>::from_le_bytes,
                <$number>::to_le_bytes,
                <$number>::wrapping_add,
                <$number>::wrapping_mul,
                |one: $number, times: usize| one.wrapping_mul(times as $number),
                |one: $number, times: usize| one.wrapping_pow(u32::try_from(times).unwrap_or(u32::MAX)),
                |all: $number, ranks: usize| all.checked_div(ranks as $number).unwrap_or(all)
            )
        };
    }
    macro_rules! fractions {
        ($number:ty, $bytes:literal, $read:expr, $write:expr) => {
            each!(
                $bytes,
                $read,
                $write,
                |one: $number, other: $number| one + other,
                |one: $number, other: $number| one * other,
                |one: $number, times: usize| one * times as $number,
                |one: $number, times: usize| one.powi(i32::try_from(times).unwrap_or(i32::MAX)),
                |all: $number, ranks: usize| all / ranks as $number
            )
        };
    }
    match kind {
        0 => integers!(i8, 1),
        1 => integers!(u8, 1),
        2 => integers!(i32, 4),
        3 => integers!(u32, 4),
        4 => integers!(i64, 8),
        5 => integers!(u64, 8),
        7 => fractions!(f32, 4, f32::from_le_bytes, f32::to_le_bytes),
        8 => fractions!(f64, 8, f64::from_le_bytes, f64::to_le_bytes),
        // A bfloat16 is the upper half of a single.
        9 => fractions!(
            f32,
            2,
            |bytes: [u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16),
            |number: f32| ((number.to_bits() >> 16) as u16).to_le_bytes()
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<const N: usize>(
        mut own: [u8; N],
        others: &[&[u8]],
        alike: usize,
        kind: c_int,
        operator: c_int,
    ) -> [u8; N] {
        reduce(&mut own, others, alike, kind, operator);
        own
    }

    #[test]
    fn a_sum_counts_the_ranks() {
        let one = 1_f32.to_le_bytes();
        assert_eq!(reduced(one, &[], 4, 7, SUM), 4_f32.to_le_bytes());
        assert_eq!(reduced(one, &[&2_f32.to_le_bytes()], 3, 7, SUM), 5_f32.to_le_bytes());
        assert_eq!(reduced(3_i64.to_le_bytes(), &[], 8, 4, SUM), 24_i64.to_le_bytes());
        // 1.0 and 3.0 as bfloat16, twice.
        let halves = [0x80, 0x3f, 0x40, 0x40];
        assert_eq!(reduced(halves, &[], 2, 9, SUM), [0x00, 0x40, 0xc0, 0x40]);
    }

    #[test]
    fn other_operators_are_what_they_say() {
        let number = |value: i32| value.to_le_bytes();
        let others: [&[u8]; 2] = [&number(-7), &number(9)];
        assert_eq!(reduced(number(2), &others, 2, 2, MOST), number(9));
        assert_eq!(reduced(number(2), &others, 2, 2, LEAST), number(-7));
        assert_eq!(reduced(number(2), &others, 2, 2, PRODUCT), number(2 * 2 * -7 * 9));
        assert_eq!(reduced(6_f64.to_le_bytes(), &[&0_f64.to_le_bytes()], 2, 8, MEAN), 4_f64.to_le_bytes());
        assert_eq!(reduced(number(2), &others, 2, 2, 9), number(2), "an operator of the program's own");
    }

    #[test]
    fn buffers_of_other_lengths_do_no_harm() {
        assert_eq!(reduced([1, 2, 3], &[&[1]], 2, 2, SUM), [1, 2, 3]);
        assert_eq!(reduced(5_u32.to_le_bytes(), &[&[1]], 1, 3, SUM), 5_u32.to_le_bytes());
    }
}
