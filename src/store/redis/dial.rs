//! Making a connection to a server, and making sure that the server is fit to be used.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, TlsCertificates, Value, cmd,
};
use tokio::time::timeout;

use super::fault::{Fault, Trouble, without_arguments};
use crate::config::{RedisHost, RedisLogin, RedisTls};

/// How long making a connection may take, until its server is known to be fit: several exchanges with
/// one that is slow.
const CONNECT: Duration = Duration::from_secs(3);

/// How long a question over a connection of its own may take: the others that are asked need not wait long for one
/// that is gone.
const ASK: Duration = Duration::from_millis(500);

/// When silence makes the system ask whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long the other side may leave sent bytes unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// How many requests may wait to be written to one connection.
const WAITING: usize = 1024;

/// The policy of servers that lose nothing when their memory is full.
const NO_EVICTION: &str = "noeviction";

/// What a connection tells beside answers.
pub(super) type Pushes = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Makes connections of one kind.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    settings: RedisConnectionInfo,
    trust: Trust,
    mode: Mode,
}

/// Whether connections are encrypted, and whom they trust.
#[derive(Debug, Clone)]
enum Trust {
    /// They are not.
    Anyone,
    /// Whom the system trusts.
    System,
    /// Whom these certificates name, in PEM.
    Certificates(Vec<u8>),
}

/// What a server must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Alone, or with replicas.
    Standalone,
    /// A node of a cluster.
    Cluster,
}

/// What a primary tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Role {
    /// How many replicas are connected.
    pub(super) replicas: usize,
}

impl Dialer {
    /// Connects with this login and encryption. Reads the certificates to trust.
    pub(super) fn new(
        login: &RedisLogin,
        database: u16,
        tls: Option<&RedisTls>,
        mode: Mode,
    ) -> Result<Self, std::io::Error> {
        let mut settings = RedisConnectionInfo::default()
            .set_db(database.into())
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("loopgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password.expose());
        }
        let trust = match tls {
            Some(RedisTls { ca: Some(path) }) => Trust::Certificates(std::fs::read(path)?),
            Some(RedisTls { ca: None }) => Trust::System,
            None => Trust::Anyone,
        };
        Ok(Self { settings, trust, mode })
    }

    /// A connection to a primary that is fit to be used.
    pub(super) async fn connect(
        &self,
        host: &RedisHost,
        pushes: Pushes,
    ) -> Result<(MultiplexedConnection, Role), Trouble> {
        self.within(host, CONNECT, async {
            let mut connection = self.open(host, pushes).await?;
            let role = inspect(&mut connection, host, self.mode).await?;
            Ok((connection, role))
        })
        .await
    }

    /// The answers of any server to a few questions, over a connection of their own.
    pub(super) async fn ask(&self, host: &RedisHost, questions: &Pipeline) -> Result<Vec<Value>, Trouble> {
        self.within(host, ASK, async {
            let mut connection = self.open(host, Arc::new(|_| {})).await?;
            connection.send_packed_commands(questions, 0, questions.len()).await.map_err(|error| trouble(host, &error))
        })
        .await
    }

    /// Limits how long something takes, and keeps the password out of what goes wrong.
    async fn within<T>(
        &self,
        host: &RedisHost,
        most: Duration,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        match timeout(most, work).await {
            Ok(result) => result.map_err(|trouble| match self.settings.password() {
                Some(password) if !password.is_empty() => trouble.told(|what| what.replace(password, "…")),
                Some(_) | None => trouble,
            }),
            Err(_) => Err(Trouble::away(format!("{host} does not answer"))),
        }
    }

    async fn open(&self, host: &RedisHost, pushes: Pushes) -> Result<MultiplexedConnection, Trouble> {
        let client = self.client(host).map_err(|error| trouble(host, &error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WAITING)
            .set_push_sender(move |push| {
                pushes(push);
                Ok::<(), ()>(())
            });
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| trouble(host, &error))
    }

    fn client(&self, host: &RedisHost) -> Result<Client, RedisError> {
        let RedisHost { name, port } = host.clone();
        let address = match self.trust {
            Trust::Anyone => ConnectionAddr::Tcp(name, port),
            Trust::System | Trust::Certificates(_) => {
                ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
            }
        };
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        // What was not sent yet when a connection is given up must not arrive later.
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_linger_time(Duration::ZERO);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let info = address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(self.settings.clone());
        match &self.trust {
            Trust::Anyone | Trust::System => Client::open(info),
            Trust::Certificates(ca) => {
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) })
            }
        }
    }
}

/// What a failed connection means.
fn trouble(host: &RedisHost, error: &RedisError) -> Trouble {
    let what = format!("{host}: {}", without_arguments(&error.to_string()));
    let ours = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported
    );
    // Certificates are judged where bytes are read.
    let untrusted = error.is_io_error() && what.contains("certificate");
    if ours || untrusted || Fault::of(error).is_final() { Trouble::unfit(what) } else { Trouble::away(what) }
}

/// Asks a server whether it is a primary, of a version that has what we need, and forgets nothing.
async fn inspect(connection: &mut MultiplexedConnection, host: &RedisHost, mode: Mode) -> Result<Role, Trouble> {
    let mut questions = redis::pipe();
    questions.add_command(cmd("HELLO")).add_command(cmd("ROLE"));
    questions.cmd("CONFIG").arg("GET").arg("maxmemory-policy");
    let answers = connection.send_packed_commands(&questions, 0, questions.len()).await;
    let answers = answers.map_err(|error| trouble(host, &error))?;
    let [hello, role, policy] = &answers[..] else { return Err(nonsense(host)) };
    check_hello(hello, host, mode)?;
    check_policy(policy, host)?;
    read_role(role, host)
}

fn check_hello(hello: &Value, host: &RedisHost, mode: Mode) -> Result<(), Trouble> {
    let (version, found) = (field(hello, "version"), field(hello, "mode"));
    let (Some(version), Some(found)) = (version, found) else { return Err(refused(hello, host)) };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    if major < 7 {
        return Err(Trouble::unfit(format!("{host} runs version {version}, and 7.0 is the first that will do")));
    }
    match (mode, found.as_str()) {
        (Mode::Cluster, "cluster") | (Mode::Standalone, "standalone") => Ok(()),
        (Mode::Standalone, "cluster") => {
            Err(Trouble::unfit(format!("{host} is a node of a cluster: the URL must begin with redis-cluster://")))
        }
        (Mode::Standalone, "sentinel") => {
            Err(Trouble::unfit(format!("{host} is a Sentinel: the URL must begin with redis-sentinel://")))
        }
        (Mode::Cluster | Mode::Standalone, _) => Err(Trouble::unfit(format!("{host} is not a node of a cluster"))),
    }
}

/// A server that evicts keys loses runs. One that does not let us look is trusted.
fn check_policy(answer: &Value, host: &RedisHost) -> Result<(), Trouble> {
    match field(answer, "maxmemory-policy") {
        Some(policy) if policy != NO_EVICTION => Err(Trouble::unfit(format!(
            "{host} evicts keys when its memory is full (maxmemory-policy {policy}), which would lose runs: set it to \
             {NO_EVICTION}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Tells the log what could be better about a server that can be used.
pub(super) async fn advise(dialer: &Dialer, host: &RedisHost) -> Result<(), Trouble> {
    let mut questions = redis::pipe();
    for setting in ["maxmemory-policy", "appendonly"] {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    let answers = dialer.ask(host, &questions).await?;
    let [policy, appendonly] = &answers[..] else { return Err(nonsense(host)) };
    if field(policy, "maxmemory-policy").is_none() {
        tracing::warn!(%host, "Redis does not tell its maxmemory-policy, which must be {NO_EVICTION}");
    }
    if field(appendonly, "appendonly").is_some_and(|value| value == "no") {
        tracing::warn!(%host, "Redis may lose runs when it restarts: set appendonly to yes");
    }
    Ok(())
}

/// Reads the answer to ROLE.
pub(super) fn read_role(answer: &Value, host: &RedisHost) -> Result<Role, Trouble> {
    let Value::Array(parts) = answer else { return Err(refused(answer, host)) };
    let role = parts.first().and_then(|role| String::from_redis_value_ref(role).ok());
    match (role.as_deref(), parts.get(2)) {
        (Some("master"), Some(Value::Array(replicas))) => Ok(Role { replicas: replicas.len() }),
        (Some("slave"), _) => Err(Trouble::Replica(format!("{host} is a replica, not the primary").into())),
        _ => Err(nonsense(host)),
    }
}

/// What a map says about a name.
fn field(map: &Value, name: &str) -> Option<String> {
    let map = map.as_map_iter()?;
    let mut found = map.filter(|(key, _)| String::from_redis_value_ref(key).is_ok_and(|key| key == name));
    found.next().and_then(|(_, value)| String::from_redis_value_ref(value).ok())
}

fn refused(answer: &Value, host: &RedisHost) -> Trouble {
    if let Value::ServerError(error) = answer { Trouble::refused(host, error) } else { nonsense(host) }
}

fn nonsense(host: &RedisHost) -> Trouble {
    Trouble::unfit(format!("what answers at {host} is not Redis or Valkey"))
}
