import { setTimeout as sleep } from 'node:timers/promises'
import { createEncryptedFetch } from '../encrypted-fetch.ts'

/** A completion that a caller holds with proof: what must never be lost. */
export type ProvenCompletion = {
  readonly hash: string
  readonly txHash: string
  readonly index: number
  readonly publicKey: string
  /** Body of the request, and the answer as it came: JSON, or the events of a stream. */
  readonly request: string
  readonly answer: string
  readonly isStream: boolean
  /** Nobody else has request and answer. */
  readonly isEncrypted: boolean
}

/** What a crowd of callers saw: the proven completions, and how often each kind of failure came. */
export type CallerReport = {
  readonly proven: readonly ProvenCompletion[]
  readonly failures: ReadonlyMap<string, number>
}

/**
 * Runs callers against the verified endpoint until the signal aborts, half of them streaming, half
 * of either encrypted to the enclave, each request with a text of its own. A caller counts a completion only when the whole answer came: the
 * JSON body, or the last chunk, which was held back for the proof, and [DONE].
 */
export async function runCallers(
  plan: { readonly origin: () => string; readonly key: string; readonly callers: number },
  signal: AbortSignal,
): Promise<CallerReport> {
  const proven: ProvenCompletion[] = []
  const failures = new Map<string, number>()
  const sendEncrypted = createEncryptedFetch(plan.origin)
  async function call(caller: number): Promise<void> {
    for (let turn = 0; !signal.aborted; turn += 1) {
      try {
        proven.push(
          await complete(plan, {
            ...{ text: `caller ${caller} turn ${turn}`, stream: caller % 2 === 1 },
            sendEncrypted: caller % 4 > 1 ? sendEncrypted : null,
          }),
        )
      } catch (error) {
        const kind = error instanceof CallFailure ? error.message : 'connection'
        failures.set(kind, (failures.get(kind) ?? 0) + 1)
        await sleep(50)
      }
    }
  }
  await Promise.all(Array.from({ length: plan.callers }, (_, caller) => call(caller)))
  return { proven, failures }
}

class CallFailure extends Error {}

const CALL_TIMEOUT_MS = 20_000

async function complete(
  { origin, key }: { readonly origin: () => string; readonly key: string },
  {
    text,
    stream,
    sendEncrypted,
  }: {
    readonly text: string
    readonly stream: boolean
    readonly sendEncrypted: ReturnType<typeof createEncryptedFetch> | null
  },
): Promise<ProvenCompletion> {
  const messages = [{ role: 'user', content: text }]
  const nonce = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex')
  const request = JSON.stringify({ model: 'demo/echo', stream, messages, affidavit: { nonce } })
  const send = sendEncrypted ?? fetch
  const response = await send(`${origin()}/v1/verified/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: request,
    signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
  })
  const body = await response.text()
  if (response.status !== 200) throw new CallFailure(`status ${response.status}`)
  const answer = stream ? readProofChunk(body) : JSON.parse(body)
  if (typeof answer.tx_hash !== 'string') throw new CallFailure('answer without proof')
  return {
    hash: answer.hash,
    txHash: answer.tx_hash,
    index: answer.receipt.index,
    publicKey: answer.public_key,
    ...{ request, answer: body, isStream: stream, isEncrypted: sendEncrypted !== null },
  }
}

function readProofChunk(body: string): ReturnType<typeof JSON.parse> {
  if (body.includes('event: error')) throw new CallFailure('error event')
  const lines = body.split('\n').filter((line) => line.startsWith('data: '))
  if (lines.at(-1) !== 'data: [DONE]') throw new CallFailure('stream without [DONE]')
  return JSON.parse(lines.at(-2)?.slice('data: '.length) ?? '{}')
}
