//! Secrets of the configuration.

use super::*;

#[test]
fn secrets_are_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    fs::write(&file, "hush-file\n").unwrap();
    let text = format!(
        "
        [upstreams.a]
        api_key_env = 'KEY'
        [upstreams.b]
        api_key_file = {file:?}
        [tools.t]
        description = 'd'
        url = 'http://localhost'
        headers = {{ a = 'hush-text', b = {{ env = 'KEY' }}, c = {{ file = {file:?}, prefix = 'Bearer ' }} }}
        [keys.k]
        key_env = 'KEY'
        "
    );
    let settings = load_with(&text, &Options::default(), &[("KEY", "hush-env")]).unwrap();
    assert_eq!(settings.tools[0].headers[2].1.expose(), "Bearer hush-file");
    let shown = format!("{settings:?}");
    assert!(!shown.contains("hush") && shown.contains("[redacted]"), "{shown}");
}
