//! Files that a release ships beside the program: the manual page and the shell completions, generated from
//! the definition of the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use vgpu_paths::Dir;

use crate::device::WINDOW;
use crate::vm::Vm;

/// Path of the manual page below the prefix.
pub const MANUAL: &str = "share/man/man8/vgpu-device.8";

/// Shells, with the path of each shell's completions below a prefix.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/vgpu-device"),
    (Shell::Fish, "share/fish/vendor_completions.d/vgpu-device.fish"),
    (Shell::Zsh, "share/zsh/site-functions/_vgpu-device"),
];

/// Files that the page describes.
const FILES: [(&str, &str); 9] = [
    (
        "/etc/vgpu-device/NAME.toml",
        "Configuration of the instance NAME: the settings of serve, by their long names without the dashes.",
    ),
    (
        "/run/vgpu-device/libvirt/NAME.toml",
        "Settings that the metadata of the instance's libvirt domain adds, for as long as the domain runs.",
    ),
    (
        "/etc/libvirt/hooks/qemu.d/vgpu-device",
        "The hook that starts the instance of a libvirt domain before it and stops it after it.",
    ),
    ("/etc/systemd/system/vgpu-device@.service", "The template unit, copied there from the release."),
    (
        "/run/vgpu-device/NAME/device",
        "Socket of the bus, where QEMU connects. Its mode and the setting group say who may.",
    ),
    ("/run/vgpu-device/NAME/control", "Socket that status asks. Only the device's user may open it."),
    (
        "XDG_RUNTIME_DIR/vgpu-device/NAME/control",
        "The same socket, for a device that another user than root serves.",
    ),
    (
        "/var/cache/vgpu-device/NAME",
        "Code that the driver has compiled for the VM's programs. Run for no other VM's.",
    ),
    ("/usr/local/share/doc/vgpu-device/host.md", "The guide for hosts, with an example configuration."),
];

/// Exit codes that the page describes.
const CODES: [(&str, &str); 3] = [
    (
        "0",
        "serve: it was told to stop. check: a VM can get the GPU. status: a device answered. probe: each \
         question has an answer or a reason of the driver's.",
    ),
    (
        "1",
        "A failure, with its reason on stderr. check: a VM cannot get the GPU. status: no device answers. \
         probe: a question's process hung, died, or found no GPU.",
    ),
    ("2", "The command line is wrong."),
];

/// Writes the files below `prefix`, in the directories in which a system has them. `command` is the
/// definition of the command line.
pub fn write(prefix: &Path, command: &Command) -> Result<()> {
    let page = (MANUAL.to_owned(), page(command).into_bytes());
    for (path, content) in std::iter::once(page).chain(completions(command)) {
        let path = prefix.join(path);
        let (folder, name) = (path.parent().unwrap_or(prefix), path.file_name().unwrap_or_default());
        Dir::make(folder)
            .and_then(|(folder, _)| folder.replace(name, &content))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the command line without the hidden commands, which completions would offer otherwise.
fn shown(command: &Command) -> Command {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("vgpu-device")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(commands)
}

fn completions(command: &Command) -> Vec<(String, Vec<u8>)> {
    let of = |(shell, path): (Shell, &str)| {
        let mut content = Vec::new();
        clap_complete::generate(shell, &mut shown(command), "vgpu-device", &mut content);
        (path.to_owned(), content)
    };
    SHELLS.map(of).to_vec()
}

/// Returns what one of clap's sections renders to, without the lines with which every section starts.
fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    render(&mut bytes).expect("memory takes what is written");
    let text = String::from_utf8_lossy(&bytes);
    let lines =
        text.lines().filter(|line| !line.starts_with(".ie \\n(.g") && !line.starts_with(".el .ds Aq"));
    joined(lines)
}

/// Joins lines to a text, with a line break after each.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn render_roff(roff: &Roff) -> String {
    rendered(|out| roff.to_writer(out))
}

/// Renders the manual page.
fn page(command: &Command) -> String {
    let mut program = shown(command).disable_help_subcommand(true);
    program.build();
    // The page has no date, so that it does not depend on when it is generated.
    let man = Man::new(program.clone()).section("8").date("").manual("vgpu-run");
    // The macro for an apostrophe, which each rendering defines although one definition is enough.
    let mut text = Roff::new().render();
    text += &rendered(|out| man.render_title(out));
    text += &rendered(|out| man.render_name_section(out));
    text += &render_roff(&synopsis(&mut program));
    text += &rendered(|out| man.render_description_section(out));
    text += &rendered(|out| man.render_options_section(out));
    text += &render_roff(Roff::new().control("SH", ["COMMANDS"]));
    for command in program.get_subcommands() {
        text += &described(command);
    }
    text += &render_roff(&closing());
    text
}

/// Returns a line for each command, as clap writes it.
fn synopsis(program: &mut Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).control("nf", []);
    for command in program.get_subcommands_mut() {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        let (typed, rest) = usage.split_at(usage.find(['[', '<']).unwrap_or(usage.len()));
        roff.text([bold(typed.trim_end()), roman(format!(" {rest}"))]);
    }
    roff.control("fi", []);
    roff
}

/// Returns the description of a command with its options.
fn described(command: &Command) -> String {
    let man = Man::new(command.clone());
    let mut heading = Roff::new();
    heading.control("SS", [format!("vgpu-device {}", command.get_name()).as_str()]);
    let description = rendered(|out| man.render_description_section(out));
    let options = rendered(|out| man.render_options_section(out));
    // The sections are below the command's own heading.
    let body = |section: &str| joined(section.lines().skip(1));
    render_roff(&heading) + &body(&description) + &body(&options)
}

/// Renders the sections that follow the commands.
fn closing() -> Roff {
    let mut roff = Roff::new();
    let mut list = |title: &str, entries: &[(&str, &str)]| {
        roff.control("SH", [title]);
        for (term, text) in entries {
            roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
        }
    };
    list("FILES", &FILES);
    list("EXIT STATUS", &CODES);
    roff.control("SH", ["EXAMPLES"]).text([roman("Serve a GPU to one VM:")]);
    let serve =
        "vgpu-device serve --bus vfio-user:/run/vgpu/vm1.sock --gpu GPU-... --memory 8G --vm-memory 16G";
    example(&mut roff, [serve]);
    roff.text([roman("Start the VM, with the arguments that the command has printed:")]);
    let vm = Vm {
        socket: PathBuf::from("/run/vgpu/vm1.sock"),
        memory_mib: 16 << 10,
        slot: None,
        window_bytes: WINDOW.0,
    };
    let shell = format!("qemu-system-x86_64 -machine q35 -accel kvm -cpu host ... \\\n{}", vm.shell());
    example(&mut roff, shell.lines());
    roff.text([roman("Find out why a VM does not get its GPU:")]);
    example(&mut roff, ["vgpu-device check --config /etc/vgpu-device/vm1.toml"]);
    roff.control("SH", ["SEE ALSO"]);
    let pages = ["vgpu-run(1)", "nvidia-smi(1)", "qemu(1)", "systemd.unit(5)"].map(page_name);
    let mut line: Vec<Inline> = Vec::new();
    for (index, [name, section]) in pages.into_iter().enumerate() {
        if index > 0 {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(section)]);
    }
    roff.text(line);
    roff
}

/// Returns a page's name, and its section in parentheses.
fn page_name(page: &str) -> [&str; 2] {
    let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
    [name, section]
}

/// Renders lines that a user types.
fn example<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("PP", []).control("nf", []).control("RS", ["4"]);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("RE", []).control("fi", []).control("PP", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Command {
        let option = clap::Arg::new("bus").long("bus").help(".leading dot, a \\ and 'quotes'");
        let serve = Command::new("serve").about("Give a VM a GPU.").arg(option);
        let hidden = Command::new("worker").hide(true);
        Command::new("vgpu-device").about("Serves devices").subcommand(serve).subcommand(hidden)
    }

    #[test]
    fn the_page_has_every_section_in_the_usual_order() {
        let page = page(&sample());
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "COMMANDS",
            "FILES",
            "\"EXIT STATUS\"",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ];
        assert_eq!(headings, expected, "{page}");
        assert!(page.contains("\n.TH vgpu-device 8 "), "{page}");
        assert!(page.contains("\\fBvgpu\\-device serve\\fR [OPTIONS]") && !page.contains("worker"), "{page}");
        assert!(page.contains("memory\\-backend\\-memfd") && page.contains("/etc/vgpu\\-device/NAME.toml"));
    }
}
