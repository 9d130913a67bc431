//! Published interpreters run what models write.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::installed;
use crate::support::server::loopgate;
use crate::support::within;

/// The file of an interpreter.
fn interpreter(name: &str) -> PathBuf {
    let python = installed("LOOPGATE_TEST_PYTHON", "python/bin/python");
    let libraries = python.ancestors().nth(2).expect("it is in a directory of its own").join("lib");
    let mut versions = std::fs::read_dir(libraries).expect("it has libraries").flatten();
    let found = versions.find_map(|version| {
        let path = version.path().join("site-packages/bin").join(name);
        path.exists().then_some(path)
    });
    found.expect("scripts/test installs it")
}

/// What a program prints that finds a file with numbers and writes another one.
async fn run(language: &str, module: &str, code: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory can be made");
    // Built without optimization, the server takes a while for the start of a large interpreter.
    let config = format!(
        "[tools.run_code]\ntimeout = \"100s\"\n[tools.run_code.languages.{language}]\nmodule = '{}'\n",
        interpreter(module).display()
    );
    std::fs::write(directory.path().join("loopgate.toml"), config).expect("it can be written");
    let arguments = json!({"code": code, "files": {"numbers.csv": "1\n2\n39\n"}}).to_string();
    let mut command = loopgate(directory.path());
    command.args(["tools", "call", "run_code", "--json", &arguments]).kill_on_drop(true);
    let ran = within("code to be run", command.output()).await.expect("it can be started");
    let told: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    told["content"].as_str().expect("it has content").to_owned()
}

#[tokio::test]
async fn javascript() {
    let code = "const sum = std.loadFile('numbers.csv').trim().split('\\n').map(Number).reduce((a, b) => a + b);\n\
                const out = std.open('sum.txt', 'w'); out.puts(String(sum)); out.close(); console.log(sum, os.readdir('/etc'));";
    let told = run("javascript", "quickjs.wasm", code).await;
    assert!(told.starts_with("42 ") && told.contains("[Files written: sum.txt (2 bytes)]"), "{told}");
}

#[tokio::test]
async fn python() {
    let code = "import json, re\nsum = sum(int(line) for line in open('numbers.csv'))\nopen('sum.txt', 'w').write(str(sum))\n\
                print(json.dumps({'sum': sum}))\nopen('/etc/passwd')";
    let told = run("python", "python.wasm", code).await;
    assert!(told.starts_with("{\"sum\": 42}\n[errors]\nTraceback"), "{told}");
    assert!(told.contains("FileNotFoundError") && told.contains("[The code ended with exit code 1]"), "{told}");
}
