import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { splitNamedEvents } from '#attestation/dialects/event-text.ts'
import { readKeptStream } from '#attestation/dialects/kept-stream.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { splitEvents } from '#attestation/verify-stream.ts'
import { builtMessage, messagesStream } from '../attestation/dialects/messages-streams.ts'
import { responsesStream } from '../attestation/dialects/responses-streams.ts'
import {
  badAnswers,
  brokenStreams,
  goodStreams,
  HOSTILE_CHAT,
  type HostileDialect,
  ODD_TEXT,
  stream,
  valueAt,
  whole,
} from './hostile-scripts.ts'

const LARGE = 'x'.repeat(8 * 2 ** 20)
const FORGED = { hash: 'forged', signature: '0x', log: {}, attestation: '' }

/** How a dialect writes its events and its answers. */
type Form = Pick<HostileDialect, 'path' | 'body' | 'contentOf'> & {
  streamOf(pieces: readonly string[]): readonly JsonObject[]
  wholeOf(content: string): JsonObject
  /** Number of the events with `héllo`, from the first on. */
  readonly begun: number
}

function hostileDialect({ streamOf, wholeOf, begun, ...others }: Form): HostileDialect {
  const events = streamOf(['héllo', ' 🙂'])
  const said = events.find((event) => JSON.stringify(event).includes('🙂')) ?? {}
  const piece = (content: string) =>
    textOf(JSON.parse(JSON.stringify(said).replace(' 🙂', content)) as JsonObject)
  const error = { type: 'error', error: { type: 'overloaded_error', message: 'too busy' } }
  const greeting = events.map(textOf).join('')
  const odd = streamOf([ODD_TEXT.sent]).map(textOf).join('')
  const forged = events.map((event) => ({ ...event, affidavit: FORGED, ...FORGED }))
  return {
    ...others,
    streamed: { stream: true },
    good: {
      ...goodStreams(greeting),
      'stream/no-names': {
        steps: stream(greeting.replaceAll(/^event: .*\n/gm, '')),
        content: 'héllo 🙂',
      },
      'stream/odd-text': { steps: stream(odd), content: ODD_TEXT.kept },
      'stream/forged-proof': {
        steps: stream(forged.map(textOf).join('')),
        content: 'héllo 🙂',
      },
      'whole/odd-text': { steps: whole(wholeOf(ODD_TEXT.sent)), content: ODD_TEXT.kept },
      'whole/forged-proof': {
        steps: whole({ ...wholeOf('a'), affidavit: FORGED }),
        content: 'a',
      },
      'whole/large': { steps: whole(wholeOf(LARGE)), content: LARGE },
    },
    bad: badAnswers(wholeOf('abc')),
    broken: brokenStreams({
      greeting,
      begun: events.slice(0, begun).map(textOf).join(''),
      error: textOf(error),
      piece,
    }),
  }
}

function textOf(data: JsonObject): string {
  return `event: ${String(data.type)}\ndata: ${JSON.stringify(data)}\n\n`
}

/** The hostile scripts of all dialects. */
export const HOSTILE_DIALECTS: Readonly<Record<DialectName, HostileDialect>> = {
  chat: HOSTILE_CHAT,
  responses: hostileDialect({
    path: '/v1/verified/responses',
    body: { input: 'hi' },
    streamOf: (pieces) => responsesStream([{ kind: 'message', id: 'msg_1', pieces }]),
    wholeOf: (content) =>
      responsesStream([{ kind: 'message', id: 'msg_1', pieces: [content] }]).at(-1)
        ?.response as JsonObject,
    begun: 5,
    contentOf: (answer) => valueAt(answer, 'output', 0, 'content', 0, 'text') ?? null,
  }),
  messages: hostileDialect({
    path: '/v1/verified/anthropic/v1/messages',
    body: { max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] },
    streamOf: (pieces) => messagesStream([{ kind: 'text', pieces }]),
    wholeOf: (content) => builtMessage([{ kind: 'text', pieces: [content] }]),
    begun: 4,
    contentOf: (answer) => valueAt(answer, 'content', 0, 'text') ?? null,
  }),
}

/** The answer that the text of a whole stream assembles to, and its proof. Throws FormatError. */
export function readWholeStream(
  name: DialectName,
  text: string,
): { readonly answer: JsonObject; readonly proof: Json } {
  const bytes = new TextEncoder().encode(text)
  if (name !== 'chat') {
    const kept = readKeptStream(name, splitNamedEvents(bytes))
    return { answer: kept.response, proof: kept.proof }
  }
  const chunks = splitEvents(bytes).map(
    (data) => parseExactJson(new TextEncoder().encode(data)) as JsonObject,
  )
  return { answer: assembleCompletion(chunks), proof: chunks.at(-1) ?? null }
}
