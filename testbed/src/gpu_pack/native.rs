//! Libraries and programs of the pack: programs without debugging symbols, and the library by which programs
//! of CUDA 12 use the cuBLAS of CUDA 13.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Source of the library.
const SOURCE: &str = include_str!("blas.c");
/// SONAME of the library, which is also the version of its functions.
pub const BLAS: &str = "libcublas.so.12";

/// Runs a command and fails unless it succeeds.
fn run_tool(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {program} (packages binutils and gcc)"))?;
    if !output.status.success() {
        bail!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Writes a copy of a program without debugging symbols to `folder` and returns its path.
pub fn stripped(program: &Path, folder: &Path) -> Result<PathBuf> {
    let to = folder.join(program.file_name().context("a program without a name")?);
    run_tool(Command::new("strip").arg("-o").arg(&to).arg(program))?;
    Ok(to)
}

/// Builds the library in `folder`.
pub fn blas(folder: &Path) -> Result<PathBuf> {
    let [source, versions, library] = ["blas.c", "blas.map", BLAS].map(|name| folder.join(name));
    fs::write(&source, SOURCE).with_context(|| format!("write {}", source.display()))?;
    fs::write(&versions, format!("{BLAS} {{ global: cublas*; local: *; }};\n"))
        .with_context(|| format!("write {}", versions.display()))?;
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-s", "-o"]).arg(&library);
    command.arg(format!("-Wl,-soname,{BLAS}"));
    command.arg(format!("-Wl,--version-script,{}", versions.display()));
    run_tool(command.arg(&source).arg("-ldl"))?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use goblin::elf::Elf;
    use tempfile::TempDir;
    use vgpu_testbed::backends::Backend;
    use vgpu_testbed::programs;

    use super::*;

    /// Source of a stand-in for cuBLAS of CUDA 13, which prints the calls it receives.
    const CUBLAS13: &str = r#"
        #include <stdio.h>
        int cublasSgemm_v2(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a,
                           int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
        {
            printf("%p %d %d %d %d %d %g %p %d %p %d %g %p %d\n", h, ta, tb, m, n, k, (double)*alpha,
                   (const void *)a, lda, (const void *)b, ldb, (double)*beta, (void *)c, ldc);
            return 17;
        }
        const char *cublasGetStatusString(int status) { return status == 17 ? "seventeen" : "another"; }
    "#;
    /// Source of a program of CUDA 12.
    const PROGRAM: &str = r#"
        #include <stdio.h>
        int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const float *, int, const float *,
                           int, const float *, float *, int);
        const char *cublasGetStatusString(int);
        int main(void)
        {
            const float alpha = 2.5f, beta = -1.0f;
            int status = cublasSgemm_v2((void *)0x10, 1, 0, 3, 4, 5, &alpha, (void *)0x20, 6, (void *)0x30, 7,
                                        &beta, (void *)0x40, 8);
            printf("%d %s\n", status, cublasGetStatusString(status));
            return 0;
        }
    "#;

    fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&from, source).unwrap();
        run_tool(Command::new("cc").arg("-o").arg(&to).arg(&from).args(flags)).unwrap();
        to
    }

    fn printed(program: &Path, libraries: &[&Path]) -> (String, String) {
        let mut command = Command::new(program);
        programs::prepend_libraries(&mut command, libraries.iter().copied());
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into()
    }

    #[test]
    fn a_program_of_cuda_12_uses_cublas_of_cuda_13() {
        let [old, new] = [(); 2].map(|()| TempDir::new().unwrap());
        let library = blas(old.path()).unwrap();
        compiled(new.path(), "libcublas.so.13", CUBLAS13, &["-shared", "-fPIC"]);
        let program = compiled(old.path(), "program", PROGRAM, &["-O1", library.to_str().unwrap()]);
        let (said, errors) = printed(&program, &[old.path(), new.path()]);
        let call = "0x10 1 0 3 4 5 2.5 0x20 6 0x30 7 -1 0x40 8\n17 seventeen\n";
        assert_eq!(said, call, "{errors}");
        assert!(errors.contains("cublasCreate_v2"), "what the library lacks is told: {errors}");

        let (said, errors) = printed(&program, &[old.path()]);
        assert!(said.starts_with("1 CUBLAS_STATUS_NOT_INITIALIZED"), "{said}");
        assert!(errors.contains("libcublas.so.13: cannot open shared object file"), "{errors}");
    }

    /// Returns the names of cuBLAS functions among those of a library's symbols that `wanted` accepts.
    fn names(path: &Path, wanted: impl Fn(&goblin::elf::Sym) -> bool) -> BTreeSet<String> {
        let bytes = fs::read(path).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let named = |sym: &goblin::elf::Sym| elf.dynstrtab.get_at(sym.st_name).map(str::to_owned);
        let all = elf.dynsyms.iter().filter(wanted).filter_map(|sym| named(&sym));
        all.filter(|name| name.starts_with("cublas")).collect()
    }

    #[test]
    fn it_has_all_functions_that_the_backend_needs() {
        let folder = TempDir::new().unwrap();
        let has = names(&blas(folder.path()).unwrap(), |sym| !sym.is_import());
        let backend = Backend::Cuda12.folder().unwrap().join("libggml-cuda.so");
        assert_eq!(has, names(&backend, goblin::elf::Sym::is_import));
        let newer = names(&programs::shim("libcublas.so.13").unwrap(), |sym| !sym.is_import());
        assert!(has.is_subset(&newer), "{:?}", has.difference(&newer));
    }
}
