//! The two text formats in which metrics are read.
//!
//! The registry writes `OpenMetrics`. The older format of Prometheus differs from it in a few lines.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4, which everything reads.
    Prometheus,
    /// `OpenMetrics` 1.0, which has exemplars.
    OpenMetrics,
}

impl Format {
    /// The one that a reader prefers, by the values of its `Accept` headers.
    #[must_use]
    pub fn preferred<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut plain, mut open) = (0.0, 0.0);
        for range in accept.into_iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            match media.as_str() {
                "application/openmetrics-text" => open = quality,
                "text/plain" => plain = quality,
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes all metrics.
    pub(super) fn write(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut written = String::new();
        text::encode(&mut written, registry)?;
        Ok(match self {
            Self::OpenMetrics => written,
            Self::Prometheus => to_prometheus(&written),
        })
    }
}

/// The same in Prometheus' format: a counter is declared with its suffix, and there are neither exemplars nor units.
/// No label's value has a space in it, so ` # ` begins an exemplar.
fn to_prometheus(written: &str) -> String {
    let mut text = String::with_capacity(written.len());
    let mut help = None;
    let mut line = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    for written in written.lines() {
        if let Some(of) = written.strip_prefix("# HELP ") {
            help = of.split_once(' ');
        } else if let Some((name, kind)) = written.strip_prefix("# TYPE ").and_then(|of| of.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                line(&["# HELP ", name, suffix, " ", help]);
            }
            line(&["# TYPE ", name, suffix, " ", kind]);
        } else if !written.starts_with('#') {
            line(&[written.split_once(" # ").map_or(written, |(sample, _)| sample)]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_the_format_that_it_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.2", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("text/html, */*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::preferred([accept]), format, "{accept}");
        }
    }
}
