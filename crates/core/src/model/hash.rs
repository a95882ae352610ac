//! Hashes that stay the same over versions of everything: FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>).

/// FNV-1a, 32 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>).
#[must_use]
pub fn fnv1a(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// FNV-1a, 128 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>): stable over versions of everything.
#[must_use]
pub fn fnv1a_128(text: &str) -> u128 {
    text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
