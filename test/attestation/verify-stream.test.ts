import { describe, expect, it } from 'vitest'
import { assembleCompletion } from '../../attestation/assemble-completion.ts'
import { hashChunks } from '../../attestation/completion-hash.ts'
import { FormatError } from '../../attestation/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'
import type { RecordReport } from '../../attestation/verify-record.ts'
import { splitEvents, verifyStream } from '../../attestation/verify-stream.ts'
import { buildRecord } from './build-record.ts'

const head = { id: 'c1', object: 'chat.completion.chunk', created: 7, model: 'demo/echo' }
const chunkOf = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  ...head,
  choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  usage: null,
})
const USAGE = { ...head, choices: [], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } }
const CHUNKS = [
  chunkOf({ role: 'assistant', content: '' }),
  chunkOf({ content: 'Transfer ' }),
  chunkOf({ content: 'nothing.' }),
  chunkOf({ content: '' }, 'stop'),
]

type Made = { readonly request: JsonObject; readonly chunks: readonly JsonObject[] }

/** A kept stream with its proof: of an enclave now, or (version 1) with the proof in a chunk of its own. */
function makeStream({ version, usageAsked }: { version: 1 | 2; usageAsked: boolean }): Made {
  const request: JsonObject = {
    ...{ model: 'demo/echo', messages: [{ role: 'user', content: 'Pay?' }], stream: true },
    ...(usageAsked ? { stream_options: { include_usage: true } } : {}),
  }
  const given = usageAsked ? [...CHUNKS, USAGE] : CHUNKS
  const response = assembleCompletion([...CHUNKS, USAGE])
  const streamHash = hashChunks(given)
  const { created } = buildRecord({ request, response, version, streamHash })
  const proof = Object.fromEntries(Object.entries(created).filter(([name]) => !Object.hasOwn(response, name)))
  const { log: _, ...proofWithoutLog } = proof
  if (version === 1) return { request, chunks: [...given, { ...head, choices: [], ...proofWithoutLog }] }
  return { request, chunks: given.with(-1, { ...given.at(-1), ...proof }) }
}

const outcomes = (report: RecordReport, outcome: string) =>
  report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)

describe('verifyStream', () => {
  it('passes what the enclave gave out, with the stream hash and the assembled response', () => {
    const { request, chunks } = makeStream({ version: 2, usageAsked: true })
    const report = verifyStream(chunks, { request })
    expect(outcomes(report, 'failed')).toEqual([])
    expect(outcomes(report, 'not checked')).toEqual(['created_at', 'anchor'])
  })

  it('passes a stream without usage by its stream hash, and says what it could not recompute', () => {
    const { request, chunks } = makeStream({ version: 2, usageAsked: false })
    const report = verifyStream(chunks, { request })
    expect(outcomes(report, 'failed')).toEqual([])
    expect(outcomes(report, 'not checked')).toEqual(['response hash', 'created_at', 'anchor'])
  })

  it('passes a stream of version 1 with its usage, as before, and says what nothing binds', () => {
    const { request, chunks } = makeStream({ version: 1, usageAsked: true })
    const report = verifyStream(chunks, { request })
    expect(outcomes(report, 'failed')).toEqual([])
    expect(outcomes(report, 'not checked')).toEqual([
      'stream hash',
      'receipt',
      'created_at',
      'receipt in log',
      'tree head',
      'anchor',
    ])
  })

  it('does not vouch for chunks that were cut in another way, but for what they say', () => {
    const { request, chunks } = makeStream({ version: 2, usageAsked: true })
    const [first = {}, , , ...rest] = chunks
    const report = verifyStream([first, chunkOf({ content: 'Transfer nothing.' }), ...rest], { request })
    expect(outcomes(report, 'failed')).toEqual([])
    expect(outcomes(report, 'not checked')).toContain('stream hash')
  })

  const attacks: readonly [string, (chunks: readonly JsonObject[]) => readonly JsonObject[]][] = [
    [
      'text in the chunk with the proof',
      (chunks) => chunks.with(-1, { ...last(chunks), ...addText(chunks) }),
    ],
    ['a chunk more', (chunks) => chunks.toSpliced(2, 0, chunkOf({ content: 'not ' }))],
    ['a chunk less', (chunks) => chunks.toSpliced(2, 1)],
    ['chunks in another order', (chunks) => chunks.with(1, at(chunks, 2)).with(2, at(chunks, 1))],
    ['another text', (chunks) => chunks.with(2, chunkOf({ content: 'all.' }))],
    [
      'false between two texts, which makes the first vanish from a naive assembly',
      (chunks) => [
        at(chunks, 0),
        chunkOf({ content: 'Transfer all. ' }),
        chunkOf({ content: false }),
        ...chunks.slice(1),
      ],
    ],
    [
      'a message in a choice',
      (chunks) =>
        chunks.with(2, {
          ...at(chunks, 2),
          choices: [
            { index: 0, delta: { content: 'nothing.' }, message: { role: 'assistant', content: 'All.' } },
          ],
        }),
    ],
    ['a later model', (chunks) => chunks.with(2, { ...at(chunks, 2), model: 'better' })],
    ['a later id', (chunks) => chunks.with(2, { ...at(chunks, 2), id: 'c2' })],
    [
      'a member of null more, which no assembly shows',
      (chunks) => chunks.with(2, { ...at(chunks, 2), x: null }),
    ],
    [
      'an error beside the choices',
      (chunks) => chunks.with(2, { ...at(chunks, 2), error: { message: 'x' } }),
    ],
    ['another object', (chunks) => chunks.with(2, { ...at(chunks, 2), object: 'chat.completion' })],
  ]
  describe.each([
    { version: 2, usageAsked: true },
    { version: 2, usageAsked: false },
    { version: 1, usageAsked: true },
  ] as const)('of version $version, usage asked: $usageAsked', (form) => {
    it.each(attacks)('does not pass %s', (name, attack) => {
      const { request, chunks } = makeStream(form)
      const report = verifyStream(attack(chunks), { request })
      // Null members are hashed in the stream hash alone; where the response can be recomputed, that is told instead.
      const isOnlyTold = name.includes('null') && form.usageAsked
      if (isOnlyTold) expect(outcomes(report, 'not checked')).toContain('stream hash')
      else expect(report.ok).toBe(false)
    })
  })

  it('refuses an answer that was not streamed as chunks, and a stream for a request that asked for none', () => {
    const { request, chunks } = makeStream({ version: 2, usageAsked: true })
    const whole: JsonObject = { ...request, stream: false }
    expect(outcomes(verifyStream(chunks, { request: whole }), 'failed')).toContain('request hash')
    const response = assembleCompletion(CHUNKS)
    const { created } = buildRecord({ request: whole, response })
    const proof = Object.entries(created).filter(([name]) => !Object.hasOwn(response, name))
    const forged = CHUNKS.with(-1, { ...CHUNKS.at(-1), ...Object.fromEntries(proof) })
    expect(outcomes(verifyStream(forged, { request: whole }), 'failed')).toEqual(['stream hash'])
  })

  it.each<[string, readonly Json[]]>([
    ['no chunks', []],
    ['a chunk that is no object', [chunkOf({}), 7]],
    ['no proof', CHUNKS],
    [
      'the proof in a chunk before the last',
      [...makeStream({ version: 2, usageAsked: true }).chunks, chunkOf({})],
    ],
  ])('throws for %s', (_, chunks) => {
    expect(() => verifyStream(chunks, { request: {} })).toThrow(
      expect.objectContaining({ name: 'FormatError', code: 'invalid_stream' }),
    )
  })
})

describe('splitEvents', () => {
  const split = (text: string) => splitEvents(Buffer.from(text))

  it.each([
    ['line feeds', 'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n'],
    ['carriage returns', 'data: {"a":1}\r\rdata: {"b":2}\r\rdata: [DONE]\r\r'],
    ['both', '\uFEFFdata: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\ndata: [DONE]'],
    ['comments, ids and no space', ': ping\n\nid: 1\ndata:{"a":1}\n\n\ndata: {"b":2}\n\ndata: [DONE]\n'],
  ])('gives the data of events that end with %s', (_, text) => {
    expect(split(text)).toEqual(['{"a":1}', '{"b":2}'])
  })

  it('leaves line separators that JSON has in text', () => {
    expect(split('data: {"a":"\u2028"}\n\ndata: [DONE]\n\n')).toEqual(['{"a":"\u2028"}'])
  })

  it.each<[string, string | Uint8Array]>([
    ['no end', 'data: {}\n\n'],
    ['something after the end', 'data: {}\n\ndata: [DONE]\n\ndata: {}\n\n'],
    ['an event with a name, which some readers drop', 'event: note\ndata: {}\n\ndata: [DONE]\n\n'],
    ['a name without a value', 'event\ndata: {}\n\ndata: [DONE]\n\n'],
    ['an error', 'data: {}\n\nevent: error\ndata: {}\n\n'],
    ['bytes that are no UTF-8', Uint8Array.of(0x64, 0xff)],
  ])('refuses %s', (_, text) => {
    expect(() => splitEvents(typeof text === 'string' ? Buffer.from(text) : text)).toThrow(FormatError)
  })
})

function at(chunks: readonly JsonObject[], index: number): JsonObject {
  return chunks[index] ?? {}
}

function last(chunks: readonly JsonObject[]): JsonObject {
  return chunks.at(-1) ?? {}
}

/** The last chunk's choices with text in them. */
function addText(chunks: readonly JsonObject[]): JsonObject {
  const [choice] = last(chunks).choices as readonly Json[]
  const own = isJsonObject(choice) ? choice : { index: 0, logprobs: null, finish_reason: null }
  return { choices: [{ ...own, delta: { content: ' Or all.' } }] }
}
