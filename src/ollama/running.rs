//! Ollamas that run: their processes, as `/proc` shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::env::{Environment, LD_PRELOAD};

/// A running process, as /proc shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// Its command line, a word each.
    pub words: Vec<String>,
    /// Its environment; none if it may not be seen.
    pub environment: Option<Environment>,
    /// Files that it has mapped; none if they may not be seen.
    pub mapped: Option<Vec<String>>,
}

/// A server with what it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The process of `ollama serve`.
    pub process: Process,
    /// Its children: runners, of which it has one for each loaded model.
    pub runners: Vec<Process>,
}

/// All servers that run on this system.
pub fn servers(proc: &Path) -> Vec<Server> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<Process> = pids.filter_map(|pid| process(proc, pid)).collect();
    let is_server = |process: &&Process| {
        let name =
            process.words.first().map(|word| Path::new(word).file_name() == Some(OsStr::new("ollama")));
        name == Some(true) && process.words.get(1).is_some_and(|word| word == "serve" || word == "start")
    };
    let servers = all.iter().filter(is_server);
    servers
        .map(|server| {
            let runners = all.iter().filter(|process| process.parent == server.pid).cloned().collect();
            Server { process: server.clone(), runners }
        })
        .collect()
}

/// Reads one process; `None` if it has ended or cannot be read.
pub fn process(proc: &Path, pid: u32) -> Option<Process> {
    let folder = proc.join(pid.to_string());
    let words: Vec<String> = split(&std::fs::read(folder.join("cmdline")).ok()?)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return None;
    }
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())?;
    // Most processes are none of ours: only those that could be are looked into.
    let ours = words[0].contains("ollama") || words[0].contains("llama-server");
    let environment = std::fs::read(folder.join("environ")).ok().filter(|_| ours).map(|bytes| {
        let pair = |entry: &[u8]| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&entry[..at]).to_owned(), OsStr::from_bytes(&entry[at + 1..]).to_owned()))
        };
        split(&bytes).filter_map(pair).collect()
    });
    let maps = std::fs::read_to_string(folder.join("maps")).ok().filter(|maps| ours && !maps.is_empty());
    let mapped = maps.map(|maps| files(&maps));
    Some(Process { pid, parent, words, environment, mapped })
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty())
}

/// The files in a `maps` file, each once.
fn files(maps: &str) -> Vec<String> {
    let mut files: Vec<String> =
        maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned())).collect();
    files.dedup();
    files.sort();
    files.dedup();
    files
}

impl Process {
    /// Whether its environment names libraries that a launcher put there; none if that may not be seen.
    pub fn wrapped(&self) -> Option<bool> {
        let environment = self.environment.as_ref()?;
        let preload = environment.get(LD_PRELOAD).unwrap_or_default().to_string_lossy().into_owned();
        let mut entries = preload.split([':', ' ']);
        Some(entries.any(|entry| {
            let memory = entry.starts_with("/proc/") && entry.contains("/fd/");
            let folder = Path::new(entry).parent().and_then(Path::file_name);
            memory || folder.is_some_and(|name| name.to_string_lossy().starts_with("vgpu-run."))
        }))
    }

    /// Whether it has mapped our libcuda; none if that may not be seen.
    pub fn has_shims(&self) -> Option<bool> {
        let mapped = self.mapped.as_ref()?;
        Some(mapped.iter().any(|file| {
            file.starts_with("/memfd:libcuda.so.1")
                || file.contains("/vgpu-run.") && file.contains("libcuda.so.1")
        }))
    }

    /// The backend that it has mapped.
    pub fn backend(&self) -> Option<PathBuf> {
        self.mapped.as_ref()?.iter().find(|file| file.ends_with("/libggml-cuda.so")).map(PathBuf::from)
    }

    /// A value of its environment.
    pub fn value(&self, name: &str) -> Option<String> {
        Some(self.environment.as_ref()?.get(name)?.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn add(scratch: &Scratch, pid: u32, parent: u32, words: &str, environment: &str, maps: &str) {
        let folder = scratch.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("cmdline"), words.replace(' ', "\0")).unwrap();
        std::fs::write(folder.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
        std::fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        std::fs::write(folder.join("maps"), maps).unwrap();
    }

    #[test]
    fn a_server_and_its_runner() {
        let scratch = Scratch::new();
        let preload = "LD_PRELOAD=/proc/7/fd/900:/proc/7/fd/901 OLLAMA_HOST=0.0.0.0:1";
        let maps = "7f00-7f01 r-xp 00000000 00:01 7    /memfd:libcuda.so.1 (deleted)\n7f01-7f02 r-xp 0 fe:00 8    /l/cuda_v12/libggml-cuda.so\n";
        add(&scratch, 7, 1, "/usr/bin/ollama serve", preload, maps);
        add(
            &scratch,
            8,
            7,
            "/usr/lib/ollama/llama-server --port 9",
            "A=b",
            "7f00-7f01 r-xp 0 fe:00 8 /lib/x.so\n",
        );
        add(&scratch, 9, 1, "ollama run model", "", "");
        add(&scratch, 10, 1, "", "", "");
        let servers = servers(scratch.path());
        assert_eq!(servers.len(), 1);
        let Server { process, runners } = &servers[0];
        assert_eq!((process.pid, process.wrapped(), process.has_shims()), (7, Some(true), Some(true)));
        assert_eq!(process.backend(), Some("/l/cuda_v12/libggml-cuda.so".into()));
        assert_eq!(process.value("OLLAMA_HOST").as_deref(), Some("0.0.0.0:1"));
        assert_eq!(
            (runners.len(), runners[0].wrapped(), runners[0].has_shims()),
            (1, Some(false), Some(false))
        );
    }

    #[test]
    fn a_folder_of_libraries_counts_too() {
        let scratch = Scratch::new();
        add(&scratch, 7, 1, "ollama serve", "LD_PRELOAD=/run/user/0/vgpu-run.1.2.3.x/libcuda.so.1", "");
        let server = &servers(scratch.path())[0].process;
        assert_eq!((server.wrapped(), server.has_shims()), (Some(true), None));
    }

    #[test]
    fn this_systems_processes_can_be_listed() {
        let _ = servers(Path::new("/proc"));
    }
}
