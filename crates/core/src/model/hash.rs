//! Hash functions whose results are stored: FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>). The standard library's
//! hashes may change between releases, and these may not.

/// Computes the FNV-1a hash of a text, with 32 bits.
#[must_use]
pub fn fnv1a(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Computes the FNV-1a hash of a text, with 128 bits.
#[must_use]
pub fn fnv1a_128(text: &str) -> u128 {
    text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
