//! The sockets: the one that listens, and those of clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many connections may wait to be accepted. The kernel drops what comes beyond, and the client asks again only after a
/// second, also for a probe. Not a setting: the kernel's own (`net.core.somaxconn`, 4,096 by default) bounds it.
const QUEUE: u32 = 4_096;
/// When the kernel asks whether a silent client is still there, how often it asks again, and when it gives up: a
/// client that vanished without a word is noticed after half a minute. Not a setting: the packets cost next to nothing,
/// and clients that are there answer them by themselves.
const SILENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 3;

/// Listens at an address.
///
/// # Errors
/// If the address is none of this machine, is taken, or may not be used.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As a server that was just stopped leaves connections behind at its address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// Prepares an accepted connection. `user_timeout` is how long the client may take to acknowledge what it was sent.
pub(super) fn prepare(stream: &TcpStream, user_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_EVERY).with_retries(ASK_TIMES);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalive says nothing while there is something to send again; without this the kernel does so for 15 minutes.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    #[cfg(not(target_os = "linux"))]
    let _ = user_timeout;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_vanished_client_is_noticed_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream, Duration::from_secs(30)).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let silent = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert!(silent <= Duration::from_secs(30), "{silent:?}");
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)), "with an answer on its way");
    }
}
