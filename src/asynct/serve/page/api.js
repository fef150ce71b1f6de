
/** What went wrong with a request, in words for people. `status` is 0 when there was no answer. */
class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const api = {
  key: "",  // in memory only

  /** The response, if it is one of success; else ApiError. Aborting throws what `signal` was aborted with. */
  async send(path, { body, signal } = {}) {
    const headers = {};
    if (this.key !== "") {
      if (!/^[\x21-\x7e]+$/.test(this.key)) throw new ApiError("API key: expected printable ASCII", 0);
      headers.Authorization = `Bearer ${this.key}`;
    }
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, {
        method: body === undefined ? "GET" : "POST",
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError("No answer from the server. Is it still running?", 0);
    }
    if (!response.ok) throw new ApiError(await errorText(response), response.status);
    return response;
  },
};

/** The message of an error of the OpenAI protocol: {"error": {"message"}}. */
function errorMessage(json) {
  const message = json?.error?.message ?? json?.message;
  return typeof message === "string" && message !== "" ? message : null;
}

async function errorText(response) {
  const otherwise = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    return errorMessage(await response.json()) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Splits a stream of server-sent events, whatever the pieces in which it arrives. */
class EventSplitter {
  #rest = "";
  #data = [];

  /** The data of the events that `text` completes. */
  push(text) {
    const lines = (this.#rest + text).split(/\r?\n/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) events.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return events;
  }
}

/** Yields the JSON of each event until [DONE]. ApiError when the stream ends without it or carries an error. */
async function* eventsOf(response) {
  const splitter = new EventSplitter();
  // Read without a pipe: a connection that breaks discards what is still queued, and a pipe queues more.
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError("The connection broke before the end of the answer.", 0);
      }
      if (piece.done) throw new ApiError("The server closed the connection before the end of the answer.", 0);
      for (const event of splitter.push(decoder.decode(piece.value, { stream: true }))) {
        if (event === "[DONE]") return;
        let json;
        try {
          json = JSON.parse(event);
        } catch {
          throw new ApiError("The server sent an event that is no JSON.", 0);
        }
        if (json?.error) throw new ApiError(errorMessage(json) ?? "The server reports an error.", 500);
        yield json;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
