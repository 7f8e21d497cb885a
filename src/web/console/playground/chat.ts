import { EventParser } from '../../../../attestation/stream/event-parser.ts'
import type { AnchoredEvidence } from '../../../../client/anchored.ts'
import { type Affidavit, AffidavitError, connect, type Proof } from '../../../../client/index.ts'
import { GatewayFault, readFault } from '../../kit/gateway.ts'
import type { FormExpectations } from '../../verify/job.ts'
import { clientExpectations } from './client-expectations.ts'
import type { Refusal } from './turn.ts'

/*
 * Loaded when the first enclave is asked: the client's checks and cryptography are half a page's
 * bytes.
 */

/**
 * Connects to this page's own gateway. `isDevelopment`: what its enclaves show may rest on a root
 * that is not AWS's. Throws Refused, ExpectationFault, and what `signal` was
 * aborted with.
 */
export async function openClient(so: {
  readonly key: string
  readonly expectations: FormExpectations
  readonly isEncrypted: boolean
  readonly signal: AbortSignal
}): Promise<{ readonly affidavit: Affidavit; readonly isDevelopment: boolean }> {
  const { key, expectations, isEncrypted, signal } = so
  const { options, isDevelopment } = await clientExpectations(expectations)
  const affidavit = await telling(() =>
    connect({ ...options, url: location.origin, apiKey: key, encrypt: isEncrypted, signal }),
  )
  return { affidavit, isDevelopment }
}

/** One message of a chat. */
export type Message = { readonly role: 'user' | 'assistant'; readonly content: string }

/**
 * Makes a verified call and gives its proof, when all of the answer was checked. `onText` is given
 * the text as far as it came, which may be anything until then. Throws Refused for an answer that
 * does not hold, GatewayFault for none, and what `signal` was aborted with.
 */
export async function ask(
  affidavit: Affidavit,
  so: {
    readonly key: string
    readonly credential: string
    readonly model: string
    readonly messages: readonly Message[]
    readonly signal: AbortSignal
    readonly onText: (text: string) => void
  },
): Promise<Proof> {
  const { key, credential, model, messages, signal, onText } = so
  return telling(async () => {
    const response = await affidavit.fetch(`${affidavit.baseURL}/chat/completions`, {
      method: 'POST',
      signal,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        ...(credential === '' ? {} : { 'fine-tune-authorization': `Bearer ${credential}` }),
      },
      body: JSON.stringify({
        model,
        messages,
        stream: true,
        // The signed response has the usage: without it the chunks are not all of what was signed.
        stream_options: { include_usage: true },
      }),
    })
    if (!response.ok) throw await readFault(response)
    const { hash } = await readStream(response, onText)
    const proof = affidavit.proofs.get(hash)
    if (proof !== undefined) return proof
    throw new AffidavitError('no_proof', 'the answer ended without its proof')
  })
}

/** Waits until a block has a call's anchor. Throws Refused, and what `signal` was aborted with. */
export function awaitAnchor(
  affidavit: Affidavit,
  proof: Proof,
  signal: AbortSignal,
): Promise<AnchoredEvidence> {
  return telling(() => affidavit.anchored(proof, { timeoutMs: ANCHOR_TIMEOUT_MS, signal }))
}

/** Anchors are mined within seconds, or the chain or the relayer is in trouble. */
const ANCHOR_TIMEOUT_MS = 5 * 60_000

/** What a checked client refused, and why: for people. */
export class Refused extends Error {
  readonly refusal: Refusal

  constructor(refusal: Refusal) {
    super(refusal.message)
    this.name = 'Refused'
    this.refusal = refusal
  }
}

async function telling<Value>(run: () => Promise<Value>): Promise<Value> {
  try {
    return await run()
  } catch (fault) {
    if (fault instanceof AffidavitError) {
      const { code, message, checks } = fault
      throw new Refused({ code, message, checks })
    }
    // What fetch throws when there is no answer.
    if (fault instanceof TypeError)
      throw new GatewayFault('The gateway does not answer.', {
        ...{ status: 0, code: 'unreachable', requestId: null },
      })
    throw fault
  }
}

/** Of a chunk, what a chat shows. The client has checked that it means one thing only. */
type Chunk = {
  readonly hash?: string
  readonly choices?: readonly {
    readonly index?: number
    readonly delta?: { readonly content?: string | null; readonly refusal?: string | null }
  }[]
}

/** Reads the events of an answer to its end; `hash` is that of its last chunk. */
async function readStream(
  response: Response,
  onText: (text: string) => void,
): Promise<{ readonly hash: string }> {
  const reader = response.body?.getReader()
  const events = new EventParser()
  let text = ''
  let hash = ''
  for (;;) {
    const part = await reader?.read()
    if (part === undefined || part.done) return { hash }
    const before = text.length
    for (const { data } of events.push(part.value)) {
      if (data === '[DONE]') continue
      const chunk: Chunk = JSON.parse(data)
      hash = chunk.hash ?? hash
      for (const { index, delta } of chunk.choices ?? [])
        if (index === 0) text += delta?.content ?? delta?.refusal ?? ''
    }
    if (text.length > before) onText(text)
  }
}
