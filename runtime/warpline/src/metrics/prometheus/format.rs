//! The format of the metrics, as a client prefers it.

/// The format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus's text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the format that the client prefers; the plain text where it has no preference.
pub(super) fn negotiate<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
    let (mut text, mut open_metrics) = (0.0_f32, 0.0_f32);
    for range in accepts.flat_map(|accept| accept.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0_f32, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match (kind.as_str(), version) {
            ("application/openmetrics-text", None | Some("1.0.0")) => open_metrics = quality.max(open_metrics),
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => text = quality.max(text),
            _ => {}
        }
    }
    if open_metrics > text { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format() {
        let negotiated = |accept: &str| super::negotiate(std::iter::once(accept));
        // What Prometheus 2.42 and 3 send, curl, and a browser.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(negotiated(prometheus), Format::OpenMetrics);
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(negotiated(newer), Format::OpenMetrics);
        assert_eq!(negotiated("*/*"), Format::Text);
        assert_eq!(negotiated("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Text);
        assert_eq!(negotiated("application/openmetrics-text;version=0.0.1"), Format::Text);
        assert_eq!(negotiated("application/openmetrics-text; q=0"), Format::Text);
        assert_eq!(negotiated("APPLICATION/OPENMETRICS-TEXT; Version=\"1.0.0\""), Format::OpenMetrics);
        assert_eq!(negotiated(";;;=,,q=;"), Format::Text);
        assert_eq!(super::negotiate(std::iter::empty()), Format::Text);
    }
}
