//! Members of a request that no upstream is sent, though the completion endpoints do not know them.
//!
//! An upstream may be a gateway that takes more than a model's parameters from the body: where to send the request, whose
//! key to use, which model to ask instead. Those are the operator's to decide, and budgets hold only for the model and the
//! bounds that the server chose. Such members are dropped before a run stores its request, since some are secrets.

/// The members, by what they would change. Names are folded as by [`fold`].
const WITHHELD: &[&str] = &[
    // Where the request goes.
    "apibase",
    "apitype",
    "apiversion",
    "baseurl",
    "bootstraphost",
    "bootstrapport",
    "bootstraproom",
    "callbackurl",
    "client",
    "customllmprovider",
    "datasources",
    "deploymentid",
    "endpoint",
    "kvtransferparams",
    "mcpservers",
    "proxy",
    "proxyserverrequest",
    "regionname",
    "sslverify",
    "webhookurl",
    // The account that pays for the call, and the user in whose name it is made.
    "apikey",
    "apitoken",
    "authorization",
    "clientid",
    "clientsecret",
    "extraheaders",
    "extraquery",
    "headers",
    "organization",
    "project",
    "secretfields",
    "tenantid",
    // Which model is asked, and at what price.
    "adapterid",
    "adaptersource",
    "basemodel",
    "compoundcustom",
    "contentpolicyfallbacks",
    "contextwindowfallbacks",
    "defaultfallbacks",
    "fallbacks",
    "hfmodelname",
    "inputcostpersecond",
    "inputcostpertoken",
    "lora",
    "lorapath",
    "modelinfo",
    "modellist",
    "models",
    "outputcostpersecond",
    "outputcostpertoken",
    "preset",
    "provider",
    "provideroptions",
    "route",
    "safetymodel",
    "specificdeployment",
    "userconfig",
    // What is paid for beside tokens, or more than they cost.
    "enablesearch",
    "enablewebsearch",
    "plugins",
    "searchoptions",
    "searchparameters",
    "servicetier",
    "websearch",
    // How much is written: the server bounds it, and has one answer written.
    "bestof",
    "candidatecount",
    "maxgentoks",
    "maxlength",
    "maxnewtokens",
    "maxoutputtokens",
    "maxtokenstosample",
    "ncmpl",
    "npredict",
    "numpredict",
    "numreturnsequences",
    "usebeamsearch",
    // How a gateway or a model server works, what it checks and what it notes.
    "additionaldropparams",
    "allowedopenaiparams",
    "cache",
    "caching",
    "callbacks",
    "chattemplate",
    "customlogitprocessor",
    "custompromptdict",
    "disableglobalguardrail",
    "disableglobalguardrails",
    "dropparams",
    "extrabody",
    "failurecallback",
    "guardrailconfig",
    "guardrails",
    "keepalive",
    "loggerfn",
    "logitsprocessors",
    "maxretries",
    "nolog",
    "numretries",
    "presetcachekey",
    "promptid",
    "promptvariables",
    "requesttimeout",
    "retrypolicy",
    "streamtimeout",
    "successcallback",
    "timeout",
    "turnoffmessagelogging",
];
/// How families of such members begin: the credentials of clouds, what a gateway has for itself, its made-up answers.
const FAMILIES: &[&str] =
    &["aws", "azure", "langfuse", "langsmith", "litellm", "mock", "oci", "s3", "sagemaker", "vertex", "watsonx"];

/// Whether upstreams are not sent the member.
pub(super) fn is_withheld(name: &str) -> bool {
    let name = fold(name);
    WITHHELD.contains(&name.as_str()) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// The name as gateways that are lenient about it may read it: `apiKey`, `api-key` and `API_KEY` are one.
fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redirects_authenticates_or_reconfigures_is_withheld_in_any_spelling() {
        for name in [
            "api_base",
            "apiBase",
            "API-KEY",
            "providerOptions",
            "mock_response",
            "aws_role_name",
            "no-log",
            "n_predict",
            "serviceTier",
            "enable_search",
        ] {
            assert!(is_withheld(name), "{name}");
        }
        for name in [
            "top_k",
            "min_p",
            "thinking",
            "chat_template_kwargs",
            "logprobs",
            "guided_json",
            "store",
            "repetition_penalty",
        ] {
            assert!(!is_withheld(name), "{name}");
        }
        for name in WITHHELD {
            assert_eq!(fold(name), *name, "it could not be met");
        }
    }
}
