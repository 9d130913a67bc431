//! Which code is run, and by what.

use insta::assert_snapshot;

#[cfg(feature = "run-code")]
use super::load;
use super::mistakes;

#[cfg(feature = "run-code")]
#[test]
fn languages_have_what_is_usual_for_them_unless_it_is_written() {
    let settings = load(
        "[tools.run_code]\nmemory = '64MiB'\n[tools.run_code.languages.python]\nmodule = 'p.wasm'\n\
         [tools.run_code.languages.javascript]\nmodule = 'q.wasm'\n\
         [tools.run_code.languages.lua]\nmodule = 'l.wasm'\nfile = 'a.lua'\narguments = ['-e', '{file}']\nhint = 'Be brief.'\n\
         [agents.default]\ntools = ['run_code']\n",
    );
    let config = settings.builtin_tools.run_code.unwrap();
    assert_eq!((config.memory, config.concurrent, config.timeout.as_secs()), (64 << 20, 2, 10));
    let [python, javascript, lua] = &config.languages[..] else { panic!("{config:?}") };
    assert_eq!((&*python.file, &python.arguments[..]), ("main.py", &["{file}".to_owned()][..]));
    assert_eq!(python.environment, ["PYTHONPATH=/workspace"]);
    assert_eq!((&*javascript.file, &javascript.arguments[0]), ("main.js", &"--std".to_owned()));
    assert!(javascript.hint.as_ref().is_some_and(|hint| hint.contains("QuickJS")) && python.hint.is_none());
    assert_eq!((&*lua.file, &lua.arguments[0], lua.hint.as_deref()), ("a.lua", &"-e".to_owned(), Some("Be brief.")));
}

#[cfg(feature = "run-code")]
#[test]
fn mistakes_are_told() {
    assert_snapshot!(mistakes("[tools.run_code]\nconcurrent = 0\n"), @"
    loopgate.toml:1: tools.run_code: name an interpreter, such as [tools.run_code.languages.python] with `module`
    loopgate.toml:2: tools.run_code.concurrent: must be an integer from 1 to 4294967295
    ");
    assert_snapshot!(mistakes(r#"[tools.run_code.languages.python]
file = "../main.py"
[tools.run_code.languages."a b"]
module = "m.wasm"
[agents.default]
tools = ["web_fetch"]
"#), @r#"
    loopgate.toml:1: tools.run_code.languages.python: `module` is missing: file of the interpreter: a WebAssembly module for WASI preview 1 with a `_start`. It is read when it is first needed
    loopgate.toml:2: tools.run_code.languages.python.file: must be the name of a file, without a directory
    loopgate.toml:3: tools.run_code.languages."a b": the name of a language has 1 to 32 characters of A-Z a-z 0-9 _ - + #
    loopgate.toml:6: agents.default.tools: declare [tools.web_fetch] to have the tool `web_fetch`
    "#);
    assert_snapshot!(mistakes("[agents.default]\ntools = ['run_code']\n"), @"loopgate.toml:2: agents.default.tools: declare [tools.run_code] to have the tool `run_code`");
}

#[cfg(not(feature = "run-code"))]
#[test]
fn a_build_that_runs_no_code_says_so() {
    let text = "[tools.run_code.languages.python]\nmodule = 'p.wasm'\n";
    assert_snapshot!(mistakes(text), @"loopgate.toml:1: tools.run_code: this build of Loopgate runs no code: it was made without the Cargo feature `run-code`");
}
