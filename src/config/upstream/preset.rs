//! Servers that speak OpenAI's dialects, each with what must be known to call it. All of it is data: what other modules
//! do never depends on which server it is.

use toml::Spanned;
use toml::de::DeValue;

use crate::config::value::{FromToml, Misread, text};
use crate::types::tool::WrittenCalls;

/// A server, or the service of a vendor.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// What it is called in the configuration.
    pub name: &'static str,
    /// What OpenTelemetry's conventions call it, where that is another name.
    pub(super) told_as: Option<&'static str>,
    /// Where it is; `None` where every customer has an address.
    pub(super) base_url: Option<&'static str>,
    /// What its address looks like where every customer has one.
    pub(super) address: &'static str,
    /// The variable that holds its key; empty if it knows none.
    pub key: &'static str,
    /// Whether nobody is served without a key.
    pub(super) needs_key: bool,
    /// The header that holds the key; `None` for `authorization`, where it is a bearer token.
    pub(super) key_header: Option<&'static str>,
    /// What its chat completions take.
    pub chat: ChatManner,
    /// What of it is worth knowing, for the documentation.
    pub(super) note: &'static str,
}

/// What the chat completions of a server take otherwise than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatManner {
    /// The member that bounds the output.
    pub output_bound: &'static str,
    /// The member that seeds the choice of tokens.
    pub seed: &'static str,
    /// Whether it tells the usage of a stream only where `stream_options` ask for it.
    pub stream_options: bool,
    /// Whether it knows `parallel_tool_calls`.
    pub parallel_tool_calls: bool,
    /// Members that it refuses and that would change the answer.
    pub refused: &'static [&'static str],
    /// Members that it refuses, and that only help.
    pub left_out: &'static [&'static str],
    /// Whether it takes members that OpenAI does not document.
    pub takes_unknown: bool,
    /// Which calls that its models write as text are taken for calls.
    pub written_calls: WrittenCalls,
    /// How many letters and digits the id of a call has; `None` where any id is taken.
    pub call_id_length: Option<usize>,
    /// The member of an assistant's message in which it wants the model's reasoning back, and refuses the message without it.
    pub returned_reasoning: Option<&'static str>,
    /// Whether it knows the role `developer`.
    pub developer_role: bool,
    /// Whether its models take pictures, so that those of tools' results are shown to them.
    pub pictures: bool,
}

impl ChatManner {
    /// OpenAI's own.
    pub const OPENAI: Self = Self {
        output_bound: "max_completion_tokens",
        seed: "seed",
        stream_options: true,
        parallel_tool_calls: true,
        refused: &[],
        left_out: &[],
        takes_unknown: false,
        written_calls: WrittenCalls::None,
        call_id_length: None,
        returned_reasoning: None,
        developer_role: true,
        pictures: true,
    };
    /// That of a server of which nothing is known. Reasoning models of OpenAI insist on `max_completion_tokens`; every other
    /// server knows the older name. Small models write calls as text.
    pub const COMPATIBLE: Self = Self {
        output_bound: "max_tokens",
        takes_unknown: true,
        written_calls: WrittenCalls::Read,
        pictures: false,
        ..Self::OPENAI
    };
}

const COMPATIBLE: ChatManner = ChatManner::COMPATIBLE;

/// A server of which nothing differs.
const PLAIN: Preset = Preset {
    name: "",
    told_as: None,
    base_url: None,
    address: "",
    key: "",
    needs_key: false,
    key_header: None,
    chat: COMPATIBLE,
    note: "",
};
/// A vendor's service.
const VENDOR: Preset = Preset { needs_key: true, ..PLAIN };

/// All of them.
pub static PRESETS: [Preset; 13] = [
    Preset {
        name: "ollama",
        base_url: Some("http://127.0.0.1:11434/v1"),
        key: "OLLAMA_API_KEY",
        chat: ChatManner { parallel_tool_calls: false, ..COMPATIBLE },
        note: "the key is for its cloud",
        ..PLAIN
    },
    Preset {
        name: "llama-cpp",
        base_url: Some("http://127.0.0.1:8080/v1"),
        key: "LLAMA_API_KEY",
        note: "start one of both on another port: 8080 is also Loopgate's",
        ..PLAIN
    },
    Preset { name: "vllm", base_url: Some("http://127.0.0.1:8000/v1"), key: "VLLM_API_KEY", ..PLAIN },
    Preset { name: "sglang", base_url: Some("http://127.0.0.1:30000/v1"), ..PLAIN },
    Preset {
        name: "lm-studio",
        base_url: Some("http://127.0.0.1:1234/v1"),
        key: "LM_API_TOKEN",
        chat: ChatManner { parallel_tool_calls: false, ..COMPATIBLE },
        ..PLAIN
    },
    Preset { name: "openrouter", base_url: Some("https://openrouter.ai/api/v1"), key: "OPENROUTER_API_KEY", ..VENDOR },
    Preset {
        name: "deepseek",
        base_url: Some("https://api.deepseek.com/v1"),
        key: "DEEPSEEK_API_KEY",
        chat: ChatManner {
            parallel_tool_calls: false,
            returned_reasoning: Some("reasoning_content"),
            developer_role: false,
            ..COMPATIBLE
        },
        ..VENDOR
    },
    Preset {
        name: "groq",
        base_url: Some("https://api.groq.com/openai/v1"),
        key: "GROQ_API_KEY",
        chat: ChatManner {
            output_bound: "max_completion_tokens",
            refused: &["logit_bias", "logprobs", "top_logprobs", "prediction", "modalities", "web_search_options"],
            left_out: &["verbosity", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"],
            ..COMPATIBLE
        },
        ..VENDOR
    },
    Preset {
        name: "mistral",
        told_as: Some("mistral_ai"),
        base_url: Some("https://api.mistral.ai/v1"),
        key: "MISTRAL_API_KEY",
        chat: ChatManner {
            seed: "random_seed",
            stream_options: false,
            refused: &["logit_bias", "logprobs", "top_logprobs", "modalities", "web_search_options"],
            left_out: &[
                "user",
                "safety_identifier",
                "service_tier",
                "prompt_cache_key",
                "prompt_cache_retention",
                "store",
                "verbosity",
            ],
            call_id_length: Some(9),
            developer_role: false,
            ..COMPATIBLE
        },
        note: "it tells the usage without being asked",
        ..VENDOR
    },
    Preset { name: "together", base_url: Some("https://api.together.xyz/v1"), key: "TOGETHER_API_KEY", ..VENDOR },
    Preset {
        name: "xai",
        told_as: Some("x_ai"),
        base_url: Some("https://api.x.ai/v1"),
        key: "XAI_API_KEY",
        note: "reasoning counts beside the output, and is added to it",
        ..VENDOR
    },
    Preset {
        name: "azure",
        told_as: Some("azure.ai.openai"),
        address: "`https://RESOURCE.openai.azure.com/openai/v1`, or without `/v1` for a dated `api_version`",
        key: "AZURE_OPENAI_API_KEY",
        key_header: Some("api-key"),
        chat: ChatManner::OPENAI,
        note: "its models are named by their deployments, so `models` must name these",
        ..VENDOR
    },
    Preset {
        name: "bedrock",
        told_as: Some("aws.bedrock"),
        address: "`https://bedrock-mantle.REGION.api.aws/v1`, for GPT models from 5 on `…/openai/v1`, or \
                  `https://bedrock-runtime.REGION.amazonaws.com/openai/v1`",
        key: "AWS_BEARER_TOKEN_BEDROCK",
        note: "only its endpoints that are compatible with OpenAI; the last one does not list its models",
        ..VENDOR
    },
];

impl Preset {
    /// What traces call it.
    pub(super) fn provider(&self) -> &'static str {
        self.told_as.unwrap_or(self.name)
    }

    /// Whether it says where it is.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.base_url.is_some()
    }
}

impl FromToml for &'static Preset {
    fn form() -> String {
        let names: Vec<_> = PRESETS.iter().map(|preset| format!("{:?}", preset.name)).collect();
        names.join(" or ")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let form = Self::form();
        let name = text(value, &form)?;
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| Misread::new(value, format!("must be {form}")))
    }

    fn show(&self) -> String {
        format!("{:?}", self.name)
    }
}

/// The presets as a table in Markdown.
#[cfg(test)]
pub fn to_markdown() -> String {
    use std::fmt::Write as _;

    let mut table = String::from("| preset | `base_url` | key | what differs |\n| --- | --- | --- | --- |\n");
    for Preset { name, base_url, address, key, key_header, chat, note, .. } in &PRESETS {
        let base_url = base_url.map_or_else(|| (*address).to_owned(), |url| format!("`{url}`"));
        let key = match (*key, key_header) {
            ("", _) => "–".to_owned(),
            (key, None) => format!("`{key}`"),
            (key, Some(header)) => format!("`{key}`, in the header `{header}`"),
        };
        let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let mut differs = Vec::new();
        if chat.output_bound != COMPATIBLE.output_bound {
            differs.push(format!("the output is bounded by `{}`", chat.output_bound));
        }
        if chat.seed != COMPATIBLE.seed {
            differs.push(format!("`seed` is sent as `{}`", chat.seed));
        }
        if !chat.stream_options {
            differs.push("no `stream_options`".to_owned());
        }
        if !chat.parallel_tool_calls {
            differs.push("no `parallel_tool_calls`".to_owned());
        }
        if !chat.refused.is_empty() {
            differs.push(format!("{}: 400", listed(chat.refused)));
        }
        if !chat.left_out.is_empty() {
            differs.push(format!("{} are left out with a warning", listed(chat.left_out)));
        }
        if !chat.takes_unknown {
            differs.push("members that OpenAI does not document are left out with a warning".to_owned());
        }
        if let Some(length) = chat.call_id_length {
            differs.push(format!("ids of tool calls have {length} letters and digits; a hash stands for others"));
        }
        if let Some(member) = chat.returned_reasoning {
            differs.push(format!("reasoning goes back to the model that wrote it, in `{member}`"));
        }
        if !chat.developer_role {
            differs.push("`developer` messages are sent as `system`".to_owned());
        }
        differs.extend((!note.is_empty()).then(|| (*note).to_owned()));
        writeln!(table, "| `{name}` | {base_url} | {key} | {} |", differs.join("; ")).expect("a string takes it");
    }
    table
}
