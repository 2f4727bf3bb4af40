//! Finds the running Ollama servers and their processes in `/proc`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::sockets::{self, Listener};
use crate::env::{Environment, LD_PRELOAD};

/// Properties of a running process, read from `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningProcess {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// Id of the user that the process runs as.
    pub user: u32,
    /// Command line, split into arguments.
    pub words: Vec<String>,
    /// Environment; `None` if this user may not read it.
    pub environment: Option<Environment>,
    /// Paths of mapped files; `None` if this user may not read them.
    pub mapped: Option<Vec<String>>,
}

/// A server and the processes that it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OllamaServer {
    /// The process of `ollama serve`.
    pub process: RunningProcess,
    /// Descendants that still run, among them one runner for each loaded model.
    pub runners: Vec<RunningProcess>,
    /// Sockets on which the server listens; `None` if this user may not read them.
    pub listens: Option<Vec<Listener>>,
}

/// The running processes of this system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// All visible processes.
    pub processes: Vec<RunningProcess>,
    /// The servers among the processes, in the order of their process ids.
    pub servers: Vec<OllamaServer>,
}

impl Running {
    /// Reads all visible processes below `proc`.
    pub fn scan(proc: &Path) -> Self {
        let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
        let mut pids: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let processes: Vec<RunningProcess> = pids.into_iter().filter_map(|pid| process(proc, pid)).collect();
        let servers = processes.iter().filter(|process| process.serves());
        let servers = servers.map(|server| OllamaServer::from_process(proc, server, &processes)).collect();
        Self { processes, servers }
    }

    /// Returns the process with the id `pid`.
    pub fn process(&self, pid: u32) -> Option<&RunningProcess> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// Returns a process and all its descendants.
    pub fn tree(&self, pid: u32) -> Vec<RunningProcess> {
        let mut tree: Vec<RunningProcess> = self.process(pid).cloned().into_iter().collect();
        tree.extend(descendants(&self.processes, pid));
        tree
    }

    /// Returns the ids of all processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// Returns the server that is this process or one of its descendants.
    pub fn server_of(&self, pid: u32) -> Option<&OllamaServer> {
        let below = |server: &&OllamaServer| {
            server.process.pid == pid
                || descendants(&self.processes, pid).iter().any(|process| process.pid == server.process.pid)
        };
        self.servers.iter().find(below)
    }
}

/// Returns all descendants of a process.
fn descendants(all: &[RunningProcess], pid: u32) -> Vec<RunningProcess> {
    let mut found: Vec<RunningProcess> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        // Ids are read one after another, so they may form a cycle if one was reused in the meantime.
        let children = all.iter().filter(|process| process.parent == parent && process.pid != pid);
        for child in children {
            if !found.contains(child) {
                parents.push(child.pid);
                found.push(child.clone());
            }
        }
    }
    found
}

impl OllamaServer {
    fn from_process(proc: &Path, server: &RunningProcess, all: &[RunningProcess]) -> Self {
        let listens = sockets::sockets(proc, server.pid).and_then(|open| {
            let all = sockets::listeners(proc, &server.pid.to_string())?;
            Ok(all.into_iter().filter(|listener| open.contains(&listener.inode)).collect())
        });
        Self { process: server.clone(), runners: descendants(all, server.pid), listens: listens.ok() }
    }

    /// Returns the server's process and its descendants.
    pub fn processes(&self) -> impl Iterator<Item = &RunningProcess> {
        std::iter::once(&self.process).chain(&self.runners)
    }
}

/// Reads one process; `None` if it has ended or cannot be read.
pub fn process(proc: &Path, pid: u32) -> Option<RunningProcess> {
    let folder = proc.join(pid.to_string());
    let words: Vec<String> = split(&std::fs::read(folder.join("cmdline")).ok()?)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return None;
    }
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let number = |name: &str, at: usize| {
        status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().nth(at)?.parse().ok())
    };
    // Of `Uid:`, the first is the real one, the second the effective one.
    let (parent, user) = (number("PPid:", 0)?, number("Uid:", 1)?);
    // Most processes are unrelated to Ollama, so only likely ones are examined.
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
    Some(RunningProcess { pid, parent, user, words, environment, mapped })
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty())
}

/// Returns the paths of the files in the text of a `maps` file, without duplicates.
fn files(maps: &str) -> Vec<String> {
    let mut files: Vec<String> =
        maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned())).collect();
    files.dedup();
    files.sort();
    files.dedup();
    files
}

impl RunningProcess {
    /// Returns whether the process is a server: `ollama serve` or `ollama start`.
    pub fn serves(&self) -> bool {
        let name = self.words.first().map(|word| Path::new(word).file_name() == Some(OsStr::new("ollama")));
        name == Some(true) && self.words.get(1).is_some_and(|word| word == "serve" || word == "start")
    }

    /// Returns whether the process was started for a model, with `--model`.
    pub fn holds_model(&self) -> bool {
        self.words.iter().any(|word| word == "--model")
    }

    /// Formats process id and command line for messages.
    pub fn shown(&self) -> String {
        format!("process {}: {}", self.pid, self.words.join(" "))
    }

    /// Returns whether the process's environment preloads libraries of a launcher; `None` if the environment
    /// cannot be read.
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

    /// Returns whether the process has mapped vgpu-run's libcuda; `None` if the mapped files cannot be read.
    pub fn has_shims(&self) -> Option<bool> {
        Some(self.mapped.as_ref()?.iter().any(|file| is_shim(file)))
    }

    /// Returns whether the process has mapped a libcuda that is not vgpu-run's.
    pub fn has_another_driver(&self) -> bool {
        let driver =
            |file: &&String| file.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so"));
        self.mapped.iter().flatten().filter(driver).any(|file| !is_shim(file))
    }

    /// Returns the path of the CUDA backend that the process has mapped.
    pub fn backend(&self) -> Option<PathBuf> {
        self.mapped.as_ref()?.iter().find(|file| file.ends_with("/libggml-cuda.so")).map(PathBuf::from)
    }

    /// Returns the value of a variable in the environment of the process.
    pub fn value(&self, name: &str) -> Option<String> {
        Some(self.environment.as_ref()?.get(name)?.to_string_lossy().into_owned())
    }
}

/// Returns whether a mapped file is vgpu-run's libcuda.
fn is_shim(file: &str) -> bool {
    file.starts_with("/memfd:libcuda.so.1") || file.contains("/vgpu-run.") && file.contains("libcuda.so.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn add(scratch: &Scratch, pid: u32, parent: u32, words: &str, environment: &str, maps: &str) {
        let folder = scratch.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("cmdline"), words.replace(' ', "\0")).unwrap();
        std::fs::write(
            folder.join("status"),
            format!("Name:\tx\nPPid:\t{parent}\nUid:\t1000\t1001\t1000\t1000\n"),
        )
        .unwrap();
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
        add(&scratch, 11, 8, "llama-server --port 9", "", "");
        let running = Running::scan(scratch.path());
        assert_eq!(running.servers.len(), 1);
        let OllamaServer { process, runners, listens } = &running.servers[0];
        assert_eq!(*listens, None, "there are no descriptors to see");
        assert_eq!(running.server_of(7), Some(&running.servers[0]));
        assert_eq!(
            (running.server_of(1).map(|server| server.process.pid), running.server_of(9)),
            (Some(7), None)
        );
        assert_eq!((process.pid, process.wrapped(), process.has_shims()), (7, Some(true), Some(true)));
        assert_eq!((process.parent, process.user), (1, 1001));
        assert_eq!(process.backend(), Some("/l/cuda_v12/libggml-cuda.so".into()));
        assert_eq!(process.value("OLLAMA_HOST").as_deref(), Some("0.0.0.0:1"));
        assert_eq!(
            (runners.len(), runners[0].wrapped(), runners[0].has_shims()),
            (2, Some(false), Some(false))
        );
    }

    #[test]
    fn a_folder_of_libraries_counts_too() {
        let scratch = Scratch::new();
        add(&scratch, 7, 1, "ollama serve", "LD_PRELOAD=/run/user/0/vgpu-run.1.2.3.x/libcuda.so.1", "");
        let server = &Running::scan(scratch.path()).servers[0].process;
        assert_eq!((server.wrapped(), server.has_shims()), (Some(true), None));
    }

    #[test]
    fn this_systems_processes_can_be_listed() {
        let running = Running::scan(Path::new("/proc"));
        assert!(running.process(std::process::id()).is_some());
    }

    #[test]
    fn a_circle_of_processes_has_an_end() {
        let process = |pid, parent| RunningProcess {
            pid,
            parent,
            user: 0,
            words: Vec::new(),
            environment: None,
            mapped: None,
        };
        let all = [process(1, 3), process(2, 1), process(3, 2), process(4, 4)];
        let ids = |pid| descendants(&all, pid).iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!((ids(1), ids(4)), (vec![2, 3], vec![]));
    }
}
