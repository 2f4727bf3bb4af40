//! Keeps the library in the process once it is loaded: its threads outlive the last `dlclose`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
