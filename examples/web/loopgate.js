/**
 * Loopgate for web pages: starts runs, reads their events, and reads on where a connection broke.
 *
 * No build step and no dependency: `import { Loopgate } from './loopgate.js'`. It needs `fetch` and streams, so it also
 * runs in Node, Deno and Bun. Never put an API key into a page that others load: see docs/browsers.md.
 */

/**
 * An event of a run. Text has the type `text`; all other types are those of docs/api.md.
 *
 * @typedef {object} RunEvent
 * @property {string} type `text`, or the event's name, such as `tool.call`
 * @property {string} run the run
 * @property {number} seq its number in the run's log: what `after` takes
 * @property {number} [step] the step that it belongs to
 * @property {string} [text] the piece of text of a `text`
 * @property {any} data all that the server says
 */

/**
 * @typedef {object} Options
 * @property {string} [key] API key, sent as `Authorization: Bearer`; never in a page
 * @property {() => string | Promise<string>} [token] asks your backend for a token; called again when the server refuses the last one
 * @property {number} [patience] how many connections in a row may bring nothing before a reader gives up (8)
 */

/** What the server refused, with its own words. */
export class LoopgateError extends Error {
  /**
   * @param {number} status
   * @param {{message?: string, code?: string, param?: string | null}} error
   * @param {number} [retryAfter] in how many ms the request may be sent again; 0: not at all
   */
  constructor(status, error, retryAfter = 0) {
    super(error.message ?? `the server answered ${status}`);
    this.name = 'LoopgateError';
    this.status = status;
    this.code = error.code;
    this.param = error.param;
    this.retryAfter = retryAfter;
  }
}

export class Loopgate {
  /** @type {string | undefined} the token that is shown */
  #shown;

  /** @param {string} url such as `https://agents.example.com` @param {Options} [options] */
  constructor(url, { key, token, patience = 8 } = {}) {
    this.url = url.replace(/\/$/, '');
    this.key = key;
    this.token = token;
    this.patience = patience;
  }

  /**
   * Starts a run and yields its events until it ends.
   *
   * The request bears an idempotency key. So it can be sent again if nothing is known of the first attempt. The run
   * goes on if the page goes away: cancel it if it should not.
   *
   * @param {object} request as for `POST /v1/agent/completions`: `model`, `messages`, `agent`, …
   * @param {{signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<RunEvent, void, void>}
   */
  async *start(request, { signal } = {}) {
    const body = JSON.stringify({ ...request, stream: true });
    const key = random();
    const begin = () => this.#send('POST', '/v1/agent/completions', signal, body, { 'idempotency-key': key });
    yield* this.#read(signal, undefined, 0, begin);
  }

  /**
   * Starts a run that goes on by itself, and returns its id.
   *
   * @param {{agent?: object}} request as for `POST /v1/agent/completions`
   * @returns {Promise<string>}
   */
  async begin(request) {
    const body = JSON.stringify({ ...request, agent: { ...request.agent, background: true } });
    return (await (await this.#send('POST', '/v1/agent/completions', undefined, body)).json()).id;
  }

  /**
   * Yields the events of a run after number `after`, until it ends. The run may have ended before.
   *
   * @param {string} run
   * @param {{after?: number, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<RunEvent, void, void>}
   */
  async *follow(run, { after = 0, signal } = {}) {
    yield* this.#read(signal, run, after);
  }

  /**
   * Sends a message to a run that is under way; it joins the conversation before the next model call.
   *
   * @param {string} run @param {string} content
   */
  async steer(run, content) {
    const body = JSON.stringify({ messages: [{ role: 'user', content }] });
    return (await this.#send('POST', `/v1/runs/${run}/messages`, undefined, body)).json();
  }

  /** Cancels a run, and returns it once it has stopped. @param {string} run */
  async cancel(run) {
    return (await this.#send('POST', `/v1/runs/${run}/cancel`)).json();
  }

  /**
   * Where an `EventSource` finds the events of a run after number `after`, with a fresh token in the query. Such a stream ends
   * when its token does: ask for another address then.
   *
   * @param {string} run
   * @param {{after?: number}} [options]
   */
  async eventsUrl(run, { after = 0 } = {}) {
    const query = new URLSearchParams({ after: String(after) });
    // What is in an address may be kept by logs of proxies, so it is one that has just begun to live.
    if (this.token) query.set('token', await this.#renewed());
    return `${this.url}/v1/runs/${run}/events?${query}`;
  }

  /**
   * @param {AbortSignal | undefined} signal
   * @param {string | undefined} run unknown until the first answer to a request that starts one
   * @param {number} after
   * @param {() => Promise<Response>} [begin]
   * @returns {AsyncGenerator<RunEvent, void, void>}
   */
  async *#read(signal, run, after, begin) {
    let fruitless = 0;
    for (;;) {
      let wait = 0;
      try {
        const response = await (run === undefined && begin
          ? begin()
          : this.#send('GET', `/v1/runs/${run}/events`, signal, undefined, { 'last-event-id': String(after) }));
        // The run has ended and the last event was read.
        if (response.status === 204 || !response.body) return;
        run = response.headers.get('x-loopgate-run-id') ?? run ?? '';
        for await (const { name, id, data, retry } of frames(response.body)) {
          wait = retry ?? wait;
          if (data === undefined) continue;
          if (data === '[DONE]') return;
          const parsed = JSON.parse(data);
          // Without a name and without chunks: an error that ends the stream.
          if (!name && !parsed.choices) throw new LoopgateError(response.status, parsed.error ?? {});
          after = id ?? after;
          fruitless = 0;
          yield event(run, after, name, parsed);
        }
      } catch (error) {
        if (signal?.aborted) throw error;
        if (error instanceof LoopgateError) {
          if (!error.retryAfter) throw error;
          wait = error.retryAfter;
        }
        if (fruitless >= this.patience) throw error;
      }
      // The connection ended before the run did: read on behind the last event.
      if (++fruitless > this.patience) throw new Error(`the events of ${run} broke off again and again`);
      await pause(wait || Math.min(250 * 2 ** (fruitless - 1), 8000), signal);
    }
  }

  /**
   * @param {string} method @param {string} path @param {AbortSignal} [signal] @param {string} [body]
   * @param {Record<string, string>} [headers]
   */
  async #send(method, path, signal, body, headers = {}) {
    if (body) headers['content-type'] = 'application/json';
    for (let renewed = false; ; renewed = true) {
      const shown = this.token ? (this.#shown ?? (await this.#renewed())) : this.key;
      if (shown) headers.authorization = `Bearer ${shown}`;
      const response = await fetch(this.url + path, { method, headers, body, signal });
      if (response.ok) return response;
      const { error = {} } = await response.json().catch(() => ({}));
      // The token has expired, or was revoked: once with a new one.
      if (response.status !== 401 || !this.token || renewed) throw new LoopgateError(response.status, error, retryAfter(response));
      if (this.#shown === shown) await this.#renewed();
    }
  }

  async #renewed() {
    if (!this.token) throw new Error('there is nobody to ask for a token');
    return (this.#shown = await this.token());
  }
}

/** The text of a run so far. A step that the server takes back takes its text along. */
export class Text {
  /** @type {Map<number, string>} */
  #steps = new Map();

  /** @param {RunEvent} event */
  push({ type, step = 0, text = '' }) {
    if (type === 'text') this.#steps.set(step, (this.#steps.get(step) ?? '') + text);
    if (type === 'step.discarded') this.#steps.delete(step);
  }

  toString() {
    return [...this.#steps.values()].join('');
  }
}

/** @param {string} run @param {number} seq @param {string | undefined} name @param {any} data @returns {RunEvent} */
function event(run, seq, name, data) {
  if (name) return { type: name, run, seq, step: data.step, data };
  const delta = data.choices[0]?.delta ?? {};
  return { type: 'text', run, seq, step: data.loopgate?.step, text: delta.content ?? delta.refusal ?? '', data };
}

/**
 * The frames of a stream of server-sent events. One that was cut in its middle is none.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<{name?: string, id?: number, data?: string, retry?: number}, void, void>}
 */
export async function* frames(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        /** @type {Record<string, string>} */
        const fields = {};
        for (const line of block.split('\n')) {
          const at = line.indexOf(':');
          // A line that begins with a colon is a comment, which says that the run is still under way.
          if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, '');
        }
        const { event: name, id, data, retry } = fields;
        yield { name, id: id ? Number(id) : undefined, data, retry: retry ? Number(retry) : undefined };
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** In how many ms the request may be sent again; 0: not at all. @param {Response} response */
function retryAfter({ status, headers }) {
  if (headers.get('x-should-retry') === 'false' || ![429, 502, 503, 504].includes(status)) return 0;
  return Number(headers.get('retry-after') ?? 1) * 1000;
}

/** @param {number} milliseconds @param {AbortSignal} [signal] @returns {Promise<void>} */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** `crypto.randomUUID` is missing in pages that were loaded over plain HTTP. */
function random() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
