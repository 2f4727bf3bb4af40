//! `vgpu-device`: the program that a host runs to give its guests a GPU.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use vgpu_serve::{
    Inherited, Knobs, check, context_cost, device, end, gpu_list, libvirt, mediator, node, pages, probe,
    ranges, reload, replug, serve, status, worker,
};

/// Serves VGPU-STUB devices to guests, and the calls of version 1's devices.
#[derive(Parser)]
#[command(name = "vgpu-device", version, arg_required_else_help = true)]
struct CommandLine {
    /// Print the version of the state that a device hands over when it is reloaded: programs with the same one
    /// take over from each other.
    #[arg(long, exclusive = true)]
    state_version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Give a VM a GPU, and print the arguments with which the VM must be started.
    Serve(serve::ServeArguments),
    /// Find out whether this host can give its GPU to a VM, and print the remedies.
    Check(check::CheckArguments),
    /// Show the sessions of the devices that are served: memory, GPU time, messages, waits.
    ///
    /// GPU TIME is the time during which a session has had work on the GPU that was not known to be complete.
    /// The GPU has spent at most that much on it: waiting for the work of other sessions counts as well. It
    /// grows while a session works.
    Status(status::StatusArguments),
    /// End one session of a device: its program gets an error, and what it held is free.
    End(end::EndArguments),
    /// Have a device execute the program that is installed now, without its VM noticing.
    ///
    /// The device's process, its VM, and the programs in it go on, with all that they have on the GPU. If the new
    /// program cannot take over, nothing happens.
    Reload(reload::ReloadArguments),
    /// Give a VM that runs its GPU back, after its device was started anew.
    ///
    /// QEMU connects to a device once, so the device is taken out of the VM and put in again. The VM's
    /// programs that used the GPU have lost it already.
    Replug(replug::ReplugArguments),
    /// Print the GPUs that the driver shows as JSON: the UUID of each, and the bytes of its memory.
    Gpus(gpu_list::GpusArguments),
    /// Add to a domain of libvirt what its device needs, and have libvirt start the device with it.
    ///
    /// The elements that `serve --print libvirt` prints are added to the domain's XML, and one to its
    /// metadata by which `libvirt-hook` knows what the domain is promised. What is there already stays. virsh
    /// is asked, whose LIBVIRT_DEFAULT_URI names another libvirt than its usual one.
    AttachDomain(libvirt::attach::AttachArguments),
    /// Start a domain's device before the domain, and stop it after it. libvirt calls this.
    ///
    /// Installed as /etc/libvirt/hooks/qemu.d/vgpu-device, with the domain's XML on stdin. A domain whose
    /// metadata asks for no device is left alone. One whose device does not get ready does not start, and its
    /// error is what `check` says.
    LibvirtHook(libvirt::hook::HookArguments),
    /// Share the time of each GPU among the VMs of this host.
    ///
    /// While several VMs have work, each is granted slices by its weight. Devices go on without this process,
    /// but then the driver divides the time, by the number of programs.
    Node(node::NodeArguments),
    /// Ask the driver what this program relies on and no documentation says, and print the answers as JSON.
    ///
    /// Each question is asked in a process of its own, on the first GPU that CUDA_VISIBLE_DEVICES leaves. The
    /// GPU's memory is filled for a moment, so no program should use it meanwhile. The exit code is 1 if a
    /// process hung, died or did not find a GPU; the list `unanswered` has the reasons.
    Probe(probe::ProbeArguments),
    /// Answer one question of `probe`, in a process that may crash or hang.
    #[command(name = probe::ANSWER, hide = true)]
    ProbeAnswer(probe::Question),
    /// Serve VGPU-STUB devices on a bus until told to stop.
    Device(device::DeviceArguments),
    /// Carry out the calls of version 1's devices in other processes, such as those of patched hypervisors.
    Mediator(mediator::MediatorArguments),
    /// Query a library of NVIDIA, in a process that may crash.
    #[command(name = check::ASK, hide = true)]
    Ask(check::Question),
    /// Ask the GPU's driver which device addresses it reserves. A device's process starts this.
    #[command(name = ranges::ANSWER, hide = true)]
    Ranges(ranges::Question),
    /// Measure what a context costs of the GPU's memory. A device's process starts this.
    #[command(name = context_cost::ANSWER, hide = true)]
    ContextCost(context_cost::Question),
    /// Carry out one session's messages. A device's process starts this.
    #[command(hide = true)]
    Worker,
    /// Write the manual page and the shell completions below a directory, for a release.
    #[command(name = "__pages", hide = true)]
    Pages { prefix: PathBuf },
}

fn main() -> ExitCode {
    // Before anything is opened.
    let inherited = match Inherited::at_start() {
        Ok(inherited) => inherited,
        Err(error) => return ended(Err(error.into())),
    };
    let Some(command) = CommandLine::parse().command else {
        println!("{}", reload::STATE_VERSION);
        return ExitCode::SUCCESS;
    };
    let outcome = match command {
        Command::Serve(arguments) => serve::serve_configured(&arguments, inherited),
        Command::Check(arguments) => return ended(check::check_host(&arguments)),
        Command::Status(arguments) => return ended(status::show_status(&arguments)),
        Command::End(arguments) => return ended(end::end_session(&arguments)),
        Command::Reload(arguments) => return ended(reload::reload_device(&arguments)),
        Command::Replug(arguments) => return ended(replug::replug_device(&arguments)),
        Command::Gpus(arguments) => gpu_list::print_gpus(&arguments),
        Command::AttachDomain(arguments) => return ended(libvirt::attach::attach_domain(&arguments)),
        Command::LibvirtHook(arguments) => return ended(libvirt::hook::run_hook(&arguments)),
        Command::Node(arguments) => node::run_node(&arguments),
        Command::Ask(question) => return check::ask(&question),
        Command::Probe(arguments) => return ended(probe::probe_driver(&arguments)),
        Command::ProbeAnswer(question) => return probe::answer(&question),
        Command::Ranges(question) => return ended(ranges::answer(&question)),
        Command::ContextCost(question) => return ended(context_cost::answer(&question)),
        Command::Device(arguments) => device::serve_device(&arguments, &Knobs::default()),
        Command::Mediator(arguments) => mediator::serve_mediator(&arguments, &Knobs::default()),
        Command::Worker => return worker::run_worker(),
        Command::Pages { prefix } => pages::write(&prefix, &CommandLine::command()),
    };
    ended(outcome.map(|()| ExitCode::SUCCESS))
}

/// Prints the error, if there is one, and returns the exit code.
fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("vgpu-device: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// clap checks these assertions only when a command is used.
    #[test]
    fn options_do_not_contradict_each_other() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_release_has_the_manual_and_completions_of_this_command_line() {
        let folder = tempfile::tempdir().unwrap();
        pages::write(folder.path(), &CommandLine::command()).unwrap();
        let text = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
        let manual = text(pages::MANUAL);
        let mut program = CommandLine::command();
        program.build();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert_eq!(manual.contains(&format!("\n.SS \"vgpu-device {name}\"\n")), name != "help", "{name}");
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for option in shown.filter_map(|argument| argument.get_long()) {
                let written = format!("\\fB\\-\\-{}\\fR", option.replace('-', "\\-"));
                assert!(name == "help" || manual.contains(&written), "{name} --{option}: {manual}");
            }
        }
        for path in [
            "share/bash-completion/completions/vgpu-device",
            "share/fish/vendor_completions.d/vgpu-device.fish",
            "share/zsh/site-functions/_vgpu-device",
        ] {
            let text = text(path);
            assert!(text.contains("serve") && text.contains("vm-memory"), "{path}");
            assert!(!text.contains("__pages") && !text.contains("worker\n"), "{path}: {text}");
        }
    }
}
