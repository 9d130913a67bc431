//! Keys that callers authenticate with: `lg_` and 256 random bits. Only their hashes are kept.

use sha2::{Digest, Sha256};

/// A new key and the hash that the configuration names, in hex. Fails only if the operating system
/// gives no random bytes.
pub fn generate() -> Result<(String, String), getrandom::Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    let key = format!("lg_{}", to_hex(&random));
    let hash = to_hex(&hash(&key));
    Ok((key, hash))
}

/// SHA-256 of the whole key. A key is random, so nothing slower is needed.
#[must_use]
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Reads 64 hex digits.
pub(super) fn parse_hash(hex: &str) -> Option<[u8; 32]> {
    let mut digits = hex.chars().map(|digit| digit.to_digit(16));
    let mut hash = [0; 32];
    for byte in &mut hash {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    digits.next().is_none().then_some(hash)
}

/// 64 hex digits.
pub fn to_hex(bytes: &[u8; 32]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).expect("four bits are one hex digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_matches_its_hash() {
        let (key, hex) = generate().unwrap();
        assert_eq!(key.len(), 3 + 64);
        assert!(key.starts_with("lg_"));
        assert_eq!(parse_hash(&hex), Some(hash(&key)));
        assert_eq!(parse_hash(&hex.to_uppercase()), Some(hash(&key)));
        assert_ne!(generate().unwrap().0, key);
    }

    #[test]
    fn the_hash_is_plain_sha256() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(to_hex(&hash("abc")), known);
    }

    #[test]
    fn only_64_hex_digits_are_a_hash() {
        let digits = "0f".repeat(32);
        assert_eq!(parse_hash(&digits), Some([0x0f; 32]));
        for bad in [&digits[1..], &format!("{digits}0"), "", &"zz".repeat(32), &"é".repeat(32)] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }
}
