import type { JsonObject } from '#attestation/json/value.ts'
import { type Attack, both, type GatewayAnswer } from '../hostile-gateway.ts'
import {
  ABYSS,
  type AttackCase,
  asking,
  casesOf,
  EVIL,
  EVIL_CHUNKS,
  type Forge,
  json,
  type Loose,
  otherCompletion,
  rewriting,
  saying,
  textOf,
} from './attack-case.ts'
import { swappingNotaries } from './document-attacks.ts'

/** The data of a stream's events, including `[DONE]`. */
function dataOf(text: string): readonly string[] {
  return text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice('data: '.length))
}

function eventsOf(data: readonly string[]): string {
  return data.map((one) => `data: ${one}\n\n`).join('')
}

/** Changes the data of the stream's events. */
const events = (change: (data: readonly string[]) => readonly string[]) =>
  rewriting((text) => eventsOf(change(dataOf(text))))

/** Changes one chunk: by its index from the beginning, or from the end, where -1 has the proof. */
const chunk = (at: number, change: (chunk: Loose) => unknown) =>
  events((data) => {
    const place = at < 0 ? data.length - 1 + at : at
    const value = JSON.parse(data[place] ?? '')
    change(value)
    return data.with(place, JSON.stringify(value))
  })

/** A chunk as the second one, with another delta. */
const sibling = (data: readonly string[], delta: JsonObject) => {
  const value = JSON.parse(data[1] ?? '')
  value.choices[0].delta = delta
  return JSON.stringify(value)
}
const inserted = (at: number, delta: JsonObject) =>
  events((data) => data.toSpliced(at, 0, sibling(data, delta)))
const delta = (value: Loose) => value.choices[0].delta

const CHUNKS: readonly AttackCase[] = casesOf('alters the stream', [
  ['the text of a chunk', 'wrong_stream', chunk(2, (c) => (delta(c).content = EVIL))],
  [
    'the text of the chunk with the proof',
    'wrong_stream',
    chunk(-1, (c) => (c.choices = [{ index: 0, delta: { content: EVIL }, finish_reason: 'stop' }])),
  ],
  ['a chunk dropped', 'wrong_stream', events((data) => data.toSpliced(2, 1))],
  ['a chunk repeated', 'wrong_stream', events((data) => data.toSpliced(2, 0, data[2] ?? ''))],
  [
    'chunks in another order',
    'wrong_stream',
    events((data) => data.with(1, data[2] ?? '').with(2, data[1] ?? '')),
  ],
  ['a chunk inserted', 'wrong_stream', inserted(2, { content: EVIL })],
  [
    'a tool call',
    'wrong_stream',
    inserted(2, {
      tool_calls: [
        { index: 0, id: 'c', type: 'function', function: { name: 'pay', arguments: '{}' } },
      ],
    }),
  ],
  [
    'a message in a choice',
    'invalid_stream',
    chunk(2, (c) => (c.choices[0].message = { role: 'assistant', content: EVIL })),
  ],
  [
    'false between two texts',
    'invalid_stream',
    events((data) =>
      data.toSpliced(1, 0, sibling(data, { content: EVIL }), sibling(data, { content: false })),
    ),
  ],
  [
    'a choice more',
    'wrong_stream',
    chunk(2, (c) =>
      c.choices.push({
        index: 1,
        delta: { role: 'assistant', content: EVIL },
        finish_reason: null,
      }),
    ),
  ],
  [
    'a reason of its end before it',
    'wrong_stream',
    chunk(2, (c) => (c.choices[0].finish_reason = 'stop')),
  ],
  ['another id', 'invalid_stream', chunk(2, (c) => (c.id = 'chatcmpl-other'))],
  [
    'another usage',
    'wrong_stream',
    chunk(-1, (c) => (c.usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 9999 })),
  ],
  [
    'a __proto__',
    'invalid_stream',
    events((data) =>
      data.with(
        2,
        (data[2] ?? '').replace(
          '{',
          `{"__proto__":{"choices":[{"index":0,"delta":{"content":"${EVIL}"}}]},`,
        ),
      ),
    ),
  ],
  [
    'the chunks of another stream under this proof',
    'invalid_stream',
    saying(async (call) => {
      const own = await call.ask()
      const other = dataOf(await otherCompletion(call))
      return { ...own, body: eventsOf([...other.slice(0, -2), ...dataOf(textOf(own)).slice(-2)]) }
    }),
  ],
])

/** Changes that leave the assembled answer as it was signed: only the stream hash shows them. */
const RECUTS: readonly AttackCase[] = casesOf('cuts the stream otherwise', [
  [
    'its finish_reason first, where some readers stop',
    'wrong_stream',
    events((data) => {
      const chunks = data.slice(0, -1).map((text): Loose => JSON.parse(text))
      const end = chunks.findIndex((value) => value.choices[0]?.finish_reason === 'stop')
      chunks[0].choices[0].finish_reason = 'stop'
      chunks[end].choices[0].finish_reason = null
      return [...chunks.map((value) => JSON.stringify(value)), ...data.slice(-1)]
    }),
  ],
  [
    'a false usage before its own',
    'wrong_stream',
    events((data) => {
      const value = JSON.parse(data[1] ?? '')
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 9999 }
      return data.toSpliced(1, 0, JSON.stringify({ ...value, choices: [], usage }))
    }),
  ],
  [
    'two chunks made one',
    'wrong_stream',
    events((data) => {
      const [first, second] = data.slice(1, 3).map((text): Loose => JSON.parse(text))
      delta(first).content += delta(second).content
      return data.toSpliced(1, 2, JSON.stringify(first))
    }),
  ],
]).map((one) => ({ ...one, request: { stream_options: { include_usage: true } } }))

const FORMS: readonly AttackCase[] = casesOf('writes the stream so that readers differ', [
  [
    'a member twice',
    'invalid_stream',
    events((data) =>
      data.with(
        2,
        (data[2] ?? '').replace('{', `{"choices":[{"index":0,"delta":{"content":"${EVIL}"}}],`),
      ),
    ),
  ],
  [
    'a chunk of endless depth',
    'invalid_stream',
    events((data) => data.with(2, (data[2] ?? '').replace('{', `{"x":${ABYSS},`))),
  ],
  ['data that is no JSON', 'invalid_stream', events((data) => data.toSpliced(2, 0, EVIL))],
  [
    'an event with a name',
    'invalid_stream',
    rewriting((text) => text.replace('data: ', `event: note\ndata: {"text":"${EVIL}"}\n\ndata: `)),
  ],
  [
    'a byte order mark before data',
    'invalid_stream',
    rewriting((text) =>
      text.replace(
        '\n\ndata: ',
        `\n\n\ufeffdata: {"choices":[{"index":0,"delta":{"content":"${EVIL}"}}]}\n\ndata: `,
      ),
    ),
  ],
  [
    'two lines of data in one event',
    'invalid_stream',
    rewriting((text) => text.replace('data: {', 'data: \ndata: {')),
  ],
  [
    'a line without a colon',
    'invalid_stream',
    rewriting((text) => text.replace('\n\n', '\n\ndata\n\n')),
  ],
  [
    'bytes that are no UTF-8',
    'invalid_stream',
    rewriting((text) =>
      Buffer.concat([
        Buffer.from(text.slice(0, 300)),
        Buffer.from([0xff]),
        Buffer.from(text.slice(300)),
      ]),
    ),
  ],
  ['carriage returns', 'invalid_stream', rewriting((text) => text.replaceAll('\n', '\r\n'))],
  ['[DONE] in the middle', 'no_proof', events((data) => data.toSpliced(3, 0, '[DONE]'))],
])

const errorEvent = `data: {"error":{"message":"${EVIL}","type":"server_error"}}\n\n`

const BREAKS: readonly AttackCase[] = casesOf('breaks the stream', [
  ['without [DONE]', 'cut_stream', events((data) => data.slice(0, -1))],
  ['before the proof, with [DONE]', 'no_proof', events((data) => data.toSpliced(-2, 1))],
  [
    'in the middle of an event',
    'cut_stream',
    rewriting((text) => text.slice(0, text.indexOf('data: ', 500) + 40)),
  ],
  ['after no event at all', 'cut_stream', rewriting(() => '')],
  ['by [DONE] alone', 'no_proof', rewriting(() => 'data: [DONE]\n\n')],
  [
    'by breaking the connection',
    'cut_stream',
    saying(async (call) => ({
      ...(await events((data) => data.slice(0, 3)).answer(call)),
      after: 'cut',
    })),
  ],
  [
    'by an error after content, and [DONE]',
    'error_in_answer',
    rewriting((text) => `${eventsOf(dataOf(text).slice(0, 3))}${errorEvent}data: [DONE]\n\n`),
  ],
  [
    'by an event that is an error',
    'error_in_answer',
    rewriting((text) => `${eventsOf(dataOf(text).slice(0, 3))}event: error\n${errorEvent}`),
  ],
  [
    'by an error between the chunks',
    'error_in_answer',
    rewriting((text) => text.replace('data: ', `${errorEvent}data: `)),
  ],
])

const flipHex = (text: string, at: number) =>
  text.slice(0, at) + (text[at] === '0' ? '1' : '0') + text.slice(at + 1)
const proof = (change: (proof: Loose) => unknown) => chunk(-1, change)
const lastOf = (text: string): Loose => JSON.parse(dataOf(text).at(-2) ?? '')
const exchanging = (names: readonly string[]): Attack =>
  saying(async (call) => {
    const other = lastOf(await otherCompletion(call))
    return proof((p) => {
      for (const name of names) p[name] = other[name]
    }).answer(call)
  })

const PROOF: readonly AttackCase[] = casesOf("alters the stream's proof", [
  ['no receipt', 'invalid_stream', proof((p) => delete p.receipt)],
  ['no log', 'wrong_receipt', proof((p) => delete p.log)],
  [
    'the proof in an earlier chunk too',
    'invalid_stream',
    events((data) => {
      const { hash, receipt } = lastOf(eventsOf(data))
      return data.with(1, JSON.stringify({ ...JSON.parse(data[1] ?? ''), hash, receipt }))
    }),
  ],
  [
    'another stream hash',
    'wrong_stream',
    proof((p) => (p.receipt.stream_hash = flipHex(p.receipt.stream_hash, 4))),
  ],
  ['no stream hash', 'wrong_stream', proof((p) => (p.receipt.stream_hash = null))],
  ['a hash of the path', 'not_in_log', proof((p) => (p.log.path = ['a'.repeat(64)]))],
  ['the head of another chain', 'wrong_head', proof((p) => (p.log.chain_id += 1))],
  ['the receipt of another stream', 'wrong_request', exchanging(['receipt'])],
  ['path and head of another stream', 'not_in_log', exchanging(['log'])],
])

async function* endless(head: string, more: string): AsyncIterable<string> {
  yield head
  for (;;) yield more
}

const STREAM = { 'content-type': 'text/event-stream' }

const REPLIES: readonly AttackCase[] = casesOf('answers a stream with', [
  [
    'a whole answer',
    'invalid_answer',
    saying((call) => call.ask(JSON.stringify({ ...JSON.parse(call.body), stream: false }))),
  ],
  ['an error with status 200', 'invalid_answer', saying(() => json({ error: { message: EVIL } }))],
  ['status 204', 'invalid_answer', saying(() => ({ status: 204, headers: {}, body: '' }))],
  [
    'a stream that says it is JSON',
    'invalid_answer',
    saying(async (call) => ({
      ...(await call.ask()),
      headers: { 'content-type': 'application/json' },
    })),
  ],
  [
    'a redirection',
    'redirected',
    saying((call) => ({ status: 308, headers: { location: call.path }, body: '' })),
  ],
  [
    'one event without end',
    'answer_too_large',
    saying(() => ({
      status: 200,
      headers: STREAM,
      body: endless('data: {"choices":[],"x":"', 'x'.repeat(2 ** 16)),
    })),
  ],
])

/** All attacks on streams. What an enclave never signs, a forger signs. */
export function streamAttacks(forge: Forge): readonly AttackCase[] {
  let kept: GatewayAnswer | null = null
  const forging = (receipt: object) =>
    both(
      saying(async (call) => {
        const request = JSON.parse(call.body) as JsonObject
        const chunks = await forge('trusted').stream({ request, chunks: EVIL_CHUNKS, receipt })
        const data = chunks.map((one) => JSON.stringify(one))
        return { status: 200, headers: STREAM, body: eventsOf([...data, '[DONE]']) }
      }),
      swappingNotaries(() => forge('trusted')),
    )
  return [
    ...CHUNKS,
    ...RECUTS,
    ...FORMS,
    ...BREAKS,
    ...PROOF,
    ...REPLIES,
    {
      name: 'alters the request of a stream: another prompt',
      code: 'wrong_request',
      attack: asking((r) => (r.messages[0].content = EVIL)),
    },
    {
      name: 'alters the request of a stream: another nonce',
      code: 'wrong_request',
      attack: asking((r) => (r.affidavit = { nonce: '00'.repeat(16) })),
    },
    {
      name: 'asks for a stream twice',
      code: 'asked_again',
      attack: saying(async (call) => {
        await call.ask()
        return call.ask()
      }),
    },
    {
      name: 'replays an old stream',
      code: 'wrong_request',
      attack: saying(async (call) => {
        const { affidavit: _, ...request } = JSON.parse(call.body)
        kept ??= await call.ask(
          JSON.stringify({ ...request, affidavit: { nonce: '02'.repeat(16) } }),
        )
        return kept
      }),
    },
    {
      name: 'streams by an enclave that is accepted, but that the call does not name',
      code: 'unknown_notary',
      attack: forging({}),
    },
  ]
}
