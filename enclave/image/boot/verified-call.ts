import { setTimeout as sleep } from 'node:timers/promises'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberOf } from '../../../attestation/json/value.ts'
import { BootError } from './boot-error.ts'
import type { GatewayFacts } from './gateway-side.ts'

/** How long one answer of the gateway may take, milliseconds. An emulated enclave takes a second for its first completion. */
export const CALL_TIMEOUT_MS = 60_000

/** How long an anchor may take to be in a block, with its proofs, milliseconds. */
export const EVIDENCE_TIMEOUT_MS = 30_000

/** Asks for one verified chat completion, and gives its hash. Rejects with BootError `call_failed`. */
export async function completeChat(gateway: GatewayFacts, prompt: string): Promise<string> {
  const answer = await fetchJson(gateway, '/v1/verified/chat/completions', {
    model: 'demo/echo',
    messages: [{ role: 'user', content: prompt }],
  })
  const hash = memberOf(answer, 'hash')
  if (typeof hash !== 'string') throw new BootError('call_failed', 'expected a completion with its hash')
  return hash
}

/** Gives the evidence bundle of a completion once its anchor is in a block. Rejects with BootError `call_failed` or `timeout`. */
export async function fetchEvidence(gateway: GatewayFacts, hash: string): Promise<JsonObject> {
  const until = performance.now() + EVIDENCE_TIMEOUT_MS
  for (;;) {
    const bundle = await fetchJson(gateway, `/v1/verified/chat/completions/${hash}/evidence`)
    if (memberOf(bundle, 'block') !== null) return bundle
    if (performance.now() > until)
      throw new BootError('timeout', `expected the anchor in a block within ${EVIDENCE_TIMEOUT_MS} ms`)
    await sleep(EVIDENCE_POLL_MS)
  }
}

const EVIDENCE_POLL_MS = 100
const ANSWER_LENGTH_SHOWN = 500

async function fetchJson(
  { url, apiKey }: GatewayFacts,
  path: string,
  body?: JsonObject,
): Promise<JsonObject> {
  const response = await fetch(url + path, {
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
  })
  const bytes = new Uint8Array(await response.arrayBuffer())
  const value = response.ok ? parseExactJson(bytes) : null
  if (value !== null && isJsonObject(value)) return value
  const said = Buffer.from(bytes).toString('utf8').slice(0, ANSWER_LENGTH_SHOWN)
  throw new BootError('call_failed', `${path}: expected an object, got ${response.status}: ${said}`)
}
