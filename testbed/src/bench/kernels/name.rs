//! Readable names of kernels.

use cpp_demangle::Symbol;
use vgpu_ggml::ffi::Type;

/// Returns a kernel's name without its result type and parameters, such as `mul_mat_vec_q<q8_0, 1, true>`.
/// Names that are not C++ are returned unchanged.
pub fn short(kernel: &str) -> String {
    let Some(text) = Symbol::new(kernel).ok().and_then(|symbol| symbol.demangle().ok()) else {
        return kernel.to_owned();
    };
    let mut depth = 0usize;
    let end = text.char_indices().find(|(_, character)| {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *character == '(' && depth == 0
    });
    let name = end.map_or(&text[..], |(end, _)| &text[..end]);
    types(&without_files(name.strip_prefix("void ").unwrap_or(name)))
}

/// Removes the namespaces that nvcc derives from source file names for internal functions.
fn without_files(name: &str) -> String {
    const NAMESPACE: &str = "_INTERNAL_";
    let mut pieces = name.split(NAMESPACE);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str(piece.split_once("::").map_or(piece, |(_, rest)| rest));
    }
    out
}

/// Replaces GGML's numeric element types with their names.
fn types(name: &str) -> String {
    const CAST: &str = "(ggml_type)";
    let mut pieces = name.split(CAST);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.find(|character: char| !character.is_ascii_digit()).unwrap_or(piece.len());
        let kind = piece[..digits].parse().ok().and_then(Type::from_raw);
        out.push_str(kind.map_or(&piece[..digits], |kind| kind.name()));
        out.push_str(&piece[digits..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        for (kernel, name) in [
            ("_Z13mul_mat_vec_qIL9ggml_type8ELi1ELb1ELb0EEvPKvS2_PKi", "mul_mat_vec_q<q8_0, 1, true, false>"),
            ("_Z13quantize_q8_1PKfPvlllll", "quantize_q8_1"),
            (
                "_ZN53_INTERNAL_f9fd7c1e_11_binbcast_cu_6840010b_12345678911a6kernelIL9ggml_type1EEEvv",
                "a::kernel<f16>",
            ),
            ("_Z4typeIL9ggml_type999EEvv", "type<999>"),
            ("kernel", "kernel"),
            ("_Zno", "_Zno"),
            ("", ""),
        ] {
            assert_eq!(short(kernel), name);
        }
    }
}
