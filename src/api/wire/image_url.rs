//! Image URLs in messages, which the upstream fetches.

use url::Url;

use crate::net::public_address::check_host;

/// Checks an image's URL: `https`, `http` or an image in a `data:` URL, and no private address.
pub fn check_image_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    match url.scheme() {
        "data" if url.path().starts_with("image/") => check_inline(url.path()),
        "data" => Err("must hold an image if it is a data: URL".to_owned()),
        "http" | "https" => check_host(&url).map_err(str::to_owned),
        scheme => Err(format!("must begin with https:, http: or data:, not {scheme}:")),
    }
}

/// Checks what follows `data:`.
fn check_inline(image: &str) -> Result<(), String> {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    match image.split_once(";base64,") {
        Some((_, data)) if !data.is_empty() && data.bytes().all(is_base64) => Ok(()),
        Some(_) | None => Err("must hold its image as base64 where it is a data: URL".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::guard::corpus::INSIDE;

    #[test]
    fn no_spelling_of_a_private_address_passes() {
        for url in INSIDE.map(|url| url.replace("PORT", "8080")) {
            assert!(check_image_url(&url).is_err(), "{url}");
        }
    }

    #[test]
    fn only_public_web_addresses_and_inline_images_pass() {
        let bad = [
            "file:///etc/passwd",
            "gopher://example.com/",
            "http://127.1/",
            "data:text/html,x",
            "nonsense",
            "data:image/png;base64,",
            "data:image/png;base64,a!b",
            "data:image/png,abc",
        ];
        for bad in bad {
            assert!(check_image_url(bad).is_err(), "{bad}");
        }
        for good in ["https://example.com/a.png", "http://93.184.216.34/", "data:image/png;base64,AAAA"] {
            assert_eq!(check_image_url(good), Ok(()), "{good}");
        }
    }
}
