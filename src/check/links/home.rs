//! Checks that Ollama may use its home directory. It keeps a key and its models there, and its server exits
//! if it can neither read nor create them. Part of link `ollama`, because the server that link `truth` starts
//! has another home directory.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::check::context::CheckContext;
use crate::check::messages::Rights;
use crate::check::rights;
use crate::diagnosis::Finding;
use crate::diagnosis::cause::ollama as cause;
use crate::diagnosis::fix::ollama as fix;
use crate::env::{Environment, HOME};
use crate::ollama::variable::var;

/// Variable that moves the models out of the home directory.
const MODELS: &str = "OLLAMA_MODELS";
/// Name in messages of the key with which Ollama signs requests to a registry.
const KEY: &str = "Ollama's key";

/// Returns a finding for a part of its home directory that Ollama's user can neither read nor create.
pub async fn refused(context: &CheckContext) -> io::Result<Option<Finding>> {
    let environment = context.plain.as_ref().unwrap_or(&context.environment);
    let needed = needed(environment);
    // Each with the folders in which it would be made.
    let paths: Vec<PathBuf> =
        needed.iter().flat_map(|(path, _)| path.ancestors()).map(Path::to_path_buf).collect();
    let known = rights::query(context, &paths).await?;
    let who = rights::who(context);
    Ok(needed.iter().find_map(|(path, what)| {
        let (place, error) = obstacle(path, *what == KEY, &known)?;
        let found = format!(
            "{who} can neither read nor create {what} {}, because of {}: {}",
            path.display(),
            place.display(),
            error.desc()
        );
        let finding = Finding::fail(cause::HOME_REFUSED, found);
        let finding = if error == Errno::EROFS { finding.fix(fix::READ_ONLY) } else { finding };
        Some(finding.with("path", place.display()))
    }))
}

/// Returns the paths that a server needs in its home directory, each with its name for messages.
fn needed(environment: &Environment) -> Vec<(PathBuf, &'static str)> {
    let home = environment.get(HOME).filter(|home| !home.is_empty()).map(PathBuf::from);
    let own = home.map(|home| home.join(".ollama"));
    let models = var(environment, MODELS).map(PathBuf::from);
    let models = models.or_else(|| Some(own.as_ref()?.join("models")));
    let key = own.map(|own| (own.join("id_ed25519"), KEY));
    let all = [key, models.map(|models| (models, "the models in"))];
    all.into_iter().flatten().filter(|(path, _)| path.is_absolute()).collect()
}

/// Returns the path that prevents the use of `path`, according to `known`: `path` itself if it exists and is
/// unreadable, otherwise the nearest existing directory if it is not writable. An existing key need not be
/// readable yet. Returns `None` if nothing prevents the use, or if the rights are unknown.
fn obstacle<'a>(path: &'a Path, key: bool, known: &[Rights]) -> Option<(&'a Path, Errno)> {
    let of = |path: &Path| known.iter().find(|rights| rights.path == path);
    let absent = Some(Errno::ENOENT as i32);
    let nearest = path.ancestors().find(|place| of(place).is_none_or(|rights| rights.read != absent))?;
    let Rights { read, write, .. } = of(nearest)?;
    // A folder need not be listed to make something in it.
    let error = if nearest == path { read.filter(|_| !key) } else { *write }?;
    let errno = Errno::from_raw(error);
    matches!(errno, Errno::EACCES | Errno::EROFS | Errno::EPERM).then_some((nearest, errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(path: &str, read: Option<Errno>, write: Option<Errno>) -> Rights {
        let number = |errno: Option<Errno>| errno.map(|errno| errno as i32);
        Rights { path: path.into(), read: number(read), write: number(write), ..Rights::default() }
    }

    #[test]
    fn what_a_server_needs() {
        let of = |entries: &[(&str, &str)]| {
            let needed = needed(&entries.iter().copied().collect());
            needed.into_iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("HOME", "/h")]), ["/h/.ollama/id_ed25519", "/h/.ollama/models"]);
        assert_eq!(of(&[("HOME", "/h"), ("OLLAMA_MODELS", "/m")]), ["/h/.ollama/id_ed25519", "/m"]);
        assert_eq!(of(&[]), [""; 0]);
    }

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_made() {
        let path = Path::new("/h/.ollama/id_ed25519");
        let told =
            |key, known: &[Rights]| obstacle(path, key, known).map(|(place, _)| place.display().to_string());
        let refusal = |known: &[Rights]| told(false, known);
        let absent = Some(Errno::ENOENT);
        let missing = || rights("/h/.ollama/id_ed25519", absent, absent);
        assert_eq!(
            refusal(&[rights("/h/.ollama/id_ed25519", None, Some(Errno::EACCES))]),
            None,
            "it is read"
        );
        let closed = rights("/h/.ollama/id_ed25519", Some(Errno::EACCES), None);
        assert_eq!(refusal(std::slice::from_ref(&closed)).as_deref(), Some("/h/.ollama/id_ed25519"));
        assert_eq!(told(true, &[closed]), None, "a key is there");
        assert_eq!(refusal(&[missing(), rights("/h/.ollama", None, None)]), None);
        let folder =
            [missing(), rights("/h/.ollama", absent, absent), rights("/h", None, Some(Errno::EROFS))];
        assert_eq!(refusal(&folder).as_deref(), Some("/h"));
        assert_eq!(refusal(&[]), None, "nothing is known");
    }
}
