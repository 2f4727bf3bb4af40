//! The kinds of packages: the formats, and the packages that there are.

/// Kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For Debian and its descendants.
    Deb,
    /// For distributions with RPM.
    Rpm,
}

impl Format {
    /// All formats.
    pub(super) const ALL: [Self; 2] = [Self::Deb, Self::Rpm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }

    /// Returns the name that the format's tools give the file of a package.
    pub(super) fn file(self, package: &str, version: &str) -> String {
        match self {
            // A version before a release sorts before it.
            Self::Deb => format!("{package}_{}-1_amd64.deb", version.replace('-', "~")),
            Self::Rpm => format!("{package}-{}-1.x86_64.rpm", version.replace('-', "~")),
        }
    }
}

/// What a package is about.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Name of the package, and of its program.
    pub name: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    /// What the program needs, as each format writes it.
    pub(super) needs: fn(Format) -> &'static [&'static str],
    /// Whether it is for hosts: with units, a user and a directory of configurations.
    pub(super) host: bool,
}

/// The guest's package.
pub const GUEST: Package = Package {
    name: "vgpu-run",
    summary: "GPU of the host for Ollama in a virtual machine",
    description: "vgpu-run starts a program, such as Ollama's server, with CUDA libraries of\n\
                  its own, which carry its CUDA calls to the GPU of the host through a\n\
                  VGPU-STUB PCI device. The virtual machine needs no NVIDIA driver.",
    // The program is static.
    needs: |_| &[],
    host: false,
};

/// The host's package.
pub const HOST: Package = Package {
    name: "vgpu-device",
    summary: "VGPU-STUB devices that give virtual machines the GPU of this host",
    description: "vgpu-device serves a VGPU-STUB PCI device to each virtual machine, over\n\
                  vfio-user, and carries out its CUDA calls on the GPU of this host. Several\n\
                  machines can share a GPU: memory is promised once, and time is shared by\n\
                  weights. It needs NVIDIA's driver.",
    needs: |format| match format {
        Format::Deb => &[
            "libc6 (>= 2.34)",
            "libgcc-s1",
            "default-systemd-sysusers | systemd-sysusers | systemd-standalone-sysusers",
        ],
        Format::Rpm => &["libc.so.6(GLIBC_2.34)(64bit)", "libgcc_s.so.1()(64bit)", "systemd"],
    },
    host: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_their_tools_name_them() {
        assert_eq!(Format::Deb.file("vgpu-run", "1.2.0-rc.1"), "vgpu-run_1.2.0~rc.1-1_amd64.deb");
        assert_eq!(Format::Rpm.file("vgpu-device", "1.2.0"), "vgpu-device-1.2.0-1.x86_64.rpm");
    }
}
