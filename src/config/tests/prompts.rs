//! What agents say of their prompts.

use super::{load, mistakes};
use crate::types::prompt::{Channel, Lasts, Merge, PromptMode, Written};

#[test]
fn templates_have_the_slots_of_their_section() {
    let text = "[agents.default.prompt]\nmode = 'full'\n[agents.default.prompt.templates]\n\
                user = 'With {user}, {{user}}.'\nsafety = ''\n[agents.a]\n";
    let prompt = &load(text).agents["a"].prompt;
    let filled = prompt.templates.of(Written::User).unwrap().filled(|_| "ann");
    assert_eq!((prompt.mode, filled.as_str()), (PromptMode::Full, "With ann, {user}."));
    assert_eq!(prompt.templates.of(Written::Safety).unwrap().filled(|_| ""), "");
    let text = "[agents.default.prompt.templates]\nuser = '{usr}'\nsafety = '{time}'\ntime = '{day} {nowhere}'\n";
    assert_eq!(
        mistakes(text),
        "loopgate.toml:2: agents.default.prompt.templates.user: `{usr}` is no slot of this text; did you mean `user`?\n\
         loopgate.toml:3: agents.default.prompt.templates.safety: `{time}` is no slot of this text; it has none\n\
         loopgate.toml:4: agents.default.prompt.templates.time: `{day}` is no slot of this text; known here: time, date, weekday, zone"
    );
}

#[test]
fn layers_have_places_with_names() {
    let text = "[layers.house]\ntext = 'h'\n[keys.web]\nkey_sha256 = '0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f'\n\
                [keys.web.layers.tone]\ntext = 't'\npriority = 'context'\ntags = ['legal']\nmerge = 'add'\nstable = false\n";
    let settings = load(text);
    assert_eq!((settings.layers[0].name.as_str(), settings.layers[0].priority), ("house", 50));
    let tone = &settings.keys[0].layers[0];
    assert_eq!((tone.priority, tone.merge, tone.lasts, tone.tags[0].as_str()), (100, Merge::Add, Lasts::Run, "legal"));
    let text = "[layers.'a b']\ntext = 'h'\n[layers.b]\npriority = 1001\ntext = ''\n[layers.c]\nstable = true\n";
    assert_eq!(
        mistakes(text),
        "loopgate.toml:1: layers.\"a b\": a name is 1 to 64 of A-Z a-z 0-9 . _ - and not only dots\n\
         loopgate.toml:4: layers.b.priority: must be an integer from 0 to 1000, \"system\", \"layer\" or \"context\"\n\
         loopgate.toml:6: layers.c: `text` is missing: what the model is told. Without any, an earlier layer of the name is left out"
    );
}

#[test]
fn no_layer_has_the_name_of_a_section_of_documents() {
    let layers =
        "[layers.memory]\ntext = 'x'\n[agents.a.layers.skills]\ntext = 'x'\n[agents.a.layers.other]\ntext = 'x'\n";
    let what = "is the name of a section that the server writes of documents; take another";
    let found = mistakes(layers);
    assert_eq!(found.matches(what).count(), 2, "{found}");
    assert!(found.contains("agents.a.layers.skills") && found.contains(":1: layers.memory"), "{found}");
}

/// Row T19.
#[test]
fn agents_have_the_layers_of_their_parents_and_parents_in_a_circle_are_a_mistake() {
    let text = "[agents.default.layers.a]\ntext = 'of default'\n[agents.c.prompt]\nparent = 'b'\nchannel = 'html'\n\
                [agents.c.layers.a]\ntext = 'of c'\n[agents.b.layers.b]\ntext = 'of b'\n";
    let settings = load(text);
    let texts = |name: &str| -> Vec<&str> {
        settings.agents[name].prompt.layers.iter().map(|layer| layer.text.as_str()).collect()
    };
    assert_eq!(texts("default"), ["of default"]);
    assert_eq!(texts("b"), ["of default", "of b"]);
    assert_eq!(texts("c"), ["of default", "of b", "of c"]);
    assert_eq!(settings.agents["c"].prompt.channel, Some(Channel::Html));
    let circle = "[agents.a.prompt]\nparent = 'b'\n[agents.b.prompt]\nparent = 'c'\n[agents.c.prompt]\nparent = 'a'\n\
                  [agents.d.prompt]\nparent = 'nobody'\n";
    assert_eq!(
        mistakes(circle),
        "agents.c.prompt.parent: is a circle: a → b → c → a\n\
         agents.d.prompt.parent: there is no agent `nobody`; known here: a, b, c, d, default"
    );
}

#[test]
fn a_time_zone_is_one_that_is_known() {
    let text = "[agents.default.prompt]\ntime_zone = 'Atlantis'\nsections = ['clock']\n";
    let told = mistakes(text);
    assert!(told.contains("must be the IANA name of a time zone") && told.contains("must be \"tooling\" or"), "{told}");
}
