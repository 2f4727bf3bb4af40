//! Types of the command line. They are parsed without access to the system.

mod check;
mod options;
mod own_words;
mod service;
mod status;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueHint};

pub use check::CheckOptions;
pub use options::Options;
pub use own_words::{Operand, OwnWords};
pub use service::{ChangeOptions, InstallOptions, ServiceOptions, ServiceTask};
pub use status::StatusOptions;
pub use worker::WorkerTask;

/// Starts a program with the GPU that the host gives to this guest.
///
/// PROGRAM replaces vgpu-run: same process, terminal, signals and exit code. The processes that it starts get
/// the GPU too. Options of vgpu-run come before PROGRAM; everything after it belongs to PROGRAM.
#[derive(Debug, Parser)]
#[command(
    name = "vgpu-run",
    version,
    long_version = crate::version::LONG,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    subcommand_value_name = "COMMAND",
    override_usage = "vgpu-run [OPTIONS] PROGRAM [ARGS]...\n       vgpu-run [OPTIONS] env [--json] [PROGRAM]\n       \
                      vgpu-run [OPTIONS] check [--help] [CHECK OPTIONS] [PROGRAM]\n       \
                      vgpu-run [OPTIONS] status [--watch [SECONDS]] [--json]\n       \
                      vgpu-run [OPTIONS] reap\n       \
                      vgpu-run [OPTIONS] service install|status|remove [--help]\n       \
                      vgpu-run [OPTIONS] trace [--output FOLDER] PROGRAM [ARGS]...",
    after_help = "Examples:\n  \
                       vgpu-run ollama serve                      Ollama's server, with the GPU\n  \
                       sudo vgpu-run --user ollama ollama serve   the same as the user ollama, who gets the device\n  \
                       vgpu-run check                             why Ollama does not find the GPU, and how to mend it\n  \
                       sudo vgpu-run check --service              the same for the systemd service\n  \
                       vgpu-run status --watch                    who uses the GPU, and how much of it\n  \
                       vgpu-run trace ollama serve                its CUDA calls, and what goes wrong\n\n\
                       Exit codes: PROGRAM's own; 125 if vgpu-run fails, 126 if PROGRAM is found but cannot be \
                       started, 127 if it is not found.\n\
                  To start a program that has the name of a command of vgpu-run: vgpu-run -- env.\n\n\
                  Environment: VGPU_LOG=error|warn|info|debug and VGPU_LOG_FILE=FILE make vgpu-run and its \
                  libraries log; VGPU_SYSFS=FOLDER replaces /sys."
)]
pub struct Cli {
    /// Options that all commands share.
    #[command(flatten)]
    pub options: Options,
    /// Command of vgpu-run, if the command line has one.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The program to start, and its arguments
    #[arg(
        value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub program: Vec<OsString>,
}

/// Commands of vgpu-run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prints the variables that would be set for PROGRAM, as KEY=VALUE lines
    ///
    /// The libraries are in a private folder that lasts as long as the process that called vgpu-run
    /// (the shell): `env $(vgpu-run env) PROGRAM` starts PROGRAM as vgpu-run would.
    Env {
        /// Print one JSON object, with the libraries and the reasons
        #[arg(long)]
        json: bool,
        /// The program that will be started with these variables
        #[arg(value_hint = ValueHint::CommandName)]
        program: Option<OsString>,
        /// Words that do not belong here. They are refused with a hint, because a program env exists
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Finds out why Ollama does not find the GPU, and how to mend it
    ///
    /// Walks the chain by which Ollama finds a GPU, in the order in which a call travels it, and names the
    /// first link that is broken. It changes nothing, except that as root it turns on the device's memory
    /// decoding, as a start of vgpu-run does.
    #[command(
        after_help = "Exit codes: 0 everything works, 1 something is broken, 2 wrong usage, 3 not everything could be examined."
    )]
    Check(CheckOptions),
    /// Shows the GPU's memory and the processes of this guest that use it
    ///
    /// Of each process: device memory, the time that the device has worked for it, and the share of time that
    /// it works for it now. What the host does not tell is shown as "-". It takes no channel of the device
    /// and disturbs nobody. To be used by whoever may open the device.
    Status(StatusOptions),
    /// Frees what programs that were killed still hold on the GPU
    ///
    /// The next program that uses the GPU does so too, and so do status and check. After service install
    /// systemd starts this command whenever a program that uses the GPU ends.
    Reap {
        /// Stay for as long as programs end within SECONDS of each other, but no longer than half a minute
        #[arg(long, value_name = "SECONDS", value_parser = check::seconds)]
        linger: Option<Duration>,
    },
    /// Sets up Ollama's service to start with the GPU, reports its state, or undoes it
    Service {
        /// The task
        #[command(subcommand)]
        task: ServiceTask,
    },
    /// Starts PROGRAM and records its CUDA calls and what goes wrong
    ///
    /// Records for each process of PROGRAM its CUDA calls with arguments, results and times, the file of each
    /// library, and the last call before the process ended. The folder then holds summary.txt, calls-PID.txt,
    /// and trace.json, a timeline for https://ui.perfetto.dev. PROGRAM's signals and exit code are passed on.
    Trace {
        /// The folder for the trace; it must be new or empty [default: ./vgpu-trace-TIME]
        #[arg(long, short, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        output: Option<PathBuf>,
        /// The program to start, and its arguments
        #[arg(
            value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true,
            value_hint = ValueHint::CommandWithArguments
        )]
        program: Vec<OsString>,
    },
    /// Writes manual pages and shell completions, for a release
    #[command(hide = true, name = "__pages")]
    Pages {
        /// Directory below which the pages and completions are written
        prefix: PathBuf,
    },
    /// Runs a task of check in a process of its own
    #[command(hide = true, name = "__worker")]
    Worker {
        /// Supplementary group ids besides those of `--user`
        #[arg(long = "group")]
        groups: Vec<u32>,
        /// Task to run
        #[command(subcommand)]
        task: WorkerTask,
    },
}

/// A command line that only starts a program, which is the common case. Parsing it is faster than parsing
/// [`Cli`], for which clap prepares all commands and their options first.
#[derive(Parser)]
#[command(disable_help_flag = true)]
struct Start {
    #[command(flatten)]
    options: Options,
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Parses a command line that begins with the launcher's name.
pub fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    match Start::try_parse_from(arguments) {
        Ok(Start { options, program }) if !program[0].to_str().is_some_and(Command::has_subcommand) => {
            Ok(Cli { options, command: None, program })
        }
        // With a command, a program of that name behind `--`, or nothing that starts a program.
        _ => Cli::try_parse_from(arguments),
    }
}

/// Returns whether a command line that could not be parsed is one of `check`, which has its own exit codes.
pub fn is_check(arguments: &[OsString]) -> bool {
    let own = OwnWords::read(arguments.iter().skip(1).map(OsString::as_os_str));
    own.operand == Some(Operand::Word("check".as_ref()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::*;
    use crate::diagnosis::LinkId;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        let arguments: Vec<OsString> =
            [&["vgpu-run"], arguments].concat().into_iter().map(OsString::from).collect();
        let read = super::parse(&arguments);
        // Nobody sees that most are read the short way.
        let long = Cli::try_parse_from(&arguments);
        assert_eq!(read.is_ok(), long.is_ok());
        if let (Ok(read), Ok(long)) = (&read, long) {
            assert_eq!(format!("{read:?}"), format!("{long:?}"));
        }
        read
    }

    #[test]
    fn each_command_is_known_by_its_name() {
        let definition = Cli::command();
        let names: Vec<_> = definition.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, ["env", "check", "status", "reap", "service", "trace", "__pages", "__worker"]);
        assert!(names.into_iter().all(Command::has_subcommand));
        assert_eq!(definition.get_subcommands().flat_map(clap::Command::get_all_aliases).count(), 0);
    }

    fn program(arguments: &[&str]) -> Vec<OsString> {
        let cli = parse(arguments).unwrap();
        assert!(cli.command.is_none());
        cli.program
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_end_at_the_program() {
        let cli =
            parse(&["--allow-cpu", "-v", "ollama", "serve", "-v", "--user", "x", "--", "--via"]).unwrap();
        assert!(cli.options.allow_cpu && cli.options.verbose && cli.options.user.is_none());
        assert_eq!(cli.program, ["ollama", "serve", "-v", "--user", "x", "--", "--via"]);
        assert_eq!(program(&["ollama", "env", "--help"]), ["ollama", "env", "--help"]);
        assert_eq!(program(&["ollama", "--allow-cpu"]), ["ollama", "--allow-cpu"]);
        assert_eq!(program(&["ollama", "--version"]), ["ollama", "--version"]);
    }

    #[test]
    fn two_dashes_end_them_too() {
        assert_eq!(program(&["--", "env", "A=1"]), ["env", "A=1"]);
        assert_eq!(program(&["--", "-strange"]), ["-strange"]);
        assert_eq!(program(&["-v", "--", "ollama", "--", "x"]), ["ollama", "--", "x"]);
    }

    #[test]
    fn env_is_a_command_with_options_on_either_side() {
        for arguments in
            [&["--allow-cpu", "env", "--json", "ollama"][..], &["env", "--json", "--allow-cpu", "ollama"]]
        {
            let cli = parse(arguments).unwrap();
            assert!(cli.options.allow_cpu && cli.program.is_empty());
            let Some(Command::Env { json: true, program: Some(program), .. }) = cli.command else {
                panic!("{arguments:?}")
            };
            assert_eq!(program, "ollama");
        }
        assert!(matches!(
            parse(&["env"]).unwrap().command,
            Some(Command::Env { json: false, program: None, .. })
        ));
    }

    #[test]
    fn check_has_options_of_its_own() {
        let options = |arguments: &[&str]| match parse(&[&["check"], arguments].concat()) {
            Ok(Cli { command: Some(Command::Check(options)), .. }) => Some(options),
            _ => None,
        };
        let some =
            options(&["--service", "--only", "pci,permission", "--only", "data-path", "--timeout", "2.5"])
                .unwrap();
        assert_eq!(some.service.as_deref(), Some("ollama"));
        assert_eq!(some.only, [LinkId::Pci, LinkId::Permission, LinkId::DataPath]);
        assert_eq!(some.limit(), Duration::from_millis(2500));
        assert_eq!(options(&[]).unwrap().limit(), Duration::from_secs(15));
        assert_eq!(options(&["--model", "m"]).unwrap().limit(), Duration::from_mins(1));
        assert_eq!(options(&["--service", "llm"]).unwrap().service.as_deref(), Some("llm"));
        assert_eq!(options(&[]).unwrap().service, None);
        assert_eq!(options(&["/opt/x", "--json"]).unwrap().program.as_deref(), Some("/opt/x".as_ref()));
        for wrong in [
            &["--only", "no-such-link"][..],
            &["--timeout", "0"],
            &["--timeout", "soon"],
            &["ollama", "serve"],
            &["x", "--ollama", "y"],
            &["x", "--service"],
        ] {
            assert!(options(wrong).is_none(), "{wrong:?}");
        }
        let mut command = Cli::command();
        command.build();
        let page = command.find_subcommand_mut("check").unwrap().render_long_help().to_string();
        assert!(page.contains("--user") && !page.contains("--allow-cpu"), "{page}");
        let is_check = |words: &[&str]| is_check(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(is_check(&["vgpu-run", "--user", "x", "-v", "check", "--bad"]));
        assert!(
            !is_check(&["vgpu-run", "--user", "check", "ollama"]) && !is_check(&["vgpu-run", "--", "check"])
        );
    }

    #[test]
    fn usage_errors() {
        for arguments in
            [&[][..], &["-v"], &["--no-such-option", "x"], &["--via", "ether", "x"], &["--user", "", "x"]]
        {
            assert!(parse(arguments).unwrap_err().use_stderr(), "{arguments:?}");
        }
    }

    #[test]
    fn the_help_page_is_what_was_agreed_on() {
        let page = Cli::command().term_width(100).render_long_help().to_string();
        assert_eq!(page, include_str!("../help.txt"), "if the page is meant to change: src/help.txt\n{page}");
    }
}
