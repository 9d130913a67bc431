//! The dialects of upstreams: how each tells of a token, and how that is read.

use std::fmt;

use loopgate::llm::http::decode::Decode;
use loopgate::llm::{anthropic, gemini, openai, responses};

/// A dialect.
pub(crate) struct Dialect {
    name: &'static str,
    /// What an answer begins with.
    pub(crate) begin: &'static str,
    /// How a token is told.
    pub(crate) event: fn(usize) -> String,
    /// Reads an answer that arrives in these pieces.
    pub(crate) parse: fn(&[String]),
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them; what the others cost is compared with the first.
pub(crate) static DIALECTS: [Dialect; 4] = [
    Dialect {
        name: "openai",
        begin: "",
        event: |number| {
            format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                 \"system_fingerprint\":\"fp\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{number}\"}},\
                 \"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
            )
        },
        parse: |pieces| parse(openai::decode::Decoder::default(), pieces),
    },
    Dialect {
        name: "anthropic",
        begin: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
                {\"type\":\"text\",\"text\":\"\"}}\n\n",
        event: |number| {
            format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
                 {{\"type\":\"text_delta\",\"text\":\" word{number}\"}}}}\n\n"
            )
        },
        parse: |pieces| parse(anthropic::decode::Decoder::new("m".into()), pieces),
    },
    Dialect {
        name: "openai_responses",
        begin: "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":2,\
                \"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"in_progress\",\
                \"content\":[],\"role\":\"assistant\"}}\n\n",
        event: |number| {
            format!(
                "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\
                 \"sequence_number\":{number},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\
                 \"delta\":\" word{number}\",\"logprobs\":[]}}\n\n"
            )
        },
        parse: |pieces| parse(responses::decode::Decoder::new("m".into()), pieces),
    },
    Dialect {
        name: "gemini",
        begin: "",
        event: |number| {
            format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\" word{number}\"}}],\"role\":\"model\"}},\
                 \"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":60,\"candidatesTokenCount\":{number},\
                 \"totalTokenCount\":{},\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":60}}]}},\
                 \"modelVersion\":\"m\",\"responseId\":\"r\"}}\r\n\r\n",
                60 + number
            )
        },
        parse: |pieces| parse(gemini::decode::Decoder::new("m".into(), true), pieces),
    },
];

fn parse(mut decoder: impl Decode, pieces: &[String]) {
    let mut deltas = Vec::new();
    for piece in pieces {
        decoder.feed(piece.as_bytes(), &mut deltas).expect("the events are valid");
        divan::black_box(&deltas);
        deltas.clear();
    }
}
