//! A pod as a process: what a rendered Deployment says of its server, with the paths of its volumes in a directory and its
//! ports on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::support::redis::{Signal, free_port, send_signal};
use crate::support::server::loopgate;

/// The objects that `scripts/check-k8s` renders of an overlay.
pub(super) struct Manifests(Vec<Value>);

impl Manifests {
    pub(super) fn of(overlay: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/k8s/rendered/{overlay}.yaml"));
        let text = fs::read_to_string(path).expect("scripts/check-k8s keeps it");
        let objects = text.split("\n---\n").map(|object| serde_saphyr::from_str(object).expect("it is YAML"));
        Self(objects.collect())
    }

    /// The Deployment of this name.
    pub(super) fn deployment(&self, name: &str) -> &Value {
        self.get("Deployment", name)
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        let is_meant = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.0.iter().find(is_meant).unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().expect("it is a text").to_owned()).collect()
}

/// The first container of a Deployment's pods.
pub(super) fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// The disk of a pod: a directory for each volume, under the path at which it is mounted.
pub(super) struct Disk {
    root: TempDir,
    mounts: Vec<String>,
}

impl Disk {
    /// Makes the directories, with the files of ConfigMaps in them, in which `replaced` texts stand for others.
    pub(super) fn new(manifests: &Manifests, deployment: &Value, replaced: &[(String, String)]) -> Self {
        let root = tempfile::tempdir().expect("a directory can be made");
        let mut mounts = Vec::new();
        for mount in container(deployment)["volumeMounts"].as_array().expect("it has volumes") {
            let path = mount["mountPath"].as_str().expect("it is a path");
            let directory = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(&directory).expect("it can be made");
            let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().expect("they are there");
            let volume =
                volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("what is mounted is there");
            if let Some(map) = volume["configMap"]["name"].as_str() {
                for (name, text) in manifests.get("ConfigMap", map)["data"].as_object().expect("it has files") {
                    let text = text.as_str().expect("it is a text");
                    let text = replaced.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
                    fs::write(directory.join(name), text).expect("it can be written");
                }
            }
            mounts.push(path.to_owned());
        }
        Self { root, mounts }
    }

    /// A text in which the paths of volumes are those on this machine.
    pub(super) fn placed(&self, text: &str) -> String {
        let mount = self.mounts.iter().find(|mount| text.contains(mount.as_str()));
        mount.map_or_else(|| text.to_owned(), |mount| text.replace(mount, &self.path(mount).display().to_string()))
    }

    /// Where a path of the pod is.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }
}

/// A pod that was started and is ready, as its probes say.
pub(super) struct Pod {
    child: Child,
    pub(super) url: String,
    grace: Duration,
}

/// What a pod finds around it.
pub(super) struct Surroundings<'a> {
    pub(super) disk: &'a Disk,
    /// The port of each port that the manifest names.
    pub(super) port: u16,
    /// What Secrets hold.
    pub(super) secrets: &'a [(&'a str, &'a str)],
    /// Names of Services, each with an address.
    pub(super) services: &'a [(&'a str, String)],
}

impl Pod {
    /// Starts it as the Deployment says, with nothing else in its environment.
    pub(super) async fn start(deployment: &Value, around: &Surroundings<'_>) -> Self {
        let container = container(deployment);
        let arguments = texts(&container["args"]);
        let mut command = loopgate(around.disk.root.path());
        command.env_clear().args(arguments.iter().map(|argument| around.disk.placed(argument)));
        if container["envFrom"][0]["secretRef"]["name"].is_string() {
            command.envs(around.secrets.iter().copied());
        }
        for variable in container["env"].as_array().expect("it has variables") {
            let name = variable["name"].as_str().expect("it has a name");
            if let Some(value) = variable["value"].as_str() {
                let value = around.services.iter().fold(value.to_owned(), |value, (name, at)| value.replace(name, at));
                command.env(name, around.disk.placed(&value));
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn().expect("the binary was built with the tests");
        let grace = &deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
        let grace = Duration::from_secs(grace.as_u64().expect("it is a number"));
        let mut pod = Self { child, url: format!("http://127.0.0.1:{}", around.port), grace };
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            pod.wait_for(probe, &container[probe]).await;
        }
        pod
    }

    /// Waits as long as a probe may fail.
    async fn wait_for(&mut self, name: &str, probe: &Value) {
        let seconds = probe["periodSeconds"].as_u64().unwrap_or(10) * probe["failureThreshold"].as_u64().unwrap_or(3);
        let url = format!("{}{}", self.url, probe["httpGet"]["path"].as_str().expect("it asks over HTTP"));
        let client = Client::builder().no_proxy().build().expect("the defaults are valid");
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            let answered = client.get(&url).send().await;
            if answered.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                return;
            }
            let ended = self.child.try_wait().expect("it can be asked for");
            assert!(ended.is_none() && Instant::now() < deadline, "{name} fails: {url}, {ended:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends it as Kubernetes does: it must be done before it would be killed.
    pub(super) async fn end(mut self) {
        send_signal(&self.child, Signal::TERM);
        let status = timeout(self.grace, self.child.wait()).await.expect("it ends within its grace period");
        assert!(status.expect("it is our child").success());
    }
}

/// What stands for the ports of the manifest, and the server's port.
pub(super) fn ports(deployment: &Value) -> (Vec<(String, String)>, u16) {
    let (port, metrics) = (free_port(), free_port());
    let written = container(deployment)["ports"][0]["containerPort"].as_u64().expect("it has a port");
    let replaced = vec![
        (format!("0.0.0.0:{written}"), format!("127.0.0.1:{port}")),
        ("0.0.0.0:9464".to_owned(), format!("127.0.0.1:{metrics}")),
    ];
    (replaced, port)
}
