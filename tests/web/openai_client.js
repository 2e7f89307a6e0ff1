/* OpenAI's own client for node, as it comes from npm, against a desk: `node openai_client.js URL FILE`. Prints what it
   understood of each answer as JSON. */
import { createReadStream } from "node:fs";
import OpenAI from "openai";

const [url, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: "any", maxRetries: 0, timeout: 180000 });
const ask = (more, api = client.audio.transcriptions) => api.create({ file: createReadStream(path), model: "whisper-1", ...more });

const found = { models: [] };
for await (const model of client.models.list()) found.models.push(model.id);
found.json = await ask({});
found.text = await ask({ response_format: "text" });
found.srt = await ask({ response_format: "srt" });
found.vtt = await ask({ response_format: "vtt" });
found.verbose = await ask({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
found.diarized = await ask({ response_format: "diarized_json", model: "gpt-4o-transcribe-diarize", chunking_strategy: "auto" });
found.logprobs = await ask({ response_format: "json", include: ["logprobs"] });
found.events = [];
for await (const event of await ask({ stream: true, model: "gpt-4o-mini-transcribe", include: ["logprobs"] })) found.events.push(event);
const told = (error) => ({
  bad: error instanceof OpenAI.BadRequestError, status: error.status, param: error.param, type: error.type, message: error.message,
});
found.translated = await ask({ response_format: "verbose_json" }, client.audio.translations).catch(told);
found.refused = await ask({ response_format: "docx" }).catch(told);
process.stdout.write(JSON.stringify(found));
