//! The command line: types only, nothing that needs the system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

use crate::diagnosis::LinkId;
use crate::diagnosis::catalogue::{self, LINKS};
use crate::inject::DeliveryMode;
use crate::launch::user::UserName;

/// Starts a program with the GPU that the host gives to this guest.
///
/// PROGRAM is started in place of vgpu-run: same process, terminal, signals and exit code. What it starts in
/// turn gets the GPU too. Options of vgpu-run come before PROGRAM; all that follows belongs to PROGRAM.
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
                      vgpu-run [OPTIONS] service install|status|remove [--help]\n       \
                      vgpu-run [OPTIONS] trace [--output FOLDER] PROGRAM [ARGS]...",
    after_help = "Examples:\n  \
                       vgpu-run ollama serve                      Ollama's server, with the GPU\n  \
                       sudo vgpu-run --user ollama ollama serve   the same as the user ollama, who is given the device\n  \
                       vgpu-run check                             why Ollama does not find the GPU, and what to do\n  \
                       sudo vgpu-run check --service              the same for the systemd service\n  \
                       vgpu-run trace ollama serve                what it asks of CUDA, and what goes wrong\n\n\
                       Exit codes: PROGRAM's own; 125 if vgpu-run fails, 126 if PROGRAM is found but cannot be \
                       started, 127 if it is not found.\n\
                  A program that is named as a command of vgpu-run: vgpu-run -- env.\n\n\
                  Environment: VGPU_LOG=error|warn|info|debug and VGPU_LOG_FILE=FILE make vgpu-run and its \
                  libraries say what they do; VGPU_SYSFS=FOLDER is looked into instead of /sys."
)]
pub struct Cli {
    /// What holds for all commands.
    #[command(flatten)]
    pub options: Options,
    /// A command of vgpu-run's own.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The program to start, and its arguments
    #[arg(
        value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub program: Vec<OsString>,
}

/// Options.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Where the GPU cannot be had, start PROGRAM without it, with one line of warning
    #[arg(long, global = true)]
    pub allow_cpu: bool,
    /// As root: give the device to this user, and start PROGRAM as this user
    #[arg(long, global = true, value_name = "NAME|UID[:GROUP|GID]")]
    pub user: Option<UserName>,
    /// How the libraries are handed over, if not as PROGRAM needs it: memory, but a folder for Ollama to
    /// 0.12.3
    #[arg(long, global = true, value_name = "memory|folder", hide_possible_values = true)]
    pub via: Option<DeliveryMode>,
    /// Say on stderr what is done; VGPU_LOG=debug does so too, and makes the libraries talk
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prints what would be set for PROGRAM: KEY=VALUE lines
    ///
    /// The libraries are put into a private folder that lasts as long as the process that called vgpu-run
    /// (the shell): `env $(vgpu-run env) PROGRAM` starts PROGRAM as vgpu-run would.
    Env {
        /// Print one JSON object, with the libraries and the reasons
        #[arg(long)]
        json: bool,
        /// The program that is to be started with it
        #[arg(value_hint = ValueHint::CommandName)]
        program: Option<OsString>,
        /// What does not belong there: said with a hint, since a program env exists
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Finds out why Ollama does not find the GPU, and says what to do
    ///
    /// Walks the chain by which Ollama finds a GPU, in the order in which a call travels it, and names the first link
    /// that is broken. Changes nothing.
    #[command(
        after_help = "Exit codes: 0 all works, 1 something is broken, 2 wrong usage, 3 not everything could be looked at."
    )]
    Check(CheckOptions),
    /// Has Ollama's service start with the GPU; says how that stands; undoes it
    Service {
        /// What to do
        #[command(subcommand)]
        task: ServiceTask,
    },
    /// Starts PROGRAM and writes down what it asks of CUDA, and what goes wrong
    ///
    /// For each process of PROGRAM: its CUDA calls with arguments, results and times, which file each library came
    /// from, and the last call before it ended. The folder then holds summary.txt, calls-PID.txt, and trace.json, a
    /// timeline for https://ui.perfetto.dev. PROGRAM's signals and exit code are passed on.
    Trace {
        /// The folder; it must be new or empty [default: ./vgpu-trace-TIME]
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
        /// The prefix below which they go
        prefix: PathBuf,
    },
    /// What check has done in a process of its own
    #[command(hide = true, name = "__look")]
    Look {
        /// Groups besides those of `--user`
        #[arg(long = "group")]
        groups: Vec<u32>,
        /// What to look at
        #[command(subcommand)]
        task: Task,
    },
}

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckOptions {
    /// Print the links of the chain
    #[arg(long)]
    pub list: bool,
    /// Look at these links, and at those that they need
    #[arg(long, value_name = "LINK,...", value_parser = link_id, value_delimiter = ',')]
    pub only: Vec<LinkId>,
    /// Print the page about a link: what it is, how it breaks, what mends it
    #[arg(long, value_name = "LINK", value_parser = link_id)]
    pub explain: Option<LinkId>,
    /// Write all that was found to this file, for a bug report; names of users and hosts, and secrets, are left out
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bundle: Option<PathBuf>,
    /// Look at things as this systemd service sees them
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "ollama")]
    pub service: Option<String>,
    /// Any program to look at in place of Ollama; of one that is no Ollama it is said whether it asks for what only NVIDIA's own driver has
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName, conflicts_with_all = ["ollama", "service"])]
    pub program: Option<PathBuf>,
    /// The Ollama to look at, if not the service's or the one on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub ollama: Option<PathBuf>,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Take warnings for failures
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// When to print in colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: When,
    /// Leave out Ollama's own discovery, which takes the longest
    #[arg(long)]
    pub no_ollama: bool,
    /// Print the sentence at the end alone
    #[arg(short, long)]
    pub quiet: bool,
    /// In place of the option of all commands, which means nothing here: to keep it off this one's page
    #[arg(long, hide = true)]
    pub allow_cpu: bool,
}

/// What `service` does.
#[derive(Clone, Debug, Subcommand)]
pub enum ServiceTask {
    /// Has a service of systemd start what it starts by vgpu-run, as the user it has
    ///
    /// Writes a drop-in for the unit, and a udev rule that gives the device to the group vgpu, in which the service then is; and shows
    /// both before. Ollama's own upgrades leave them alone. Started again, it brings them up to date.
    #[command(
        after_help = "Examples:\n  vgpu-run service install --dry-run\n  sudo vgpu-run service install\n  \
                      sudo vgpu-run service install --user \"$USER\"    # to start Ollama by hand, too"
    )]
    Install(InstallOptions),
    /// Says what is set up, whether it is as it was written, and whether the unit starts something else by now
    #[command(
        after_help = "Exit codes: 0 it is set up and as it should be, 1 it is not as it should be, 3 it is not set up."
    )]
    Status(ServiceOptions),
    /// Takes away all that install wrote
    ///
    /// A file that was changed since is named, and then nothing is taken away.
    Remove(ChangeOptions),
}

/// Which service, of which system.
#[derive(Args, Clone, Debug)]
pub struct ServiceOptions {
    /// The service
    #[arg(long, value_name = "NAME", default_value = "ollama.service")]
    pub unit: String,
    /// The folder tree of another system, in which alone files are read and written
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}

/// How a change is made.
#[derive(Args, Clone, Debug)]
pub struct ChangeOptions {
    /// Which service.
    #[command(flatten)]
    pub service: ServiceOptions,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Leave the service running as it is until it is started anew
    #[arg(long)]
    pub no_restart: bool,
}

/// Options of `service install`.
#[derive(Args, Clone, Debug)]
pub struct InstallOptions {
    /// How.
    #[command(flatten)]
    pub change: ChangeOptions,
    /// Set up the device and no service, to start Ollama by hand
    #[arg(long, conflicts_with = "unit")]
    pub device_only: bool,
    /// The vgpu-run that the service is to start by [default: this one]
    #[arg(long, value_name = "PATH")]
    pub launcher: Option<PathBuf>,
    /// Put this user into the group, too, who may then start Ollama by hand
    #[arg(long, value_name = "NAME")]
    pub user: Option<UserName>,
}

/// When to do something that suits terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set; or if CLICOLOR_FORCE is.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What `__look` looks at. Each prints steps, one JSON object a line: see `check::child`.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// Opens files for reading and writing
    Access {
        /// The files
        files: Vec<PathBuf>,
    },
    /// Opens a device, speaks with its host, and measures
    Device {
        /// The address of the function
        address: String,
    },
    /// Hands the libraries over to a program, as vgpu-run does, and says of each program that comes of it what it got
    Follow {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Puts these libraries and the probe in place, and keeps them there until its input ends
    Hold {
        /// No other way than `--via` is tried
        #[arg(long)]
        fixed: bool,
        /// Their SONAMEs
        objects: Vec<String>,
    },
    /// Starts a program, as another user
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Hands the libraries over and starts the program
    Handover {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
}

/// Whether a command line that could not be read is one of `check`, whose exit codes are others.
pub fn is_check(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut words = arguments.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--user" | "--via") => drop(words.next()),
            Some("--") => return false,
            Some(option) if option.starts_with('-') => {}
            word => return word == Some("check"),
        }
    }
    false
}

fn link_id(text: &str) -> Result<LinkId, String> {
    catalogue::link(text).map(|link| link.id).ok_or_else(|| {
        let all: Vec<_> = LINKS.iter().map(|link| link.id.as_str()).collect();
        format!("the links are {}", all.join(", "))
    })
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 86_400.0);
    number.map(Duration::from_secs_f64).ok_or("expected a number of seconds above 0")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["vgpu-run"], arguments].concat())
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
        assert_eq!(some.timeout, Duration::from_millis(2500));
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
        let is_check = |words: &[&str]| is_check(words.iter().map(OsString::from));
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
        assert_eq!(page, include_str!("help.txt"), "if the page is meant to change: src/help.txt\n{page}");
    }
}
