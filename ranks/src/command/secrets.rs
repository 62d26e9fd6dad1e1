//! Hides the secrets of URLs in a text that is printed: users and passwords, and queries, which may contain signatures.
//! A URL in a message ends at a space or at a backtick. Anything that might be a part of a secret is hidden, too.

use std::borrow::Cow;

/// The replacement for a secret.
const HIDDEN: &str = "***";

/// Returns the text with `***` for the user and the password, for the query and for the fragment of each URL.
pub(super) fn hidden(text: &str) -> Cow<'_, str> {
    let Some(at) = text.find("://") else { return text.into() };
    let (mut shown, mut rest) = (text[..at].to_owned(), &text[at..]);
    while let Some(after) = rest.strip_prefix("://") {
        let end = after.find(|c: char| c.is_whitespace() || c == '`').unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        shown += "://";
        shown += &of_url(url);
        let next = behind.find("://").unwrap_or(behind.len());
        shown += &behind[..next];
        rest = &behind[next..];
    }
    shown.into()
}

/// The rest of a URL after its scheme.
fn of_url(url: &str) -> String {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // A password that is not encoded may have a slash: with a colon before it, the last `@` ends it.
    let before_host = if authority.contains(':') { url.rfind('@') } else { authority.rfind('@') };
    let (user, url) = before_host.map_or(("", url), |at| (HIDDEN, &url[at..]));
    match url.find(['?', '#']) {
        Some(at) => format!("{user}{}{HIDDEN}", &url[..=at]),
        None => format!("{user}{url}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_keeps_to_itself_is_hidden_and_all_else_stays() {
        for (text, shown) in [
            ("`s3://user:pass@bucket/x` has no tables", "`s3://***@bucket/x` has no tables"),
            ("http://user@host:80/a b://c:d@e f", "http://***@host:80/a b://***@e f"),
            ("'s3://user:pa/ss?w#o@rd@bucket/x?y'", "'s3://***@bucket/x?***"),
            ("https://host/x?X-Amz-Signature=1&b=2 gone", "https://host/x?*** gone"),
            ("https://host/x#token", "https://host/x#***"),
            ("a://b://c:d@e", "a://***@e"),
        ] {
            assert_eq!(hidden(text), shown);
        }
        for plain in ["", "no url: a@b?c", "`s3://bucket/a@b`", "http://127.0.0.1:9000/x", "://", "a:// b"] {
            assert_eq!(hidden(plain), plain);
        }
    }
}
