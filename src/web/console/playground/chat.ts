import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import type { AnchoredEvidence } from '#client/anchored.ts'
import { type Affidavit, AffidavitError, connect, type Proof } from '#client/index.ts'
import { OwnGatewayFault, readFault } from '../../kit/gateway.ts'
import type { FormPolicy } from '../../verify/job.ts'
import { clientPolicy } from './client-policy.ts'
import type { ClientRefusal } from './turn.ts'

/*
 * The client's checks and cryptography are half of a page's bytes. So this module is loaded only
 * when the page first asks an enclave.
 */

/**
 * Connects to the gateway that served this page. `isDevelopment`: the enclaves may use another root
 * than AWS's. Throws AnswerRefused, PolicyFault, and the reason of an aborted `signal`.
 */
export async function openClient({
  key,
  policy,
  isEncrypted,
  signal,
}: {
  readonly key: string
  readonly policy: FormPolicy
  readonly isEncrypted: boolean
  readonly signal: AbortSignal
}): Promise<{ readonly affidavit: Affidavit; readonly isDevelopment: boolean }> {
  const { options, isDevelopment } = await clientPolicy(policy)
  const affidavit = await explained(() =>
    connect({ ...options, url: location.origin, apiKey: key, encrypt: isEncrypted, signal }),
  )
  return { affidavit, isDevelopment }
}

export type Message = { readonly role: 'user' | 'assistant'; readonly content: string }

/**
 * Makes a verified call, checks the whole answer, and then returns the proof. `onText` gets the
 * text so far, which must not be trusted before the check. Throws AnswerRefused for an answer that
 * fails a check, OwnGatewayFault when there is no answer, and the reason of an aborted `signal`.
 */
export async function ask(
  affidavit: Affidavit,
  {
    key,
    credential,
    model,
    messages,
    signal,
    onText,
  }: {
    readonly key: string
    readonly credential: string
    readonly model: string
    readonly messages: readonly Message[]
    readonly signal: AbortSignal
    readonly onText: (text: string) => void
  },
): Promise<Proof> {
  return explained(async () => {
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
        // The signed response contains the usage, so the streamed chunks must contain it too.
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

/** Throws AnswerRefused, and the reason of an aborted `signal`. */
export function awaitCallAnchor(
  affidavit: Affidavit,
  proof: Proof,
  signal: AbortSignal,
): Promise<AnchoredEvidence> {
  return explained(() => affidavit.anchored(proof, { timeoutMs: ANCHOR_TIMEOUT_MS, signal }))
}

/** An anchor normally takes seconds. A longer time means a fault of the chain or the relayer. */
const ANCHOR_TIMEOUT_MS = 5 * 60_000

/** The client refused an answer. The message states the reason in plain words. */
export class AnswerRefused extends Error {
  readonly refusal: ClientRefusal

  constructor(refusal: ClientRefusal) {
    super(refusal.message)
    this.name = 'AnswerRefused'
    this.refusal = refusal
  }
}

async function explained<Value>(run: () => Promise<Value>): Promise<Value> {
  try {
    return await run()
  } catch (fault) {
    if (fault instanceof AffidavitError) {
      const { code, message, checks } = fault
      throw new AnswerRefused({ code, message, checks })
    }
    // If there is no answer, fetch throws TypeError.
    if (fault instanceof TypeError)
      throw new OwnGatewayFault('The gateway does not answer.', {
        status: 0,
        code: 'unreachable',
        requestId: null,
      })
    throw fault
  }
}

/** The client has checked that all JSON parsers get the same values from the chunk. */
type Chunk = {
  readonly hash?: string
  readonly choices?: readonly {
    readonly index?: number
    readonly delta?: { readonly content?: string | null; readonly refusal?: string | null }
  }[]
}

/** `hash` is from the last chunk. */
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
