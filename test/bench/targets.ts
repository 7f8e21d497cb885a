import type { Affidavit } from '../support/affidavit.ts'
import { type LoadPlan, runLoad } from './load.ts'

/** A server that takes requests of chats. */
export type Target = {
  readonly name: string
  readonly origin: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
}

export const CHAT_PATH = '/v1/chat/completions'
export const VERIFIED_PATH = '/v1/verified/chat/completions'

/** Time for the agent to measure its models and connect, on a busy machine. */
const NODE_TIMEOUT_MS = 120_000
const WARMUP_TIMEOUT_MS = 30_000

/** The header with an API key; no header for null. */
export function keyHeaders(key: string | null): Readonly<Record<string, string>> {
  return key === null ? {} : { authorization: `Bearer ${key}` }
}

/** A request to the target with a message of `words` words. */
export function requestTo(
  { origin, path, headers }: Target,
  says: { readonly words: number; readonly stream: boolean },
): Pick<LoadPlan, 'origin' | 'path' | 'headers' | 'body'> {
  const content = Array.from({ length: says.words }, (_, at) => `word${at}`).join(' ')
  const body = { model: 'demo/echo', stream: says.stream, messages: [{ role: 'user', content }] }
  return { origin, path, headers, body: JSON.stringify(body) }
}

/**
 * Lets the target serve `requests` requests, or as many as it can in the time: V8 compiles by how
 * often code ran, and a gateway has more code than a forwarder.
 */
export async function warmUp(
  target: Target,
  { requests, stream }: { readonly requests: number; readonly stream: boolean },
): Promise<void> {
  const plan = {
    ...requestTo(target, { words: 8, stream }),
    connections: 32,
    warmupMs: 0,
    durationMs: 1_000,
  }
  const deadline = performance.now() + WARMUP_TIMEOUT_MS
  let served = 0
  while (served < requests && performance.now() < deadline) served += (await runLoad(plan)).requests
}

/**
 * The agent measures its models and connects after the gateway serves. A call that is answered
 * shows that it has connected.
 */
export async function awaitNode({ url, apiKey, output }: Affidavit): Promise<void> {
  const target = { name: 'plain chat', origin: url, path: CHAT_PATH, headers: keyHeaders(apiKey) }
  const { body, headers } = requestTo(target, { words: 1, stream: false })
  const init = { method: 'POST', body, headers: { ...headers, 'content-type': 'application/json' } }
  const deadline = performance.now() + NODE_TIMEOUT_MS
  while (performance.now() < deadline) {
    const answer = await fetch(url + CHAT_PATH, init)
    await answer.arrayBuffer()
    if (answer.status === 200) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error(`expected a node to serve within ${NODE_TIMEOUT_MS} ms\n${output().stderr}`)
}
