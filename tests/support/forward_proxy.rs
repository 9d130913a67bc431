//! A proxy between servers and the internet, as companies have them: it passes requests on that are written for it, and opens
//! tunnels for encrypted ones.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A listening proxy. Dropping it ends it and all its connections.
#[derive(Debug)]
pub(crate) struct ForwardProxy {
    address: SocketAddr,
    heads: Heads,
    _tasks: JoinSet<()>,
}

/// The heads of requests.
type Heads = Arc<Mutex<Vec<String>>>;

impl ForwardProxy {
    /// Starts one that serves whoever shows this value of `proxy-authorization`; without it, everyone.
    pub(crate) async fn start(authorization: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let heads = Heads::default();
        let record = heads.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let record = record.clone();
                // That one side breaks off is its own business.
                connections.spawn(async move { drop(serve(socket, authorization, &record).await) });
            }
        });
        Self { address, heads, _tasks: tasks }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first lines of the requests that it got so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        let heads = self.heads.lock().expect("no one panics with it");
        heads.iter().filter_map(|head| head.lines().next().map(str::to_owned)).collect()
    }
}

async fn serve(mut client: TcpStream, authorization: Option<&str>, heads: &Heads) -> io::Result<()> {
    let Some(mut head) = read_head(&mut client).await? else { return Ok(()) };
    heads.lock().expect("no one panics with it").push(head.clone());
    let shown = head.lines().find_map(|line| line.strip_prefix("proxy-authorization: "));
    if authorization.is_some() && shown != authorization {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(refusal).await;
    }
    if let Some(target) = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) {
        let mut server = TcpStream::connect(target).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
    }
    let target =
        head.split(' ').nth(1).and_then(|uri| uri.strip_prefix("http://")).ok_or(io::ErrorKind::InvalidData)?;
    let authority = target.split('/').next().unwrap_or_default().to_owned();
    let mut server = TcpStream::connect(&authority).await?;
    let (mut from_server, mut to_server) = server.split();
    let (mut from_client, mut to_client) = client.split();
    let up = async {
        loop {
            // In the form that servers know, without what was meant for the proxy.
            let own = head.replacen(&format!("http://{authority}"), "", 1);
            let lines = own.lines().filter(|line| !line.starts_with("proxy-") && !line.is_empty());
            let own: String = lines.flat_map(|line| [line, "\r\n"]).chain(["\r\n"]).collect();
            to_server.write_all(own.as_bytes()).await?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            tokio::io::copy(&mut (&mut from_client).take(length), &mut to_server).await?;
            let Some(next) = read_head(&mut from_client).await? else { return io::Result::Ok(()) };
            heads.lock().expect("no one panics with it").push(next.clone());
            head = next;
        }
    };
    tokio::select! {
        ended = up => ended,
        ended = tokio::io::copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}

/// Reads the head of a request, byte by byte so as to take no more; `None` if the client has gone instead.
async fn read_head(client: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    // The names of headers have no case: the library writes some of them with capitals.
    let head = String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData)?;
    let lower = head.lines().enumerate().map(|(index, line)| match line.split_once(": ") {
        Some((name, value)) if index > 0 => format!("{}: {value}\r\n", name.to_ascii_lowercase()),
        _ => format!("{line}\r\n"),
    });
    Ok(Some(lower.collect()))
}
