//! The features that librdkafka was built with, and the settings that need more.

use rdkafka::ClientConfig;

/// How to get a build with TLS.
const REBUILD: &str = "build it with the system's OpenSSL: cargo build --release -p redrive-cli --features kafka-tls \
                       (needs libssl-dev and pkg-config); the image of deploy/Dockerfile has it";
/// How to get a build with OAuth tokens.
const REBUILD_OAUTH: &str = "build it with the system's curl and OpenSSL: cargo build --release -p redrive-cli \
                             --features kafka-oauth (needs libcurl4-openssl-dev, libssl-dev and pkg-config); the image \
                             of deploy/Dockerfile has it";

/// The features of this build of librdkafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub version: String,
    /// SASL mechanisms by their usual names.
    pub mechanisms: Vec<&'static str>,
    pub tls: bool,
    pub compression: Vec<&'static str>,
}

impl Build {
    /// Asks librdkafka itself.
    pub fn of_this() -> Self {
        let config = ClientConfig::new().create_native_config();
        let features = config.and_then(|config| config.get("builtin.features")).unwrap_or_default();
        Self::from_features(rdkafka::util::get_rdkafka_version().1, features.trim_end_matches('\0'))
    }

    fn from_features(version: String, features: &str) -> Self {
        let has = |name: &str| features.split(',').any(|feature| feature.trim() == name);
        let named = |names: &[(&str, &'static str)]| {
            names.iter().filter(|(feature, _)| has(feature)).map(|(_, name)| *name).collect()
        };
        Self {
            version,
            mechanisms: named(&[
                ("sasl_plain", "PLAIN"),
                ("sasl_scram", "SCRAM-SHA-256"),
                ("sasl_scram", "SCRAM-SHA-512"),
                // `sasl_oauthbearer` alone cannot fetch tokens.
                ("oidc", "OAUTHBEARER"),
                ("sasl_gssapi", "GSSAPI"),
            ]),
            tls: has("ssl"),
            compression: named(&[("gzip", "gzip"), ("snappy", "snappy"), ("lz4", "lz4"), ("zstd", "zstd")]),
        }
    }

    /// Why this build cannot read a topic with this `compression.type`, if it cannot.
    pub fn lacks_codec(&self, compression: &str) -> Option<String> {
        let is_known = matches!(compression, "producer" | "uncompressed" | "none")
            || self.compression.contains(&compression);
        let have = self.compression.join(", ");
        (!is_known).then(|| {
            format!("has compression.type={compression}, which this build cannot read; it has {have}")
        })
    }

    /// Returns the problem and the fix if a setting needs a feature that this build lacks.
    pub fn lacks(&self, key: &str, value: &str) -> Option<(String, String)> {
        let value = value.trim();
        let asks_for_tls = match key {
            "security.protocol" => {
                value.eq_ignore_ascii_case("ssl") || value.eq_ignore_ascii_case("sasl_ssl")
            }
            _ => key.starts_with("ssl.") || key == "enable.ssl.certificate.verification",
        };
        if asks_for_tls && !self.tls {
            return Some(("it needs TLS, and this build has none".to_owned(), REBUILD.to_owned()));
        }
        if !matches!(key, "sasl.mechanism" | "sasl.mechanisms") || self.mechanisms.contains(&value) {
            return None;
        }
        let have = self.mechanisms.join(", ");
        let problem = format!("the mechanism {value} is not in this build, which has {have}");
        let fix = match value {
            "SCRAM-SHA-256" | "SCRAM-SHA-512" => REBUILD.to_owned(),
            "OAUTHBEARER" => REBUILD_OAUTH.to_owned(),
            _ => format!(
                "use one of {have}{}",
                if self.tls { "" } else { "; SCRAM-SHA-256 and SCRAM-SHA-512 with the feature kafka-tls" }
            ),
        };
        Some((problem, fix))
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sasl, compression) = (self.mechanisms.join(", "), self.compression.join(", "));
        let tls = if self.tls { "TLS" } else { "no TLS (feature kafka-tls)" };
        write!(f, "librdkafka {} · SASL {sasl} · {tls} · compression {compression}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "gzip,snappy,sasl,regex,lz4,sasl_plain,plugins";
    const SECURE: &str = "gzip,snappy,ssl,sasl,regex,lz4,sasl_plain,sasl_scram,plugins,sasl_oauthbearer,http";

    fn build(features: &str) -> Build {
        Build::from_features("2.12.1".to_owned(), features)
    }

    #[test]
    fn a_build_without_openssl_names_the_feature_that_brings_it() {
        let plain = build(PLAIN);
        assert_eq!((plain.mechanisms.as_slice(), plain.tls), (&["PLAIN"][..], false));
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("security.protocol", "ssl"),
            ("ssl.ca.location", "/etc/ca.pem"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.mechanisms", "SCRAM-SHA-256"),
        ] {
            let (problem, fix) =
                plain.lacks(key, value).unwrap_or_else(|| panic!("{key} = {value} was taken"));
            assert!(problem.contains("this build"), "{problem}");
            assert!(fix.contains("--features kafka-tls"), "{fix}");
        }
        for (key, value) in
            [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN"), ("linger.ms", "5")]
        {
            assert_eq!(plain.lacks(key, value), None);
        }
        assert!(plain.to_string().contains("SASL PLAIN · no TLS (feature kafka-tls)"), "{plain}");
    }

    #[test]
    fn a_topic_is_read_only_in_a_codec_that_is_built_in() {
        let without = build(PLAIN);
        assert!(without.lacks_codec("zstd").is_some_and(|told| told.contains("gzip, snappy, lz4")));
        assert!(["producer", "uncompressed", "lz4"].iter().all(|codec| without.lacks_codec(codec).is_none()));
        assert_eq!(Build::of_this().lacks_codec("zstd"), None, "this one has it");
    }

    #[test]
    fn a_build_with_openssl_has_scram_and_promises_no_tokens() {
        let secure = build(SECURE);
        assert_eq!(
            (secure.mechanisms.as_slice(), secure.tls),
            (&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"][..], true)
        );
        assert_eq!(secure.lacks("security.protocol", "SASL_SSL"), None);
        assert_eq!(secure.lacks("sasl.mechanism", "SCRAM-SHA-512"), None);
        let (problem, fix) = secure.lacks("sasl.mechanism", "OAUTHBEARER").unwrap();
        assert!(problem.contains("OAUTHBEARER is not in this build"), "{problem}");
        assert!(fix.contains("--features kafka-oauth"), "{fix}");
        let (_, fix) = secure.lacks("sasl.mechanism", "GSSAPI").unwrap();
        assert!(fix.contains("use one of PLAIN, SCRAM-SHA-256") && !fix.contains("kafka-tls"), "{fix}");
    }

    #[test]
    fn a_build_with_curl_has_tokens() {
        let with_curl = build(&format!("{SECURE},oidc"));
        assert_eq!(with_curl.lacks("sasl.mechanism", "OAUTHBEARER"), None);
        assert!(with_curl.to_string().contains("SCRAM-SHA-512, OAUTHBEARER · TLS"), "{with_curl}");
    }
}
