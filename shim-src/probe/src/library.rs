//! Shared objects, opened through the dynamic loader.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use vgpu_probe_steps::Fault;

/// An open object. It is never closed, because CUDA's libraries do not survive that.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: *mut c_void,
}

/// Which objects see the names of an opened one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only lookups through its handle see them.
    Local,
    /// Every object that is opened later sees them.
    Global,
}

impl Library {
    /// Opens `name`, a path or a SONAME. All its undefined names must resolve at once.
    pub fn open(name: &OsStr, scope: Scope) -> Result<Self, Fault> {
        let text = CString::new(name.as_bytes())
            .map_err(|_| Fault::wrong("dlopen", "the name has a zero byte in it"))?;
        let flags =
            libc::RTLD_NOW | if scope == Scope::Global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
        // SAFETY: the name is a C string, and running the object's constructors is intended.
        let handle = unsafe { libc::dlopen(text.as_ptr(), flags) };
        if handle.is_null() { Err(Fault::wrong("dlopen", last_error())) } else { Ok(Self { handle }) }
    }

    /// Returns the address of a name of the object, or null.
    fn address(self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is of dlopen and never closed, the name a C string.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// Finds the function `name`.
    ///
    /// # Safety
    /// `F` is the type of a C function pointer, and that of the function of this name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F, Fault> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.address(name);
        if address.is_null() {
            return Err(Fault::wrong("dlsym", format!("{} is not there", name.to_string_lossy())));
        }
        // SAFETY: both are as large as a pointer, and the caller promises that `F` is the function's type.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// Returns the path under which the loader knows the object, and its load address.
    pub fn place(self) -> Result<(String, usize), Fault> {
        let mut map: *mut LinkMap = ptr::null_mut();
        // SAFETY: with this request dlinfo writes one pointer, and has room for it.
        let failed = unsafe { dlinfo(self.handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if failed != 0 || map.is_null() {
            return Err(Fault::wrong("dlinfo", last_error()));
        }
        // SAFETY: the loader's own entry, which lives while the object is open.
        let entry = unsafe { &*map };
        // SAFETY: the loader's name for an object is a C string, as long-lived as the entry.
        let name = unsafe { CStr::from_ptr(entry.name) };
        Ok((name.to_string_lossy().into_owned(), entry.address))
    }
}

/// The public fields of `struct link_map` in link.h.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const LinkMap,
    previous: *const LinkMap,
}

unsafe extern "C" {
    fn dlinfo(handle: *mut c_void, request: c_int, argument: *mut c_void) -> c_int;
}

/// Returns the loader's message for the last failure.
fn last_error() -> String {
    // SAFETY: no arguments; the answer is of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".into();
    }
    // SAFETY: not null: a C string that lives until the thread's next dl call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a table of a library's functions, which are looked up by name when the table is opened. The type
/// of a function follows its name, or is found under that name in a module: `Calls of MODULE { NAME; }`.
#[macro_export]
#[doc(hidden)]
macro_rules! table {
    ($(#[$meta:meta])* $table:ident { $($name:ident($($arg:ty),*) -> $ret:ty;)* }) => {
        $crate::table! { @ $(#[$meta])* $table { $($name: unsafe extern "C" fn($($arg),*) -> $ret;)* } }
    };
    ($(#[$meta:meta])* $table:ident of $types:ident { $($name:ident;)* }) => {
        $crate::table! { @ $(#[$meta])* $table { $($name: $types::$name;)* } }
    };
    (@ $(#[$meta:meta])* $table:ident { $($name:ident: $type:ty;)* }) => {
        $(#[$meta])*
        #[allow(non_snake_case, clippy::struct_field_names, reason = "the names are the library's")]
        pub struct $table { $(pub $name: $type),* }

        impl $table {
            /// Finds them all in an open library.
            pub fn from_library(
                library: $crate::library::Library
            ) -> Result<Self, ::vgpu_probe_steps::Fault> {
                Ok(Self { $(
                    $name: {
                        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("no zero byte inside"),
                        };
                        // SAFETY: the type is that of the function in its library's headers.
                        unsafe { library.function::<$type>(NAME)? }
                    }
                ),* })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_says_why() {
        let fault = Library::open("libno-such.so.7".as_ref(), Scope::Local).unwrap_err();
        assert!(fault.error.contains("libno-such.so.7: cannot open shared object file"), "{fault:?}");
        assert!(Library::open("a\0b".as_ref(), Scope::Local).unwrap_err().error.contains("zero"));
    }

    #[test]
    fn a_library_has_a_place_and_functions() {
        let library = Library::open("libc.so.6".as_ref(), Scope::Local).unwrap();
        let (name, address) = library.place().unwrap();
        assert!(name.ends_with("libc.so.6") && address != 0, "{name}");
        // SAFETY: getpid's type.
        let getpid: unsafe extern "C" fn() -> c_int = unsafe { library.function(c"getpid") }.unwrap();
        // SAFETY: it has no arguments and no conditions.
        assert_eq!(unsafe { getpid() } as u32, std::process::id());
        // SAFETY: not called, for there is none.
        let none = unsafe { library.function::<unsafe extern "C" fn()>(c"no_such_function") };
        assert_eq!(none.unwrap_err().error, "no_such_function is not there");
    }
}
