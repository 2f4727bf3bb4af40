//! Compares the registers with docs/wire.md: every offset and value that the page states must be that of the
//! constant with this name, and every constant must be stated. Other hosts are built from that page.

use std::collections::BTreeMap;

use vgpu_wire::registers::{Refusal, channel};
use vgpu_wire::share::VmShare;

const PAGE: &str = include_str!("../../../docs/wire.md");
const SOURCE: &str = include_str!("../src/registers.rs");

/// Returns the values of all constants by name, read from the source.
fn constants() -> BTreeMap<&'static str, u32> {
    let declared = SOURCE.lines().filter_map(|line| {
        let (name, value) = line.trim_start().strip_prefix("pub const ")?.split_once(": u32 = ")?;
        let value = value.trim_end_matches(';').replace('_', "");
        let number = match value.as_str() {
            "u32::MAX" => u32::MAX,
            "channel::FIRST" => channel::FIRST,
            bit if bit.starts_with("1 << ") => 1 << bit[5..].parse::<u32>().expect(line),
            number => hex(number).or_else(|| number.parse().ok()).expect(line),
        };
        Some((name, number))
    });
    let mut constants = BTreeMap::new();
    for (name, number) in declared {
        assert_eq!(constants.insert(name, number), None, "{name} is declared twice");
    }
    constants
}

/// Constants that the page states in words, or in the formula of a channel's base.
const IN_WORDS: [(&str, &str); 6] = [
    ("ALL_ONES", "read all ones (`ALL_ONES`)"),
    ("FIRST", "The registers of channel *i* start at `0x1000 + i * 0x40`"),
    ("STRIDE", "The registers of channel *i* start at `0x1000 + i * 0x40`"),
    ("USAGE_STRIDE", "Those of channel *i* start at `0x400 + i * 0x10`"),
    ("MAX_CHANNELS", "there are 1 to 64 (`MAX_CHANNELS`)"),
    // Described in the last section of the page, about version 1.
    ("PROTOCOL_V1", "# The VGPU-STUB contract, version 2"),
];

fn section() -> &'static str {
    let start = PAGE.find("## Registers (`registers.rs`)").expect("the section");
    let rest = &PAGE[start + 3..];
    &rest[..rest.find("\n## ").expect("the next section")]
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Reads the offsets of registers from the rows of the page's tables, by constant name: `| `0x18`, `0x1c` |
/// `GUEST_DIGEST_LO`, `_HI` | ...`.
fn offsets() -> BTreeMap<String, u32> {
    let mut offsets = BTreeMap::new();
    for row in section().lines().filter(|line| line.starts_with("| `0x")) {
        let cells: Vec<&str> = row.split('|').collect();
        let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2);
        let places: Vec<u32> = quoted(cells[1]).map(|text| hex(text).expect(row)).collect();
        let mut names: Vec<String> = Vec::new();
        for name in quoted(cells[2]) {
            let whole = match (name.strip_prefix('_'), names.last()) {
                (Some(end), Some(last)) => format!("{}_{end}", last.rsplit_once('_').expect(row).0),
                _ => name.to_owned(),
            };
            names.push(whole);
        }
        assert_eq!(places.len(), names.len(), "{row}");
        for (name, place) in names.into_iter().zip(places) {
            assert_eq!(offsets.insert(name, place), None, "{row}");
        }
    }
    offsets
}

/// Returns the values of constants by name. The page writes a value before its constant or after it, one of
/// the two in parentheses or both as code.
fn values(known: &BTreeMap<&'static str, u32>) -> BTreeMap<&'static str, u32> {
    let pieces: Vec<&str> = section().split('`').collect();
    let mut values = BTreeMap::new();
    for at in (1..pieces.len()).step_by(2).filter(|at| known.contains_key(pieces[*at])) {
        let before = pieces[at - 1].trim_end_matches(['(', ' ']);
        let number = before.rsplit([' ', ',', ':']).next().and_then(|word| word.parse::<u32>().ok());
        let code = |at: usize| pieces.get(at).copied().and_then(hex);
        let near = if before.is_empty() { at.checked_sub(2).and_then(code) } else { None };
        let behind = if pieces.get(at + 1) == Some(&" (") { code(at + 2) } else { None };
        let Some(value) = number.or(near).or(behind) else { continue };
        // For these the page states the number of the bit.
        let bit = pieces[at].starts_with("CAP_") || pieces[at] == "WAKE_FUTEX";
        let value = if bit { 1 << value } else { value };
        assert_eq!(*values.entry(pieces[at]).or_insert(value), value, "{} is stated twice", pieces[at]);
    }
    values
}

#[test]
fn every_register_is_where_the_page_says_and_every_value_is_the_pages() {
    let known = constants();
    let (offsets, values) = (offsets(), values(&known));
    for (name, offset) in &offsets {
        assert_eq!(known.get(name.as_str()), Some(offset), "the offset of {name}");
    }
    for (name, value) in &values {
        assert_eq!(known[name], *value, "the value of {name}");
    }
    for (name, words) in IN_WORDS {
        assert!(PAGE.contains(words), "{name}: {words}");
    }
    let stated = |name: &&&str| {
        offsets.contains_key(**name)
            || values.contains_key(**name)
            || IN_WORDS.iter().any(|(word, _)| word == *name)
    };
    let missing: Vec<_> = known.keys().filter(|name| !stated(name)).collect();
    assert!(missing.is_empty(), "docs/wire.md does not state {missing:?}");
    // The state that a guest polls, and the detach that names its session.
    assert_eq!((values["STATE_ENDING"], offsets["DETACH_SESSION"]), (3, 0x34));
    assert_eq!((channel::base(0), channel::base(1)), (0x1000, 0x1040));
}

#[test]
fn refusals_are_the_pages() {
    let rows = section().lines().skip_while(|line| !line.starts_with("| `Refusal` |")).skip(2);
    let rows: Vec<(&str, u32)> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`'), cells[2].parse().expect(line))
        })
        .collect();
    assert_eq!(rows.len(), 7);
    for (name, value) in rows {
        let refusal = Refusal::try_from(value).expect(name);
        assert_eq!((format!("{refusal:?}").as_str(), refusal as u32), (name, value));
    }
    assert_eq!(Refusal::try_from(8), Err(8), "the page has all of them");
}

/// Hosts and guests of different age show and read these registers, so that their words never change.
#[test]
fn the_words_of_a_share_are_the_recorded_ones() {
    let share = VmShare {
        enforced: true,
        ppm: 250_000,
        charged_us: 0x0102_0304_0506_0708,
        waited_us: 0x1112_1314_1516_1718,
    };
    let recorded = [
        (0x988, 1),
        (0x98c, 250_000),
        (0x990, 0x0506_0708),
        (0x994, 0x0102_0304),
        (0x998, 0x1516_1718),
        (0x99c, 0x1112_1314),
    ];
    let shown: Vec<(u32, u32)> = VmShare::REGISTERS.into_iter().zip(share.words()).collect();
    assert_eq!(shown, recorded);
    assert_eq!(VmShare::from_words(recorded.map(|(_, word)| word)), share);
    assert_eq!(VmShare::from_words([0; 6]), VmShare::default());
}
