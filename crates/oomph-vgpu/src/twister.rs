//! Turning the generator of PyTorch's random numbers on the host without drawing them.
//!
//! A large weight that is drawn on the host reaches the virtual card as zeros, because no large copy moves anything (see
//! [`crate::transfer`]). The hook leaves such weights undrawn, which saves the numbers and above all the memory under
//! them; the generator must be where it would be, for data is shuffled by it afterwards.

/// Words of the state of MT19937 (Matsumoto and Nishimura 1998, whose names the constants bear).
const N: usize = 624;
const M: usize = 397;
const MATRIX_A: u32 = 0x9908_b0df;
const UPPER_MASK: u32 = 0x8000_0000;
const LOWER_MASK: u32 = 0x7fff_ffff;

/// Replaces a state by the one `rounds` times 624 numbers later.
///
/// # Safety
/// `state` points to 624 words that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oomph_mt19937_twist(state: *mut u32, rounds: u64) {
    if state.is_null() {
        return;
    }
    // SAFETY: the caller's promise; the type has the alignment of its words.
    let state = unsafe { &mut *state.cast::<[u32; N]>() };
    for _ in 0..rounds {
        *state = twisted(state);
    }
}

/// The next state. Each word needs one that is 227 places behind it in the new state, so the parts of at most 227 words
/// hold nothing that depends on themselves, and the compiler makes vector code of them.
fn twisted(old: &[u32; N]) -> [u32; N] {
    let mut new = [0; N];
    for place in 0..N - M {
        new[place] = old[place + M] ^ mixed(old[place], old[place + 1]);
    }
    for (first, last) in [(N - M, 2 * (N - M)), (2 * (N - M), N - 1)] {
        let (done, rest) = new.split_at_mut(first);
        for (step, word) in rest[..last - first].iter_mut().enumerate() {
            let place = first + step;
            *word = done[place - (N - M)] ^ mixed(old[place], old[place + 1]);
        }
    }
    new[N - 1] = new[M - 1] ^ mixed(old[N - 1], new[0]);
    new
}

fn mixed(word: u32, next: u32) -> u32 {
    let both = (word & UPPER_MASK) | (next & LOWER_MASK);
    (both >> 1) ^ (0_u32.wrapping_sub(next & 1) & MATRIX_A)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard ([rand.predef]) says what the 10,000th number after the default seed 5489 is.
    #[test]
    fn the_ten_thousandth_number() {
        let mut state = [0_u32; N];
        state[0] = 5489;
        for place in 1..N {
            let before = state[place - 1];
            state[place] = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(place as u32);
        }
        let last = 10_000 - 1;
        // SAFETY: the state is ours.
        unsafe { oomph_mt19937_twist(state.as_mut_ptr(), (last / N + 1) as u64) };
        let mut number = state[last % N];
        number ^= number >> 11;
        number ^= (number << 7) & 0x9d2c_5680;
        number ^= (number << 15) & 0xefc6_0000;
        number ^= number >> 18;
        assert_eq!(number, 4_123_659_995);
    }
}
