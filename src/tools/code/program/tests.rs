//! Programs that mean well, and programs that do not. They are written as text and stand for what an interpreter could be made to
//! do.

use std::io::Write;
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::*;

const BOUNDS: Bounds = Bounds { time: Duration::from_millis(300), memory: 4 << 20, files: 1 << 20, output: 1_000 };

/// All that the programs import.
const IMPORTS: &str = r#"
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $set_size (param i32 i64) (result i32)))
    (import "wasi_snapshot_preview1" "fd_pwrite" (func $fd_pwrite (param i32 i32 i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "env" "fork" (func $fork (result i32)))"#;

/// A program with this body, after `more` definitions.
fn program_of(more: &str, body: &str) -> (NamedTempFile, Program) {
    let text = format!(
        "(module {IMPORTS} (memory (export \"memory\") 1) {more} (func (export \"_start\") (local $i i32) (local $e i32) {body}))"
    );
    of_text(&text)
}

fn of_text(text: &str) -> (NamedTempFile, Program) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&wat::parse_str(text).unwrap()).unwrap();
    let program = Program::open(file.path()).unwrap();
    (file, program)
}

fn run(more: &str, body: &str) -> Ran {
    let (_file, program) = program_of(more, body);
    let files = BTreeMap::from([("in/a.txt".to_owned(), b"given".to_vec())]);
    let input = Input { files, code: ("main".into(), "the code".into()), ..Input::default() };
    program.run(input, &BOUNDS, &AtomicBool::new(false)).unwrap()
}

/// What a call answers that the body leaves on the stack, as the exit code of the program.
fn answer_of(more: &str, call: &str) -> i32 {
    match run(more, &format!("(call $exit {call})")).ending {
        Ending::Exit(code) => code,
        other @ (Ending::OutOfTime | Ending::Stopped | Ending::Trapped(_)) => panic!("{other:?}"),
    }
}

/// Opens a file below /workspace; its name is at 100.
fn open(name: &str, how: u32) -> (String, String) {
    let data = format!("(data (i32.const 100) \"{name}\")");
    let call = format!(
        "(call $path_open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const {}) (i32.const {how}) (i64.const 66) (i64.const 0) \
         (i32.const 0) (i32.const 80))",
        name.len()
    );
    (data, call)
}

/// Bytes at 200, named by the piece at 0.
const SAID: &str = r#"(data (i32.const 0) "\c8\00\00\00\06\00\00\00") (data (i32.const 200) "hello\n")"#;

#[test]
fn what_a_program_says_and_how_it_ends_is_known() {
    let body = "(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 80)))
        (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 80))) (call $exit (i32.const 3))";
    let ran = run(SAID, body);
    assert_eq!(ran.ending, Ending::Exit(3));
    assert_eq!((ran.output.0.as_str(), ran.errors.0.as_str()), ("hello\n", "hello\n"));
    assert_eq!(run("", "nop").ending, Ending::Exit(0));
    assert_eq!(run("", "unreachable").ending, Ending::Trapped("it aborted".into()));
}

#[test]
fn files_go_in_and_out() {
    let (data, call) = open("out.txt", 1);
    let body = format!(
        "(drop {call}) (drop (call $fd_write (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 84)))"
    );
    let ran = run(&format!("{SAID} {data}"), &body);
    let files: Vec<_> = ran.files.iter().map(|(path, bytes)| (path.as_str(), &bytes[..])).collect();
    assert_eq!(files, [("in/a.txt", &b"given"[..]), ("out.txt", b"hello\n")]);
    let (data, call) = open("in/a.txt", 0);
    let body = format!(
        "(drop {call}) (drop (call $fd_read (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i32.const 4)))
         (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 84)))"
    );
    assert_eq!(run(&format!("{SAID} {data}"), &body).output.0, "given");
}

#[test]
fn nothing_of_this_machine_can_be_opened() {
    for name in ["../../etc/passwd", "/etc/passwd", "in/../../x", ".."] {
        let (data, call) = open(name, 0);
        assert_eq!(answer_of(&data, &call), 76, "{name}");
    }
    for name in ["etc/passwd", "proc/self/environ"] {
        let (data, call) = open(name, 0);
        assert_eq!(answer_of(&data, &call), 44, "{name}");
    }
    let link = "(call $symlink (i32.const 100) (i32.const 4) (i32.const 3) (i32.const 100) (i32.const 4))";
    assert_eq!(answer_of("(data (i32.const 100) \"/etc\")", link), 58);
    // The directory of the code is the fifth that a program has, and cannot be changed.
    let (data, call) = open("main", 8);
    assert_eq!(answer_of(&data, &call.replace("i32.const 3)", "i32.const 5)")), 2);
}

#[test]
fn a_program_without_end_is_ended() {
    for body in [
        "(loop $l (br $l))",
        "(loop $l (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 0))) (br $l))",
        "(loop $l (drop (call $random (i32.const 0) (i32.const 60000))) (br $l))",
        "(loop $l (memory.fill (i32.const 0) (i32.const 7) (i32.const 65536)) (br $l))",
    ] {
        let ran = run("", body);
        assert_eq!(ran.ending, Ending::OutOfTime, "{body}");
        assert!(ran.took < Duration::from_secs(3), "{:?}: {body}", ran.took);
    }
}

#[test]
fn a_program_is_stopped_from_outside() {
    let (_file, program) = program_of("", "(loop $l (br $l))");
    let stop = Arc::new(AtomicBool::new(false));
    let bounds = Bounds { time: Duration::from_secs(600), ..BOUNDS };
    let ran = std::thread::scope(|scope| {
        let running = scope.spawn(|| program.run(Input::default(), &bounds, &stop));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap()
    });
    assert_eq!(ran.ending, Ending::Stopped);
}

#[test]
fn memory_and_calls_are_bounded() {
    let grow = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (call $exit (memory.size))";
    assert_eq!(run("", grow).ending, Ending::Exit(64));
    let ran = run("(func $f (call $f) (call $f))", "(call $f)");
    assert_eq!(ran.ending, Ending::Trapped("its calls are nested too deeply".into()));
    let (_file, program) = of_text("(module (memory (export \"memory\") 1000) (func (export \"_start\")))");
    let ran = program.run(Input::default(), &BOUNDS, &AtomicBool::new(false)).unwrap();
    assert!(matches!(&ran.ending, Ending::Trapped(why) if why.contains("does not fit its bounds")), "{ran:?}");
}

#[test]
fn output_files_and_descriptors_are_bounded() {
    let flood = "(loop $l (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 80))) (br $l))";
    let ran = run(SAID, flood);
    assert_eq!((ran.ending, ran.output.0.len()), (Ending::OutOfTime, BOUNDS.output));
    assert!(ran.output.1 > 1_000, "{}", ran.output.1);
    let (data, call) = open("big", 1);
    for (act, answer) in [
        ("(call $set_size (i32.load (i32.const 80)) (i64.const 1048577))", 51),
        ("(call $set_size (i32.load (i32.const 80)) (i64.const -1))", 51),
        (
            "(call $fd_pwrite (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i64.const 1099511627776) (i32.const 84))",
            51,
        ),
        ("(call $fd_pwrite (i32.load (i32.const 80)) (i32.const 0) (i32.const 1) (i64.const -1) (i32.const 84))", 22),
    ] {
        let ran = run(&format!("{SAID} {data}"), &format!("(drop {call}) (call $exit {act})"));
        assert_eq!(ran.ending, Ending::Exit(answer), "{act}");
    }
    let (data, call) = open("in/a.txt", 0);
    let body =
        format!("(loop $l (local.set $e {call}) (br_if $l (i32.eqz (local.get $e)))) (call $exit (local.get $e))");
    assert_eq!(run(&data, &body).ending, Ending::Exit(33));
}

#[test]
fn sleep_passes_at_once() {
    // An hour, by the clock that the program sees.
    let body = "(i64.store (i32.const 24) (i64.const 3600000000000)) (i32.store (i32.const 16) (i32.const 1))
        (drop (call $poll (i32.const 0) (i32.const 200) (i32.const 1) (i32.const 300)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 400)))
        (call $exit (i64.ge_u (i64.load (i32.const 400)) (i64.const 3600000000000)))";
    let ran = run("", body);
    assert_eq!(ran.ending, Ending::Exit(1));
    assert!(ran.took < Duration::from_secs(5), "{:?}", ran.took);
}

#[test]
fn what_is_not_there_cannot_be_called() {
    assert_eq!(run("", "(drop (call $fork))").ending, Ending::Trapped("it called env.fork, which is not there".into()));
    for (text, words) in [
        ("(module)", "_start"),
        ("(module (func (export \"_start\") (param i32)))", "_start"),
        ("(module (import \"env\" \"memory\" (memory 1)) (func (export \"_start\")))", "memory"),
        ("(module (func $f unreachable) (start $f) (func (export \"_start\")))", "aborted"),
        ("(module (func $f (loop $l (br $l))) (start $f) (func (export \"_start\")))", "too long to start"),
    ] {
        let (_file, program) = of_text(text);
        let ran = program.run(Input::default(), &BOUNDS, &AtomicBool::new(false)).unwrap();
        assert!(matches!(&ran.ending, Ending::Trapped(why) if why.contains(words)), "{text}: {:?}", ran.ending);
    }
}

#[test]
fn only_modules_can_be_programs() {
    let write = |bytes: &[u8]| {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    let refused = |bytes: &[u8]| Program::open(write(bytes).path()).map(drop).unwrap_err();
    assert_eq!(refused(b"#!/bin/sh"), "it is no WebAssembly module");
    assert_eq!(refused(b""), "it is no WebAssembly module");
    assert!(refused(b"\0asm\x0d\0\x01\0").starts_with("it is a component"));
    let broken = write(b"\0asm\x01\0\0\0nonsense");
    let program = Program::open(broken.path()).unwrap();
    let why = program.run(Input::default(), &BOUNDS, &AtomicBool::new(false)).unwrap_err();
    assert!(why.contains("log of the server"), "{why}");
    assert!(Program::open(Path::new("/nonexistent/python.wasm")).is_err());
}

#[test]
fn files_without_a_place_are_refused_before_the_program_starts() {
    let (_file, program) = program_of("", "nop");
    for path in ["../x", "/x", "", "a/../..", ".", &"x".repeat(300), "in", "in/a/b"] {
        let files = BTreeMap::from([("in/a".to_owned(), vec![1]), (path.to_owned(), vec![2])]);
        let ran = program.run(Input { files, ..Input::default() }, &BOUNDS, &AtomicBool::new(false));
        assert!(ran.is_err(), "{path}");
    }
    let files = BTreeMap::from([("a".to_owned(), vec![0; 2 << 20])]);
    let why = program.run(Input { files, ..Input::default() }, &BOUNDS, &AtomicBool::new(false)).unwrap_err();
    assert!(why.contains("1048576 bytes"), "{why}");
}

#[test]
fn a_module_that_could_not_be_read_is_read_by_the_next_run() {
    let (file, program) = program_of("", "nop");
    let (path, aside) = (file.path().to_owned(), file.path().with_extension("aside"));
    let run = || {
        program.run(
            Input { code: ("main".into(), String::new()), ..Input::default() },
            &BOUNDS,
            &AtomicBool::new(false),
        )
    };
    std::fs::rename(&path, &aside).unwrap();
    assert!(run().unwrap_err().contains("cannot be used"));
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(run().unwrap().ending, Ending::Exit(0));
}
