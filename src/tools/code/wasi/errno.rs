//! Why a call of the system interface failed, by the numbers of the interface.

/// The numbers that this interface answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Errno {
    /// The file must not be changed.
    Access = 2,
    /// There is no such descriptor, or not for this.
    BadDescriptor = 8,
    /// Something has this name.
    Exists = 20,
    /// An address is outside the memory.
    Fault = 21,
    /// The file would become too large.
    FileTooLarge = 22,
    /// A value makes no sense here.
    Invalid = 28,
    /// It is a directory.
    IsDirectory = 31,
    /// Too many descriptors are open.
    TooManyOpen = 33,
    /// A name is too long.
    NameTooLong = 37,
    /// There is no such file.
    NoEntry = 44,
    /// There is no room left.
    NoSpace = 51,
    /// There is no such call.
    NoSystem = 52,
    /// It is no directory.
    NotDirectory = 54,
    /// The directory has entries.
    NotEmpty = 55,
    /// It cannot do this.
    NotSupported = 58,
    /// A number is too large.
    Overflow = 61,
    /// It has no position.
    NoSeek = 70,
    /// The file systems differ.
    CrossDevice = 75,
    /// The name leads out of what was given.
    NotCapable = 76,
}

impl Errno {
    /// As the program sees it.
    pub fn code(self) -> i32 {
        i32::from(self as u8)
    }
}
