//! What the follower of channels is told: by the store, by connections and by the topology.

use redis::PushInfo;

use super::open_connection::OpenConnection;
use crate::config::RedisHost;
use crate::store::Topic;

/// Something that changes which channels must be subscribed to, or a message from one of them.
#[derive(Debug)]
pub(super) enum Event {
    /// A task watches a topic that no task watched before.
    Watched(Topic),
    /// A connection to this server was opened.
    Opened(RedisHost, OpenConnection),
    /// The connection with this number broke or could not be opened.
    Closed(u64),
    /// The connection with this number received a push message.
    Push(u64, PushInfo),
    /// Some slots may be served by other servers than before.
    TopologyChanged,
}
