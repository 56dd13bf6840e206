// Server-sent events from a response body, as the HTML standard reads them.

/** The data of each event; ending the loop early ends the download. */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const held = value.endsWith("\r") ? 1 : 0; // its line feed may come with the next piece
      const lines = (rest + value.slice(0, value.length - held)).split(/\r\n|\r|\n/);
      rest = lines.pop() + value.slice(value.length - held);
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line !== "" || data.length === 0) continue; // comments, other fields
        yield data.join("\n");
        data = [];
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
