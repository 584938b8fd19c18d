// Talks to the server that this page came from. Failures are ApiErrors whose message is for people.

const KEY_NAME = 'talon-api-key';

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;  // HTTP's; 0: there was no answer
  }
}

// Kept for this tab only.
export function setApiKey(key) {
  sessionStorage.setItem(KEY_NAME, key);
}

export function hasApiKey() {
  return Boolean(sessionStorage.getItem(KEY_NAME));
}

export async function getJson(path) {
  const response = await request(path, {});
  try {
    return await response.json();
  } catch {
    throw new ApiError(`${path} did not answer with JSON.`, response.status);
  }
}

// The JSON objects of a stream of server-sent events, one by one. Aborting `signal` ends it with an
// AbortError.
export async function* postForEvents(path, body, signal) {
  const headers = {'Content-Type': 'application/json'};
  const response =
      await request(path, {method: 'POST', headers, body: JSON.stringify(body), signal});
  for await (const data of eventData(response.body, signal)) {
    if (data === '[DONE]') return;
    const event = parseEvent(data);
    if (event.error) throw new ApiError(event.error.message ?? 'The server gave up.');
    yield event;
  }
  throw new ApiError('The stream ended before the answer was complete.');
}

async function request(path, options) {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = {...options.headers, ...(key && {Authorization: `Bearer ${key}`})};
  let response;
  try {
    response = await fetch(path, {...options, headers});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server does not answer. Is talon serve still running?');
  }
  if (!response.ok) throw new ApiError(await explain(response), response.status);
  return response;
}

async function explain(response) {
  if (response.status === 401) return 'The server asks for an API key, or does not know this one.';
  try {
    const {error} = await response.json();
    const named = !error.param || error.message.includes(error.param);
    return named ? error.message : `${error.message} (${error.param})`;
  } catch {
    return `The server answered ${response.status} ${response.statusText}.`;
  }
}

function parseEvent(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError('The server sent an event that is not JSON.');
  }
}

// The text of each event. Ours have one `data:` line each.
async function* eventData(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let pending = '';
  for (;;) {
    const {done, value} = await readChunk(reader, signal);
    if (done) return;
    const lines = (pending + value).split(/\r?\n/);
    pending = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) yield line.slice('data:'.length).trim();
    }
  }
}

async function readChunk(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError('The connection to the server was lost.');
  }
}
