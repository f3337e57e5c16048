//! Numbers as people read them.

/// A whole number with thousands separators: `1,204`.
pub fn count(number: u64) -> String {
    redrive_core::text::number::grouped(number)
}

/// A share of one in percent with one digit: `5.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A rate in a readable unit: `8,000/s`, `0.5/s`, `3/m`, `5/h`.
pub fn rate(per_second: f64) -> String {
    let (rate, unit) = match per_second {
        rate if rate >= 0.1 || rate <= 0.0 => (rate, "s"),
        rate if rate * 60.0 >= 1.0 => (rate * 60.0, "m"),
        rate => (rate * 3_600.0, "h"),
    };
    let tenths = (rate * 10.0).round() / 10.0;
    if rate >= 10.0 || tenths.fract() == 0.0 {
        return format!("{}/{unit}", count(rate.round().max(0.0) as u64));
    }
    format!("{tenths:.1}/{unit}")
}

/// A size in the unit that fits: `126 MB`, `28 GB`. Powers of ten, as for disks.
pub fn bytes(size: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    for (unit, unit_bytes) in UNITS {
        if size >= unit_bytes {
            let scaled = size as f64 / unit_bytes as f64;
            return if scaled < 10.0 { format!("{scaled:.1} {unit}") } else { format!("{scaled:.0} {unit}") };
        }
    }
    format!("{size} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (40_000, "40,000"),
            (151_204_118, "151,204,118"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn rates_shares_and_sizes_are_short() {
        assert_eq!(rate(8_000.0), "8,000/s");
        assert_eq!(rate(0.5), "0.5/s");
        assert_eq!(rate(12.4), "12/s");
        assert_eq!(rate(3.0), "3/s");
        for text in ["5/h", "1/h", "59/h", "2/m", "5/m", "0.2/s", "7/s", "0/s"] {
            let (number, unit) = text.split_once('/').unwrap();
            let seconds = match unit {
                "h" => 3_600.0,
                "m" => 60.0,
                _ => 1.0,
            };
            assert_eq!(rate(number.parse::<f64>().unwrap() / seconds), text);
        }
        assert_eq!(rate(1.5 / 60.0), "1.5/m");
        assert_eq!(percent(0.0532), "5.3 %");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(126_000_000), "126 MB");
        assert_eq!(bytes(28_000_000_000), "28 GB");
    }
}
