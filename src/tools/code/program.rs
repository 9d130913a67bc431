//! Runs a program in a sandbox: a WebAssembly module that is interpreted, within bounds on time, memory, files and output.
//!
//! Knows nothing of tools. A module is compiled as far as it is used, and what is compiled is kept for the next run.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wasmi::errors::ErrorKind;
use wasmi::{
    CompilationMode, Config, CustomFuelCosts, Engine, Error, Linker, Module, Store, StoreLimits, StoreLimitsBuilder,
    TrapCode, TypedResumableCall,
};

use super::wasi::{self, Host, MAX_ENTRIES};

/// Instructions that are made until it is looked whether the program must stop: some milliseconds.
const SLICE: u64 = 2_000_000;
/// What is paid beside instructions. Compiling a function is free: a call that ran out of fuel there could not go on, and
/// each function is compiled once.
const COSTS: CustomFuelCosts =
    CustomFuelCosts { bytes_copied_per_fuel: 64, fuel_per_bytes_translated: 0, fuel_per_bytes_validated: 0 };
/// Calls within calls, and the values that they keep.
const MAX_DEPTH: usize = 20_000;
const MAX_VALUES: usize = 4 << 20;
/// Most entries of a program's tables.
const MAX_TABLE: usize = 100_000;

/// A module in a file, read and compiled when it is first run.
#[derive(Debug)]
pub struct Program {
    file: PathBuf,
    compiled: Mutex<Option<Result<Module, String>>>,
}

/// What a run is given.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// What the program is called with; the first is its own name.
    pub arguments: Vec<String>,
    /// Its environment, as `NAME=value`.
    pub environment: Vec<String>,
    /// The name of the file that has the code, below `/code`, and the code.
    pub code: (String, String),
    /// The files of the workspace, by their paths in it.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// What a run may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most time.
    pub time: Duration,
    /// Most bytes of memory.
    pub memory: usize,
    /// Most bytes of files.
    pub files: usize,
    /// Most bytes of each output that are kept.
    pub output: usize,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// How it ended.
    pub ending: Ending,
    /// What it said, and how many bytes there were beyond what is kept.
    pub output: (String, u64),
    /// What it said of its errors.
    pub errors: (String, u64),
    /// The files of the workspace as they are now.
    pub files: BTreeMap<String, Vec<u8>>,
    /// How long it ran.
    pub took: Duration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The program ended with this code.
    Exit(i32),
    /// Its time was up.
    OutOfTime,
    /// Its caller stopped it.
    Stopped,
    /// It did what no program can do, in words.
    Trapped(String),
}

impl Program {
    /// The program in this file, of which only the beginning is read.
    pub fn open(file: &Path) -> Result<Self, String> {
        let mut head = Vec::new();
        let read = File::open(file).and_then(|file| file.take(8).read_to_end(&mut head));
        read.map_err(|error| error.to_string())?;
        match &head[..] {
            b"\0asm\x01\0\0\0" => Ok(Self { file: file.to_owned(), compiled: Mutex::default() }),
            [b'\0', b'a', b's', b'm', ..] => {
                Err("it is a component of WebAssembly, and a module for WASI preview 1 is needed".to_owned())
            }
            _ => Err("it is no WebAssembly module".to_owned()),
        }
    }

    /// Runs it to its end, its bounds, or until `stop` is set. An error if it cannot be started.
    pub fn run(&self, input: Input, bounds: &Bounds, stop: &AtomicBool) -> Result<Ran, String> {
        let began = Instant::now();
        let module = self.module()?;
        let mut store = Store::new(module.engine(), host(input, bounds)?);
        store.limiter(|host| &mut host.limits);
        let ending = match start(&mut store, &module, began, bounds, stop) {
            Ok(ending) => ending,
            Err(error) => ending(&error),
        };
        let host = store.data();
        Ok(Ran {
            ending,
            output: host.output.text(),
            errors: host.errors.text(),
            files: host.files().map(|(path, bytes)| (path.to_owned(), bytes)).collect(),
            took: began.elapsed(),
        })
    }

    /// The module. A file that cannot be read now may be read by the next run; one that is no module stays so.
    fn module(&self) -> Result<Module, String> {
        let mut compiled = self.compiled.lock();
        if let Some(compiled) = &*compiled {
            return compiled.clone();
        }
        let unusable = |why: String| {
            tracing::error!(module = %self.file.display(), why, "an interpreter cannot be used");
            "The interpreter cannot be used: the log of the server says why.".to_owned()
        };
        let bytes = std::fs::read(&self.file).map_err(|error| unusable(error.to_string()))?;
        let module = Module::new(&Engine::new(&config()), &bytes).map_err(|error| unusable(error.to_string()));
        compiled.insert(module).clone()
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .fuel_cost(COSTS)
        .compilation_mode(CompilationMode::Lazy)
        .ignore_custom_sections(true)
        .set_max_recursion_depth(MAX_DEPTH)
        .set_max_stack_height(MAX_VALUES)
        .set_max_cached_stacks(1);
    config
}

fn host(input: Input, bounds: &Bounds) -> Result<Host, String> {
    let limits: StoreLimits = StoreLimitsBuilder::new()
        .memory_size(bounds.memory)
        .table_elements(MAX_TABLE)
        .instances(1)
        .memories(1)
        .tables(4)
        .build();
    let mut host = Host::new(input.arguments, input.environment, bounds.files, bounds.output, limits);
    let (name, code) = &input.code;
    if !host.place_code(name, code) {
        return Err(format!("The code is longer than the {} bytes of files that there is room for.", bounds.files));
    }
    for (path, bytes) in input.files {
        if !host.place(&path, bytes) {
            return Err(format!(
                "There is no place for the file {path:?}: it needs a relative path without a file on its way, and there may be {MAX_ENTRIES} files and directories, of {} bytes together.",
                bounds.files
            ));
        }
    }
    Ok(host)
}

/// Runs the program in slices, and looks between two of them whether it must stop.
fn start(
    store: &mut Store<Host>,
    module: &Module,
    began: Instant,
    bounds: &Bounds,
    stop: &AtomicBool,
) -> Result<Ending, Error> {
    let mut linker = Linker::new(module.engine());
    wasi::link(&mut linker, module)?;
    store.set_fuel(SLICE)?;
    let instance = linker.instantiate_and_start(&mut *store, module)?;
    let begin = instance.get_typed_func::<(), ()>(&*store, "_start");
    let begin = begin.map_err(|_| Error::new("it has no function `_start` that takes nothing"))?;
    let mut call = begin.call_resumable(&mut *store, ())?;
    loop {
        call = match call {
            TypedResumableCall::Finished(()) => return Ok(Ending::Exit(0)),
            TypedResumableCall::HostTrap(trap) => return Ok(ending(trap.host_error())),
            TypedResumableCall::OutOfFuel(_) if stop.load(Ordering::Relaxed) => return Ok(Ending::Stopped),
            TypedResumableCall::OutOfFuel(_) if began.elapsed() >= bounds.time => return Ok(Ending::OutOfTime),
            TypedResumableCall::OutOfFuel(rest) => {
                store.set_fuel(SLICE.max(rest.required_fuel()))?;
                rest.resume(&mut *store)?
            }
        };
    }
}

/// How a program ended that did not return.
fn ending(error: &Error) -> Ending {
    if let Some(code) = error.i32_exit_status() {
        return Ending::Exit(code);
    }
    let why = match error.as_trap_code() {
        Some(TrapCode::StackOverflow) => "its calls are nested too deeply".to_owned(),
        Some(TrapCode::MemoryOutOfBounds) => {
            "it reached beyond its memory, as code may whose calls are nested too deeply".to_owned()
        }
        Some(TrapCode::UnreachableCodeReached) => "it aborted".to_owned(),
        Some(TrapCode::OutOfFuel) => "it takes too long to start".to_owned(),
        Some(trap) => trap.to_string(),
        None if matches!(error.kind(), ErrorKind::Instantiation(_) | ErrorKind::Memory(_) | ErrorKind::Table(_)) => {
            format!("it does not fit its bounds: {error}")
        }
        None => error.to_string(),
    };
    Ending::Trapped(why)
}
