//! The page at `/`: one file without external resources. It knows nothing beyond the API.
//!
//! It is served without a token, since it contains no data; it requests what it shows. If reads need a token, it asks
//! the user to log in. A token in its address (`/#token=…`, which is never sent to a server or proxy) is removed from
//! the address at once, kept for the tab, and sent as a bearer token like any other.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

use crate::access::token::hex;
use crate::problem::{Code, Problem};

const PAGE: &str = include_str!("index.html");
/// The place in the page for the nonce of its own style and script; nothing else may run.
const NONCE_MARK: &str = "{{nonce}}";

pub(crate) async fn page() -> Result<Response, Problem> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        Problem::new(Code::Stopping, format!("no random numbers for the page: {error}"), "use the API")
    })?;
    let nonce = hex(&random);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = Html(PAGE.replace(NONCE_MARK, &nonce)).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_foreign_is_loaded_and_nothing_is_written_as_markup() {
        assert_eq!(PAGE.matches(NONCE_MARK).count(), 2, "one style, one script");
        for forbidden in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " style=\"",
            " onclick=",
        ] {
            // The namespace of SVG is a name, not an address.
            let page = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    /// `/#%` once ended the script: decoding it throws.
    #[test]
    fn an_address_that_is_not_well_formed_does_not_end_the_script() {
        assert_eq!(PAGE.matches("decodeURIComponent(").count(), 1, "only where its error is caught");
        assert!(PAGE.contains("try { return decodeURIComponent(text); } catch { return text; }"));
    }
}
