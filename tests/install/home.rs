//! The installer as a release publishes it: with its release's address inside, fetched and run as the README
//! says, from a server that redirects as GitHub does, over TLS.

use std::fs;
use std::process::{Command, Stdio};

use xtask::dist::fill_in;

use super::bed::{Bed, Said, Shell, tool};
use super::in_each_shell;
use super::releases::{Releases, stand_in};
use super::tls::{Server, Site};

/// Path of the repository on both servers.
const REPOSITORY: &str = "OWNER/REPO";

/// A forge: one server with the repository's addresses, which redirect to another with the files, as GitHub's
/// releases do.
struct Forge {
    site: Site,
    front: Server,
    store: Server,
}

impl Forge {
    /// Publishes version 1.0.0.
    fn new() -> Self {
        let site = Site::new();
        let (front, store) = (site.serve("localhost"), site.serve("127.0.0.1"));
        let forge = Self { site, front, store };
        let releases = Releases::one();
        let installer = fill_in(super::bed::SCRIPT, "1.0.0", Some(&forge.release())).unwrap();
        fs::write(releases.path("install.sh"), installer).unwrap();
        let latest = format!("{REPOSITORY}/releases/latest/download/install.sh");
        forge.front.redirect(&latest, &format!("{}/install.sh", forge.release()));
        for name in ["install.sh", "SHA256SUMS", "vgpu-run-1.0.0-x86_64-linux.tar.gz"] {
            // The address of a file is signed, and so has what shells and servers may take for something else.
            let signed =
                format!("assets/1.0.0/{name}?sp=r&sv=2018&sig=a%2Fb%3D&rscd=attachment%3B+filename%3D{name}");
            forge.store.add(&signed, &fs::read(releases.path(name)).unwrap());
            let path = format!("{REPOSITORY}/releases/download/v1.0.0/{name}");
            forge.front.redirect(&path, &format!("{}/{signed}", forge.store.url));
        }
        forge
    }

    /// Returns the address of the release's directory.
    fn release(&self) -> String {
        format!("{}/{REPOSITORY}/releases/download/v1.0.0", self.front.url)
    }

    /// Returns the fetchers of a shell, each with the README's way to call it. BusyBox's shell prefers its own
    /// wget, which checks no certificates.
    fn fetchers(shell: &Shell) -> &'static [(&'static str, &'static str)] {
        let all = &[("curl", "curl -fsSL"), ("wget", "wget -qO-")];
        if shell.name == "busybox" { &all[..1] } else { all }
    }

    /// Returns a bed with this fetcher, which trusts the servers' certificate.
    fn bed(&self, shell: &Shell, fetcher: &str) -> Bed {
        let bed = Bed::new(shell);
        bed.without("curl").link_real(fetcher);
        fs::write(
            bed.path("home/.wgetrc"),
            format!("ca_certificate = {}\n", self.site.certificate().display()),
        )
        .unwrap();
        bed
    }

    /// Runs the README's line in a shell of this machine: fetches the newest installer and pipes it to `sh`.
    fn install(&self, bed: &Bed, fetch: &str) -> Said {
        let address = format!("{}/{REPOSITORY}/releases/latest/download/install.sh", self.front.url);
        let fetched = Command::new(tool(fetch.split(' ').next().unwrap()).unwrap())
            .args(fetch.split(' ').skip(1))
            .arg(address)
            .env("HOME", bed.home())
            .env("CURL_CA_BUNDLE", self.site.certificate())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        let script = String::from_utf8(fetched.stdout).unwrap();
        let trusted = self.site.certificate().display().to_string();
        Said::of(bed.start(&script, &[], &[("CURL_CA_BUNDLE", &trusted)]).wait_with_output().unwrap())
    }
}

#[test]
fn the_readmes_line_installs_the_newest_release() {
    let forge = Forge::new();
    in_each_shell(|shell| {
        for &(fetcher, line) in Forge::fetchers(shell) {
            let bed = forge.bed(shell, fetcher);
            let said = forge.install(&bed, line);
            said.well(&["vgpu-run 1.0.0 is installed: "]);
            assert_eq!(fs::read_to_string(bed.program()).unwrap(), stand_in("1.0.0"), "{fetcher}");
        }
    });
}

#[test]
fn a_redirection_leads_neither_to_plain_http_nor_in_circles() {
    let forge = Forge::new();
    let path = format!("{REPOSITORY}/releases/download/v1.0.0/SHA256SUMS");
    let plain = format!("http://127.0.0.1:9/{path}");
    let circle = format!("{}/{path}", forge.front.url);
    in_each_shell(|shell| {
        for &(fetcher, line) in Forge::fetchers(shell) {
            let bed = forge.bed(shell, fetcher);
            let before = bed.tree();
            forge.front.redirect(&path, &plain);
            let said = forge.install(&bed, line);
            said.badly("failed to fetch ");
            let told = if fetcher == "curl" { "Protocol \"http\"" } else { "which is not https://" };
            assert!(said.err.contains(told), "{fetcher}: {}", said.err);
            forge.front.redirect(&path, &circle);
            let said = forge.install(&bed, line);
            said.badly("failed to fetch ");
            assert!(said.err.contains("redirect"), "{fetcher}: {}", said.err);
            assert_eq!(bed.tree(), before, "{fetcher}: something was left behind");
        }
    });
}

#[test]
fn a_server_that_is_not_trusted_and_a_file_that_is_missing_are_refused() {
    let forge = Forge::new();
    in_each_shell(|shell| {
        for &(fetcher, _) in Forge::fetchers(shell) {
            let bed = forge.bed(shell, fetcher);
            fs::remove_file(bed.path("home/.wgetrc")).unwrap();
            let before = bed.tree();
            let release = forge.release();
            let said = bed.run(&[], &[(super::BASE, &release)]);
            said.badly("failed to fetch ");
            assert!(said.err.contains("certificate"), "{fetcher}: {}", said.err);
            assert_eq!(bed.tree(), before, "{fetcher}: something was left behind");
        }
    });
    forge.front.missing(&format!("{REPOSITORY}/releases/download/v1.0.0/SHA256SUMS"));
    in_each_shell(|shell| {
        for &(fetcher, line) in Forge::fetchers(shell) {
            let bed = forge.bed(shell, fetcher);
            let said = forge.install(&bed, line);
            said.badly("404");
        }
    });
}
