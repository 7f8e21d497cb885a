import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { buildRecord } from './build-record.ts'

const head = { id: 'c1', object: 'chat.completion.chunk', created: 7, model: 'demo/echo' }
export const chunkOf = (delta: JsonObject, finish: string | null = null): JsonObject => ({
  ...head,
  choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  usage: null,
})
export const USAGE = {
  ...head,
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
}
export const CHUNKS = [
  chunkOf({ role: 'assistant', content: '' }),
  chunkOf({ content: 'Transfer ' }),
  chunkOf({ content: 'nothing.' }),
  chunkOf({ content: '' }, 'stop'),
]

/** Attacks that change neither what is assembled nor what any reader shows. */
export const HARMLESS: ReadonlySet<string> = new Set([
  'a member of null more, which no assembly shows',
  'two chunks made one',
  'one chunk made two',
])

type KeptStream = { readonly request: JsonObject; readonly chunks: readonly JsonObject[] }

/**
 * A kept stream with its proof: of an enclave now (version 3), of an older one, or (version 1) with
 * the proof in a chunk of its own.
 */
export function makeStream({ usageAsked }: { usageAsked: boolean }): KeptStream {
  const request: JsonObject = {
    model: 'demo/echo',
    messages: [{ role: 'user', content: 'Pay?' }],
    stream: true,
    ...(usageAsked ? { stream_options: { include_usage: true } } : {}),
  }
  const given = usageAsked ? [...CHUNKS, USAGE] : CHUNKS
  const response = assembleCompletion([...CHUNKS, USAGE])
  const streamHash = hashChunks(given)
  const { created } = buildRecord({ request, response, streamHash })
  const proof = Object.fromEntries(
    Object.entries(created).filter(([name]) => !Object.hasOwn(response, name)),
  )
  return { request, chunks: given.with(-1, { ...given.at(-1), ...proof }) }
}

/** What an attacker in between may do to the chunks of a kept stream. */
export const ATTACKS: readonly [
  string,
  (chunks: readonly JsonObject[]) => readonly JsonObject[],
][] = [
  [
    'text in the chunk with the proof',
    (chunks) => chunks.with(-1, { ...last(chunks), ...addText(chunks) }),
  ],
  ['a chunk more', (chunks) => chunks.toSpliced(2, 0, chunkOf({ content: 'not ' }))],
  ['no role at the beginning', (chunks) => chunks.with(0, chunkOf({ content: '' }))],
  ['an empty role', (chunks) => chunks.with(1, chunkOf({ role: '', content: 'Transfer ' }))],
  ['an error that says nothing', (chunks) => chunks.with(1, { ...at(chunks, 1), error: null })],
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
          {
            index: 0,
            delta: { content: 'nothing.' },
            message: { role: 'assistant', content: 'All.' },
          },
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
  [
    'its finish_reason first, where some readers stop',
    (chunks) =>
      chunks.with(0, chunkOf({ role: 'assistant', content: '' }, 'stop')).with(3, {
        ...at(chunks, 3),
        choices: [{ index: 0, delta: { content: '' }, logprobs: null, finish_reason: null }],
      }),
  ],
  [
    'a false usage before its own',
    (chunks) => [
      at(chunks, 0),
      { ...USAGE, usage: { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 } },
      ...chunks.slice(1),
    ],
  ],
  [
    'two chunks made one',
    (chunks) => chunks.toSpliced(1, 2, chunkOf({ content: 'Transfer nothing.' })),
  ],
  [
    'one chunk made two',
    (chunks) => chunks.toSpliced(1, 1, chunkOf({ content: 'Trans' }), chunkOf({ content: 'fer ' })),
  ],
  ['another object', (chunks) => chunks.with(2, { ...at(chunks, 2), object: 'chat.completion' })],
]

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
