//! What is assumed about the load: `--rate 50k/s`, `--assume transient=15%,poison=1%`.

use std::str::FromStr;

use redrive_core::Ratio;
use redrive_core::forecast::Shares;
use redrive_core::nearest::nearest;

/// A rate: `50k/s`, `200/s`, `1.5M/s`, `12/m`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerSecond(pub f64);

impl FromStr for PerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a rate; write it like 200/s, 50k/s, 1.5M/s or 600/m");
        let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
        let seconds = match unit {
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            _ => return Err(wrong()),
        };
        let (digits, times) = match number.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1e3),
            None => match number.strip_suffix('M') {
                Some(digits) => (digits, 1e6),
                None => (number, 1.0),
            },
        };
        let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        let value: f64 = digits.parse().map_err(|_| wrong())?;
        let rate = value * times / seconds;
        if plain && rate > 0.0 && rate <= 1e12 { Ok(Self(rate)) } else { Err(wrong()) }
    }
}

/// Shares of the messages that fail in some way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed {
    pub shares: Shares,
}

/// Of the messages that fail at first, this part fails a second time, unless said. The common workload does so.
pub const TWICE_DEFAULT: f64 = 1.0 / 3.0;

impl FromStr for Assumed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares = Shares { transient: 0.0, failing_twice: TWICE_DEFAULT, poison: 0.0 };
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not NAME=SHARE, like transient=15%"))?;
            let share: Ratio = value.trim().parse().map_err(|error| format!("{error}"))?;
            let share = share.as_f64();
            match name.trim() {
                "transient" => shares.transient = share,
                "twice" => shares.failing_twice = share,
                "poison" => shares.poison = share,
                other => {
                    let names = ["transient", "twice", "poison"];
                    let near = nearest(other, names).map(|near| format!("; did you mean `{near}`?"));
                    let near = near.unwrap_or_else(|| format!("; there are {}", names.join(", ")));
                    return Err(format!("nothing is assumed about `{other}`{near}"));
                }
            }
        }
        if shares.transient + shares.poison > 1.0 || shares.failing_twice > 1.0 {
            return Err("the shares are of all messages and cannot be more than 100% together".to_owned());
        }
        Ok(Self { shares })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_the_units_people_write() {
        for (text, rate) in
            [("200/s", 200.0), ("50k/s", 50_000.0), ("1.5M/s", 1_500_000.0), ("600/m", 10.0), ("7", 7.0)]
        {
            assert!((text.parse::<PerSecond>().unwrap().0 - rate).abs() < 1e-9, "{text}");
        }
        for text in ["", "k/s", "-1/s", "0/s", "5/d", "1e9/s", "inf/s", "nan", "1..2/s"] {
            assert!(text.parse::<PerSecond>().is_err(), "{text}");
        }
    }

    #[test]
    fn assumptions_are_shares_of_all_messages() {
        let assumed: Assumed = "transient=15%,poison=1%".parse().unwrap();
        assert!((assumed.shares.transient - 0.15).abs() < 1e-9);
        assert!((assumed.shares.poison - 0.01).abs() < 1e-9);
        assert!((assumed.shares.failing_twice - TWICE_DEFAULT).abs() < 1e-9);
        assert!("transient=90%,poison=20%".parse::<Assumed>().unwrap_err().contains("100%"));
        assert!("transent=1%".parse::<Assumed>().unwrap_err().contains("did you mean `transient`?"));
        assert!("transient".parse::<Assumed>().unwrap_err().contains("NAME=SHARE"));
        assert!("transient=x".parse::<Assumed>().unwrap_err().contains("is not a share"));
    }
}
