//! What a model's name tells of its age.

/// The version of a Claude model: of `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`. A date is none.
pub fn claude_version(model: &str) -> Option<(u8, u8)> {
    let (_, own) = model.split_once("claude")?;
    let mut words = own.split(|c: char| !c.is_ascii_alphanumeric()).skip_while(|word| word.parse::<u8>().is_err());
    let major = words.next()?.parse().ok()?;
    Some((major, words.next().and_then(|word| word.parse().ok()).unwrap_or(0)))
}

/// The generation of a Gemini model: 2 of `gemini-2.5-flash`, 3 of `gemini-3.1-pro-preview`; `None` of other models.
pub fn gemini_generation(model: &str) -> Option<u32> {
    let (_, version) = model.split_once("gemini-")?;
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gemini_model_is_known_by_its_name() {
        for (model, expected) in [
            ("gemini-2.5-flash", Some(2)),
            ("gemini-3-flash-preview", Some(3)),
            ("gemini-3.1-pro-preview", Some(3)),
            ("models/gemini-4-argon", Some(4)),
            ("gemini-12", Some(12)),
            ("gemini-flash-latest", None),
            ("gemma-4-31b-it", None),
            ("gemini-", None),
        ] {
            assert_eq!(gemini_generation(model), expected, "{model}");
        }
    }
}
