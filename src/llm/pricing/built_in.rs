//! The built-in list of models: one file for each provider.

use std::sync::LazyLock;

use crate::config::PriceFile;

/// Read when a model is first looked for, so that a server that is not used yet does not hold it.
static FILES: LazyLock<Vec<PriceFile>> = LazyLock::new(|| {
    let parse = |text: &str| PriceFile::parse(text).expect("a test reads each file");
    TEXTS.iter().map(|text| parse(text)).collect()
});

const TEXTS: [&str; 8] = [
    include_str!("openai.toml"),
    include_str!("anthropic.toml"),
    include_str!("google.toml"),
    include_str!("xai.toml"),
    include_str!("deepseek.toml"),
    include_str!("mistral.toml"),
    include_str!("groq.toml"),
    include_str!("together.toml"),
];

/// The files, in the order in which they are asked.
#[must_use]
pub fn built_in() -> &'static [PriceFile] {
    &FILES
}
