// Loads pages of examples/web as a browser does, as far as they need one: elements by their ids, events, session
// storage, EventSource. No browser is needed for that, and no layout is tested.
//
// Usage: page.mjs DIRECTORY PAGE ID,EVENT QUERY. Loads the page with this query, lets the event happen to the element,
// waits until the page has shown the end of a run, loads it again in the same session, and prints as JSON what both loads
// showed.

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [directory, page, happens, search] = process.argv.slice(2);
const html = await readFile(join(directory, page), 'utf8');
const code = /<script type="module">([^]*)<\/script>/.exec(html)[1];
const script = join(directory, 'page-under-test.mjs');
await writeFile(script, code);

class Element extends EventTarget {
  items = [];
  #text = '';
  value = '';
  get textContent() {
    return this.#text;
  }
  set textContent(text) {
    this.#text = `${text}`;
    this.items.length = 0;
  }
  append(item) {
    this.items.push(item.textContent ?? item);
    noticed(item.textContent ?? item);
  }
}

// What the pages use of it. The real one waits for longer before it connects again.
globalThis.EventSource = class EventSource extends EventTarget {
  static CLOSED = 2;
  readyState = 0;
  #last = '';
  constructor(address) {
    super();
    this.#read(address);
  }
  close() {
    this.readyState = EventSource.CLOSED;
  }
  async #read(address) {
    while (this.readyState !== EventSource.CLOSED) {
      const headers = this.#last ? { 'last-event-id': this.#last } : {};
      const response = await fetch(address, { headers }).catch(() => undefined);
      if (response && response.status !== 200) this.close();
      let [rest, fields] = ['', {}];
      const decoder = new TextDecoder();
      try {
        for await (const piece of response?.body ?? []) {
          const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
          rest = lines.pop();
          for (const line of lines) {
            if (line) {
              fields[line.split(':', 1)[0]] = line.slice(line.indexOf(':') + 1).trimStart();
            } else {
              if (fields.data !== undefined) this.#dispatch(fields);
              fields = {};
            }
          }
        }
      } catch {
        // A connection that breaks is opened again, as one that ends.
      }
      if (this.readyState !== EventSource.CLOSED) this.onerror?.({});
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  #dispatch({ event = 'message', id, data }) {
    this.#last = id ?? this.#last;
    const message = Object.assign(new Event(event), { data, lastEventId: this.#last });
    if (event === 'message') this.onmessage?.(message);
    this.dispatchEvent(message);
  }
};

const storage = new Map();
globalThis.sessionStorage = {
  getItem: (name) => storage.get(name) ?? null,
  setItem: (name, value) => storage.set(name, value),
};
globalThis.location = { search };

let noticed = () => {};
const load = async (number) => {
  const elements = {};
  for (const [, id, value] of html.matchAll(/id="(\w+)"(?: value="([^"]*)")?/g)) {
    elements[id] = Object.assign(new Element(), { value: value ?? '' });
  }
  // What a button says.
  for (const [, id, text] of html.matchAll(/<button id="(\w+)">([^<]*)/g)) elements[id].textContent = text;
  globalThis.document = { getElementById: (id) => elements[id], createElement: () => new Element() };
  const ended = new Promise((resolve) => {
    noticed = (line) => /run\.(completed|failed|incomplete)/.test(line) && resolve();
  });
  await import(`${pathToFileURL(script)}?${number}`);
  if (number === 1) {
    const [id, event] = happens.split(',');
    elements[id].dispatchEvent(new Event(event, { cancelable: true }));
  } else if (!storage.size) {
    return undefined;
  }
  await ended;
  return { answer: elements.answer.textContent, log: elements.log.items.map((line) => line.trim()) };
};
const loads = [await load(1), await load(2)];
console.log(JSON.stringify(loads));
process.exit();
