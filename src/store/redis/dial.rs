//! Opens a connection to a server, and checks that the server can be used.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, TlsCertificates, Value, cmd,
};
use tokio::time::timeout;

use super::clock::ServerClock;
use super::error::{AttemptError, ConnectionError, without_arguments};
use crate::config::{RedisHost, RedisLogin, RedisTls};

/// How long opening a connection may take, with the checks of its server: several exchanges with a slow server.
/// Not a setting: requests wait for their own deadlines only, and dialling continues in the background.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a question over a connection of its own may take. Several servers are asked at once, and the answers of
/// the others wait for a server that is gone.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// After so long a silence the system sends TCP keep-alives.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long sent bytes may stay unacknowledged before the system closes the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// How many requests may wait to be written to one connection.
const WRITE_QUEUE: usize = 1024;

/// The `maxmemory-policy` with which a server removes nothing when its memory is full.
const NO_EVICTION: &str = "noeviction";

/// Receives the push messages of a connection.
pub(super) type Pushes = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Opens connections with one login and encryption.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    settings: RedisConnectionInfo,
    trust: Trust,
    mode: Mode,
    /// How much one tenant may store, where that is known.
    pub(super) tenant_limit: Option<u64>,
    /// Learns the servers' time from each new connection.
    pub(super) clock: Arc<ServerClock>,
}

/// Whether connections are encrypted, and which certificates they trust.
#[derive(Debug, Clone)]
enum Trust {
    /// They are not encrypted.
    Plain,
    /// The certificates that the system trusts.
    System,
    /// These certificates, in PEM.
    Certificates(Vec<u8>),
}

/// The mode that a server must run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Without a cluster; it may have replicas.
    Standalone,
    /// A node of a cluster.
    Cluster,
}

/// What a primary answers to `ROLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Role {
    /// How many replicas are connected.
    pub(super) replicas: usize,
}

impl Dialer {
    /// A dialer with this login and encryption. Reads the file of certificates.
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
            None => Trust::Plain,
        };
        Ok(Self { settings, trust, mode, tenant_limit: None, clock: Arc::default() })
    }

    /// Opens a connection and checks that its server is a primary that can be used.
    pub(super) async fn connect(
        &self,
        host: &RedisHost,
        pushes: Pushes,
    ) -> Result<(MultiplexedConnection, Role), ConnectionError> {
        self.within(host, CONNECT_TIMEOUT, async {
            let mut connection = self.open(host, pushes).await?;
            let role = inspect(&mut connection, host, self.mode, &self.clock).await?;
            Ok((connection, role))
        })
        .await
    }

    /// Asks a server, primary or not, over a connection that is closed afterwards.
    pub(super) async fn ask(&self, host: &RedisHost, questions: &Pipeline) -> Result<Vec<Value>, ConnectionError> {
        self.ask_within(ASK_TIMEOUT, host, questions).await
    }

    /// The same, with more patience.
    pub(super) async fn ask_within(
        &self,
        most: Duration,
        host: &RedisHost,
        questions: &Pipeline,
    ) -> Result<Vec<Value>, ConnectionError> {
        self.within(host, most, async {
            let mut connection = self.open(host, Arc::new(|_| {})).await?;
            connection
                .send_packed_commands(questions, 0, questions.len())
                .await
                .map_err(|error| connection_error(host, &error))
        })
        .await
    }

    /// Limits how long `work` takes, and removes the password from its error.
    async fn within<T>(
        &self,
        host: &RedisHost,
        most: Duration,
        work: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        match timeout(most, work).await {
            Ok(result) => result.map_err(|error| match self.settings.password() {
                Some(password) if !password.is_empty() => error.map_text(|what| what.replace(password, "…")),
                Some(_) | None => error,
            }),
            // A server that does not speak TLS waits for the end of what it takes for a command.
            Err(_) if !matches!(self.trust, Trust::Plain) => Err(ConnectionError::unreachable(format!(
                "{host} does not answer in TLS; for a port without TLS the URL begins with redis://, or has no tls=true"
            ))),
            Err(_) => Err(ConnectionError::unreachable(format!("{host} does not answer"))),
        }
    }

    async fn open(&self, host: &RedisHost, pushes: Pushes) -> Result<MultiplexedConnection, ConnectionError> {
        let client = self.client(host).map_err(|error| connection_error(host, &error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push| {
                pushes(push);
                Ok::<(), ()>(())
            });
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| connection_error(host, &error))
    }

    fn client(&self, host: &RedisHost) -> Result<Client, RedisError> {
        let RedisHost { name, port } = host.clone();
        let address = match self.trust {
            Trust::Plain => ConnectionAddr::Tcp(name, port),
            Trust::System | Trust::Certificates(_) => {
                ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
            }
        };
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        // With a linger time of zero, bytes that are unsent when a connection is closed never reach the server.
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_linger_time(Duration::ZERO);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let info = address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(self.settings.clone());
        match &self.trust {
            Trust::Plain | Trust::System => Client::open(info),
            Trust::Certificates(ca) => {
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) })
            }
        }
    }
}

/// The error of a connection that could not be opened.
fn connection_error(host: &RedisHost, error: &RedisError) -> ConnectionError {
    let what = format!("{host}: {}", without_arguments(&error.to_string()));
    let is_refused = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported
    );
    // An untrusted certificate is reported as an error of reading.
    let untrusted = error.is_io_error() && what.contains("certificate");
    if is_refused || untrusted || AttemptError::of(error).is_final() {
        ConnectionError::unfit(what)
    } else {
        ConnectionError::unreachable(what)
    }
}

/// Checks that a server is a primary, that its version is new enough, and that it evicts nothing; notes its time.
async fn inspect(
    connection: &mut MultiplexedConnection,
    host: &RedisHost,
    mode: Mode,
    clock: &ServerClock,
) -> Result<Role, ConnectionError> {
    let mut questions = redis::pipe();
    questions.add_command(cmd("HELLO")).add_command(cmd("ROLE"));
    questions.cmd("CONFIG").arg("GET").arg("maxmemory-policy");
    questions.cmd("TIME");
    let answers = connection.send_packed_commands(&questions, 0, questions.len()).await;
    let answers = answers.map_err(|error| connection_error(host, &error))?;
    let [hello, role, policy, time] = &answers[..] else { return Err(malformed(host)) };
    check_hello(hello, host, mode)?;
    check_policy(policy, host)?;
    let role = read_role(role, host)?;
    clock.note_answer(time);
    Ok(role)
}

fn check_hello(hello: &Value, host: &RedisHost, mode: Mode) -> Result<(), ConnectionError> {
    let (version, found) = (field(hello, "version"), field(hello, "mode"));
    let (Some(version), Some(found)) = (version, found) else { return Err(refused(hello, host)) };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    if major < 7 {
        return Err(ConnectionError::unfit(format!("{host} runs version {version}; the oldest that works is 7.0")));
    }
    match (mode, found.as_str()) {
        (Mode::Cluster, "cluster") | (Mode::Standalone, "standalone") => Ok(()),
        (Mode::Standalone, "cluster") => Err(ConnectionError::unfit(format!(
            "{host} is a node of a cluster: the URL must begin with redis-cluster://"
        ))),
        (Mode::Standalone, "sentinel") => {
            Err(ConnectionError::unfit(format!("{host} is a Sentinel: the URL must begin with redis-sentinel://")))
        }
        (Mode::Cluster | Mode::Standalone, _) => {
            Err(ConnectionError::unfit(format!("{host} is not a node of a cluster")))
        }
    }
}

/// Refuses a server that evicts keys, since that loses runs. A server that does not tell its policy is accepted.
fn check_policy(answer: &Value, host: &RedisHost) -> Result<(), ConnectionError> {
    match field(answer, "maxmemory-policy") {
        Some(policy) if policy != NO_EVICTION => Err(ConnectionError::unfit(format!(
            "{host} evicts keys when its memory is full (maxmemory-policy {policy}), which would lose runs: set it to \
             {NO_EVICTION}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Logs which settings of a usable server should be changed. The data of a tenant lie on all `primaries`.
pub(super) async fn advise(dialer: &Dialer, host: &RedisHost, primaries: usize) -> Result<(), ConnectionError> {
    let mut questions = redis::pipe();
    for setting in ["maxmemory-policy", "appendonly", "maxmemory"] {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    let answers = dialer.ask(host, &questions).await?;
    let [policy, appendonly, memory] = &answers[..] else { return Err(malformed(host)) };
    if field(policy, "maxmemory-policy").is_none() {
        tracing::warn!(%host, "Redis does not tell its maxmemory-policy, which must be {NO_EVICTION}");
    }
    if field(appendonly, "appendonly").is_some_and(|value| value == "no") {
        tracing::warn!(%host, "Redis may lose runs when it restarts: set appendonly to yes");
    }
    let maxmemory = field(memory, "maxmemory").and_then(|bytes| bytes.parse().ok());
    if let (Some(maxmemory), Some(tenant_limit)) = (maxmemory, dialer.tenant_limit)
        && may_be_filled(maxmemory, primaries, tenant_limit)
    {
        tracing::warn!(
            %host,
            maxmemory,
            tenant_limit,
            "one tenant may fill Redis, so that no other tenant can store anything: choose a store.tenant_limit that all \
             tenants together have room for, or a larger maxmemory"
        );
    }
    Ok(())
}

/// Whether one tenant may store as much as so many servers of this `maxmemory` have; 0 is no bound.
fn may_be_filled(maxmemory: u64, primaries: usize, tenant_limit: u64) -> bool {
    maxmemory > 0 && tenant_limit >= maxmemory.saturating_mul(primaries as u64)
}

/// Reads the answer to ROLE.
pub(super) fn read_role(answer: &Value, host: &RedisHost) -> Result<Role, ConnectionError> {
    let Value::Array(parts) = answer else { return Err(refused(answer, host)) };
    let role = parts.first().and_then(|role| String::from_redis_value_ref(role).ok());
    match (role.as_deref(), parts.get(2)) {
        (Some("master"), Some(Value::Array(replicas))) => Ok(Role { replicas: replicas.len() }),
        (Some("slave"), _) => Err(ConnectionError::Replica(format!("{host} is a replica, not the primary").into())),
        _ => Err(malformed(host)),
    }
}

/// The value of a map at this name.
pub(super) fn field(map: &Value, name: &str) -> Option<String> {
    let map = map.as_map_iter()?;
    let mut found = map.filter(|(key, _)| String::from_redis_value_ref(key).is_ok_and(|key| key == name));
    found.next().and_then(|(_, value)| String::from_redis_value_ref(value).ok())
}

fn refused(answer: &Value, host: &RedisHost) -> ConnectionError {
    if let Value::ServerError(error) = answer { ConnectionError::refused(host, error) } else { malformed(host) }
}

fn malformed(host: &RedisHost) -> ConnectionError {
    ConnectionError::unfit(format!("what answers at {host} is not Redis or Valkey"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_may_fill_what_is_no_larger_than_its_limit() {
        for (maxmemory, primaries, tenant_limit, expected) in [
            (0, 1, u64::MAX, false),
            (100, 1, 99, false),
            (100, 1, 100, true),
            (100, 3, 299, false),
            (100, 3, 300, true),
        ] {
            assert_eq!(may_be_filled(maxmemory, primaries, tenant_limit), expected, "{maxmemory} {tenant_limit}");
        }
    }
}
