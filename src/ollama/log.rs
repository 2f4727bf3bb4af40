//! Parses what a server's log reports about the GPUs that it found. At each start, Ollama writes one line
//! `msg="inference compute"` for each device, or one with `library=cpu`.

/// Text in each line about a found device or the CPU.
pub const FOUND: &str = "inference compute";
/// Text in the first line that a server writes when it starts.
const START: &str = "msg=\"Listening on ";

/// A device that a server reported in its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDevice {
    /// Name of the backend: `CUDA` (`cuda` up to 0.12.3), `Vulkan`, and so on; `cpu` if no device was found.
    pub library: String,
    /// Complete log line about the device.
    pub line: String,
}

impl FoundDevice {
    /// Parses a log line. Returns `None` if the line does not report a device or the CPU.
    pub fn read(line: &str) -> Option<Self> {
        let library = value(line, "library").filter(|_| line.contains(FOUND))?;
        Some(Self { library: library.to_owned(), line: line.to_owned() })
    }

    /// Returns the value of `key` in the line, or an empty text if the key is missing.
    pub fn value(&self, key: &str) -> &str {
        value(&self.line, key).unwrap_or_default()
    }

    /// Returns the product name of the device. Releases up to 0.12.3 call it `name`.
    pub fn device(&self) -> &str {
        value(&self.line, "description").unwrap_or_else(|| self.value("name"))
    }

    /// Returns the name of the backend's directory, such as `cuda_v12`. Releases up to 0.12.3 write
    /// `variant=v12`.
    pub fn backend(&self) -> String {
        match (self.value("libdirs").rsplit(',').next(), self.value("variant")) {
            (None | Some(""), "") => String::new(),
            (None | Some(""), variant) => format!("{}_{variant}", self.library),
            (Some(folder), _) => folder.to_owned(),
        }
    }

    /// Returns whether this is a CUDA device.
    pub fn is_cuda(&self) -> bool {
        self.library.eq_ignore_ascii_case("cuda")
    }

    /// Returns whether this is the CPU, which a server reports if it found no device.
    pub fn is_cpu(&self) -> bool {
        self.library == "cpu"
    }
}

/// Returns the part of a log since the server's last start, or the whole log if it contains no start.
pub fn last_start(log: &str) -> &str {
    let start = log.rfind(START).map_or(0, |at| log[..at].rfind('\n').map_or(0, |end| end + 1));
    &log[start..]
}

/// Returns the devices that a server found when it last started, in the order of its lines.
pub fn found(log: &str) -> Vec<FoundDevice> {
    last_start(log).lines().filter_map(FoundDevice::read).collect()
}

/// Returns the value after `key=` of a log line, without quotes.
pub fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let at = line.find(&format!(" {key}="))? + key.len() + 2;
    let rest = &line[at..];
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_of_log_lines() {
        let line = "time=x msg=\"inference compute\" library=CUDA name=\"a b\" id=";
        assert_eq!((value(line, "library"), value(line, "name")), (Some("CUDA"), Some("a b")));
        assert_eq!((value(line, "id"), value(line, "rary")), (None, None));
    }

    #[test]
    fn what_servers_of_all_eras_say_of_a_device() {
        let told = |line: &str| {
            let found = FoundDevice::read(line).unwrap();
            [found.device(), &found.backend(), found.value("pci_id"), found.value("total")].map(str::to_owned)
        };
        let new = r#"msg="inference compute" id=0 library=CUDA compute=6.1 name=CUDA0 description="VGPU-STUB soft" libdirs=ollama,cuda_v12 pci_id=0000:00:05.0 total="8.0 GiB""#;
        assert_eq!(told(new), ["VGPU-STUB soft", "cuda_v12", "0000:00:05.0", "8.0 GiB"]);
        let old = r#"msg="inference compute" id=GPU-5e library=cuda variant=v12 name="VGPU-STUB soft" total="8.0 GiB""#;
        assert_eq!(told(old), ["VGPU-STUB soft", "cuda_v12", "", "8.0 GiB"]);
        let none = r#"msg="inference compute" id=0 library=cpu variant="" name="" total="1.0 GiB""#;
        assert_eq!(told(none), ["", "", "", "1.0 GiB"]);
        assert_eq!(FoundDevice::read("msg=\"server config\" library=cuda"), None);
    }

    #[test]
    fn the_last_start_counts_and_all_of_its_devices() {
        let first =
            "a msg=\"Listening on [::]:1 (version 1)\"\nb msg=\"inference compute\" id=cpu library=cpu\n";
        let second = "c msg=\"Listening on 127.0.0.1:1\"\nd msg=\"inference compute\" id=0 library=CUDA\n\
                      vgpu[7] error: words\ne msg=\"inference compute\" id=1 library=Vulkan\n";
        let libraries =
            |log: &str| -> Vec<String> { found(log).into_iter().map(|found| found.library).collect() };
        assert_eq!(libraries(first), ["cpu"]);
        let log = format!("{first}{second}");
        assert_eq!(libraries(&log), ["CUDA", "Vulkan"]);
        assert!(found(&log)[0].is_cuda() && !found(&log)[1].is_cuda() && found(first)[0].is_cpu());
        assert_eq!(last_start(&log), second);
        assert_eq!(libraries("x msg=\"inference compute\" library=cuda variant=v12"), ["cuda"]);
        assert_eq!(libraries(&format!("{log}f msg=\"Listening on 127.0.0.1:1\"\n")), [""; 0]);
    }

    proptest! {
        #[test]
        fn no_log_breaks_the_reader(text in ".{0,80}", key in "[a-z]{1,4}") {
            let _ = (value(&text, &key), value(&format!(" {key}={text}"), &key));
            let _ = found(&format!("{text}\n{text}{FOUND} library={text}\n{START}{text}"));
        }
    }
}
