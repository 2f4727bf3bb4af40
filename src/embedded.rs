//! The shims, as bytes. The build script has them built and says in OUT_DIR where they are; `embedded/` and its
//! manifest say what they are.

/// A shared object that stands in for one of NVIDIA's.
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    /// The name by which it is loaded.
    pub soname: &'static str,
    /// The object.
    pub bytes: &'static [u8],
}

/// All of them, libcuda first.
pub static OBJECTS: &[Object] = &include!(concat!(env!("OUT_DIR"), "/objects.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_bears_the_name_that_it_is_stored_under() {
        assert_eq!(OBJECTS.len(), 8);
        for object in OBJECTS {
            let elf = goblin::elf::Elf::parse(object.bytes).expect("a readable object");
            assert_eq!(elf.soname, Some(object.soname));
        }
    }
}
