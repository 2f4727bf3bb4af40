//! Finds refusals by the host in a guest's log: the libraries' lines of level `error`, such as `vgpu[77]
//! error: device 0: FunctionGet is refused with CUDA_ERROR_INVALID_PTX: kernel k: line 7: ...`.

/// Text between the name of the refused object and the error code.
const REFUSED: &str = " is refused with ";
/// Text of the level at which the libraries log refusals.
const LEVEL: &str = "] error: ";

/// Returns the latest refusal in a log: object, code, and the host's reason.
pub fn latest(log: &str) -> Option<String> {
    let lines = || log.lines().rev().filter_map(read);
    // A line with the reason, before one that has the code alone.
    let reasoned = lines().find_map(|(what, code, why)| Some(format!("{what} with {code}: {}", why?)));
    let found = reasoned.or_else(|| lines().next().map(|(what, code, _)| format!("{what} with {code}")))?;
    Some(format!("the host refused {found}"))
}

/// Returns the latest error that the libraries wrote to a log, such as why they cannot use a device.
pub fn latest_error(log: &str) -> Option<&str> {
    log.lines().rev().find_map(|line| Some(line[line.find("vgpu[")?..].split_once(LEVEL)?.1.trim()))
}

/// Parses a line that reports a refusal: object, code, and reason.
fn read(line: &str) -> Option<(&str, &str, Option<&str>)> {
    let (_, said) = line[line.find("vgpu[")?..].split_once(LEVEL)?;
    let (what, rest) = said.split_once(REFUSED)?;
    let what = what.split_once(": ").map_or(what, |(_, message)| message);
    Some(match rest.split_once(": ") {
        Some((code, why)) => (what, code, Some(why.trim())),
        None => (what, rest.trim(), None),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "time=x level=INFO\n\
        vgpu[7] error: device 0: ModuleLoad is refused with CUDA_ERROR_INVALID_PTX (218): older\n\
        ollama: vgpu[7] error: device 0: FunctionGet is refused with CUDA_ERROR_INVALID_PTX (218): kernel k: line 7: no frobnicate\n\
        vgpu[7] error: kernel k is refused with CUDA_ERROR_INVALID_PTX (218)\n\
        vgpu[7] debug: device 0: FunctionGet is refused with CUDA_ERROR_NOT_FOUND (500): asked for\n";

    #[test]
    fn the_newest_reason_is_found() {
        let found =
            "the host refused FunctionGet with CUDA_ERROR_INVALID_PTX (218): kernel k: line 7: no frobnicate";
        assert_eq!(latest(LOG).as_deref(), Some(found));
        let bare = "vgpu[7] error: kernel k is refused with CUDA_ERROR_INVALID_PTX (218)";
        assert_eq!(
            latest(bare).as_deref(),
            Some("the host refused kernel k with CUDA_ERROR_INVALID_PTX (218)")
        );
        assert_eq!(latest("connection is refused with prejudice: vgpu"), None);
        assert_eq!(latest_error("vgpu[7] error: no channel\nvgpu[7] info: x\n"), Some("no channel"));
        assert_eq!(latest_error("an error: x"), None);
    }

    proptest! {
        #[test]
        fn any_log_is_read(text in ".{0,40}", tail in "(vgpu\\[1\\] error: )?.{0,20}( is refused with )?.{0,20}") {
            let _ = latest(&format!("{text}{tail}"));
        }
    }
}
