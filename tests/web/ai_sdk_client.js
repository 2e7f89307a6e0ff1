/* The OpenAI provider of the AI SDK, as it comes from npm, against a desk: `node ai_sdk_client.js URL FILE`. It checks every
   answer against its own schema. Prints what it understood of each as JSON. */
import { readFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";

const [url, path] = process.argv.slice(2);
const provider = createOpenAI({ baseURL: url, apiKey: "any" });
const audio = new Uint8Array(await readFile(path));
const ask = (model, openai) => provider.transcription(model).doGenerate({ audio, mediaType: "audio/flac", providerOptions: { openai } });

const found = {};
found.segments = await ask("whisper-1", { language: "en", temperature: 0.2 });
found.words = await ask("whisper-1", { timestampGranularities: ["word"] });
// With any option it asks for times, also of models whose answers have none.
found.json = await ask("gpt-4o-transcribe", { prompt: "A call.", include: ["logprobs"] });
found.refused = await ask("gpt-9").catch((error) => ({ status: error.statusCode, data: error.data }));
process.stdout.write(JSON.stringify(found));
