//! The group of a letter in its header: `1 g7k2m9x4q 503 Service Unavailable`.

use redrive_core::Fingerprint;
use redrive_core::fingerprint::TITLE_BYTES_MAX;

/// Returns version, group and title on one line.
pub fn write(group: &Fingerprint) -> String {
    format!("{} {} {}", group.version, group.group, group.title)
}

/// Returns `None` if this is not in our format; the letter is then grouped like one without a group.
pub fn read(value: &[u8]) -> Option<Fingerprint> {
    let text = std::str::from_utf8(value).ok()?;
    let (version, rest) = text.split_once(' ')?;
    let (group, title) = rest.split_once(' ')?;
    let title = (title.len() <= 2 * TITLE_BYTES_MAX).then(|| title.to_owned())?;
    Some(Fingerprint { version: version.parse().ok()?, group: group.parse().ok()?, title })
}

#[cfg(test)]
mod tests {
    use redrive_core::GroupId;

    use super::*;

    #[test]
    fn a_group_comes_back_from_its_header() {
        let group =
            Fingerprint { version: 1, group: GroupId::of(1, &["x"]), title: "503 order <n>".to_owned() };
        assert_eq!(read(write(&group).as_bytes()), Some(group));
        for odd in ["", "1", "1 g7k2m9x4q", "x g7k2m9x4q a", "1 nine a", "300 g7k2m9x4q a"] {
            assert_eq!(read(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(read(format!("1 other {}", "x".repeat(500)).as_bytes()), None);
    }
}
