//! Command line: parses the arguments, calls the library and prints the results.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vgpu_artifacts::Cache;
use xtask::book;
use xtask::dist::{self, Release};
use xtask::exports;
use xtask::fatal_lines::{self, KnownLines};
use xtask::layers;
use xtask::release::{self, Home, Request};
use xtask::shims::{self, Companion, Options};
use xtask::workspace::{self, chain, megabytes};

/// Builds and links the shims, fetches artifacts, and builds releases.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Bring the shims in embedded/ up to date.
    Shims {
        /// Build nothing; fail if something needs to be built, and print the reason.
        #[arg(long)]
        check: bool,
        /// SONAMEs of the shims to build, vgpu-probe or libvgpu-trace.so [default: all].
        sonames: Vec<String>,
    },
    /// Fetch the real libraries and models that tests use into $XDG_CACHE_HOME/vgpu-run.
    Artifacts {
        /// List the artifacts with their download sizes and directories.
        #[arg(long)]
        list: bool,
        /// The artifacts to fetch [default: all that are not optional].
        names: Vec<String>,
    },
    /// Build a release in target/dist: static launcher with shims for glibc 2.17, vgpu-device for hosts with
    /// glibc 2.34, tarballs, packages, install.sh, SHA-256.
    Dist {
        /// URL of the release's directory, from which install.sh downloads.
        #[arg(long, value_name = "HTTPS_URL")]
        base_url: Option<String>,
    },
    /// Make and check everything that a release publishes, in target/publish: the files of `dist`, made for the
    /// address in Cargo.toml, and the text of the release's page in target/publish.md.
    Release {
        /// Publish nothing. Publishing is left to .github/workflows/release.yml, which a tag starts.
        #[arg(long, required = true)]
        dry_run: bool,
        /// The release's tag: it must be that of the version, whose changes must have a date in CHANGELOG.md.
        #[arg(long, conflicts_with = "allow_placeholder")]
        tag: Option<String>,
        /// The repository that will publish; it must be the one in Cargo.toml.
        #[arg(long, value_name = "OWNER/REPO")]
        repository: Option<String>,
        /// Rehearse although the address in Cargo.toml is a placeholder.
        #[arg(long)]
        allow_placeholder: bool,
        /// Pack the programs of hosts that lie in DIR instead of compiling them as a release does, without
        /// symbols and paths of this machine. For trying the packages, as the gate does.
        #[arg(long, value_name = "DIR", conflicts_with = "tag")]
        host_programs: Option<PathBuf>,
    },
    /// Build the documents as a book in target/book, and follow all links.
    Book,
    /// Name source files that depend on each other in a cycle, and files that are too long.
    Layers {
        /// Print the findings as JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Compare the lines with which Ollama, llama.cpp and ggml say why they fail, in the sources of a release,
    /// with those that are known of its era.
    FatalLines {
        /// Era of the release: A, B or C.
        #[arg(long)]
        era: char,
        /// Directory of Ollama's sources.
        #[arg(long, value_name = "FOLDER")]
        ollama: PathBuf,
        /// Directory of llama.cpp's sources, for releases of era C.
        #[arg(long, value_name = "FOLDER")]
        llama: Option<PathBuf>,
        /// Make the known lines those of the sources.
        #[arg(long)]
        write: bool,
        /// Print the comparison as JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Compare what the shims export with the symbol lists.
    Exports {
        /// Print the comparison as JSON instead of text.
        #[arg(long)]
        json: bool,
        /// Compare with NVIDIA's libraries instead: those among the artifacts and in the named directories.
        #[arg(long)]
        real: bool,
        /// Directories with more libraries of NVIDIA, by SONAME.
        #[arg(requires = "real")]
        folders: Vec<PathBuf>,
    },
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs the command that the arguments name. Failures end in one line on stderr.
pub fn run_cli() -> ExitCode {
    match Cli::parse().task.execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: failed to {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

impl Task {
    /// Runs the task. Returns whether it found nothing wrong.
    fn execute(self) -> Result<bool> {
        match self {
            Self::Shims { check, sonames } => build_shims(check, sonames),
            Self::Artifacts { list: true, .. } => list_artifacts(),
            Self::Artifacts { names, .. } => fetch_artifacts(names),
            Self::Layers { json } => find_circles(json),
            Self::Dist { base_url } => make_release(base_url.as_deref()),
            Self::FatalLines { era, ollama, llama, write, json } => {
                compare_fatal_lines(era, &ollama, llama.as_deref(), write, json)
            }
            Self::Book => build_book(),
            Self::Release { dry_run: _, tag, repository, allow_placeholder, host_programs } => {
                let placeholder = allow_placeholder;
                prepare_release(&Request { tag, repository, placeholder, built: host_programs })
            }
            Self::Exports { json, real: true, folders } => compare_with_real(json, folders),
            Self::Exports { json, .. } => compare_exports(json),
        }
    }
}

fn find_circles(json: bool) -> Result<bool> {
    let crates = layers::survey(&workspace::root()?)?;
    let held = crates.iter().all(|found| found.wrong().next().is_none() && found.long.is_empty());
    if json {
        println!("{:#}", serde_json::json!({ "held": held, "crates": crates }));
        return Ok(held);
    }
    for found in &crates {
        for circle in found.wrong() {
            let files: Vec<String> = circle.iter().map(|file| file.display().to_string()).collect();
            println!("{}: {} files lead to each other: {}", found.name, files.len(), files.join(" "));
        }
        for (file, lines) in &found.long {
            println!("{}: {} has {lines} lines", found.name, file.display());
        }
    }
    Ok(held)
}

fn compare_fatal_lines(
    era: char,
    ollama: &Path,
    llama: Option<&Path>,
    write: bool,
    json: bool,
) -> Result<bool> {
    let root = workspace::root()?;
    let mut known = KnownLines::read(&root)?;
    let sources = fatal_lines::collect(ollama, llama)?;
    let comparison = known.compare(&sources, era);
    if json {
        println!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        for (mark, lines) in [('+', &comparison.new), ('-', &comparison.gone)] {
            for line in lines {
                println!("{mark} {}: {}", line.program, line.text);
            }
        }
        let (new, gone) = (comparison.new.len(), comparison.gone.len());
        println!("{} lines, {new} new, {gone} gone", comparison.lines);
    }
    if write {
        known.update(&sources, era);
        known.write(&root)?;
        return Ok(true);
    }
    Ok(comparison.new.is_empty())
}

fn build_shims(check: bool, sonames: Vec<String>) -> Result<bool> {
    let mut options = Options::embedded(&workspace::root()?);
    options.only = sonames;
    if check {
        let stale = shims::stale(&options)?;
        for (soname, reason) in &stale {
            println!("{soname}: {reason}");
        }
        return Ok(stale.is_empty());
    }
    let report = shims::update(&options)?;
    for soname in &report.built {
        let Some(entry) = report.manifest.entry(soname) else { continue };
        println!(
            "{soname}: {} bytes, {} exports, {} implemented, glibc {}",
            entry.bytes,
            entry.exports,
            entry.implemented.len(),
            entry.glibc.as_deref().unwrap_or("any"),
        );
    }
    for companion in Companion::ALL.into_iter().filter(|companion| report.built.contains(&companion.file())) {
        let Some(program) = companion.entry(&report.manifest) else { continue };
        let glibc = program.glibc.as_deref().unwrap_or("any");
        println!("{}: {} bytes, glibc {glibc}", companion.file(), program.bytes);
    }
    for (soname, error) in &report.failed {
        eprintln!("{soname}: failed to {}", chain(error));
    }
    if report.built.is_empty() && report.failed.is_empty() {
        println!("up to date");
    } else {
        let bytes: u64 = report.manifest.shims.iter().map(|entry| entry.bytes).sum();
        println!("{} shims together {}", report.manifest.shims.len(), megabytes(bytes));
    }
    Ok(report.failed.is_empty())
}

fn compare_exports(json: bool) -> Result<bool> {
    let root = workspace::root()?;
    let table = exports::table(&root, &Options::embedded(&root).out)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        println!("{table}");
    }
    Ok(table.ok)
}

fn compare_with_real(json: bool, mut folders: Vec<PathBuf>) -> Result<bool> {
    let cache = Cache::open()?;
    folders.extend([cache.fetch("nvidia-cuda12")?, cache.fetch("nvidia-cuda13")?]);
    let comparisons = exports::compare(&Options::embedded(&workspace::root()?).out, &folders)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&comparisons)?);
    } else {
        for comparison in &comparisons {
            println!("{comparison}");
        }
    }
    Ok(comparisons.iter().all(|comparison| comparison.ok))
}

fn build_book() -> Result<bool> {
    let book = book::build(&workspace::root()?)?;
    for (file, target) in &book.broken {
        println!("{}: {target} leads nowhere", file.display());
    }
    println!("{}: {} links, {} broken", book.index.display(), book.links, book.broken.len());
    Ok(book.broken.is_empty())
}

fn make_release(base_url: Option<&str>) -> Result<bool> {
    let root = workspace::root()?;
    print_release(&dist::build_release(&root, base_url, Home::read(&root)?.address(), None)?);
    Ok(true)
}

fn prepare_release(request: &Request) -> Result<bool> {
    let ready = release::prepare(&workspace::root()?, request)?;
    print_release(&ready.release);
    println!("\nvgpu-run {}, to be published at {}:", ready.version, ready.url);
    for (name, bytes, sha256) in &ready.assets {
        println!("{sha256}  {name}, {}", megabytes(*bytes));
    }
    let remark =
        if ready.unreleased { ", from the changes that CHANGELOG.md lists as unreleased" } else { "" };
    println!("files: {}\ntext of the page: {}{remark}", ready.folder.display(), ready.notes.display());
    Ok(true)
}

fn print_release(release: &Release) {
    for entry in &release.shims.shims {
        let glibc = entry.glibc.as_deref().unwrap_or("any");
        println!("{}: {} bytes, glibc {glibc}, needs {}", entry.soname, entry.bytes, entry.needed.join(" "));
    }
    println!("vgpu-run: static, {}", megabytes(release.launcher_bytes));
    println!("{}  {}", release.sha256, release.tarball.display());
    for (program, packed) in [("vgpu-device", &release.host), ("vgpu-device-plugin", &release.plugin)] {
        println!(
            "{program}: glibc {} (at most {}), needs {}, {}",
            packed.glibc,
            dist::host::OLDEST,
            packed.needed.join(" "),
            megabytes(packed.program_bytes)
        );
    }
    println!("{}  {}", release.host_sha256, release.host_tarball.display());
    println!("packages: {}", release.packages.join(" "));
}

fn list_artifacts() -> Result<bool> {
    let cache = Cache::open()?;
    for (name, artifact) in &cache.spec().artifacts {
        let path = cache.path(name)?;
        let bytes = cache.spec().bytes_of(artifact)?;
        let state = match (path.is_dir(), artifact.optional) {
            (true, _) => "here",
            (false, false) => "absent",
            (false, true) => "absent, optional",
        };
        println!("{name}: {}\n  {state}, {} to fetch: {}", artifact.about, megabytes(bytes), path.display());
    }
    Ok(true)
}

fn fetch_artifacts(mut names: Vec<String>) -> Result<bool> {
    let cache = Cache::open()?;
    if names.is_empty() {
        let all = cache.spec().artifacts.iter();
        names.extend(all.filter(|(_, artifact)| !artifact.optional).map(|(name, _)| name.clone()));
    }
    let mut ok = true;
    for name in names {
        match cache.fetch(&name) {
            Ok(path) => println!("{name}: {}", path.display()),
            Err(error) => {
                eprintln!("{name}: failed to {}", chain(&error));
                ok = false;
            }
        }
    }
    Ok(ok)
}
