//! Finds out who holds a file lock for which a process waits.

/// Returns the process, none of `waiting`, that holds a lock for which one of `waiting` waits.
pub fn holder(waiting: &[u32]) -> Option<u32> {
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, waiting)
}

/// Returns the foreign holder of a file lock for which one of `waiting` waits, according to `/proc/locks`: a
/// line `5: FLOCK ADVISORY WRITE 712 ...` for the holder, then `5: -> FLOCK ADVISORY WRITE 713 ...`.
fn holder_in(locks: &str, waiting: &[u32]) -> Option<u32> {
    let mut holder: Option<(&str, u32)> = None;
    for line in locks.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(number), waits) = (words.first(), words.get(1) == Some(&"->")) else { continue };
        let Some(pid) = words.get(if waits { 5 } else { 4 }).and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        match holder {
            Some((lock, holder))
                if waits && lock == *number && waiting.contains(&pid) && !waiting.contains(&holder) =>
            {
                return Some(holder);
            }
            _ if !waits => holder = Some((number, pid)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_process_that_waits_for_a_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 00:1b:9 0 EOF\n2: FLOCK  ADVISORY  WRITE 712 00:1b:7 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 713 00:1b:7 0 EOF\n3: FLOCK  ADVISORY  READ  9 00:1b:8 0 EOF\n";
        assert_eq!(holder_in(locks, &[713]), Some(712));
        assert_eq!(holder_in(locks, &[712, 5, 9]), None);
        assert_eq!(holder_in(locks, &[712, 713]), None, "they give way to each other");
    }

    proptest! {
        #[test]
        fn no_table_breaks_the_reader(text in "[0-9:> A-Z\\n-]{0,120}") {
            let _ = holder_in(&text, &[1, 2, 3]);
        }
    }
}
