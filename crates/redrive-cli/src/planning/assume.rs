//! Assumptions about the messages: `--assume transient=15%,poison=1%`.

use std::str::FromStr;

use redrive_core::Ratio;
use redrive_core::forecast::Shares;
use redrive_core::nearest::nearest;

/// Shares of the messages that fail in some way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed {
    pub shares: Shares,
}

/// The default share of the messages failing at first that fail a second time, as in the common workload.
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
