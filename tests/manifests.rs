//! What the manifests for Kubernetes say of the server, done with processes: arguments, environment, files, probes and
//! shutdown. `scripts/check-k8s` keeps what is rendered of them in `tests/k8s/rendered`.

mod pod;

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use self::pod::{Disk, Manifests, Pod, Surroundings, container, ports, texts};
use crate::support::redis::RedisServer;

async fn ask(url: &str, key: Option<&str>, model: &str) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "What is 2 * 3?"}]});
    let request = client().post(format!("{url}/v1/agent/completions")).header("content-type", "application/json");
    answer(request.body(body.to_string()), key).await
}

async fn run(url: &str, key: Option<&str>, id: &str) -> Value {
    answer(client().get(format!("{url}/v1/runs/{id}")), key).await
}

fn client() -> Client {
    Client::builder().no_proxy().build().expect("the defaults are valid")
}

async fn answer(request: RequestBuilder, key: Option<&str>) -> Value {
    let request = key.into_iter().fold(request, RequestBuilder::bearer_auth);
    let body = request.send().await.expect("it answers").bytes().await.expect("it is whole");
    serde_json::from_slice(&body).expect("it is JSON")
}

#[test]
fn the_image_says_which_version_it_has() {
    let dockerfile = include_str!("../Dockerfile");
    let label = format!("org.opencontainers.image.version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(dockerfile.contains(&label), "there is no {label}");
}

#[tokio::test]
async fn the_trial_overlay_runs_replicas_that_share_its_redis() {
    let manifests = Manifests::of("dev");
    let redis = container(manifests.deployment("redis"));
    assert_eq!(texts(&redis["command"]), ["redis-server"]);
    let scratch = tempfile::tempdir().expect("a directory can be made");
    let arguments = texts(&redis["args"]);
    let arguments = arguments.iter().map(|argument| argument.replace("/tmp", &scratch.path().display().to_string()));
    let arguments: Vec<_> = arguments.collect();
    let redis = RedisServer::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let services = [("redis:6379", format!("127.0.0.1:{}", redis.port()))];

    let deployment = manifests.deployment("loopgate");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let mut pods = Vec::new();
    let mut disks = Vec::new();
    for _ in 0..2 {
        let (replaced, port) = ports(deployment);
        let disk = Disk::new(&manifests, deployment, &replaced);
        let around = Surroundings { disk: &disk, port, secrets: &[], services: &services };
        pods.push(Pod::start(deployment, &around).await);
        disks.push(disk);
    }
    let answer = ask(&pods[0].url, None, "demo/demo").await;
    let id = answer["agent"]["run_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let (first, second) = (pods.remove(0), pods.remove(0));
    first.end().await;
    let found = run(&second.url, None, &id).await;
    assert_eq!((&found["id"], &found["status"]), (&json!(id), &json!("completed")), "{found}");
    second.end().await;
}

#[tokio::test]
async fn the_overlay_of_one_server_keeps_its_runs_on_its_volume() {
    let manifests = Manifests::of("single");
    let deployment = manifests.deployment("loopgate");
    let (mut replaced, port) = ports(deployment);
    // A model that needs no network stands for the upstream.
    replaced.push((
        "base_url = \"https://api.openai.com/v1\"\napi_key_env = \"OPENAI_API_KEY\"".into(),
        "kind = \"demo\"".into(),
    ));
    let disk = Disk::new(&manifests, deployment, &replaced);
    let key = "lg_app";
    let secrets = [("LOOPGATE_APP_KEY", key), ("OPENAI_API_KEY", "sk-1")];
    let around = Surroundings { disk: &disk, port, secrets: &secrets, services: &[] };

    let pod = Pod::start(deployment, &around).await;
    let answer = ask(&pod.url, Some(key), "openai/demo").await;
    let id = answer["agent"]["run_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    pod.end().await;
    assert!(disk.path("/data/store.redb").is_file());

    let pod = Pod::start(deployment, &around).await;
    let found = run(&pod.url, Some(key), &id).await;
    assert_eq!((&found["id"], &found["status"]), (&json!(id), &json!("completed")), "{found}");
    pod.end().await;
}
