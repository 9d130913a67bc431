// The AI SDK's chat, without an interface around it, and the agent of AG-UI, used as interfaces use them.
//
// Usage: ui.mjs CASE BASE_URL, with the packages under LOOPGATE_TEST_NODE_MODULES. Prints one line of JSON, what a user would
// see. `resumed` prints `joined` before, once a second reader has the first text.
//
// Checks of `useChat` of `ai`:
//   text: text
//   server tool: said
//   client tool: client_tool
//   approval: approved, denied
//   structured output: none: a chat shows text
//   failure: failed, refused
//   limit: limited
//   cancel: cancelled
//   resume: resumed
//   background: none: a chat reads what it asked for; `resume` joins it later
//
// Checks of `HttpAgent` of `@ag-ui/client`:
//   text: ag_text
//   server tool: ag_said
//   client tool: ag_client_tool
//   approval: ag_approved, ag_denied
//   structured output: none: an agent of AG-UI says text
//   failure: ag_said
//   limit: ag_limited
//   cancel: ag_cancelled
//   resume: none: there is no path to join a run of AG-UI
//   background: none: its functions wait for the answer

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses: decided,
  lastAssistantMessageIsCompleteWithToolCalls: answered,
} = require('ai');
const { HttpAgent } = require('@ag-ui/client');

const [name, url] = process.argv.slice(2);
const weather = {
  name: 'get_weather',
  description: 'Tells the weather.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
const ask = { policy: { ask: ['calculator'] } };
const cancel = async (session) => {
  const answer = await fetch(`${url}/v1/sessions/${session}/cancel`, { method: 'POST' });
  if (!answer.ok) throw new Error(await answer.text());
};

// --- The AI SDK ---

class Chat extends AbstractChat {
  constructor(init) {
    const state = {
      status: 'ready',
      error: undefined,
      messages: [],
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => (state.messages = state.messages.with(at, structuredClone(message))),
      snapshot: (value) => structuredClone(value),
    };
    super({ ...init, state });
  }
}

const statuses = [];
const chat = (body, more = {}) => {
  const ends = [];
  const transport = new DefaultChatTransport({
    api: `${url}/v1/agent/ui`,
    body: { model: 'test', ...body },
    fetch: async (to, init) => {
      const response = await fetch(to, init);
      statuses.push([init.method, response.status, response.headers.get('x-vercel-ai-ui-message-stream')]);
      return response;
    },
  });
  const made = new Chat({ transport, onFinish: ({ finishReason }) => ends.push(finishReason ?? null), ...more });
  made.ends = ends;
  return made;
};
const part = ({ type, text, toolName, state, output, errorText, providerExecuted, data }) => {
  if (type === 'text' || type === 'reasoning') return [type, text];
  if (type.startsWith('data-')) return [type, data];
  if (!state) return [type];
  return [type, toolName ?? null, state, output ?? errorText ?? null, providerExecuted ?? false];
};
const shown = (made) => ({
  parts: made.messages.filter(({ role }) => role === 'assistant').map(({ parts }) => parts.map(part)),
  status: made.status,
  ends: made.ends,
});
const settled = async (made, ends) => {
  while (made.ends.length < ends || made.status === 'streaming' || made.status === 'submitted') {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};
// One message of the chat has all that its run says, so its id stays.
const ids = (made) => new Set(made.messages.map(({ id }) => id)).size;
const approving = async (approved, more) => {
  const made = chat({ agent: ask }, { sendAutomaticallyWhen: decided, ...more });
  await made.sendMessage({ text: 'Hi' });
  const waiting = made.lastMessage.parts.filter(({ state }) => state === 'approval-requested');
  await made.addToolApprovalResponse({ id: waiting[0].approval.id, approved, reason: 'I say so.' });
  await settled(made, 2);
  return { ...shown(made), asked: waiting.length, ids: ids(made) };
};

const ofAiSdk = {
  text: async () => {
    const made = chat({});
    await made.resumeStream();
    await made.sendMessage({ text: 'Hi' });
    await made.sendMessage({ text: 'And now?' });
    return { ...shown(made), statuses };
  },
  said: async () => {
    const made = chat({});
    await made.sendMessage({ text: 'Hi' });
    return shown(made);
  },
  client_tool: async () => {
    const made = chat(
      { tools: [{ type: 'function', function: weather }] },
      {
        sendAutomaticallyWhen: answered,
        onToolCall: ({ toolCall }) => {
          const { toolCallId, input } = toolCall;
          made.addToolOutput({ tool: 'get_weather', toolCallId, output: { in: input.city, sky: 'rain' } });
        },
      },
    );
    await made.sendMessage({ text: 'Hi' });
    await settled(made, 3);
    return { ...shown(made), ids: ids(made) };
  },
  approved: () => approving(true),
  denied: () => approving(false),
  limited: async () => {
    const made = chat({ agent: { limits: { max_iterations: 1 } } });
    await made.sendMessage({ text: 'Hi' });
    return shown(made);
  },
  failed: async () => {
    const made = chat({});
    await made.sendMessage({ text: 'Hi' });
    return { ...shown(made), error: made.error.message };
  },
  refused: async () => {
    const made = chat({ model: 'nonsense' });
    await made.sendMessage({ text: 'Hi' });
    return { status: made.status, code: JSON.parse(made.error.message).error.code, answered: statuses[0][1] };
  },
  cancelled: async () => {
    const made = chat({});
    const sending = made.sendMessage({ text: 'Hi' });
    while (made.lastMessage?.role !== 'assistant' || !made.lastMessage.parts.some(({ text }) => text)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await cancel(made.id);
    await sending;
    return shown(made);
  },
  resumed: async () => {
    const id = 'chat-1';
    const has = (made, text) => made.lastMessage?.parts.some((part) => part.text?.includes(text));
    const first = chat({}, { id });
    first.sendMessage({ text: 'Hi' });
    while (!has(first, 'Half')) await new Promise((resolve) => setTimeout(resolve, 5));
    // Leaving is not the wish to stop.
    await first.stop();
    const second = chat({}, { id });
    const reading = second.resumeStream();
    while (!has(second, 'Half')) await new Promise((resolve) => setTimeout(resolve, 5));
    console.log('joined');
    await reading;
    return shown(second);
  },
};

// --- AG-UI ---

const agent = (threadId) => new HttpAgent({ url: `${url}/v1/agent/ag-ui`, threadId });
const run = async (made, { props = {}, ...more } = {}) => {
  const told = { steps: 0, customs: [] };
  const subscriber = {
    onStepStartedEvent: () => void (told.steps += 1),
    onCustomEvent: ({ event }) => void told.customs.push(event.name),
    onRunFinishedEvent: ({ event, pendingToolCallIds }) => {
      told.outcome = event.outcome;
      told.usage = event.usage[0].totalTokens;
      told.pending = pendingToolCallIds ?? [];
      told.ids = [event.threadId === made.threadId, event.runId.length > 0];
    },
    onRunErrorEvent: ({ event }) => void (told.error = [event.code, event.message]),
  };
  await made.runAgent({ forwardedProps: { model: 'test', ...props }, ...more }, subscriber).catch((error) => {
    if (!told.error) throw error;
  });
  return told;
};
const say = (made, content) => made.addMessage({ id: crypto.randomUUID(), role: 'user', content });
const message = ({ role, content, toolCalls }) => [
  role,
  content ?? null,
  (toolCalls ?? []).map(({ function: { name, arguments: given } }) => [name, JSON.parse(given)]),
];
const seen = (made, { steps, outcome, error, usage, ids }) => ({
  messages: made.messages.map(message),
  steps,
  outcome: outcome?.type ?? null,
  ...(error ? { error } : { usage, ids }),
});
const interrupting = async (answer) => {
  const made = agent('thread-1');
  say(made, 'Hi');
  const first = await run(made, { props: { agent: ask } });
  const [interrupt] = first.outcome.interrupts;
  const resume = [{ interruptId: interrupt.id, ...answer }];
  const second = await run(made, { props: { agent: ask }, resume });
  return { first: [first.outcome.type, interrupt.reason], ...seen(made, second) };
};

const ofAgUi = {
  ag_text: async () => {
    const made = agent('thread-1');
    say(made, 'Hi');
    await run(made, { context: [{ description: 'The place', value: 'Oslo' }] });
    say(made, 'And now?');
    return seen(made, await run(made));
  },
  ag_said: async () => {
    const made = agent('thread-1');
    say(made, 'Hi');
    return seen(made, await run(made));
  },
  ag_client_tool: async () => {
    const made = agent('thread-1');
    say(made, 'Hi');
    const first = await run(made, { tools: [weather] });
    for (const toolCallId of first.pending) {
      made.addMessage({ id: crypto.randomUUID(), role: 'tool', toolCallId, content: 'rain' });
    }
    return { pending: first.pending.length, ...seen(made, await run(made, { tools: [weather] })) };
  },
  ag_approved: () => interrupting({ status: 'resolved', payload: { approved: true } }),
  ag_denied: () => interrupting({ status: 'cancelled' }),
  ag_limited: async () => {
    const made = agent('thread-1');
    say(made, 'Hi');
    return seen(made, await run(made, { props: { agent: { limits: { max_iterations: 1 } } } }));
  },
  ag_cancelled: async () => {
    const made = agent('thread-1');
    say(made, 'Hi');
    const running = run(made);
    while (!made.messages.some(({ role, content }) => role === 'assistant' && content)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await cancel('thread-1');
    // What a call took that was cut off is an estimate.
    return { ...seen(made, await running), usage: 0 };
  },
};

console.log(JSON.stringify(await { ...ofAiSdk, ...ofAgUi }[name]()));
