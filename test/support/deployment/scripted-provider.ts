import { setTimeout as sleep } from 'node:timers/promises'
import { type FaultyProxy, startFaultyProxy } from '../faulty-proxy.ts'
import {
  chunked,
  chunkOf,
  completionOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  send,
  wholeAnswer,
} from '../hostile-answers.ts'
import { type ReceivedRequest, type Step, startHostileProvider } from '../hostile-provider.ts'

/** The ways in which a provider fails. */
export type ProviderFault =
  | 'silent'
  | 'stalls in mid-answer'
  | 'answers 500'
  | 'answers 429'
  | 'does not answer JSON'
  | 'breaks off in mid-answer'
  | 'drips'

/** A provider that repeats its prompt, or fails, behind a proxy that can cut it off. */
export type ScriptedProvider = {
  readonly origin: string
  readonly way: FaultyProxy
  /** How it fails from now on; null: not at all. */
  fail(fault: ProviderFault | null): void
  /** How often each text was asked while it answered well. */
  readonly asked: ReadonlyMap<string, number>
  stop(): Promise<void>
}

const WORDS = 6
const WORD_PAUSE_MS = 5
/** So long that the enclave's limits for a whole answer end it. */
const DRIPS = 10_000
const DRIP_PAUSE_MS = 100

/** Starts it on loopback. */
export async function startScriptedProvider(): Promise<ScriptedProvider> {
  const asked = new Map<string, number>()
  let fault: ProviderFault | null = null
  const answer = ({ body }: ReceivedRequest): Iterable<Step> => {
    const { stream, messages } = JSON.parse(Buffer.from(body).toString()) as {
      readonly stream?: boolean
      readonly messages: readonly { readonly content: string }[]
    }
    const content = messages.at(-1)?.content ?? ''
    if (fault !== null) return failing(fault, stream === true)
    asked.set(content, (asked.get(content) ?? 0) + 1)
    return stream === true ? streamed(content) : whole(content)
  }
  const provider = await startHostileProvider({ answer })
  const way = await startFaultyProxy(Number(new URL(provider.origin).port))
  return {
    origin: way.url,
    way,
    asked,
    fail(next) {
      fault = next
    },
    stop: async () => {
      await way.stop()
      await provider.close()
      await sleep(0)
    },
  }
}

function* whole(content: string): Iterable<Step> {
  yield { kind: 'pause', durationMs: WORDS * WORD_PAUSE_MS }
  yield send(wholeAnswer({ body: JSON.stringify(completionOf(echoOf(content))) }))
}

function* streamed(content: string): Iterable<Step> {
  yield send(EVENT_STREAM_HEAD)
  yield send(chunked(eventsOf([chunkOf({ role: 'assistant', content: '' })])))
  for (let word = 0; word < WORDS; word++) {
    yield { kind: 'pause', durationMs: WORD_PAUSE_MS }
    yield send(chunked(eventsOf([chunkOf({ content: `${echoOf(content)} ${word} ` })])))
  }
  yield send(chunked(eventsOf([chunkOf({}, 'stop'), '[DONE]'])))
  yield send(chunked(''))
}

/** Prompts may be large; answers are not. */
function echoOf(content: string): string {
  return content.slice(0, 200)
}

function* failing(fault: ProviderFault, isStream: boolean): Iterable<Step> {
  const body = JSON.stringify(completionOf('an answer that breaks off in the middle'))
  const firstHalf: readonly Step[] = isStream
    ? [send(EVENT_STREAM_HEAD), send(chunked(eventsOf([chunkOf({ content: 'the first half' })])))]
    : [send(wholeAnswer({ body }).slice(0, -30))]
  switch (fault) {
    case 'silent':
      yield { kind: 'stall' }
      return
    case 'stalls in mid-answer':
      yield* firstHalf
      yield { kind: 'stall' }
      return
    case 'answers 500':
      yield send(wholeAnswer({ status: 500, body: '{"error":{"message":"no capacity"}}' }))
      return
    case 'answers 429':
      yield send(
        wholeAnswer({
          status: 429,
          headers: { 'retry-after': '2' },
          body: '{"error":{"message":"too many requests","code":"rate_limit_exceeded"}}',
        }),
      )
      return
    case 'does not answer JSON':
      if (!isStream) yield send(wholeAnswer({ body: '<html>it works</html>' }))
      else {
        yield* firstHalf
        yield send(chunked('data: {"choices": [}\n\n'))
        yield send(chunked(''))
      }
      return
    case 'breaks off in mid-answer':
      yield* firstHalf
      yield { kind: 'reset' }
      return
    case 'drips':
      yield* drip(isStream)
      return
  }
}

function* drip(isStream: boolean): Iterable<Step> {
  yield isStream
    ? send(EVENT_STREAM_HEAD)
    : send('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{')
  for (let drop = 0; drop < DRIPS; drop++) {
    yield { kind: 'pause', durationMs: DRIP_PAUSE_MS }
    yield send(isStream ? chunked(eventsOf([chunkOf({ content: '.' })])) : ' ')
  }
}
