//! Static keys of a profile in the files that the AWS tools keep (`~/.aws/credentials`, `~/.aws/config`), which
//! `object_store` doesn't read.

use std::path::{Path, PathBuf};

use super::store_options::StoreOptions;
use crate::{Error, Result};

/// What a profile gives.
#[derive(Default)]
pub(super) struct Profile {
    /// Settings as of [`StoreOptions::set`]: `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`, `aws_region`.
    pub settings: Vec<(String, String)>,
}

/// Names in the files that are settings of ours, the last under another name.
const KEYS: [(&str, &str); 4] = [
    ("aws_access_key_id", "aws_access_key_id"),
    ("aws_secret_access_key", "aws_secret_access_key"),
    ("aws_session_token", "aws_session_token"),
    ("region", "aws_region"),
];

/// The profile that `AWS_PROFILE` names, or `default`, from the files at `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE`
/// or in `~/.aws`.
///
/// # Errors
/// `InvalidArgument` when `AWS_PROFILE` names one without keys (SSO, assumed roles and processes that give credentials aren't
/// supported).
pub(super) fn read(options: &StoreOptions) -> Result<Profile> {
    let named = options.get("aws_profile");
    let profile = named.as_deref().unwrap_or("default");
    let path = |setting: &str, file: &str| {
        let in_home = || Some(options.home()?.join(".aws").join(file));
        options.get(setting).map(PathBuf::from).or_else(in_home)
    };
    let credentials = path("aws_shared_credentials_file", "credentials");
    let config = path("aws_config_file", "config");
    let section = |file: &Option<PathBuf>, titles: &[String]| -> Vec<(String, String)> {
        file.as_deref().map(|file| section_of(file, titles)).unwrap_or_default()
    };
    let mut found = section(&config, &[format!("profile {profile}"), profile.to_owned()]);
    found.extend(section(&credentials, &[profile.to_owned()]));
    let given = |key: &str| found.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let settings: Vec<_> =
        KEYS.iter().filter_map(|(key, setting)| Some(((*setting).to_owned(), given(key)?))).collect();
    let keys = settings.iter().filter(|(name, _)| name.contains("key")).count();
    match named {
        Some(profile) if keys < 2 => {
            let shown = |path: Option<PathBuf>| path.map_or_else(|| "~/.aws".into(), |path| path.display().to_string());
            Err(Error::invalid(format!(
                "AWS_PROFILE names `{profile}`, for which there are no access keys in `{}` or `{}`; only static keys are read from profiles",
                shown(credentials),
                shown(config)
            )))
        }
        _ => Ok(Profile {
            settings: if keys < 2 {
                settings.into_iter().filter(|(name, _)| name == "aws_region").collect()
            } else {
                settings
            },
        }),
    }
}

/// Names and values below the first of `titles` that is there; nothing of a file that can't be read.
fn section_of(file: &Path, titles: &[String]) -> Vec<(String, String)> {
    let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            inside = titles.iter().any(|wanted| wanted == title.trim());
        } else if let Some((name, value)) = line.split_once('=').filter(|_| inside && !line.starts_with(['#', ';'])) {
            found.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_gives_its_keys_and_region_and_a_named_one_without_keys_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (credentials, config) = (directory.path().join("credentials"), directory.path().join("config"));
        std::fs::write(
            &credentials,
            "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key = marked-secret=\n[other]\naws_access_key_id = B\n",
        )
        .unwrap();
        std::fs::write(&config, "[profile other]\nregion = eu-north-1\n[default]\nregion=eu-west-1\nsso_session = x\n")
            .unwrap();
        let options = StoreOptions::default()
            .environment(false)
            .set("AWS_SHARED_CREDENTIALS_FILE", credentials.display().to_string())
            .set("AWS_CONFIG_FILE", config.display().to_string());
        let settings = read(&options).unwrap().settings;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            settings,
            [
                pair("aws_access_key_id", "A"),
                pair("aws_secret_access_key", "marked-secret="),
                pair("aws_region", "eu-west-1")
            ]
        );
        for missing in ["other", "absent"] {
            let error = read(&options.clone().set("AWS_PROFILE", missing)).err().unwrap();
            assert!(error.to_string().contains(missing) && error.to_string().contains("config"), "{error}");
        }
    }
}
