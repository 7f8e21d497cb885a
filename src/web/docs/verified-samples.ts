import { type Language, writeSample } from './samples.ts'

type VerifiedSample = {
  /** A shell command to run before the call. Null when no command is needed. */
  readonly before: { readonly what: string; readonly command: string } | null
  readonly code: string
  readonly after: string
}

/** Returns code that runs without changes. */
export function writeVerifiedSample(
  language: Language,
  call: { readonly origin: string; readonly model: string },
): VerifiedSample {
  return WRITERS[language](call)
}

const WRITERS: Readonly<
  Record<Language, (call: { origin: string; model: string }) => VerifiedSample>
> = {
  curl: ({ origin, model }) => ({
    before: null,
    code: writeCurl(`${origin}/v1/verified/chat/completions`, { model, messages: MESSAGES }),
    after:
      'The proof stands beside the answer: `hash`, `signature`, `attestation`, `receipt`, `log`, `tx_hash`. The gateway reads this call, and no program has checked the answer yet.',
  }),

  Node: ({ origin, model }) => ({
    before: {
      what: 'Once, with the package and `policy.json` in this folder:',
      command: 'npm install ./affidavit-*.tgz openai',
    },
    code: `// ask.mjs
import { readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'affidavit'
import OpenAI from 'openai'

const apiKey = process.env.AFFIDAVIT_API_KEY
const policy = JSON.parse(readFileSync('policy.json', 'utf8'))
const affidavit = await connect({ url: '${origin}', apiKey, policy })
const openai = new OpenAI({ baseURL: affidavit.baseURL, apiKey, fetch: affidavit.fetch })

const messages = [{ role: 'user', content: 'Hello' }]
const answer = await openai.chat.completions.create({ model: '${model}', messages })
console.log(answer.choices[0].message.content)

const anchored = await affidavit.anchored(affidavit.proofs.latest)
writeFileSync('evidence.json', anchored.save())`,
    after:
      'The client encrypts the call to an enclave that `policy.json` accepts and checks the answer: an answer that fails a check is an error. `evidence.json` is your evidence.',
  }),

  Python: ({ origin, model }) => ({
    before: {
      what: 'In a second terminal, with the package and `policy.json` in this folder:',
      command: `npx affidavit proxy --url ${origin} --policy policy.json --save proofs`,
    },
    code: `# ask.py (pip install openai)
import os
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8787/v1", api_key=os.environ["AFFIDAVIT_API_KEY"])
answer = client.chat.completions.create(
    model="${model}", messages=[{"role": "user", "content": "Hello"}]
)
print(answer.choices[0].message.content)`,
    after:
      'The proxy encrypts the call to an enclave that `policy.json` accepts and checks the answer: an answer that fails a check is an error. The proof is a file in `proofs`.',
  }),
}

/** A verified call of another API than chat completions. */
type OtherSample = {
  readonly name: string
  /** For the SDK of this API. */
  readonly baseUrl: string
  /** The method of the SDK that makes the call. */
  readonly method: string
  readonly code: string
}

/** Returns samples for the APIs that agents use. The code runs without changes. */
export function writeOtherSamples(origin: string, model: string): readonly OtherSample[] {
  const openai = `${origin}/v1/verified`
  const anthropic = `${origin}/v1/verified/anthropic`
  return [
    {
      name: 'Responses',
      baseUrl: openai,
      method: 'responses.create',
      code: writeCurl(`${openai}/responses`, { model, input: 'Hello' }),
    },
    {
      name: 'Messages',
      baseUrl: anthropic,
      method: 'messages.create',
      code: writeCurl(
        `${anthropic}/v1/messages`,
        { model, max_tokens: 1_000, messages: MESSAGES },
        { 'anthropic-version': '2023-06-01' },
      ),
    },
  ]
}

const MESSAGES = [{ role: 'user', content: 'Hello' }]

function writeCurl(
  url: string,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): string {
  const call = { url, method: 'POST', hasKey: true, headers, form: null }
  return writeSample('curl', { ...call, body: JSON.stringify(body) })
}
