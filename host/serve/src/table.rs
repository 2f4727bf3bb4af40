//! Tables for people.

use std::fmt::Write as _;

/// Writes rows below each other, two spaces before each cell. The first column is aligned to the left if
/// `named`, and all others to the right.
pub(crate) fn write<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]], named: bool) {
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            _ = match column {
                0 if named => write!(text, "  {cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["VM", "SHARE"], ["a\u{fffd}b", "9"]].map(|row| row.map(str::to_owned));
        let mut text = String::new();
        write(&mut text, &rows, true);
        assert_eq!(text, "  VM   SHARE\n  a\u{fffd}b      9\n");
        text.clear();
        write(&mut text, &rows, false);
        assert_eq!(text, "   VM  SHARE\n  a\u{fffd}b      9\n");
    }
}
