//! CUDA_VISIBLE_DEVICES: which devices a process sees, and in which order.
//!
//! The value is a list, separated by commas, of indices or of UUIDs ("GPU-" and hexadecimal digits, which may
//! be truncated where the rest is not needed to distinguish devices). The first entry determines the kind of
//! the list. An entry that names no device ends the list; a device that is named twice makes it empty. An
//! index is parsed like C's `strtoul`: blanks, a sign, digits, and anything after the digits is ignored. If
//! the variable is not set, all devices are visible; if it is empty, none.
//!
//! Source: behaviour of the CUDA driver as PyTorch reproduces it in order to count devices without it.

/// Prefix of each entry that is a UUID.
const PREFIX: &str = "GPU-";

/// Value of the variable, parsed without knowledge of the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// All devices are visible.
    All,
    /// The devices with these indices are visible, in the order of PCI addresses.
    Indices(Vec<usize>),
    /// The devices whose UUID's text starts with these prefixes are visible.
    Uuids(Vec<String>),
}

impl Visible {
    /// Parses the variable's value.
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self::All };
        if value.trim_start().starts_with(PREFIX) {
            let entries = value.split(',').map(str::trim).take_while(|entry| entry.starts_with(PREFIX));
            Self::Uuids(entries.map(str::to_owned).collect())
        } else {
            Self::Indices(value.split(',').map_while(index).collect())
        }
    }

    /// Returns the indices of the visible devices, in their order. `uuids` returns the text of a device's
    /// UUID; it is called only for [`Visible::Uuids`].
    pub fn choose<E>(
        &self,
        count: usize,
        mut uuid: impl FnMut(usize) -> Result<String, E>,
    ) -> Result<Vec<usize>, E> {
        match self {
            Self::All => Ok((0..count).collect()),
            Self::Indices(list) => Ok(unique(list.iter().copied().take_while(|&index| index < count))),
            Self::Uuids(list) => {
                let texts = (0..count).map(&mut uuid).collect::<Result<Vec<_>, _>>()?;
                Ok(unique(list.iter().map_while(|entry| {
                    let mut hits = texts.iter().enumerate().filter(|(_, text)| text.starts_with(entry));
                    let (index, _) = hits.next()?;
                    hits.next().is_none().then_some(index)
                })))
            }
        }
    }
}

/// Parses an index as `strtoul` does. Returns `None` for a negative number or none at all.
fn index(entry: &str) -> Option<usize> {
    let entry = entry.trim_start();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Returns the entries, or an empty list if one occurs twice.
fn unique(entries: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = Vec::new();
    for entry in entries {
        if seen.contains(&entry) {
            return Vec::new();
        }
        seen.push(entry);
    }
    seen
}

/// Formats a UUID as CUDA, NVML and this variable write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from(PREFIX);
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn choose(value: Option<&str>, uuids: &[&str]) -> Vec<usize> {
        let Ok(list) =
            Visible::parse(value).choose(uuids.len(), |i| Ok::<_, Infallible>(uuids[i].to_owned()));
        list
    }

    const NONE: [usize; 0] = [];
    const FOUR: [&str; 4] = [
        "GPU-11111111-2222-3333-4444-555555555555",
        "GPU-1111aaaa-2222-3333-4444-555555555555",
        "GPU-abababab-abab-abab-abab-abababababab",
        "GPU-ffffffff-0000-0000-0000-000000000000",
    ];

    #[test]
    fn unset_is_all_and_empty_is_none() {
        assert_eq!(choose(None, &FOUR), [0, 1, 2, 3]);
        assert_eq!(choose(Some(""), &FOUR), NONE);
        assert_eq!(choose(None, &[]), NONE);
    }

    #[test]
    fn indices_choose_and_order() {
        assert_eq!(choose(Some("2"), &FOUR), [2]);
        assert_eq!(choose(Some("3,0"), &FOUR), [3, 0]);
        assert_eq!(choose(Some(" 1 , 2"), &FOUR), [1, 2]);
        assert_eq!(choose(Some("1gpu2,2ampere"), &FOUR), [1, 2]);
    }

    #[test]
    fn the_first_invalid_entry_ends_the_list() {
        assert_eq!(choose(Some("-1"), &FOUR), NONE);
        assert_eq!(choose(Some("0,-1,2"), &FOUR), [0]);
        assert_eq!(choose(Some("1,4,2"), &FOUR), [1]);
        assert_eq!(choose(Some("1,,2"), &FOUR), [1]);
        assert_eq!(choose(Some("x"), &FOUR), NONE);
        assert_eq!(choose(Some("0,99999999999999999999,1"), &FOUR), [0]);
        assert_eq!(choose(Some("NoDevFiles"), &FOUR), NONE);
    }

    #[test]
    fn twice_is_never() {
        assert_eq!(choose(Some("0,0"), &FOUR), NONE);
        assert_eq!(choose(Some("0,1,0"), &FOUR), NONE);
        assert_eq!(choose(Some("GPU-ab,GPU-abab"), &FOUR), NONE);
    }

    #[test]
    fn uuids_choose_by_their_beginning() {
        assert_eq!(choose(Some(FOUR[2]), &FOUR), [2]);
        assert_eq!(choose(Some("GPU-f,GPU-11111"), &FOUR), [3, 0]);
        assert_eq!(choose(Some("GPU-1111"), &FOUR), NONE, "two devices begin so");
        assert_eq!(choose(Some("GPU-ab,GPU-0,GPU-f"), &FOUR), [2]);
        assert_eq!(choose(Some("GPU-ab,3"), &FOUR), [2], "an index is no UUID");
        assert_eq!(choose(Some("0,GPU-ab"), &FOUR), [0], "a UUID is no index");
    }

    #[test]
    fn uuid_text_has_the_usual_groups() {
        let uuid: [u8; 16] = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(uuid_text(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    proptest! {
        #[test]
        fn any_value_names_existing_devices_once(value in "[-+0-9,GPUabf x-]{0,40}", count in 0_usize..5) {
            let uuids = &FOUR[..count.min(4)];
            let list = choose(Some(&value), uuids);
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), list.len());
            prop_assert!(list.iter().all(|&index| index < uuids.len()));
        }

        #[test]
        fn a_permutation_comes_back(order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle()) {
            let by_index: Vec<String> = order.iter().map(usize::to_string).collect();
            prop_assert_eq!(choose(Some(&by_index.join(",")), &FOUR), order.clone());
            let by_uuid: Vec<&str> = order.iter().map(|&i| FOUR[i]).collect();
            prop_assert_eq!(choose(Some(&by_uuid.join(",")), &FOUR), order);
        }
    }
}
